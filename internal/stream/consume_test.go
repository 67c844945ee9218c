package stream_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/stream"
	"github.com/millrace/millrace/internal/testkit"
)

func TestConsume(t *testing.T) {
	forEachServer(t, func(t *testing.T, w *fixture) {
		m := newMessages("work", "m", 25)
		m[0].Header = map[string]string{"Millrace-Outbox": "1"}
		w.mustPublish(t, m...)
		got := w.consumeN(t, workerConsumer(), 25, (*stream.Delivery).Ack)
		for i, d := range got {
			if string(d.Data) != fmt.Sprint("m", i) || d.Offset != uint64(i+1) || d.Attempt != 1 ||
				d.Last || (d.Header("Millrace-Outbox") == "1") != (i == 0) {
				t.Errorf("delivery %d is %s, %+v", i, d.Data, d.Entry)
			}
		}
		// Another one goes on where this one stopped.
		w.mustPublish(t, newMessages("work", "next", 1)...)
		if got := w.consumeN(t, workerConsumer(), 1,
			(*stream.Delivery).Ack); string(got[0].Data) != "next0" || got[0].Attempt != 1 {
			t.Errorf("got %s", got[0].Data)
		}
	})
}

// TestConsumeBounded hands a message out as often as it is asked for again, but not without end.
func TestConsumeBounded(t *testing.T) {
	forEachServer(t, func(t *testing.T, w *fixture) {
		w.mustPublish(t, newMessages("work", "bad", 1)...)
		var last []bool
		w.consumeN(t, workerConsumer(), 3, func(d *stream.Delivery) {
			last = append(last, d.Last)
			d.Nak(0)
		})
		if want := []bool{false, false, true}; !slices.Equal(last, want) {
			t.Errorf("got %v, want %v", last, want)
		}
		w.mustPublish(t, newMessages("work", "good", 1)...)
		if got := w.consumeN(t, workerConsumer(), 1,
			(*stream.Delivery).Term); string(got[0].Data) != "good0" {
			t.Errorf("got %s: what was given up came back", got[0].Data)
		}
		w.awaitAcknowledged(t, func(floor uint64, open int) bool { return floor == 2 && open == 0 })
	})
}

// TestConsumeShared lets two nodes share a durable consumer: each message goes to one of them.
func TestConsumeShared(t *testing.T) {
	forEachServer(t, func(t *testing.T, w *fixture) {
		w.mustPublish(t, newMessages("work", "m", 300)...)
		ctx, cancel := context.WithTimeout(t.Context(), testkit.WaitTimeout)
		defer cancel()
		var mu sync.Mutex
		visited := map[string]int{}
		var wait sync.WaitGroup
		for range 2 {
			wait.Go(func() {
				_ = w.Consume(ctx, workerConsumer(),
					func(_ context.Context, batch []stream.Delivery) {
						mu.Lock()
						defer mu.Unlock()
						for i := range batch {
							visited[string(batch[i].Data)]++
							batch[i].Ack()
						}
						if len(visited) == 300 {
							cancel()
						}
					})
			})
		}
		wait.Wait()
		for m, n := range visited {
			if n != 1 {
				t.Errorf("%s was delivered %d times", m, n)
			}
		}
		if len(visited) != 300 {
			t.Errorf("got %d", len(visited))
		}
	})
}

// TestConsumeRemoved takes the stream away under a consumer that waits.
func TestConsumeRemoved(t *testing.T) {
	forEachServer(t, func(t *testing.T, w *fixture) {
		w.mustPublish(t, newMessages("work", "before", 1)...)
		var got []string
		w.consumeN(t, workerConsumer(), 2, func(d *stream.Delivery) {
			d.Ack()
			if got = append(got, string(d.Data)); len(got) == 1 {
				if err := w.js.DeleteStream(t.Context(), "WORK"); err != nil {
					t.Error(err)
				}
				w.mustPublish(t, newMessages("work", "after", 1)...)
			}
		})
		if want := []string{"before0", "after0"}; !slices.Equal(got, want) {
			t.Errorf("got %v", got)
		}
	})
}

// TestPrune keeps what no consumer has settled (FB-094), whatever its age.
func TestPrune(t *testing.T) {
	forEachServer(t, func(t *testing.T, w *fixture) {
		prune := func(want ...string) {
			t.Helper()
			if err := w.Prune(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := dataOf(w.mustRead(t, "WORK", "work", 0, 100)); !slices.Equal(got, want) {
				t.Errorf("got %v, want %v", got, want)
			}
		}
		w.mustPublish(t, newMessages("work", "m", 3)...)
		w.clock.advance(8 * 24 * time.Hour)
		prune("m0", "m1", "m2") // there is no consumer yet
		w.clock.advance(-8 * 24 * time.Hour)
		kept := 0
		w.consumeN(t, workerConsumer(), 3, func(d *stream.Delivery) {
			if string(d.Data) != "m1" {
				d.Ack()
			} else if kept++; kept == 1 {
				d.Nak(time.Hour)
			}
		})
		w.awaitAcknowledged(t, func(floor uint64, open int) bool { return floor == 1 && open == 1 })
		prune("m0", "m1", "m2") // young
		w.clock.advance(8 * 24 * time.Hour)
		prune("m1", "m2") // m1 is open
		prune("m1", "m2")
	})
}

// awaitAcknowledged waits until the server has processed the acknowledgements of the consumer.
func (w *fixture) awaitAcknowledged(tb testing.TB, done func(floor uint64, open int) bool) {
	tb.Helper()
	for range 1_000_000 {
		consumer, err := w.js.Consumer(tb.Context(), "WORK", "worker")
		if err != nil {
			tb.Fatal(err)
		}
		if info := consumer.CachedInfo(); done(info.AckFloor.Stream, info.NumAckPending) {
			return
		}
	}
	tb.Fatal("the server does not take in what was settled")
}
