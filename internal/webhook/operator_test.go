package webhook_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/webhook"
)

// worked is a contract whose jobs operators are notified of. They are gone when they are done.
var worked = engine.JobType{Name: "worked", Machine: job.MustMachine(
	map[job.State]job.Phase{"queued": job.Ready, "running": job.Leased},
	[]job.Transition{
		{From: job.StateNone, On: job.Submitted, To: "queued"},
		{From: "queued", On: job.Claimed, To: "running"},
		{From: "running", On: job.Succeeded, To: job.StateNone},
		{From: "running", On: job.Released, To: "queued"},
		{From: "running", On: job.Expired, To: "queued"},
	})}

// source sends the events of the jobs of worked.
type source struct{}

func (source) Types(j *job.Job, ev job.Event) []string {
	if j.ID.JobType != worked.Name {
		return nil
	}
	return []string{"worked.job." + string(ev.Cause)}
}

func (source) IsFinal(eventType string) bool { return eventType == "worked.job.succeeded" }

func (source) About(j *job.Job) (contract, kind string) { return j.ID.JobType, j.Kind }

func (source) ReadsBodies(*job.Job, job.Event) bool { return true }

func (source) Data(j *job.Job, ev job.Event) (data, payload []byte) {
	return fmt.Appendf(nil, `{"id":%q,"result":%q}`, j.ID.Key, j.Result),
		fmt.Appendf(nil, `"payload":%q`, j.Payload)
}

// operate subscribes operators.
func (n *node) operate(url string, edit func(*webhook.Spec), events ...string) (
	webhook.Subscription, string) {
	n.Helper()
	t := webhook.Spec{URL: url, Events: events, Options: webhook.Options{MaxInFlight: 4}}
	if edit != nil {
		edit(&t)
	}
	h, secret, err := n.RegisterForOperators(n.ctx, t, "", unrecorded)
	if err != nil {
		n.Fatal(err)
	}
	return h, secret
}

// unrecorded writes nothing with a change.
func unrecorded(engine.RecordWriter, *webhook.Subscription, *webhook.Subscription) error {
	return nil
}

// work submits jobs of worked and lets them succeed, one after another.
func (n *node) work(keys ...string) { n.Helper(); n.workFor("", keys...) }

// workFor is work for jobs with a callback.
func (n *node) workFor(callback string, keys ...string) {
	n.Helper()
	for _, key := range keys {
		_, err := n.engine.Submit(n.ctx, engine.Unique, []engine.Submission{{Job: job.Job{
			ID: job.ID{JobType: worked.Name, Key: key}, Queue: "q", Kind: "k", Lease: time.Hour,
			Payload: []byte("payload of " + key), Callback: callback}}})
		if err != nil {
			n.Fatal(err)
		}
		jobs, err := n.engine.Claim(n.ctx, engine.ClaimRequest{JobType: worked.Name, Max: 1})
		if err != nil || len(jobs) != 1 {
			n.Fatal(jobs, err)
		}
		if _, err := n.engine.Finish(n.ctx, engine.Run{ID: jobs[0].ID, Run: jobs[0].Run},
			engine.Outcome{On: job.Succeeded, Result: []byte("done")}); err != nil {
			n.Fatal(err)
		}
	}
}

// publish makes deliveries of what was told.
func (n *node) publish() {
	n.Helper()
	if _, err := n.engine.Publish(n.ctx, n.DeliverEvents, webhook.Name); err != nil {
		n.Fatal(err)
	}
}

// awaitCauses waits until deliveries have moved for these causes, in any order.
func (n *node) awaitCauses(causes ...job.Cause) {
	n.Helper()
	for len(causes) > 0 {
		select {
		case m := <-n.transitions:
			if i := slices.Index(causes, m.On); i >= 0 {
				causes = slices.Delete(causes, i, i+1)
			}
		case <-n.ctx.Done():
			n.Fatalf("no delivery has moved for %v: %s", causes, n.logs.text())
		}
	}
}

