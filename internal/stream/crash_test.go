package stream_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/stream"
	"github.com/millrace/millrace/internal/testkit/outside"
)

const answerTimeout = 10 * time.Second

// TestServerKilled kills the server in the middle of publishing: what was acknowledged is there
// after its restart, in order and once, and consuming and following go on by themselves.
func TestServerKilled(t *testing.T) {
	t.Parallel()
	server := outside.NewNATS(t, "")
	c := testConfig(t)
	c.URL = server.URL
	w := mustFixture(t, c)

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	acknowledged := w.publishDuringRestarts(ctx, t, server)

	stored := map[string]int{}
	for _, e := range w.mustRead(t, "WORK", "work", 0, 10_000) {
		stored[string(e.Data)]++
	}
	for _, m := range acknowledged {
		if stored[m] != 1 {
			t.Errorf("%s was acknowledged and is stored %d times", m, stored[m])
		}
	}
	got := w.consumeN(t, workerConsumer(), len(stored), (*stream.Delivery).Ack)
	if len(acknowledged) < 100 || len(got) != len(stored) {
		t.Errorf("acknowledged %d, stored %d, delivered %d", len(acknowledged), len(stored),
			len(got))
	}
}

// publishDuringRestarts publishes while the server is killed and started again, a batch and a
// single message in turn, each until it is acknowledged.
func (w *fixture) publishDuringRestarts(ctx context.Context, t *testing.T,
	server *outside.NATSServer) (acknowledged []string) {
	t.Helper()
	restarted := make(chan struct{})
	failures := 0
	for i := range 20 {
		batch := newMessages("work", fmt.Sprint("b", i, "-"), 1+39*(i%2))
		if i == 10 {
			server.Kill()
			check, done := context.WithTimeout(ctx, 5*time.Second) // as a health check has
			if err := w.Ping(check); !job.IsKind(err, job.Unavailable) {
				t.Errorf("without a server: got %v", err)
			}
			done()
		}
		for {
			_, err := w.Publish(ctx, batch)
			if err == nil {
				break
			}
			if !job.IsKind(err, job.Unavailable) {
				t.Fatalf("got %v", err)
			}
			if failures++; failures == 3 {
				server.Restart()
				close(restarted)
			}
		}
		for _, m := range batch {
			acknowledged = append(acknowledged, string(m.Data))
		}
	}
	<-restarted
	return acknowledged
}

// TestServerKilledWhileWaiting kills the server under a consumer and a follower that wait.
func TestServerKilledWhileWaiting(t *testing.T) {
	t.Parallel()
	server := outside.NewNATS(t, "")
	c := testConfig(t)
	c.URL = server.URL
	w := mustFixture(t, c)
	w.mustPublish(t, newMessages("logs.f", "before", 1)...)
	w.mustPublish(t, newMessages("work", "before", 1)...)

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	followed, consumed := make(chan string, 10), make(chan string, 10)
	ended := make(chan error, 2)
	go func() {
		ended <- w.Follow(ctx, "LOGS", "logs.f", 0, func(e stream.Entry) error {
			followed <- string(e.Data)
			return nil
		})
	}()
	go func() {
		ended <- w.Consume(ctx, workerConsumer(), func(_ context.Context, batch []stream.Delivery) {
			for i := range batch {
				batch[i].Ack()
				consumed <- string(batch[i].Data)
			}
		})
	}()
	got := []string{<-followed, <-consumed}
	server.Kill()
	server.Restart()
	for _, subject := range []string{"logs.f", "work"} {
		for {
			if _, err := w.Publish(ctx, newMessages(subject, "after", 1)); err == nil {
				break
			} else if ctx.Err() != nil {
				t.Fatal(err)
			}
		}
	}
	// an acknowledgement may have been lost with the server
	for repeated := "before0"; repeated == "before0"; repeated = got[len(got)-1] {
		got = append(got, <-consumed)
	}
	got = append(got, <-followed)
	cancel()
	for range 2 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	if got = slices.Compact(got); !slices.Equal(got, []string{"before0", "after0"}) {
		t.Errorf("got %v", got)
	}
}
