package webhook_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/egress"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/testkit"
	"github.com/millrace/millrace/internal/webhook"
)

const workedSecret = "whsec_c2VjcmV0IG9mIGpvYnMgb2Ygd29ya2VkIGluIHRlc3Rz"

// withWorkedSecret has a secret for the contract worked alone.
func withWorkedSecret(c *webhook.Config) {
	c.ContractSecret = func(_ context.Context, contract string) (string, error) {
		if contract != worked.Name {
			return "", &job.Error{Kind: job.NotFound}
		}
		return workedSecret, nil
	}
}

// types returns what a receiver got at a path, in order.
func (r *receiver) types(path string) (all []string) {
	for _, q := range r.requests() {
		if q.path == path {
			_, after, _ := strings.Cut(q.body, `"type":"worked.job.`)
			name, _, _ := strings.Cut(after, `"`)
			all = append(all, name)
		}
	}
	return all
}

// WH-005: a callback gets the final events of its job, or those that it names, in order and signed
// with the secret of the contract, also without any subscription; a message that comes again makes
// no second delivery.
func TestCallback(t *testing.T) {
	onEveryDatabase(t, func(t *testing.T, database string) {
		n := newWorld(t, database, false, withWorkedSecret).node().run()
		var failed atomic.Bool
		r := newReceiver(t, func(w http.ResponseWriter, r *http.Request, _ int) {
			if r.URL.Path == "/all" && failed.CompareAndSwap(false, true) {
				w.WriteHeader(http.StatusInternalServerError)
			}
		})
		n.work("without")
		n.workFor(r.URL+"/final", "a")
		n.workFor(r.URL+"/all worked.job.*", "b")
		n.workFor(r.URL+"/one worked.job.claimed", "c")
		var kept []job.Message
		if _, err := n.engine.Publish(n.ctx, func(ctx context.Context, all []job.Message) error {
			kept = append(kept, all...)
			return n.DeliverEvents(ctx, all)
		}, webhook.Name); err != nil {
			t.Fatal(err)
		}
		if len(kept) != 5 {
			t.Fatalf("WH-005 %d messages, want one of each event that is wanted", len(kept))
		}
		n.awaitCauses(job.Failed, job.Succeeded, job.Succeeded)
		if err := n.DeliverEvents(n.ctx, kept); err != nil {
			t.Fatal(err)
		}
		n.advanceAndPromote(2 * time.Second)
		n.awaitDone(3)
		for path, want := range map[string]string{"/final": "succeeded", "/one": "claimed",
			"/all": "submitted submitted claimed succeeded"} {
			if got := strings.Join(r.types(path), " "); got != want {
				t.Errorf("WH-005 %s got %q, want %q", path, got, want)
			}
		}
		for _, q := range r.requests() {
			verified(t, workedSecret, q)
			if strings.Contains(q.body, "payload of") ||
				!strings.Contains(q.body, `"timestamp":"2026-03-01T12:00:00`) {
				t.Errorf("WH-003 %s: %s", q.path, q.body)
			}
		}
		ids := r.eventIDs()
		if slices.Sort(ids); len(slices.Compact(ids)) != 5 {
			t.Errorf("WH-005 the ids are %v", ids)
		}
	})
}

// WH-005: a subscription and a callback get the same event, each by its own secret.
func TestCallbackBesideSubscription(t *testing.T) {
	onEveryDatabase(t, func(t *testing.T, database string) {
		n := newWorld(t, database, false, withWorkedSecret).node().run()
		r := newReceiver(t, nil)
		_, secret := n.operate(r.URL+"/same", nil, "*.succeeded")
		n.workFor(r.URL+"/same", "a")
		n.publish()
		n.awaitDone(2)
		got := r.requests()
		if len(got) != 2 || got[0].header.Get("webhook-id") != got[1].header.Get("webhook-id") {
			t.Fatalf("WH-005 got %d requests: %v", len(got), r.eventIDs())
		}
		signed := map[string]bool{}
		for _, q := range got {
			for _, s := range []string{secret, workedSecret} {
				signed[s] = signed[s] || isSigned(s, q)
			}
		}
		if !signed[secret] || !signed[workedSecret] {
			t.Error("WH-005 not both secrets have signed")
		}
	})
}

