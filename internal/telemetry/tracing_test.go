package telemetry_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/millrace/millrace/internal/outage"
	"github.com/millrace/millrace/internal/telemetry"
	"github.com/millrace/millrace/internal/testkit"
)

func newTracing(t *testing.T, endpoint string, log io.Writer) *telemetry.Tracing {
	t.Helper()
	clock := telemetry.StartStopwatch()
	monitor := outage.NewMonitor(slog.New(slog.NewTextHandler(log, nil)), clock.Elapsed,
		outage.Endpoint{Name: "traces", Setting: "telemetry.otlp_endpoint", Address: endpoint})
	tr, err := telemetry.NewTracing(t.Context(), endpoint, monitor,
		attribute.String("service.name", "millrace"))
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

func flushSpans(t *testing.T, tr *telemetry.Tracing) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testkit.WaitTimeout)
	defer cancel()
	if err := tr.Shutdown(ctx); err != nil {
		t.Error(err)
	}
}

// TestTracing: one trace from a request over a job, whose place is kept as text, to a run on
// another node, and what is left at the end is sent.
func TestTracing(t *testing.T) {
	t.Parallel()
	r := testkit.NewCollector(t)
	here, there := newTracing(t, r.URL, io.Discard), newTracing(t, r.URL+"/v1/traces", io.Discard)

	ctx, submit := here.StartServer(t.Context(), "submit", attribute.String("job_id", "j"))
	kept := telemetry.Carrier(ctx)
	submit.End()

	started := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	queued := there.Record(telemetry.Resume(t.Context(), kept), "queue", started,
		started.Add(time.Second))
	_, run := there.StartSpan(queued, "run")
	telemetry.FailSpan(run, "it broke")
	run.End()
	_, call := there.StartClient(queued, "webhook")
	call.End()
	flushSpans(t, here)
	flushSpans(t, there)

	first, second, third, fourth := r.Find("submit"), r.Find("queue"), r.Find("run"),
		r.Find("webhook")
	if first == nil || second == nil || third == nil || fourth == nil {
		t.Fatalf("FR-242 FR-244 spans are missing of %v", r.Spans())
	}
	if want := "00-" + hex.EncodeToString(first.TraceId) + "-" + hex.EncodeToString(first.SpanId) +
		"-01"; kept != want {
		t.Errorf("the place is %q, want %q", kept, want)
	}
	for _, s := range []*otlp.Span{second, third, fourth} {
		if !bytes.Equal(s.TraceId, first.TraceId) {
			t.Errorf("%s is of another trace", s.Name)
		}
	}
	if !bytes.Equal(second.ParentSpanId, first.SpanId) ||
		!bytes.Equal(third.ParentSpanId, second.SpanId) {
		t.Error("the order of the spans is lost")
	}
	if second.EndTimeUnixNano-second.StartTimeUnixNano != uint64(time.Second) ||
		second.StartTimeUnixNano != uint64(started.UnixNano()) {
		t.Errorf("queue lasts from %d to %d", second.StartTimeUnixNano, second.EndTimeUnixNano)
	}
	if third.Status.Code != otlp.Status_STATUS_CODE_ERROR || third.Status.Message != "it broke" ||
		third.Kind != otlp.Span_SPAN_KIND_INTERNAL {
		t.Errorf("got %v", third)
	}
	if first.Kind != otlp.Span_SPAN_KIND_SERVER ||
		first.Attributes[0].Value.GetStringValue() != "j" ||
		fourth.Kind != otlp.Span_SPAN_KIND_CLIENT {
		t.Errorf("got %v and %v", first, fourth)
	}
	paths, services := r.Senders()
	for i, p := range paths {
		if p != "POST /v1/traces" || services[i] != "service.name=millrace" {
			t.Errorf("got %s of %s", p, services[i])
		}
	}
}

// TestSampling: what the caller does not record is not recorded here.
func TestSampling(t *testing.T) {
	t.Parallel()
	r := testkit.NewCollector(t)
	tr := newTracing(t, r.URL, io.Discard)
	for name, given := range map[string]string{"unrecorded": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00",
		"recorded": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "alone": "",
		"broken": "00-zz-b7ad6b7169203331-01"} {
		ctx, span := tr.StartSpan(telemetry.Resume(t.Context(), given), name)
		span.End()
		if telemetry.Carrier(ctx) == "" {
			t.Errorf("%s: there is no place", name)
		}
	}
	flushSpans(t, tr)
	if r.Find("unrecorded") != nil || r.Find("recorded") == nil || r.Find("alone") == nil ||
		r.Find("broken") == nil {
		t.Errorf("got %v", r.Spans())
	}
	if got := hex.EncodeToString(r.Find("recorded").ParentSpanId); got != "b7ad6b7169203331" {
		t.Errorf("the parent is %s", got)
	}
	if p := r.Find("broken").ParentSpanId; len(p) != 0 {
		t.Errorf("a broken traceparent has become a parent: %x", p)
	}
}

func TestPlaces(t *testing.T) {
	t.Parallel()
	const good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for given, want := range map[string]string{
		good:                     good,
		good[:len(good)-1] + "0": good[:len(good)-1] + "0",
		"":                       "",
		strings.ToUpper(good):    "",
		good + "-more":           "",
		"ff" + good[2:]:          "",
		good[:3] + strings.Repeat("0", 32) + good[35:]:            "",
		"00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01": "",
		strings.Repeat("0", 1<<16):                                "",
	} {
		if got := telemetry.Carrier(telemetry.Resume(t.Context(), given)); got != want {
			t.Errorf("%.60q: got %q, want %q", given, got, want)
		}
		id := ""
		if want != "" {
			id = want[3:35]
		}
		if got := telemetry.TraceID(given); got != id {
			t.Errorf("%.60q: got the trace %q, want %q", given, got, id)
		}
	}
}