func (n *node) operatorDeliveries(id string) []webhook.Delivery {
	n.Helper()
	all, _, err := n.Deliveries(n.ctx, webhook.Operators, id, "", 0, 10_000)
	if err != nil {
		n.Fatal(err)
	}
	return all
}

// WH-001: what an operator may subscribe to, and what not; a secret is shown once, in the answer.
func TestOperatorTerms(t *testing.T) {
	onEveryDatabase(t, func(t *testing.T, database string) {
		n := newWorld(t, database, false).node()
		h, secret := n.operate("https://a.example/x?key=1", func(t *webhook.Spec) {
			t.Name, t.Contracts, t.Rate = "mine", []string{"b", "a"}, job.Rate{Starts: 5,
				Period: time.Second}
		}, "*.job.failed", "queue.*")
		if h.Owner != webhook.Operators || h.Operator == nil || h.Operator.Name != "mine" ||
			h.Operator.MaxInFlight != 4 || len(secret) != 50 || !h.CreatedAt.Equal(n.clock.Now()) {
			t.Errorf("WH-001 subscribed %+v, %q", h, secret)
		}
		if got, err := n.Subscription(n.ctx, webhook.AnyOwner, h.ID); err != nil ||
			fmt.Sprint(got.Operator) != fmt.Sprint(h.Operator) {
			t.Errorf("WH-001 reads %+v, %v", got, err)
		}
		limits := func() (l job.QueueLimits) {
			if err := n.store.View(n.ctx, func(r store.Reader) error {
				all, err := r.QueueSettings()
				for _, q := range all {
					if q.JobType == webhook.Name && q.Queue == h.ID {
						l = q.Limits()
					}
				}
				return err
			}); err != nil {
				t.Fatal(err)
			}
			return l
		}
		if got := limits(); got.MaxRunning != 4 || got.Rate.Starts != 5 {
			t.Errorf("WH-006 the limits are %+v", got)
		}
		good := webhook.Spec{URL: "http://b.example", Events: []string{"*"},
			Options: webhook.Options{MaxInFlight: 1}}
		for name, invalidate := range map[string]func(*webhook.Spec){
			"no url":      func(t *webhook.Spec) { t.URL = "" },
			"scheme":      func(t *webhook.Spec) { t.URL = "file:///etc/passwd" },
			"credentials": func(t *webhook.Spec) { t.URL = "http://u:p@a/" },
			"no events":   func(t *webhook.Spec) { t.Events = nil },
			"pattern":     func(t *webhook.Spec) { t.Events = []string{"a[b]"} },
			"long":        func(t *webhook.Spec) { t.Events = []string{strings.Repeat("x", 101)} },
			"many":        func(t *webhook.Spec) { t.Events = make([]string, 101) },
			"empty queue": func(t *webhook.Spec) { t.Queues = []string{""} },
			"long name":   func(t *webhook.Spec) { t.Name = strings.Repeat("x", 101) },
			"in flight":   func(t *webhook.Spec) { t.MaxInFlight = 1001 },
			"rate":        func(t *webhook.Spec) { t.Rate = job.Rate{Starts: 1} },
		} {
			wrong := good
			invalidate(&wrong)
			if _, _, err := n.RegisterForOperators(n.ctx, wrong, "", unrecorded); !job.IsKind(err,
				job.Invalid) {
				t.Errorf("WH-001 %s: %v", name, err)
			}
		}
		given := "whsec_" + base64.StdEncoding.EncodeToString(make([]byte, 24))
		for _, wrong := range []string{"x", "whsec_", "whsec_!", given[:20]} {
			_, _, err := n.RegisterForOperators(n.ctx, good, wrong, unrecorded)
			n.wantKind(err, job.Invalid)
		}
		if _, got, err := n.RegisterForOperators(n.ctx, good, given, unrecorded); err != nil ||
			got != given {
			t.Errorf("WH-001 a given secret: %q, %v", got, err)
		}
		_, _, err := n.RegisterForOperators(n.ctx, webhook.Spec{URL: h.URL,
			Events: []string{"queue.*", "*.job.failed"}, Options: webhook.Options{MaxInFlight: 9,
				Contracts: []string{"a", "b"}}}, "", unrecorded)
		n.wantKind(err, job.Conflict)

		changed, err := n.ChangeForOperators(n.ctx, h.ID, func(t *webhook.Spec) error {
			t.MaxInFlight, t.Rate, t.Contracts = 2, job.Rate{}, nil
			return nil
		}, unrecorded)
		if err != nil || changed.Operator.MaxInFlight != 2 || changed.Operator.Name != "mine" {
			t.Errorf("WH-001 changed %+v, %v", changed.Operator, err)
		}
		if got := limits(); got.MaxRunning != 2 || !got.Rate.IsZero() {
			t.Errorf("WH-006 the limits are %+v", got)
		}
		if err := n.DeleteForOperators(n.ctx, h.ID, unrecorded); err != nil {
			t.Error(err)
		}
		if got := limits(); got != (job.QueueLimits{}) {
			t.Errorf("WH-006 the limits stay: %+v", got)
		}
		n.wantKind(n.DeleteForOperators(n.ctx, h.ID, unrecorded), job.NotFound)
	})
}

