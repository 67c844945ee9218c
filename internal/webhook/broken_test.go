package webhook_test

import (
	"context"
	"encoding/hex"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	oteltrace "go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/testkit"
	"github.com/millrace/millrace/internal/webhook"
)

// A record that cannot be read affects only its owner's subscription.
func TestBrokenRecord(t *testing.T) {
	t.Parallel()
	n := newWorld(t, "memory", false).node()
	r := newReceiver(t, nil)
	broken, _ := n.register("http://broken.invalid", "a")
	good, _ := n.register(r.URL, "a")
	n.deliver(n.event("i", 1, "a", ""))
	if err := n.engine.ChangeRecords(n.ctx, "x", func(to engine.RecordWriter) error {
		return to.UpsertRecords(job.Record{Kind: "webhook", Key: broken.ID, Owner: owner,
			Body: []byte("{")})
	}); err != nil {
		t.Fatal(err)
	}
	n.deliver(n.event("j", 1, "a", ""))
	n.run()
	n.awaitDone(2)
	if got := n.deliveries(good.ID); len(got) != 2 || got[0].Status != webhook.Delivered ||
		got[1].Status != webhook.Delivered {
		t.Errorf("deliveries %+v", got)
	}
	if !strings.Contains(n.logs.text(), "is skipped") {
		t.Errorf("logged %s", n.logs.text())
	}
}

// A delivery whose definition cannot be read ends, and nothing else does.
func TestBrokenDelivery(t *testing.T) {
	t.Parallel()
	n := newWorld(t, "memory", false).node()
	id := job.ID{JobType: webhook.Name, Key: unknownID}
	if _, err := n.engine.Submit(n.ctx, engine.Unique,
		[]engine.Submission{{Job: job.Job{ID: id, Queue: "deliveries", Lease: time.Minute,
			Definition: []byte("[")}}}); err != nil {
		t.Fatal(err)
	}
	n.run()
	n.awaitDone(1)
	if j, err := n.engine.Get(n.ctx, id); err != nil || j.State != "exhausted" {
		t.Errorf("%+v, %v", j, err)
	}
}

// Each attempt is a span of the trace its event came from, with the ids of what it delivers and its
// outcome, and the request carries the span.
func TestSpans(t *testing.T) {
	t.Parallel()
	const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	collector := testkit.NewCollector(t)
	tracing, flush := collector.Tracing(t)
	n := newWorld(t, "memory", false, func(c *webhook.Config) {
		c.MaxAttempts = 1
		c.StartSpan = func(ctx context.Context, attrs ...attribute.KeyValue) (context.Context,
			oteltrace.Span) {
			return tracing.StartClient(ctx, "deliver", attrs...)
		}
	}).node().run()
	r := newReceiver(t, func(w http.ResponseWriter, _ *http.Request, i int) {
		w.WriteHeader([]int{0, 200, 500, 204}[i]) // the third is of the unreachable job
	})
	hook, _ := n.register(r.URL+"?secret=hush", "a")
	for i := range 2 {
		ev := n.event("j", i, "a", "")
		ev.Trace = trace + " vendor=a"
		n.deliver(ev)
		n.awaitDone(1)
	}
	unreachable := n.event("k", 0, "a", "http://"+testkit.ClosedAddress(t)+"/?secret=hush")
	unreachable.Trace = trace
	n.deliver(unreachable)
	n.awaitDone(2)
	flush()
	spans := collector.Trace(trace)
	byParent := map[string]*otlp.Span{}
	statuses := map[string]int{}
	for _, s := range spans {
		byParent["00-0af7651916cd43dd8448eb211c80319c-"+hex.EncodeToString(s.SpanId)+"-01"] = s
		statuses[testkit.AttributeOf(s, "http.response.status_code")+" "+
			testkit.NamesOf([]*otlp.Span{s})]++
		for _, key := range []string{"client_id", "job_id", "delivery_id", "webhook_ids",
			"event_id", "event_name", "attempt", "server.address"} {
			if testkit.AttributeOf(s, key) == "" {
				t.Errorf("FR-244 a span has no %s: %v", key, s)
			}
		}
		if strings.Contains(s.String(), "hush") {
			t.Errorf("a span has a secret: %v", s)
		}
	}
	if len(spans) < 3 || statuses["int_value:200 deliver"] != 1 ||
		statuses["int_value:500 deliver!"] != 1 || statuses["int_value:204 deliver"] != 1 {
		t.Errorf("FR-244 the spans are %v", statuses)
	}
	withState := 0
	for _, q := range r.requests() {
		s := byParent[q.header.Get("traceparent")]
		if s == nil || !strings.Contains(s.String(), hook.ID) ||
			testkit.AttributeOf(s, "event_id") != q.header.Get("webhook-id") {
			t.Errorf("a request is of the span %v", s)
		}
		if q.header.Get("tracestate") == "vendor=a" {
			withState++
		}
	}
	if withState != 2 {
		t.Errorf("%d requests have the tracestate, want 2", withState)
	}
}