// TestTraceState: what vendors keep in a trace comes along, through a job, a span and a request, up
// to a bound.
func TestTraceState(t *testing.T) {
	t.Parallel()
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	r := testkit.NewCollector(t)
	tr, done := r.Tracing(t)
	for name, c := range map[string]struct {
		sent []string
		want string
	}{
		"one":    {[]string{"vendor=a-b"}, "vendor=a-b"},
		"two":    {[]string{"vendor=a", "other=b"}, "vendor=a,other=b"},
		"none":   {nil, ""},
		"broken": {[]string{"=;"}, ""},
		"too long": {[]string{"vendor=a,long=" + strings.Repeat("b", 250),
			"more=" + strings.Repeat("c", 250)}, "vendor=a,long=" + strings.Repeat("b", 250)},
	} {
		h := http.Header{telemetry.TraceParent: {parent}}
		if c.sent != nil {
			h[telemetry.TraceState] = c.sent
		}
		kept := telemetry.Carrier(telemetry.Extract(t.Context(), h))
		if want := strings.TrimSpace(parent + " " + c.want); kept != want {
			t.Errorf("%s: %q is kept, want %q", name, kept, want)
		}
		out := http.Header{}
		ctx, span := tr.StartSpan(telemetry.Resume(t.Context(), kept), name)
		telemetry.Inject(ctx, out)
		span.End()
		place := "00-0af7651916cd43dd8448eb211c80319c-" + span.SpanContext().SpanID().String() +
			"-01"
		if out.Get("traceparent") != place || out.Get("tracestate") != c.want {
			t.Errorf("%s: sent on as %v, want %s", name, out, place)
		}
	}
	done()
	if s := r.Find("two"); s == nil || s.TraceState != "vendor=a,other=b" {
		t.Errorf("the span is %v", s)
	}
	out := http.Header{}
	telemetry.Inject(t.Context(), out)
	if len(out) > 0 {
		t.Errorf("without a trace there is %v", out)
	}
	twice := http.Header{telemetry.TraceParent: {parent, parent}}
	if got := telemetry.Carrier(telemetry.Extract(t.Context(), twice)); got != "" {
		t.Errorf("of two places %q is taken", got)
	}
}

// TestFailedRun: a reason of any bytes becomes the status of the span, and a run that ended well
// has none.
func TestFailedRun(t *testing.T) {
	t.Parallel()
	r := testkit.NewCollector(t)
	tr, done := r.Tracing(t)
	now := time.Now()
	tr.RecordRun(t.Context(), "", now, now, attribute.String("run", "good"))
	tr.RecordRun(t.Context(), "broken \xff"+strings.Repeat("ä", 5000), now, now,
		attribute.String("run", "bad"))
	done()
	for _, s := range r.Spans() {
		failed := testkit.AttributeOf(s, "run") == "bad"
		if (s.Status.GetCode() == otlp.Status_STATUS_CODE_ERROR) != failed ||
			len(s.Status.GetMessage()) > 1<<10 ||
			strings.HasPrefix(s.Status.GetMessage(), "broken ä") != failed {
			t.Errorf("got %v", s)
		}
	}
	if n := len(r.Spans()); n != 2 {
		t.Errorf("there are %d spans", n)
	}
}

// TestNoTracing: without a collector nothing is made, and a caller's trace is handed on.
func TestNoTracing(t *testing.T) { // not parallel: it counts allocations
	for name, tr := range map[string]*telemetry.Tracing{"nil": nil,
		"no endpoint": newTracing(t, "", io.Discard)} {
		given := telemetry.Resume(t.Context(),
			"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
		ctx, span := tr.StartSpan(given, "x")
		if tr.Enabled() || ctx != given || span.SpanContext().IsValid() ||
			tr.Record(given, "x", time.Time{}, time.Time{}) != given {
			t.Errorf("%s makes spans", name)
		}
		span.End()
		flushSpans(t, tr)
		if n := testing.AllocsPerRun(100, func() {
			_, s := tr.StartSpan(given, "x")
			s.SetName("y")
			s.End()
		}); n > 0 {
			t.Errorf("%s: a span costs %v allocations", name, n)
		}
	}
	telemetry.FailSpan(trace.SpanFromContext(t.Context()), "not recorded")
}

// TestCollectorOutage: no caller waits for a collector that does not answer, its failure is logged
// once, and the shutdown is bounded.
func TestCollectorOutage(t *testing.T) {
	t.Parallel()
	asked, let := make(chan struct{}, 1), make(chan struct{})
	silent := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		_, _ = io.Copy(io.Discard, req.Body)
		select {
		case asked <- struct{}{}:
		default:
		}
		<-let
	}))
	defer silent.Close()
	defer close(let)
	tr := newTracing(t, silent.URL, io.Discard)
	for range 20_000 { // more than the queue holds
		_, span := tr.StartSpan(t.Context(), "x")
		span.End()
	}
	<-asked
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := tr.Shutdown(ctx); err == nil {
		t.Error("the shutdown says that everything was sent")
	}

	refusing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusBadRequest)
	}))
	defer refusing.Close()
	var log bytes.Buffer
	tr = newTracing(t, refusing.URL, &log)
	for range 3000 {
		_, span := tr.StartSpan(t.Context(), "x")
		span.End()
	}
	flushSpans(t, tr)
	if n := strings.Count(log.String(), "a part is degraded"); n != 1 {
		t.Errorf("the failure is logged %d times: %s", n, log.String())
	}
}