// WH-001: webhooks of clients stay their owners', and those of operators are nobody else's.
func TestOperatorsAndClients(t *testing.T) {
	onEveryDatabase(t, func(t *testing.T, database string) {
		n := newWorld(t, database, false).node()
		theirs, _ := n.register("http://a", "x")
		ours, _ := n.operate("http://a", nil, "x")
		_, err := n.ChangeForOperators(n.ctx, theirs.ID,
			func(*webhook.Spec) error { return nil }, unrecorded)
		_, rotateErr := n.RotateForOperators(n.ctx, theirs.ID,
			func(engine.RecordWriter) error { return nil })
		for _, err := range []error{err, rotateErr,
			n.DeleteForOperators(n.ctx, theirs.ID, unrecorded), n.Delete(n.ctx, owner, ours.ID)} {
			if err != webhook.ErrForbidden {
				t.Errorf("WH-001 got %v", err)
			}
		}
		own, err := n.Subscriptions(n.ctx, owner, "", 10)
		if err != nil || len(own) != 1 || own[0].ID != theirs.ID {
			t.Errorf("WH-001 the client has %+v, %v", own, err)
		}
		if all, err := n.Subscriptions(n.ctx, webhook.AnyOwner, "", 10); err != nil ||
			len(all) != 2 {
			t.Errorf("WH-001 all are %+v, %v", all, err)
		}
		n.deliver(n.event("j", 1, "x", ""))
		if got := n.operatorDeliveries(ours.ID); len(got) != 0 {
			t.Errorf("WH-001 operators get events of clients: %+v", got)
		}
	})
}