// WH-004: spans and log lines of an operators' webhook have the id and the contract of the job that
// the event is about, and neither where it is about none.
func TestSpansOfOperators(t *testing.T) {
	t.Parallel()
	spans := make(chan []attribute.KeyValue, 20)
	n := newWorld(t, "memory", false, func(c *webhook.Config) {
		c.StartSpan = func(ctx context.Context, _ ...attribute.KeyValue) (context.Context,
			oteltrace.Span) {
			return ctx, recordedSpan{noop.Span{}, spans}
		}
	}).node().run()
	r := newReceiver(t, func(http.ResponseWriter, *http.Request, int) {})
	n.operate(r.URL, nil, "worked.job.submitted", "queue.paused")
	n.work("a job")
	if err := n.engine.SetQueue(n.ctx, job.QueueSettings{JobType: worked.Name, Queue: "q",
		Paused: true}); err != nil {
		t.Fatal(err)
	}
	n.publish()
	n.awaitDone(2)
	close(spans)
	about := map[string]string{}
	for attrs := range spans {
		for _, a := range attrs {
			about[string(a.Key)] += a.Value.String() + ";"
		}
	}
	if about["job_id"] != "a job;" || about["job_contract"] != worked.Name+";" {
		t.Errorf("WH-004 the spans are about %v", about)
	}
	logged := n.logs.text()
	if strings.Count(logged, "a delivery was tried") != 2 || strings.Count(logged, "job_id=") != 1 ||
		!strings.Contains(logged, `job_id="a job" job_contract=`+worked.Name+" ") ||
		strings.Contains(logged, "client_id=") || about["client_id"] != "" {
		t.Errorf("WH-004 logged %s", logged)
	}
}

// recordedSpan passes on what is set.
type recordedSpan struct {
	oteltrace.Span
	set chan<- []attribute.KeyValue
}

func (s recordedSpan) SetAttributes(attrs ...attribute.KeyValue) { s.set <- attrs }

// An attempt that panics has failed, and neither its slots nor the others suffer.
func TestPanic(t *testing.T) {
	t.Parallel()
	var spans atomic.Int64
	n := newWorld(t, "memory", false, func(c *webhook.Config) {
		c.MaxAttempts, c.Slots = 1, 1
		c.StartSpan = func(ctx context.Context, _ ...attribute.KeyValue) (context.Context,
			oteltrace.Span) {
			if spans.Add(1) == 1 {
				panic("broken span")
			}
			return ctx, noop.Span{}
		}
	}).node().run()
	r := newReceiver(t, nil)
	for i := range 2 {
		n.deliver(n.event("j", i, "a", r.URL))
		n.awaitDone(1)
	}
	all, _, err := n.Deliveries(n.ctx, owner, "", "", 0, 9)
	if err != nil || len(all) != 2 || all[0].Status != webhook.Delivered ||
		all[1].Status != webhook.Exhausted {
		t.Errorf("deliveries %+v, %v", all, err)
	}
	if !strings.Contains(n.logs.text(), "broken span") {
		t.Errorf("logged %s", n.logs.text())
	}
}
