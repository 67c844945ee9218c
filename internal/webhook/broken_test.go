package webhook_test

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/webhook"
)

// A record that cannot be read concerns nobody but its owner's subscription.
func TestBrokenRecord(t *testing.T) {
	t.Parallel()
	n := newWorld(t, "memory", false).node()
	r := receive(t, nil)
	broken, _ := n.register("http://broken.invalid", "a")
	good, _ := n.register(r.URL, "a")
	n.notify(n.event("i", 1, "a", ""))
	if err := n.engine.ChangeRecords(n.ctx, "x", func(to engine.RecordWriter) error {
		return to.PutRecords(job.Record{Kind: "webhook", Key: broken.ID, Owner: owner, Body: []byte("{")})
	}); err != nil {
		t.Fatal(err)
	}
	n.notify(n.event("j", 1, "a", ""))
	n.run()
	n.awaitDone(2)
	if got := n.deliveries(good.ID); len(got) != 2 || got[0].Status != webhook.Delivered || got[1].Status != webhook.Delivered {
		t.Errorf("deliveries %+v", got)
	}
	if !strings.Contains(n.logs.text(), "passed over") {
		t.Errorf("logged %s", n.logs.text())
	}
}

// A delivery whose definition cannot be read ends, and nothing else does.
func TestBrokenDelivery(t *testing.T) {
	t.Parallel()
	n := newWorld(t, "memory", false).node()
	id := job.ID{Contract: webhook.Name, Key: unknownID}
	if _, err := n.engine.Submit(n.ctx, engine.Unique, []engine.Submission{{Job: job.Job{ID: id, Queue: "deliveries", Lease: time.Minute, Definition: []byte("[")}}}); err != nil {
		t.Fatal(err)
	}
	n.run()
	n.awaitDone(1)
	if j, err := n.engine.Get(n.ctx, id); err != nil || j.State != "exhausted" {
		t.Errorf("%+v, %v", j, err)
	}
}

// Each try runs in a span of the trace its event came from.
func TestSpans(t *testing.T) {
	t.Parallel()
	const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	var begun, ended, failed atomic.Int64
	n := newWorld(t, "memory", false, func(c *webhook.Config) {
		c.MaxTries = 1
		c.Span = func(ctx context.Context, from string) (context.Context, func(error)) {
			if from == trace {
				begun.Add(1)
			}
			return ctx, func(err error) {
				ended.Add(1)
				if err != nil {
					failed.Add(1)
				}
			}
		}
	}).node().run()
	r := receive(t, func(w http.ResponseWriter, _ *http.Request, i int) { w.WriteHeader([]int{0, 200, 500}[i]) })
	for i := range 2 {
		ev := n.event("j", i, "a", r.URL)
		ev.Trace = trace
		n.notify(ev)
		n.awaitDone(1)
	}
	if begun.Load() != 2 || ended.Load() != 2 || failed.Load() != 1 {
		t.Errorf("FR-244 %d spans began, %d ended, %d failed", begun.Load(), ended.Load(), failed.Load())
	}
}

// A try that panics has failed, and neither its slots nor the others suffer.
func TestPanic(t *testing.T) {
	t.Parallel()
	var spans atomic.Int64
	n := newWorld(t, "memory", false, func(c *webhook.Config) {
		c.MaxTries, c.Slots = 1, 1
		c.Span = func(ctx context.Context, _ string) (context.Context, func(error)) {
			if spans.Add(1) == 1 {
				panic("broken span")
			}
			return ctx, func(error) {}
		}
	}).node().run()
	r := receive(t, nil)
	for i := range 2 {
		n.notify(n.event("j", i, "a", r.URL))
		n.awaitDone(1)
	}
	all, _, err := n.Deliveries(n.ctx, owner, "", 0, 9)
	if err != nil || len(all) != 2 || all[0].Status != webhook.Delivered || all[1].Status != webhook.Exhausted {
		t.Errorf("deliveries %+v, %v", all, err)
	}
	if !strings.Contains(n.logs.text(), "broken span") {
		t.Errorf("logged %s", n.logs.text())
	}
}

func FuzzRetryAfter(f *testing.F) {
	for _, s := range []string{"", "1", "-1", "Sun, 01 Mar 2026 12:01:30 GMT", "99999999999999999999"} {
		f.Add(s)
	}
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, value string) {
		if d := webhook.RetryAfter(http.Header{"Retry-After": {value}}, now); d < 0 || d > 24*time.Hour {
			t.Errorf("%q asks for %v", value, d)
		}
	})
}