// WH-001, WH-003, WH-004: each subscription gets what it selects, in order, signed, with the
// payload only where it asks for it; a message that comes again makes no second delivery.
func TestOperatorDeliveries(t *testing.T) {
	onEveryDatabase(t, func(t *testing.T, database string) {
		n := newWorld(t, database, false).node().run()
		var failed atomic.Bool
		r := newReceiver(t, func(w http.ResponseWriter, r *http.Request, _ int) {
			if r.URL.Path == "/all" && failed.CompareAndSwap(false, true) {
				w.WriteHeader(http.StatusInternalServerError)
			}
		})
		n.work("before")
		whole, secret := n.operate(r.URL+"/all", nil, "worked.*")
		ended, _ := n.operate(r.URL+"/ended", func(t *webhook.Spec) {
			t.IncludePayload, t.Kinds = true, []string{"k"}
		}, "*.succeeded")
		others := []func(*webhook.Spec){
			func(t *webhook.Spec) { t.Contracts = []string{"other"} },
			func(t *webhook.Spec) { t.Queues = []string{"other"} },
			func(t *webhook.Spec) { t.Kinds = []string{"other"} },
			func(t *webhook.Spec) { t.Events = []string{"worked", "*.failed"} }}
		for i, edit := range others {
			n.operate(fmt.Sprintf("%s/other/%d", r.URL, i), edit, "*")
		}
		n.work("a")
		var kept []job.Message
		if _, err := n.engine.Publish(n.ctx, func(ctx context.Context, all []job.Message) error {
			kept = append(kept, all...)
			return n.DeliverEvents(ctx, all)
		}, webhook.Name); err != nil {
			t.Fatal(err)
		}
		first := n.operatorDeliveries(whole.ID)[2]
		n.awaitCauses(job.Failed, job.Succeeded) // of the one, and of the other
		if err := n.DeliverEvents(n.ctx, kept); err != nil {
			t.Fatal(err)
		}
		n.advanceAndPromote(2 * time.Second)
		n.awaitDone(3)
		at := `"timestamp":"2026-03-01T12:00:00`
		var ids []string
		for _, q := range r.requests() {
			if q.path == "/all" {
				ids = append(ids, q.header.Get("webhook-id"))
				verified(t, secret, q)
			}
			if !strings.Contains(q.body, at) || strings.HasPrefix(q.path, "/other") {
				t.Errorf("WH-003 %s: %s", q.path, q.body)
			}
		}
		if len(ids) != 4 || ids[0] != first.EventID || ids[1] != ids[0] {
			t.Errorf("WH-004 the ids are %v", ids)
		}
		var got []string
		for _, d := range slices.Backward(n.operatorDeliveries(whole.ID)) {
			got = append(got, d.EventName+" "+string(d.Status))
		}
		if want := "[worked.job.submitted delivered worked.job.claimed delivered " +
			"worked.job.succeeded delivered]"; fmt.Sprint(got) != want {
			t.Errorf("WH-004 delivered %v, want %s", got, want)
		}
		for _, q := range r.requests() {
			want := `"data":{"id":"a","result":"done"}}`
			if q.path == "/ended" {
				want = `"data":{"id":"a","result":"done","payload":"payload of a"}}`
			}
			if strings.Contains(q.body, `"type":"worked.job.succeeded"`) &&
				!strings.HasSuffix(q.body, want) {
				t.Errorf("WH-003 %s: %s", q.path, q.body)
			}
		}
		if got := n.operatorDeliveries(ended.ID); len(got) != 1 {
			t.Errorf("WH-001 selected are %+v", got)
		}
		if got := len(r.requests()); got != 5 {
			t.Errorf("WH-001 there were %d requests", got)
		}
	})
}

// WH-004: the next event of a job waits until the one before it has ended, on a node that publishes
// each of them apart; a correction of the URL reaches what is still to be made.
func TestOperatorOrder(t *testing.T) {
	onEveryDatabase(t, func(t *testing.T, database string) {
		n := newWorld(t, database, false).node().run()
		r := newReceiver(t, func(w http.ResponseWriter, r *http.Request, _ int) {
			if r.URL.Path == "/wrong" {
				w.WriteHeader(http.StatusNotFound)
			}
		})
		h, _ := n.operate(r.URL+"/wrong", nil, "*")
		n.work("a")
		if _, err := n.engine.Publish(n.ctx, func(ctx context.Context, all []job.Message) error {
			for i := range all {
				if err := n.DeliverEvents(ctx, all[i:i+1]); err != nil {
					return err
				}
			}
			return nil
		}, webhook.Name); err != nil {
			t.Fatal(err)
		}
		all := n.operatorDeliveries(h.ID)
		n.await(all[2].EventID, job.Failed)
		if _, err := n.ChangeForOperators(n.ctx, h.ID, func(t *webhook.Spec) error {
			t.URL = r.URL + "/right"
			return nil
		}, unrecorded); err != nil {
			t.Fatal(err)
		}
		if got := len(r.requests()); got != 1 {
			t.Errorf("WH-004 %d requests while the first is not over", got)
		}
		n.advanceAndPromote(2 * time.Second)
		n.awaitDone(3)
		var got []string
		for _, q := range r.requests() {
			got = append(got, q.path+" "+q.header.Get("webhook-id"))
		}
		want := []string{"/wrong " + all[2].EventID, "/right " + all[2].EventID,
			"/right " + all[1].EventID, "/right " + all[0].EventID}
		if !slices.Equal(got, want) {
			t.Errorf("WH-004 got %v, want %v", got, want)
		}
	})
}