// isSigned reports whether a secret has signed a request.
func isSigned(secret string, q request) bool {
	h := http.Header{}
	if err := webhook.Sign(h, secret, q.header.Get("webhook-id"), sentAt(q),
		[]byte(q.body)); err != nil {
		return false
	}
	return h.Get("webhook-signature") == q.header.Get("webhook-signature")
}

// sentAt returns when a request says that it was sent.
func sentAt(q request) time.Time {
	var seconds int64
	_, _ = fmt.Sscan(q.header.Get("webhook-timestamp"), &seconds)
	return time.Unix(seconds, 0)
}

// WH-005: while the secret of a contract is not known its callbacks wait and use up no attempt; one
// of a contract that has none is given up.
func TestCallbackSecretUnknown(t *testing.T) {
	onEveryDatabase(t, func(t *testing.T, database string) {
		var known atomic.Bool
		n := newWorld(t, database, false, func(c *webhook.Config) {
			c.ContractSecret = func(context.Context, string) (string, error) {
				if !known.Load() {
					return "", &job.Error{Kind: job.Unavailable}
				}
				return workedSecret, nil
			}
		}).node().run()
		r := newReceiver(t, nil)
		n.workFor(r.URL, "a")
		n.publish()
		n.awaitCauses(job.Released)
		known.Store(true)
		n.advanceAndPromote(time.Minute)
		n.awaitDone(1)
		all, _, err := n.Deliveries(n.ctx, "contract/"+worked.Name, "", "", 0, 10)
		if err != nil || len(all) != 1 || len(all[0].Attempts) != 1 ||
			all[0].Status != webhook.Delivered {
			t.Errorf("WH-005 deliveries %+v, %v", all, err)
		}
		if got := len(r.requests()); got != 1 {
			t.Errorf("WH-005 %d requests", got)
		}
	})
	t.Run("of no contract", func(t *testing.T) {
		t.Parallel()
		n := newWorld(t, "memory", false).node().run()
		r := newReceiver(t, nil)
		n.workFor(r.URL, "a")
		n.publish()
		n.awaitDone(1)
		if got := len(r.requests()); got != 0 {
			t.Errorf("WH-005 %d requests without a signature", got)
		}
	})
}

