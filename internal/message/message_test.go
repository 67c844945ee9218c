package message_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/message"
	"github.com/millrace/millrace/internal/outage"
	"github.com/millrace/millrace/internal/stream"
	"github.com/millrace/millrace/internal/testkit"
	"github.com/millrace/millrace/internal/testkit/outside"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var discardLog = slog.New(slog.DiscardHandler)

func newSubject(t *testing.T) message.Queue {
	t.Helper()
	s, err := stream.Open(context.Background(),
		stream.Config{Dir: t.TempDir(), Node: "n", Log: discardLog, Now: time.Now,
			Specs: []stream.Spec{{Name: "WORK", Subjects: []string{"work"}, MaxAge: time.Hour}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return &message.Subject{Streams: s, Stream: "WORK", Subject: "work", Durable: "test",
		Log: discardLog}
}

func newSQS(t *testing.T) (message.Queue, *outside.SQSServer) {
	t.Helper()
	server := outside.NewSQS(t, time.Second)
	q, err := message.OpenSQS(context.Background(), server.Setting(), discardLog, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(q.Close)
	return q, server
}

// forEachQueue runs a test on both queues.
func forEachQueue(t *testing.T, test func(*testing.T, message.Queue)) {
	t.Run("stream", func(t *testing.T) { test(t, newSubject(t)) })
	t.Run("SQS", func(t *testing.T) { q, _ := newSQS(t); test(t, q) })
}

// receiveBodies takes messages until enough have come; settle is given each.
func receiveBodies(t *testing.T, q message.Queue, count int,
	settle func(message.Delivery)) (all []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	q.Receive(ctx, func(_ context.Context, d message.Delivery) {
		settle(d)
		if all = append(all, string(d.Body)); len(all) == count {
			cancel()
		}
	})
	if len(all) != count {
		t.Fatalf("%d messages came, want %d", len(all), count)
	}
	slices.Sort(all)
	return all
}

func sendBodies(t *testing.T, q message.Queue, bodies ...string) {
	t.Helper()
	var all []message.Message
	for _, b := range bodies {
		all = append(all, message.Message{Body: []byte(b)})
	}
	if err := q.Send(context.Background(), all); err != nil {
		t.Fatal(err)
	}
}

func TestQueue(t *testing.T) {
	forEachQueue(t, func(t *testing.T, q message.Queue) {
		t.Run("it answers", func(t *testing.T) {
			if err := q.Ping(t.Context()); err != nil {
				t.Error(err)
			}
		})
		t.Run("what is sent comes", func(t *testing.T) {
			var want []string
			for i := range 30 {
				want = append(want, fmt.Sprintf(`{"n":%02d,"text":"é \u0000"}`, i))
			}
			sendBodies(t, q, want...)
			if got := receiveBodies(t, q, 30, func(d message.Delivery) {
				d.Ack()
			}); !slices.Equal(got, want) {
				t.Errorf("got %q", got)
			}
		})
		t.Run("what is given back comes again, and what is acknowledged does not",
			func(t *testing.T) {
				sendBodies(t, q, "again", "once")
				counts := map[string]int{}
				receiveBodies(t, q, 3, func(d message.Delivery) {
					if counts[string(d.Body)]++; string(d.Body) == "again" && counts["again"] == 1 {
						d.Nak()
						return
					}
					d.Ack()
				})
				if counts["again"] != 2 || counts["once"] != 1 {
					t.Errorf("came %v", counts)
				}
			})
		t.Run("who sends under an id that was just used sends the same", func(t *testing.T) {
			if _, known := q.(*message.Subject); !known {
				return // SQS knows no ids: duplicates are found in the database
			}
			same := message.Message{ID: "x", Body: []byte("x")}
			if err := q.Send(context.Background(), []message.Message{same, same}); err != nil {
				t.Fatal(err)
			}
			sendBodies(t, q, "y")
			if got := receiveBodies(t, q, 2, func(d message.Delivery) {
				d.Ack()
			}); !slices.Equal(got, []string{"x", "y"}) {
				t.Errorf("got %q", got)
			}
		})
	})
}

// A worker that dies with a message loses nothing: the message is delivered again after a while.
func TestVisibility(t *testing.T) {
	q, _ := newSQS(t)
	sendBodies(t, q, "m")
	receiveBodies(t, q, 1, func(message.Delivery) {})
	receiveBodies(t, q, 1, func(d message.Delivery) { d.Ack() })
}

// After an outage of the queue receiving goes on.
func TestQueueOutage(t *testing.T) {
	q, server := newSQS(t)
	came := make(chan string, 10)
	ctx, stop := context.WithCancel(context.Background())
	var receiving sync.WaitGroup
	receiving.Go(func() {
		q.Receive(ctx, func(_ context.Context, d message.Delivery) {
			came <- string(d.Body)
			d.Ack()
		})
	})
	defer receiving.Wait()
	defer stop()
	sendBodies(t, q, "before")
	if got := <-came; got != "before" {
		t.Errorf("got %q", got)
	}
	server.Kill()
	short, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if err := q.Send(short, []message.Message{{Body: []byte("lost")}}); !job.IsKind(err,
		job.Unavailable) && !job.IsKind(err, job.Timeout) {
		t.Errorf("got %v", err)
	}
	if err := q.Ping(short); !job.IsKind(err, job.Unavailable) && !job.IsKind(err, job.Timeout) {
		t.Errorf("it is unavailable and answers: %v", err)
	}
	server.Restart()
	sendBodies(t, q, "after")
	for got := range came {
		if got == "after" {
			break
		}
		if got != "lost" { // which the library may send after all
			t.Errorf("got %q", got)
		}
	}
}

// A queue that cannot be received from makes one log line, however often it is tried.
func TestQueueOutageIsLogged(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "id")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	asked := make(chan struct{})
	ctx, stop := context.WithCancel(t.Context())
	refusing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusForbidden)
		select {
		case asked <- struct{}{}:
		case <-ctx.Done():
		}
	}))
	defer refusing.Close()
	var log testkit.LogBuffer
	logger, started := slog.New(slog.NewTextHandler(&log, nil)), time.Now()
	monitor := outage.NewMonitor(logger, func() time.Duration {
		return time.Since(started)
	}, outage.Endpoint{Name: "messages"})
	q, err := message.OpenSQS(ctx, "awssqs://"+refusing.Listener.Addr().String()+
		"/1/q?region=x&endpoint="+refusing.URL, logger, monitor)
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	var receiving sync.WaitGroup
	receiving.Go(func() { q.Receive(ctx, func(context.Context, message.Delivery) {}) })
	for range 4 {
		<-asked
	}
	stop()
	receiving.Wait()
	if got := log.String(); strings.Count(got, "\n") != 1 ||
		strings.Count(got, "a part is degraded") != 1 || strings.Contains(got, ".go:") ||
		strings.Contains(got, `\n`) {
		t.Errorf("the log says %s", got)
	}
}

func TestOpenSQS(t *testing.T) {
	t.Parallel()
	for _, at := range []string{"", "sqs://x/y", "awssqs://x/y?nonsense=1", "://"} {
		if q, err := message.OpenSQS(context.Background(), at, discardLog, nil); !job.IsKind(err,
			job.Invalid) {
			t.Errorf("%q: %v, %v", at, q, err)
		}
	}
}