// WH-006: a receiver that does not answer has max_in_flight requests, and delays neither jobs nor
// another receiver.
func TestMaxInFlight(t *testing.T) {
	onEveryDatabase(t, func(t *testing.T, database string) {
		n := newWorld(t, database, true, func(c *webhook.Config) { c.Timeout = time.Minute }).node()
		n.run()
		release := make(chan struct{})
		var atOnce, peak atomic.Int32
		slow := newReceiver(t, func(_ http.ResponseWriter, r *http.Request, _ int) {
			now := atOnce.Add(1)
			defer atOnce.Add(-1)
			for {
				if had := peak.Load(); now <= had || peak.CompareAndSwap(had, now) {
					break
				}
			}
			select {
			case <-release:
			case <-r.Context().Done():
			}
		})
		quick := newReceiver(t, nil)
		h, _ := n.operate(slow.URL, func(t *webhook.Spec) { t.MaxInFlight = 2 }, "*.submitted")
		n.operate(quick.URL, nil, "*.submitted")
		keys := make([]string, 20)
		for i := range keys {
			keys[i] = fmt.Sprint(i)
		}
		n.work(keys...)
		n.publish()
		for range keys {
			<-quick.ids
		}
		<-slow.ids
		<-slow.ids
		if got := len(slow.requests()); got != 2 {
			t.Errorf("WH-006 there are %d requests at a time, want 2", got)
		}
		close(release)
		n.awaitDone(2 * len(keys))
		if got := len(slow.requests()); got != len(keys) || peak.Load() > 2 {
			t.Errorf("WH-006 %d requests, %d at a time", got, peak.Load())
		}
		if got := n.operatorDeliveries(h.ID); len(got) != len(keys) {
			t.Errorf("WH-006 %d deliveries", len(got))
		}
	})
}

// Where more deliveries are claimed than the receiver has slots, what is put back for want of one
// is no attempt: each attempt has made a request. A delivery that was never sent has none.
func TestAttemptsAreRequests(t *testing.T) {
	onEveryDatabase(t, func(t *testing.T, database string) {
		n := newWorld(t, database, true, func(c *webhook.Config) {
			c.MaxAttempts, c.BackoffBase, c.BackoffFactor = 3, 20*time.Millisecond, 1
		}).node()
		n.run()
		r, _ := failingReceiver(t)
		h, _ := n.operate(r.URL, func(t *webhook.Spec) { t.MaxInFlight = 100 }, "*.submitted")
		off, _ := n.operate(r.URL+"/off", nil, "*.submitted")
		if _, err := n.SetDisabled(n.ctx, webhook.AnyOwner, off.ID, "off",
			func(engine.RecordWriter, webhook.Subscription) error { return nil }); err != nil {
			t.Fatal(err)
		}
		keys := make([]string, 60)
		for i := range keys {
			keys[i] = fmt.Sprint(i)
		}
		n.work(keys...)
		n.publish()
		n.awaitDone(2 * len(keys))
		for _, of := range []struct {
			id       string
			attempts int
		}{{h.ID, 3}, {off.ID, 0}} {
			jobs, err := n.engine.List(n.ctx, store.Filter{JobType: webhook.Name, Owner: of.id,
				WithoutBodies: true})
			if err != nil || len(jobs) != len(keys) {
				t.Fatal(len(jobs), err)
			}
			for _, j := range jobs {
				if j.Attempts != of.attempts {
					t.Errorf("%d attempts, want %d", j.Attempts, of.attempts)
				}
			}
		}
	})
}

