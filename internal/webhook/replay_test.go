package webhook_test

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/webhook"
)

// giveUpOnce is a config whose deliveries have one attempt.
func giveUpOnce(c *webhook.Config) { c.MaxAttempts = 1 }

// failingReceiver answers 500 as long as failing is true.
func failingReceiver(tb testing.TB) (r *receiver, failing *atomic.Bool) {
	failing = &atomic.Bool{}
	failing.Store(true)
	return newReceiver(tb, func(w http.ResponseWriter, _ *http.Request, _ int) {
		if failing.Load() {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}), failing
}

// What was given up in a time is made once more, each once however often that is asked for, and
// what fails again can be replayed as well (AD-052).
func TestReplayAll(t *testing.T) {
	onEveryDatabase(t, func(t *testing.T, database string) {
		n := newWorld(t, database, false, giveUpOnce).node().run()
		r, failing := failingReceiver(t)
		h, secret := n.register(r.URL, "a")
		var times []time.Time
		for i := range 4 {
			times = append(times, n.clock.Now())
			n.deliver(n.event("j", i, "a", ""))
			n.await(fmt.Sprintf("j.%d.a", i), job.FailedForGood)
			n.clock.Advance(time.Minute)
		}
		replay := func(f webhook.ReplayFilter, made, skipped int) {
			t.Helper()
			f.Status = webhook.Exhausted
			got, err := n.ReplayAll(n.ctx, owner, h.ID, f)
			want := webhook.ReplayResult{Made: made, Skipped: skipped}
			if err != nil || got != want {
				t.Fatalf("replayed %+v, %v; want %+v", got, err, want)
			}
		}
		replay(webhook.ReplayFilter{From: times[3].Add(time.Second)}, 0, 0)
		replay(webhook.ReplayFilter{To: times[0]}, 0, 0)
		replay(webhook.ReplayFilter{From: times[2], To: times[3]}, 1, 0)
		n.await("j.2.a", job.FailedForGood) // the replay fails too
		failing.Store(false)
		replay(webhook.ReplayFilter{To: times[3]}, 2, 1) // 0 and 1; 2 was replayed
		n.await("j.1.a", job.Succeeded)
		replay(webhook.ReplayFilter{}, 2, 3) // 3, and the replay of 2
		n.await("j.3.a", job.Succeeded)
		n.awaitDelivered(h.ID, 4)
		replay(webhook.ReplayFilter{}, 0, 5)
		want := []string{"j.0.a", "j.1.a", "j.2.a", "j.3.a", "j.2.a", "j.0.a", "j.1.a"}
		if got := r.eventIDs(); len(got) != 9 || !slices.Equal(got[:len(want)], want) {
			t.Errorf("received %v, want %v and then 2 and 3", got, want)
		}
		for _, q := range r.requests() {
			verified(t, secret, q)
		}
		exhausted, _, err := n.Deliveries(n.ctx, owner, h.ID, webhook.Exhausted, 0, 3)
		if err != nil || len(exhausted) != 3 || exhausted[0].EventID != "j.2.a" {
			t.Errorf("exhausted %+v, %v", exhausted, err)
		}
	})
}

// A delivery is replayed once, as one of its webhook or as a dead letter, whichever comes first;
// a dead letter is replayed again where that is asked for.
func TestReplayOnceOfBoth(t *testing.T) {
	onEveryDatabase(t, func(t *testing.T, database string) {
		n := newWorld(t, database, false, giveUpOnce).node()
		h, _ := n.register("http://localhost:9/", "a")
		const count = 4
		var events []webhook.Event
		for i := range count {
			events = append(events, n.event(fmt.Sprint("j", i), 1, "a", ""))
		}
		n.deliver(events...)
		n.giveUp(count)
		deadLetters := func() []job.DeadLetter {
			t.Helper()
			lists, err := n.engine.DeadLetters(n.ctx, store.DeadLetterSelector{
				JobType: webhook.Name, Limit: 10})
			if err != nil || len(lists[0]) != count {
				t.Fatalf("dead letters %+v, %v", lists, err)
			}
			return lists[0]
		}
		replayDead := func(l *job.DeadLetter, again bool) error {
			_, err := n.engine.ReplayDeadLetter(n.ctx, engine.Replay{DeadLetter: l, Again: again,
				Do: n.ReplayDead})
			return err
		}
		for i := range 2 {
			if err := replayDead(&deadLetters()[i], false); err != nil {
				t.Fatal(err)
			}
		}
		exhausted := webhook.ReplayFilter{Status: webhook.Exhausted}
		for _, want := range []webhook.ReplayResult{{Made: 2, Skipped: 2}, {Skipped: count}} {
			if got, err := n.ReplayAll(n.ctx, owner, h.ID, exhausted); err != nil || got != want {
				t.Fatalf("AD-052 replayed %+v, %v; want %+v", got, err, want)
			}
		}
		for _, l := range deadLetters() {
			if l.IsOpen() || l.ReplayedAs == 0 {
				t.Errorf("AD-052 the dead letter of %s is open", l.Job.ID.Key)
			}
			open := l
			open.ReplayedAt = time.Time{} // as it was read before
			if err := replayDead(&open, false); !errors.Is(err, engine.ErrReplayed) {
				t.Errorf("AD-051 a second replay: %v", err)
			}
			if err := replayDead(&l, true); err != nil {
				t.Errorf("AD-051 once more on request: %v", err)
			}
		}
		if got := len(n.deliveries(h.ID)); got != 3*count {
			t.Errorf("there are %d deliveries, want %d", got, 3*count)
		}
	})
}

// awaitDelivered waits until so many deliveries of a subscription were accepted.
func (n *node) awaitDelivered(subscriptionID string, count int) {
	n.Helper()
	for {
		found := 0
		for _, d := range n.deliveries(subscriptionID) {
			if d.Status == webhook.Delivered {
				found++
			}
		}
		if found == count {
			return
		}
		select {
		case <-n.transitions:
		case <-n.ctx.Done():
			n.Fatalf("%d deliveries are delivered, want %d", found, count)
		}
	}
}

// Nobody replays to the webhook of another client or to one that is disabled; deliveries that were
// accepted are replayed where that is asked for.
func TestReplayAllRefused(t *testing.T) {
	t.Parallel()
	n := newWorld(t, "memory", false, giveUpOnce).node().run()
	r := newReceiver(t, nil)
	h, _ := n.register(r.URL, "a")
	n.deliver(n.event("j", 1, "a", ""))
	n.await("j.1.a", job.Succeeded)
	delivered := webhook.ReplayFilter{Status: webhook.Delivered}
	if _, err := n.ReplayAll(n.ctx, otherOwner, h.ID, delivered); err != webhook.ErrForbidden {
		t.Errorf("another client: %v", err)
	}
	_, err := n.ReplayAll(n.ctx, owner, unknownID, delivered)
	n.wantKind(err, job.NotFound)
	if _, err := n.SetDisabled(n.ctx, webhook.AnyOwner, h.ID, "why",
		func(engine.RecordWriter, webhook.Subscription) error { return nil }); err != nil {
		t.Fatal(err)
	}
	_, err = n.ReplayAll(n.ctx, owner, h.ID, delivered)
	n.wantKind(err, job.Conflict)
	if h, err = n.Enable(n.ctx, owner, h.ID); err != nil || h.Disabled || h.Owner != owner {
		t.Fatal(h, err)
	}
	got, err := n.ReplayAll(n.ctx, webhook.AnyOwner, h.ID, delivered)
	if err != nil || got.Made != 1 {
		t.Errorf("replayed %+v, %v", got, err)
	}
	n.await("j.1.a", job.Succeeded)
}

// giveUp ends so many deliveries without an attempt.
func (n *node) giveUp(count int) {
	n.Helper()
	for count > 0 {
		jobs, err := n.engine.Claim(n.ctx, engine.ClaimRequest{JobType: webhook.Name, Max: 500,
			Worker: "w"})
		if err != nil {
			n.Fatal(err)
		}
		var all []engine.FinishRequest
		for _, j := range jobs {
			all = append(all, engine.FinishRequest{Run: engine.Run{ID: j.ID, Run: j.Run},
				Outcome: engine.Outcome{On: job.FailedForGood}})
		}
		for _, result := range n.engine.FinishAll(n.ctx, all) {
			if result.Err != nil {
				n.Fatal(result.Err)
			}
		}
		count -= len(jobs)
	}
}

// One call is bounded, and the next one goes on where it ended.
func TestReplayAllInCalls(t *testing.T) {
	t.Parallel()
	const count = webhook.MaxReplays + 250
	n := newWorld(t, "memory", false).node()
	h, _ := n.register("http://localhost:9/", "a")
	var events []webhook.Event
	for i := range count {
		events = append(events, n.event(fmt.Sprint("j", i), 1, "a", ""))
	}
	n.deliver(events...)
	n.giveUp(count)
	f := webhook.ReplayFilter{Status: webhook.Exhausted, From: n.clock.Now().Add(-time.Hour)}
	first, err := n.ReplayAll(n.ctx, owner, h.ID, f)
	if err != nil || first.Made != webhook.MaxReplays || first.Next == 0 {
		t.Fatalf("first %+v, %v", first, err)
	}
	f.After = first.Next
	second, err := n.ReplayAll(n.ctx, owner, h.ID, f)
	if err != nil || second != (webhook.ReplayResult{Made: count - webhook.MaxReplays}) {
		t.Fatalf("second %+v, %v", second, err)
	}
	figures, err := n.Figures(n.ctx, []string{h.ID})
	if err != nil || figures[0] != (webhook.Figures{Pending: 100}) {
		t.Errorf("figures %+v, %v", figures, err)
	}
	// Those of a state are found behind others, as far as one call looks.
	all, next, err := n.Deliveries(n.ctx, owner, h.ID, webhook.Exhausted, 0, 10)
	if err != nil || len(all) != 10 || next == 0 {
		t.Errorf("got %d, next %d, %v", len(all), next, err)
	}
	all, next, err = n.Deliveries(n.ctx, owner, h.ID, webhook.Delivered, 0, 10)
	if err != nil || len(all) != 0 || next != 0 {
		t.Errorf("got %d, next %d, %v", len(all), next, err)
	}
}