// WH-005: a callback reaches no address that the guard refuses, by whatever name.
func TestCallbackGuard(t *testing.T) {
	t.Parallel()
	client, err := egress.New(egress.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	n := newWorld(t, "memory", false, withWorkedSecret, func(c *webhook.Config) {
		c.Client, c.MaxAttempts = client, 1
	}).node().run()
	r := newReceiver(t, nil)
	urls := []string{r.URL, strings.Replace(r.URL, "127.0.0.1", "localhost", 1),
		"http://169.254.169.254/latest/meta-data", "http://[::1]:1/", "http://10.0.0.1/"}
	for i, url := range urls {
		n.workFor(url, fmt.Sprint(i))
	}
	n.publish()
	n.awaitDone(len(urls))
	all, _, err := n.Deliveries(n.ctx, "contract/"+worked.Name, "", "", 0, 10)
	if err != nil || len(all) != len(urls) {
		t.Fatal(all, err)
	}
	for _, d := range all {
		if d.Status != webhook.Exhausted || !strings.Contains(*d.Attempts[0].Error, "refused") {
			t.Errorf("WH-005 %s: %+v", d.URL, d)
		}
	}
	if got := len(r.requests()); got != 0 {
		t.Errorf("WH-005 %d requests came", got)
	}
}

// WH-005: what a callback may name.
func TestEncodeCallback(t *testing.T) {
	t.Parallel()
	types := []string{"x.job.completed", "x.job.failed"}
	for _, events := range [][]string{nil, {"x.job.failed"}, {"*"}, {"x.*", "*.completed"}} {
		c := webhook.Callback{URL: "https://example.com/a?b=c", Events: events}
		encoded, err := c.Encode(types)
		if err != nil {
			t.Errorf("WH-005 %q: %v", events, err)
		}
		if got := webhook.DecodeCallback(encoded); got.URL != c.URL ||
			!slices.Equal(got.Events, events) {
			t.Errorf("WH-005 %q became %+v", events, got)
		}
	}
	for _, events := range [][]string{{"x.job.dead"}, {"y.*"}, {""}, {"x job"}, {"*", "X.*"},
		slices.Repeat([]string{"*"}, 21)} {
		c := webhook.Callback{URL: "https://example.com/", Events: events}
		if encoded, err := c.Encode(types); err == nil {
			t.Errorf("WH-005 %q is taken as %q", events, encoded)
		}
	}
	if got := webhook.DecodeCallback(""); got.URL != "" || got.Events != nil {
		t.Errorf("WH-005 no callback is %+v", got)
	}
}

// WH-006: a receiver that does not answer holds up nothing of a subscription whose URL was
// corrected since.
func TestSlotsOfACorrectedURL(t *testing.T) {
	t.Parallel()
	n := newWorld(t, "memory", false, func(c *webhook.Config) { c.Timeout = time.Hour }).node().run()
	release := make(chan struct{})
	var first atomic.Int64
	stuck := newReceiver(t, func(http.ResponseWriter, *http.Request, int) {
		first.Add(1)
		<-release
	})
	t.Cleanup(func() { close(release) }) // before the receiver closes
	good := newReceiver(t, nil)
	h, _ := n.operate(stuck.URL, func(t *webhook.Spec) { t.MaxInFlight = 100 }, "*.succeeded")
	const all, limit = 12, 4 // of one receiver that has not answered yet
	for i := range all {
		n.work(fmt.Sprint(i))
	}
	n.publish()
	testkit.WaitUntil(t, "as many requests as the receiver may have", func() bool {
		return first.Load() == limit
	})
	if _, err := n.ChangeForOperators(n.ctx, h.ID, func(t *webhook.Spec) error {
		t.URL = good.URL
		return nil
	}, unrecorded); err != nil {
		t.Fatal(err)
	}
	testkit.WaitUntil(t, "the rest at the corrected URL", func() bool {
		n.advanceAndPromote(time.Second)
		return len(good.requests()) == all-limit
	})
}

// statementsOf returns what jobs cost on an engine with a feed: each job is submitted, claimed and
// completed by itself.
func statementsOf(t *testing.T, database string, feed *engine.Feed, callback string) []string {
	t.Helper()
	clock, log := testkit.NewClock(), &testkit.StatementLog{}
	s := testkit.ObservedStore(t, database, clock.Now, log.Observe)
	e := testkit.NewEngine(t, s, clock, worked, engine.JobType{Name: webhook.Name,
		Machine: webhook.Machine, Graph: true})
	if feed != nil {
		e.SetFeed(*feed)
	}
	n := &node{world: &world{TB: t, ctx: t.Context()}, engine: e}
	n.work("the first reads what is kept in memory")
	log.Take()
	n.workFor(callback, "a", "b")
	return log.Take()
}

// WH-005: a job without a callback costs the statements that it costs where nobody can have one;
// one with a callback costs a read of its bodies and an insert for the event that is wanted.
func TestCallbackCosts(t *testing.T) {
	t.Parallel()
	for _, database := range testkit.Databases {
		t.Run(database, func(t *testing.T) {
			t.Parallel()
			feed := webhook.NewFeed(source{})
			without := statementsOf(t, database, nil, "")
			if got := statementsOf(t, database, &feed, ""); !slices.Equal(got, without) {
				t.Errorf("WH-005 a job without a callback costs\n%v\nwant\n%v", got, without)
			}
			with := statementsOf(t, database, &feed, "https://example.com/")
			const jobs, each = 2, 2
			if got := len(with) - len(without); got > jobs*each {
				t.Errorf("WH-005 callbacks cost %d statements more:\n%v\nof\n%v", got, with, without)
			}
		})
	}
}