// WH-006: at most rate attempts begin in a period; the rest waits for the next one.
func TestRate(t *testing.T) {
	onEveryDatabase(t, func(t *testing.T, database string) {
		n := newWorld(t, database, false).node()
		h, _ := n.operate("http://a.example", func(t *webhook.Spec) {
			t.Rate = job.Rate{Starts: 3, Period: time.Minute}
		}, "*.submitted")
		n.work("1", "2", "3", "4", "5")
		n.publish()
		claimed := func() int {
			jobs, err := n.engine.Claim(n.ctx, engine.ClaimRequest{JobType: webhook.Name, Max: 10})
			if err != nil {
				t.Fatal(err)
			}
			for _, j := range jobs {
				if _, err := n.engine.Finish(n.ctx, engine.Run{ID: j.ID, Run: j.Run},
					engine.Outcome{On: job.Succeeded}); err != nil {
					t.Fatal(err)
				}
			}
			return len(jobs)
		}
		for i, want := range []int{3, 0} {
			if got := claimed(); got != want {
				t.Errorf("WH-006 claim %d begins %d attempts of %s, want %d", i, got, h.ID, want)
			}
		}
		n.clock.Advance(time.Minute + time.Millisecond)
		if got := claimed(); got != 2 {
			t.Errorf("WH-006 in the next period %d begin, want 2", got)
		}
	})
}

// WH-004: a delivery for a subscription that is gone ends without an attempt, and one for a
// disabled subscription is recorded and can be replayed.
func TestOperatorsGoneAndDisabled(t *testing.T) {
	onEveryDatabase(t, func(t *testing.T, database string) {
		n := newWorld(t, database, false).node()
		r := newReceiver(t, nil)
		gone, _ := n.operate(r.URL+"/gone", nil, "*.submitted")
		off, _ := n.operate(r.URL+"/off", nil, "*.submitted")
		if _, err := n.SetDisabled(n.ctx, webhook.AnyOwner, off.ID, "off",
			func(engine.RecordWriter, webhook.Subscription) error { return nil }); err != nil {
			t.Fatal(err)
		}
		n.work("a")
		n.publish()
		if err := n.DeleteForOperators(n.ctx, gone.ID, unrecorded); err != nil {
			t.Fatal(err)
		}
		n.run()
		n.awaitDone(2)
		if got := len(r.requests()); got != 0 {
			t.Errorf("WH-004 there are %d requests", got)
		}
		if got := n.operatorDeliveries(off.ID); len(got) != 1 ||
			got[0].Status != webhook.Exhausted {
			t.Fatalf("WH-004 deliveries %+v", got)
		}
		if _, err := n.Enable(n.ctx, webhook.Operators, off.ID); err != nil {
			t.Fatal(err)
		}
		if done, err := n.ReplayAll(n.ctx, webhook.Operators, off.ID,
			webhook.ReplayFilter{Status: webhook.Exhausted}); err != nil || done.Made != 1 {
			t.Fatalf("WH-001 replayed %+v, %v", done, err)
		}
		n.awaitDone(1)
		if got := r.requests(); len(got) != 1 || got[0].path != "/off" {
			t.Errorf("WH-001 got %+v", got)
		}
	})
}

// WH-001: a test has the form of the events of operators.
func TestOperatorTest(t *testing.T) {
	onEveryDatabase(t, func(t *testing.T, database string) {
		n := newWorld(t, database, false).node()
		r := newReceiver(t, nil)
		h, secret := n.operate(r.URL, nil, "*")
		if _, err := n.Test(n.ctx, webhook.AnyOwner, h.ID, nil); err != nil {
			t.Fatal(err)
		}
		got := r.requests()
		if len(got) != 1 || got[0].body != `{"type":"millrace.test",`+
			`"timestamp":"2026-03-01T12:00:00Z","data":{"webhook_id":"`+h.ID+`"}}` {
			t.Fatalf("WH-001 got %+v", got)
		}
		verified(t, secret, got[0])
		fresh, err := n.RotateForOperators(n.ctx, h.ID,
			func(engine.RecordWriter) error { return nil })
		if err != nil || fresh == secret {
			t.Fatal(fresh, err)
		}
		if _, err := n.Test(n.ctx, webhook.AnyOwner, h.ID, nil); err != nil {
			t.Fatal(err)
		}
		for _, one := range []string{secret, fresh} {
			verified(t, one, r.requests()[1])
		}
	})
}
