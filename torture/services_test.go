package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// TestServicesFail has S3 and the streams fail under two nodes that share them, and finds nothing
// wrong with what they store. Consumers alone are deleted, as lost messages are sent again after a
// minute or two.
func TestServicesFail(t *testing.T) {
	t.Parallel()
	for i, c := range [][]string{{faultS3}, {faultStreams}, {faultStreamsWiped, modeConsumers},
		{faultMessages, modeDoubled}} {
		t.Run(c[0], func(t *testing.T) {
			t.Parallel()
			// Databases have the seed in their names.
			args, _ := sharedArgs(t, "-seed", fmt.Sprint(21+i), "-load", "6s", "-only", c[0])
			if len(c) > 1 {
				args = append(args, "-mode", c[1])
			}
			var output bytes.Buffer
			code := Main(t.Context(), args, &output)
			for _, text := range []string{"no violation", " × " + c[0] + ": "} {
				if code != exitGood || !strings.Contains(output.String(), text) {
					t.Errorf("exit code %d, without %q:\n%s", code, text, &output)
				}
			}
		})
	}
}

// TestServicesAlone: faults of services are drawn where they are named, in all of their modes, and
// need something to harm.
func TestServicesAlone(t *testing.T) {
	t.Parallel()
	for kind, want := range serviceModes {
		flags := []string{"-seed", "5", "-load", "10m", "-only", kind}
		if _, _, err := readPlan(flags, io.Discard); err == nil {
			t.Errorf("%s is accepted without -s3", kind)
		}
		p, _, err := readPlan(append(flags, "-s3", "versitygw"), io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		drawn := map[string]bool{}
		for _, f := range p.schedule() {
			if f.Kind != kind {
				t.Fatalf("with -only %s the schedule has %s", kind, f)
			}
			drawn[f.Mode] = true
		}
		if len(drawn) != len(want) || slices.ContainsFunc(want, func(mode string) bool {
			return !drawn[mode]
		}) {
			t.Errorf("the modes of %s are %v, want %q", kind, drawn, want)
		}
	}
}

// TestNATSKilled: what the NATS server has acknowledged is there after a kill. It has nothing left
// where it is emptied, no streams where they are deleted, and no consumers where these are.
func TestNATSKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts a server")
	}
	t.Parallel()
	n := &natsServer{dir: filepath.Join(t.TempDir(), "nats")}
	var err error
	if n.address, err = freeAddress(); err != nil {
		t.Fatal(err)
	}
	defer n.kill()
	begin := func() {
		t.Helper()
		if err := n.start(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	begin()
	n.want(t, 0, 0)
	n.publish(t)
	n.kill()
	begin()
	n.want(t, 1, 1)
	if err := n.delete(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	n.want(t, 1, 0)
	if err := n.delete(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	n.want(t, 0, 0)
	n.publish(t)
	if err := n.empty(); err != nil {
		t.Fatal(err)
	}
	begin()
	n.want(t, 0, 0)
}

// streams connects to the streams of the server, until the test ends.
func (n *natsServer) streams(t *testing.T) jetstream.JetStream {
	t.Helper()
	js, end, err := n.connect()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(end)
	return js
}

// publish makes a stream with a message and a consumer.
func (n *natsServer) publish(t *testing.T) {
	t.Helper()
	js := n.streams(t)
	s, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.CreateConsumer(t.Context(), jetstream.ConsumerConfig{Durable: "d"}); err != nil {
		t.Fatal(err)
	}
	if _, err := js.Publish(t.Context(), "s", []byte("text")); err != nil {
		t.Fatal(err)
	}
}

// want compares the numbers of messages and consumers with those of the stream.
func (n *natsServer) want(t *testing.T, messages uint64, consumers int) {
	t.Helper()
	s, err := n.streams(t).Stream(t.Context(), "S")
	if err != nil && messages == 0 {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	state := s.CachedInfo().State
	if state.Msgs != messages || state.Consumers != consumers {
		t.Errorf("%d messages, %d consumers, want %d and %d", state.Msgs, state.Consumers, messages,
			consumers)
	}
}

// TestMessagesDisturbed: of doubled messages each comes twice, and a copy comes no third time.
// Stolen messages are gone, those that were given back too when they come again.
func TestMessagesDisturbed(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts a server")
	}
	t.Parallel()
	n := &natsServer{dir: filepath.Join(t.TempDir(), "nats")}
	var err error
	if n.address, err = freeAddress(); err != nil {
		t.Fatal(err)
	}
	defer n.kill()
	if err := n.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	n.publish(t)
	js := n.streams(t)
	consumers, err := sharedConsumers(t.Context(), js)
	if err != nil || len(consumers) != 1 || consumers[0].pending != 1 {
		t.Fatalf("%+v: %v", consumers, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	state := func() jetstream.ConsumerInfo {
		c, err := js.Consumer(t.Context(), "S", "d")
		if err != nil {
			t.Fatal(err)
		}
		return *c.CachedInfo()
	}
	harm := func(fn func(context.Context, jetstream.JetStream, sharedConsumer) error, isDone func(
		jetstream.ConsumerInfo) bool) {
		t.Helper()
		lasting, stop := context.WithCancel(ctx)
		ended := make(chan error)
		go func() { ended <- fn(lasting, js, consumers[0]) }()
		for ctx.Err() == nil && !isDone(state()) {
		}
		stop()
		if err := <-ended; err != nil || ctx.Err() != nil {
			t.Error(err, ctx.Err())
		}
	}
	// Each message has to be stolen later, so a slow machine must not get more of them.
	pace := time.NewTicker(20 * time.Millisecond)
	defer pace.Stop()
	sent := uint64(1)
	harm(doubleMessages, func(c jetstream.ConsumerInfo) bool {
		<-pace.C
		if _, err := js.Publish(t.Context(), "s", []byte("text")); err != nil {
			t.Fatal(err)
		}
		sent++
		return c.NumPending > sent
	})
	stored := state().NumPending
	if stored <= sent || stored >= 2*sent {
		t.Errorf("%d messages of %d that were sent", stored, sent)
	}
	harm(stealMessages, func(c jetstream.ConsumerInfo) bool {
		return c.AckFloor.Stream == stored && c.NumPending == 0
	})
}

// TestGateway: a gateway carries requests on as they are, half of those that it refuses as well,
// and has no answer where the server has none.
func TestGateway(t *testing.T) {
	t.Parallel()
	var carried atomic.Int32
	s3 := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		carried.Add(1)
		text, _ := io.ReadAll(r.Body)
		_, _ = io.WriteString(w, r.Host+" "+string(text))
	}))
	defer s3.Close()
	g, err := newGateway(strings.TrimPrefix(s3.URL, "http://"), 5)
	if err != nil {
		t.Fatal(err)
	}
	defer g.server.Close()
	put := func() (status int, text string) {
		resp, err := http.Post("http://"+g.address+"/a", "text/plain", strings.NewReader("x"))
		if err != nil {
			return 0, ""
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(body)
	}
	if status, text := put(); status != http.StatusOK || text != g.address+" x" {
		t.Errorf("%d %q", status, text)
	}
	carried.Store(0)
	g.disturb(modeErrors)
	const all = 40
	for range all {
		if status, text := put(); status < 500 || !strings.Contains(text, "<Code>") {
			t.Errorf("%d %q", status, text)
		}
	}
	if n := carried.Load(); n == 0 || n == all {
		t.Errorf("%d of %d were carried out", n, all)
	}
	g.disturb(modeSlow)
	if o := g.draw(); o.delay == 0 || o.status != 0 {
		t.Errorf("while it is slow a request has %+v", o)
	}
	g.disturb("")
	s3.Close()
	if status, _ := put(); status != 0 {
		t.Errorf("without a server the answer is %d", status)
	}
}
