package webhook_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/egress"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/webhook"
)

// AD-052 The figures of a webhook come from its newest deliveries.
func TestFigures(t *testing.T) {
	onEveryDatabase(t, func(t *testing.T, database string) {
		n := newWorld(t, database, false, giveUpOnce).node()
		r, failing := failingReceiver(t)
		h, _ := n.register(r.URL, "a")
		unused, _ := n.register(r.URL, "b")
		n.run()
		n.deliver(n.event("j", 1, "a", ""))
		n.await("j.1.a", job.FailedForGood)
		failing.Store(false)
		for _, chain := range []string{"k", "l", "m"} {
			n.clock.Advance(time.Second)
			n.deliver(n.event(chain, 1, "a", ""))
			n.await(chain+".1.a", job.Succeeded)
		}
		n.stop()
		n.deliver(n.event("j", 3, "a", ""), n.event("j", 4, "a", ""))
		all, err := n.Figures(n.ctx, []string{unused.ID, h.ID})
		if err != nil {
			t.Fatal(err)
		}
		if all[0] != (webhook.Figures{}) {
			t.Errorf("of the unused one: %+v", all[0])
		}
		if _, ok := all[0].SuccessRate(); ok {
			t.Error("the unused one has a rate")
		}
		f := all[1]
		rate, ok := f.SuccessRate()
		if f.Pending != 2 || f.Delivered != 3 || f.Exhausted != 1 || !ok || rate != 0.75 ||
			f.LastAttempt == nil || *f.LastAttempt.StatusCode != 200 {
			t.Errorf("got %+v", f)
		}
	})
}

// AD-052 A test is a signed request whose outcome is answered and changes nothing.
func TestTest(t *testing.T) {
	onEveryDatabase(t, func(t *testing.T, database string) {
		n := newWorld(t, database, false).node()
		r, failing := failingReceiver(t)
		h, secret := n.register(r.URL+"/hook?q=1", "a")
		for _, status := range []int{500, 200} {
			failing.Store(status == 500)
			got, err := n.Test(n.ctx, owner, h.ID, nil)
			if err != nil || got.StatusCode == nil || *got.StatusCode != status ||
				(got.Error == nil) != (status == 200) || got.EventID == "" {
				t.Errorf("got %+v, %v, want status %d", got, err, status)
			}
			q := r.requests()[len(r.requests())-1]
			verified(t, secret, q)
			if q.header.Get("webhook-id") != got.EventID ||
				!strings.Contains(q.body, `"event_name":"millrace.test"`) {
				t.Errorf("received %+v", q)
			}
		}
		// It is no delivery, and its failure does not count.
		after, err := n.Subscription(n.ctx, owner, h.ID)
		if err != nil || !after.FailingSince.IsZero() || len(n.deliveries(h.ID)) != 0 {
			t.Errorf("afterwards %+v, %v", after, err)
		}
		// What is attached decides whether anything is sent.
		refusal := errors.New("no")
		refuse := func(engine.RecordWriter) error { return refusal }
		_, err = n.Test(n.ctx, webhook.AnyOwner, h.ID, refuse)
		if !errors.Is(err, refusal) || len(r.requests()) != 2 {
			t.Errorf("got %v after %d requests", err, len(r.requests()))
		}
		if _, err = n.Test(n.ctx, otherOwner, h.ID, nil); !errors.Is(err, webhook.ErrForbidden) {
			t.Errorf("another client: %v", err)
		}
		_, err = n.Test(n.ctx, owner, unknownID, nil)
		n.wantKind(err, job.NotFound)
	})
}

// AD-052 A test reaches no address that deliveries may not reach, and takes part in the limits of
// its receiver.
func TestTestIsGuarded(t *testing.T) {
	t.Parallel()
	strict, err := egress.New(egress.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(strict.Close)
	n := newWorld(t, "memory", false, func(c *webhook.Config) { c.Client = strict }).node()
	r := newReceiver(t, nil)
	h, _ := n.register(r.URL, "a")
	got, err := n.Test(n.ctx, owner, h.ID, nil)
	if err != nil || got.StatusCode != nil || got.Error == nil ||
		!strings.Contains(*got.Error, "refused") || len(r.requests()) != 0 {
		t.Errorf("got %+v, %v", got, err)
	}
	full := newWorld(t, "memory", false, func(c *webhook.Config) { c.Slots = 1 }).node()
	answer := make(chan struct{})
	slow := newReceiver(t, func(http.ResponseWriter, *http.Request, int) { <-answer })
	h, _ = full.register(slow.URL, "a")
	done := make(chan error)
	go func() { _, err := full.Test(full.ctx, owner, h.ID, nil); done <- err }()
	<-slow.ids
	_, err = full.Test(full.ctx, owner, h.ID, nil)
	full.wantKind(err, job.Unavailable)
	close(answer)
	if err := <-done; err != nil {
		t.Error(err)
	}
}
