package stream_test

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/internal/stream"
	"github.com/millrace/millrace/internal/testkit"
	"github.com/millrace/millrace/internal/testkit/outside"
)

// clock is a time that a test moves.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// fixture is streams on one of the servers.
type fixture struct {
	*stream.Streams
	config stream.Config
	clock  *clock
	js     jetstream.JetStream // beside ours, as an operator has it
}

func testSpecs() []stream.Spec {
	return []stream.Spec{
		{Name: "WORK", Subjects: []string{"work"}, MaxAge: 7 * 24 * time.Hour, Consumer: "worker"},
		{Name: "LOGS", Subjects: []string{"logs.*"}, MaxAge: 30 * 24 * time.Hour},
		{Name: "DEAD", Subjects: []string{"dead"}},
	}
}

func testConfig(tb testing.TB) stream.Config {
	return stream.Config{Dir: filepath.Join(tb.TempDir(), "streams"), Node: "n1",
		Specs: testSpecs(), Log: slog.New(slog.DiscardHandler), Now: time.Now}
}

func mustOpen(tb testing.TB, c stream.Config) *stream.Streams {
	tb.Helper()
	s, err := stream.Open(tb.Context(), c)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(s.Close)
	return s
}

func mustFixture(tb testing.TB, c stream.Config) *fixture {
	tb.Helper()
	w := &fixture{config: c, clock: &clock{now: time.Now()}}
	c.Now = w.clock.Now
	w.Streams = mustOpen(tb, c)
	url := c.URL
	if url == "" {
		url = "nats://" + w.Address()
	}
	conn, err := nats.Connect(url, nats.Token(c.Token), nats.MaxReconnects(-1),
		nats.ReconnectWait(10*time.Millisecond))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(conn.Close)
	if w.js, err = jetstream.New(conn); err != nil {
		tb.Fatal(err)
	}
	return w
}

// forEachServer runs a test on the embedded server and on one in a process of its own.
func forEachServer(t *testing.T, test func(*testing.T, *fixture)) {
	t.Parallel()
	t.Run("embedded", func(t *testing.T) {
		t.Parallel()
		c := testConfig(t)
		c.Listen = "127.0.0.1:0"
		test(t, mustFixture(t, c))
	})
	t.Run("by URL", func(t *testing.T) {
		t.Parallel()
		c := testConfig(t)
		c.Dir, c.Token = "", "hush"
		c.URL = outside.NewNATS(t, c.Token).URL
		test(t, mustFixture(t, c))
	})
}

func newMessages(subject, prefix string, n int) []stream.Message {
	all := make([]stream.Message, n)
	for i := range all {
		all[i] = stream.Message{Subject: subject, ID: fmt.Sprint(prefix, i),
			Data: fmt.Appendf(nil, "%s%d", prefix, i)}
	}
	return all
}

func (w *fixture) mustPublish(tb testing.TB, m ...stream.Message) []uint64 {
	tb.Helper()
	offsets, err := w.Publish(tb.Context(), m)
	if err != nil {
		tb.Fatal(err)
	}
	return offsets
}

func (w *fixture) mustRead(tb testing.TB, name, subject string, from uint64,
	limit int) []stream.Entry {
	tb.Helper()
	found, err := w.Read(tb.Context(), name, subject, from, limit)
	if err != nil {
		tb.Fatal(err)
	}
	return found
}

// consumeN runs Consume until enough deliveries have come, then ends it.
func (w *fixture) consumeN(tb testing.TB, c stream.Consumer, count int,
	settle func(*stream.Delivery)) []stream.Delivery {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), testkit.WaitTimeout)
	defer cancel()
	var all []stream.Delivery
	err := w.Consume(ctx, c, func(_ context.Context, batch []stream.Delivery) {
		for i := range batch {
			settle(&batch[i])
		}
		if all = append(all, batch...); len(all) >= count {
			cancel()
		}
	})
	if err != nil || len(all) < count {
		tb.Fatalf("got %d deliveries of %d: %v", len(all), count, err)
	}
	return all
}

func workerConsumer() stream.Consumer {
	return stream.Consumer{Stream: "WORK", Subject: "work", Durable: "worker", MaxDeliver: 3,
		AckWait: 30 * time.Second, Batch: 10}
}

func dataOf(entries []stream.Entry) (all []string) {
	for _, e := range entries {
		all = append(all, string(e.Data))
	}
	return all
}
