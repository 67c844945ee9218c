package forgerun_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/telemetry"
	"github.com/millrace/millrace/internal/testkit"
)

// metricNames are those there are from the start, with their requirements.
var metricNames = map[string]string{
	"jobs_submitted_total": "FR-221", "jobs_queued_total": "FR-222", "jobs_running_total": "FR-223",
	"jobs_succeeded_total": "FR-224",
	"jobs_failed_total":    "FR-225", "jobs_canceled_total": "FR-226", "job_queue_depth": "FR-227",
	"job_queue_wait_seconds": "FR-228",
	"job_execution_seconds":  "FR-229", "webhook_deliveries_total": "FR-230",
	"webhook_failures_total": "FR-231",
	"job_assigned_seconds":   "FR-233", "job_retries_total": "FR-237",
	"job_retry_successes_total": "FR-237",
	"idempotency_hits_total":    "FR-238", "idempotency_new_total": "FR-238",
	"worker_heartbeats_total": "FR-239", "workers_available": "FR-239",
	"database_errors_total": "FR-240", "jobs_by_scenario_total": "FR-118",
	"http_request_duration_seconds": "FR-235",
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	w := inMemory(t, config())
	for name, id := range metricNames {
		t.Run(id+" zero from the start "+name, func(t *testing.T) {
			assertEqual(t, name, w.metric(t, name, nil), 0)
		})
	}
	c := w.customer(t)
	well := c.submit(t, submitBody("SUCCESS_FAST"), "Idempotency-Key", "k")
	c.submit(t, submitBody("SUCCESS_FAST"), "Idempotency-Key", "k")
	c.Do(t, "POST", "/v1/jobs", submitBody("IO_HEAVY"), "Idempotency-Key", "k").WantStatus(t, 409)
	again := c.submit(t, submitBody("RETRY_ON_FAIL"))
	canceled := c.submit(t, submitBody("CANCEL_DURING_RUN"))
	c.submit(t, submitBody("SUCCESS_FAST", executionAtMember(w.clock.Now().Add(time.Hour))))
	assertEqual(t, "FR-227 depth", w.metric(t, "job_queue_depth", nil), 3)
	w.clock.Advance(3 * time.Second)
	w.claimAndRun(t)
	w.claimAndRun(t)
	c.retry(t, again)
	w.claimAndStart(t)
	c.cancel(t, canceled)
	w.clock.Advance(time.Minute)
	w.claimAndRun(t)
	c.wantState(t, well, "SUCCEEDED")
	for name, want := range map[string]float64{"jobs_submitted_total": 4, "jobs_queued_total": 4,
		"jobs_running_total": 4, "jobs_succeeded_total": 2,
		"jobs_failed_total": 1, "jobs_canceled_total": 1, "job_queue_depth": 0,
		"job_queue_wait_seconds": 4, "job_assigned_seconds": 4,
		"job_execution_seconds": 4, "job_retries_total": 1, "job_retry_successes_total": 1,
		"idempotency_hits_total": 1,
		"idempotency_new_total":  4, "idempotency_conflicts_total": 1, "jobs_scheduled": 1} {
		t.Run(metricNames[name]+" FR-232 FR-233 "+name, func(t *testing.T) {
			assertEqual(t, name, w.metric(t, name, nil), want)
		})
	}
	for _, s := range []struct {
		scenario, outcome string
		want              float64
	}{{"SUCCESS_FAST", "SUCCESS", 1}, {"RETRY_ON_FAIL", "FAILED", 1},
		{"RETRY_ON_FAIL", "SUCCESS", 1}, {"CANCEL_DURING_RUN", "CANCELED", 1},
		{"IO_HEAVY", "SUCCESS", 0}} {
		t.Run("FR-118 scenario "+s.scenario+" "+s.outcome, func(t *testing.T) {
			assertEqual(t, "jobs", w.metric(t, "jobs_by_scenario_total",
				map[string]string{"scenario": s.scenario, "outcome": s.outcome}), s.want)
		})
	}
	t.Run("FR-118 submits by scenario", func(t *testing.T) {
		assertEqual(t, "jobs", w.metric(t, "jobs_submitted_by_scenario_total",
			map[string]string{"scenario": "SUCCESS_FAST"}), 2)
	})
	t.Run("FR-234 requests by route and status", func(t *testing.T) {
		route := map[string]string{"method": "POST", "route": "/v1/jobs", "status_code": "202"}
		assertEqual(t, "202", w.metric(t, "http_requests_total", route), 5)
		route["status_code"] = "409"
		assertEqual(t, "409", w.metric(t, "http_requests_total", route), 1)
		for range 3 {
			w.Do(t, "BREW", "/v1/nothing", "").WantStatus(t, 404)
		}
		assertEqual(t, "none", w.metric(t, "http_requests_total",
			map[string]string{"method": "other", "route": "none", "status_code": "404"}), 3)
		w.Do(t, "PUT", "/v1/jobs", "").WantStatus(t, 405)
		assertEqual(t, "405", w.metric(t, "http_requests_total",
			map[string]string{"method": "PUT", "route": "none", "status_code": "405"}), 1)
		for method, want := range map[string]float64{"other": 3, "PUT": 1} {
			labels := map[string]string{"method": method, "route": "none"}
			assertEqual(t, "times of "+method, w.metric(t, "http_request_duration_seconds", labels),
				want)
		}
	})
	t.Run("FR-235 FR-236 FR-228 FR-229 times in buckets", func(t *testing.T) {
		assertEqual(t, "latency", w.metric(t, "http_request_duration_seconds",
			map[string]string{"method": "POST", "route": "/v1/jobs"}), 6)
		families, err := w.registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]float64{"job_queue_wait_seconds": 3 + 4 + 7 + 60,
			"job_execution_seconds": 1 + 3 + 0 + 3}
		for _, f := range families {
			if sum, known := want[f.GetName()]; known {
				h := f.Metric[0].GetHistogram()
				if len(h.Bucket) < 10 || h.GetSampleSum() < sum-0.1 || h.GetSampleSum() > sum+0.1 {
					t.Errorf("%s has %d buckets and the sum %v, want %v", f.GetName(),
						len(h.Bucket), h.GetSampleSum(), sum)
				}
			}
		}
	})
}

// TestLog looks for the fields that lines must have.
func TestLog(t *testing.T) {
	t.Parallel()
	w := inMemory(t, config())
	c := w.customer(t)
	id := testkit.DecodeReply[jobView](t,
		c.Do(t, "POST", "/v1/jobs", submitBody("FAIL_IMMEDIATE"), "X-Request-Id",
			"r-submit").WantStatus(t, 202)).JobID
	w.claimAndRun(t)
	for action, path := range map[string]string{"get": "GET /v1/jobs/" + id,
		"report": "GET /v1/jobs/" + id + "/report",
		"retry":  "POST /v1/jobs/" + id + "/retry", "cancel": "POST /v1/jobs/" + id + "/cancel"} {
		method, path, _ := strings.Cut(path, " ")
		if action == "retry" || action == "cancel" {
			continue
		}
		c.Do(t, method, path, "", "X-Request-Id", "r-"+action).WantStatus(t, 200)
	}
	c.Do(t, "POST", "/v1/jobs/"+id+"/retry", "", "X-Request-Id", "r-retry").WantStatus(t, 200)
	c.Do(t, "POST", "/v1/jobs/"+id+"/cancel", "", "X-Request-Id", "r-cancel").WantStatus(t, 200)
	for _, action := range []string{"submit", "get", "report", "retry", "cancel"} {
		t.Run("FR-215 FR-216 FR-217 FR-218 "+action, func(t *testing.T) {
			lines := w.log.Lines(t, map[string]any{"request_id": "r-" + action})
			if len(lines) == 0 {
				t.Fatal("there is no line")
			}
			for _, l := range lines {
				if l["client_id"] != c.id || l["job_id"] != id || l["action"] != action {
					t.Errorf("%v", l)
				}
			}
		})
	}
	for request, states := range map[string][2]string{"r-retry": {"FAILED", "QUEUED"},
		"r-cancel": {"QUEUED", "CANCELED"}} {
		t.Run("FR-219 transition by "+request, func(t *testing.T) {
			assertEqual(t, "lines", len(w.log.Lines(t,
				map[string]any{"request_id": request, "current_state": states[0],
					"next_state": states[1]})), 1)
		})
	}
	for _, states := range [][2]string{{"", "CREATED"}, {"CREATED", "QUEUED"},
		{"QUEUED", "ASSIGNED"}, {"ASSIGNED", "RUNNING"}, {"RUNNING", "FAILED"},
		{"FAILED", "QUEUED"}, {"QUEUED", "CANCELED"}} {
		t.Run("FR-219 FR-117 transition "+states[0]+" to "+states[1], func(t *testing.T) {
			lines := w.log.Lines(t, map[string]any{"msg": "job", "job_id": id,
				"current_state": states[0], "next_state": states[1]})
			assertEqual(t, "lines", len(lines), 1)
			l := lines[0]
			if l["client_id"] != c.id || l["scenario"] != "FAIL_IMMEDIATE" ||
				l["scenario_duration_ms"] != float64(500) || l["expected_outcome"] != "FAILED" {
				t.Errorf("%v", l)
			}
		})
	}
	t.Run("FR-241 FR-220 a failure and its reason", func(t *testing.T) {
		lines := w.log.Lines(t, map[string]any{"msg": "job", "level": "INFO", "job_id": id,
			"next_state": "FAILED", "error_code": "simulated_failure"})
		if len(lines) != 1 || lines[0]["error_message"] == "" {
			t.Errorf("%v", lines)
		}
		lost := c.submit(t, submitBody("SUCCESS_FAST"))
		w.claimAndStart(t)
		w.clock.Advance(30 * time.Second)
		w.runMaintenance(t)
		lines = w.log.Lines(t, map[string]any{"msg": "job", "level": "WARN", "job_id": lost,
			"error_code": "runner_lost"})
		if len(lines) != 1 || lines[0]["error_message"] == "" {
			t.Errorf("%v", lines)
		}
	})
	t.Run("FR-220 requests that fail", func(t *testing.T) {
		c.Do(t, "POST", "/v1/jobs", `{"type":"DREAM"}`, "X-Request-Id", "r-bad").WantStatus(t, 400)
		lines := w.log.Lines(t, map[string]any{"request_id": "r-bad",
			"error_code": "RFA_JOB_VALIDATION_FAILED", "action": "submit", "client_id": c.id})
		if len(lines) != 1 || !strings.Contains(lines[0]["error_message"].(string), "type") {
			t.Errorf("%v", lines)
		}
	})
	t.Run("FR-220 FR-020 a defect with its cause", func(t *testing.T) {
		w, f := faultyWorld(t, config())
		c := w.customer(t)
		f.failReads(errors.New("SELECT secret"))
		c.Do(t, "GET", "/v1/jobs/"+nobody, "", "X-Request-Id", "r-defect").WantStatus(t, 500)
		lines := w.log.Lines(t, map[string]any{"request_id": "r-defect", "level": "ERROR",
			"error_code": "RFA_INTERNAL"})
		if len(lines) != 1 || !strings.Contains(lines[0]["error_message"].(string),
			"SELECT secret") {
			t.Errorf("%v", lines)
		}
	})
	t.Run("FR-020 a panic is answered as any other defect", func(t *testing.T) {
		w := inMemory(t, config())
		c := w.customer(t)
		w.forge.Random = func() [16]byte { panic("no randomness") }
		r := c.Do(t, "POST", "/v1/jobs", submitBody(""))
		r.WantError(t, 500, "RFA_INTERNAL")
		if strings.Contains(r.Body, "randomness") ||
			!strings.Contains(w.log.String(), "no randomness") {
			t.Errorf("%s", r.Body)
		}
	})
}

// TestCallerLeaves: a caller that leaves while the store is busy is logged as no error of the
// database.
func TestCallerLeaves(t *testing.T) {
	t.Parallel()
	w := inMemory(t, config())
	c := w.customer(t)
	id := c.submit(t, submitBody("SUCCESS_FAST"))
	busy, free := make(chan struct{}), make(chan struct{})
	var writer sync.WaitGroup
	writer.Go(func() {
		err := w.store.Update(context.Background(), func(store.Tx) error {
			close(busy)
			<-free
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
	<-busy
	ctx, leave := context.WithCancel(context.Background())
	defer leave()
	ctx = httptrace.WithClientTrace(ctx,
		&httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) {
			leave()
		}})
	req, err := http.NewRequestWithContext(ctx, "POST", w.URL+"/v1/jobs/"+id+"/cancel", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header = http.Header{"Authorization": {"Bearer " + c.key}, "X-Request-Id": {"r-gone"}}
	if _, err := w.Client.Do(req); !errors.Is(err, context.Canceled) {
		t.Errorf("the caller got %v", err)
	}
	line := map[string]any{"msg": "request", "request_id": "r-gone", "action": "cancel"}
	w.watcher.waitFor(t, "the end of the request", func() bool {
		return len(w.log.Lines(t, line)) == 1
	})
	close(free)
	writer.Wait()
	t.Run("FR-240", func(t *testing.T) {
		assertEqual(t, "errors of the database", w.metric(t, "database_errors_total", nil), 0)
		assertEqual(t, "errors answered", w.metric(t, "http_errors_total", nil), 0)
	})
	c.wantState(t, id, "QUEUED")
}

// TestTraces: what belongs together is one trace.
func TestTraces(t *testing.T) {
	t.Parallel()
	collector := testkit.NewCollector(t)
	tracing, err := telemetry.NewTracing(context.Background(), collector.URL, nil,
		attribute.String("service.name", "millrace"))
	if err != nil {
		t.Fatal(err)
	}
	config := config()
	config.Tracing, config.CancelWindow = tracing, time.Minute
	w := inMemory(t, config)
	c := w.customer(t)
	r := newReceiver(t)
	c.register(t, r.url, "job_succeeded")
	w.runServer(t)
	const caller = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	id := c.submit(t, submitBody("RETRY_ON_FAIL"), "Traceparent", caller)
	w.awaitTimers(t, 1)
	w.fakeTimers.advance(3 * time.Second)
	w.await(t, id, "FAILED")
	const retrier = "00-1af7651916cd43dd8448eb211c80319c-b7ad6b7169203332-01"
	c.Do(t, "POST", "/v1/jobs/"+id+"/retry", "", "Traceparent", retrier).WantStatus(t, 200)
	w.fakeTimers.advance(time.Minute)
	w.awaitTimers(t, 1)
	w.fakeTimers.advance(3 * time.Second)
	w.await(t, id, "SUCCEEDED")
	r.wait(t, 1)
	const canceler = "00-2af7651916cd43dd8448eb211c80319c-b7ad6b7169203333-01"
	second := c.submit(t, submitBody("CANCEL_DURING_RUN"))
	w.awaitTimers(t, 1)
	c.Do(t, "POST", "/v1/jobs/"+second+"/cancel", "", "Traceparent", canceler).WantStatus(t, 200)
	const scheduler = "00-3af7651916cd43dd8448eb211c80319c-b7ad6b7169203334-01"
	c.cancel(t, c.submit(t, submitBody("SUCCESS_FAST",
		executionAtMember(w.clock.Now().Add(time.Hour))), "Traceparent", scheduler))
	const early = "00-4af7651916cd43dd8448eb211c80319c-b7ad6b7169203335-01"
	c.cancel(t, c.submit(t, submitBody("CANCEL_BEFORE_START"), "Traceparent", early))
	c.Do(t, "POST", "/v1/clients/"+c.id+"/keys/revoke", `{"key_id":"`+c.keyID+`"}`).WantStatus(t,
		200)
	w.awaitTry(t)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := tracing.Shutdown(ctx); err != nil {
		t.Fatal(err)
	}
	spansOf := func(traceparent string) (names []string) {
		for _, s := range collector.Spans() {
			if traceOf(s) == traceparent[3:35] {
				names = append(names, s.Name)
			}
		}
		slices.Sort(names)
		return names
	}
	t.Run("FR-242 submit to report", func(t *testing.T) {
		assertEqual(t, "spans", strings.Join(spansOf(caller), " "),
			"assign enqueue report run start submit")
	})
	t.Run("FR-243 FR-244 retry, and the delivery of what came of it", func(t *testing.T) {
		assertEqual(t, "spans", strings.Join(spansOf(retrier), " "),
			"assign deliver enqueue report retry run start")
		s := collector.Find("deliver")
		r.mu.Lock()
		first := r.received[0]
		r.mu.Unlock()
		assertEqual(t, "the receiver's traceparent", first.trace,
			retrier[:36]+hex.EncodeToString(s.SpanId)+"-01")
		assertEqual(t, "event", testkit.AttributeOf(s, "event_id"), first.id)
		assertEqual(t, "status", testkit.AttributeOf(s, "http.response.status_code"),
			"int_value:200")
	})
	t.Run("FR-242 FR-243 the run that failed has an error, the other none", func(t *testing.T) {
		assertEqual(t, "failed", testkit.NamesOf(collector.Trace(caller)),
			"assign enqueue report run! start submit")
		assertEqual(t, "succeeded", testkit.NamesOf(collector.Trace(retrier)),
			"assign deliver enqueue report retry run start")
	})
	t.Run("FR-245 cancel", func(t *testing.T) {
		assertEqual(t, "spans", strings.Join(spansOf(canceler), " "), "cancel")
		s := collector.Find("cancel")
		if !bytes.Contains([]byte(s.String()), []byte(second)) {
			t.Errorf("the span does not name its job: %v", s)
		}
	})
	t.Run("FR-245 what a canceled job never came to has no span", func(t *testing.T) {
		assertEqual(t, "canceled while CREATED", strings.Join(spansOf(scheduler), " "),
			"report submit")
		assertEqual(t, "canceled while QUEUED", strings.Join(spansOf(early), " "),
			"enqueue report submit")
	})
	t.Run("FR-246 keys", func(t *testing.T) {
		for _, name := range []string{"create_key", "revoke_key", "create_client"} {
			if collector.Find(name) == nil {
				t.Errorf("there is no span %s", name)
			}
		}
	})
}

func traceOf(s *otlp.Span) string {
	const digits = "0123456789abcdef"
	var b strings.Builder
	for _, x := range s.TraceId {
		b.WriteByte(digits[x>>4])
		b.WriteByte(digits[x&15])
	}
	return b.String()
}

// awaitTry waits until the receiver's answer was recorded.
func (w *world) awaitTry(t testing.TB) {
	t.Helper()
	w.watcher.waitFor(t, "a delivery", func() bool {
		return w.metric(t, "webhook_deliveries_total", nil) > 0
	})
}

// TestChecks are what readiness asks for (FR-024, FR-027).
func TestChecks(t *testing.T) {
	t.Parallel()
	w, f := faultyWorld(t, config())
	failing := func() (names []string) {
		for _, c := range w.forge.Checks() {
			if c.Run(context.Background()) != nil {
				names = append(names, c.Name)
			}
		}
		return names
	}
	t.Run("FR-021 a store that is unavailable is not the fault of the pepper", func(t *testing.T) {
		f.failReads(&job.Error{Kind: job.Unavailable})
		assertEqual(t, "checks", strings.Join(failing(), ", "), "")
		f.failReads(nil)
		assertEqual(t, "checks", len(failing()), 0)
	})
	t.Run("FR-024 no worker claims", func(t *testing.T) {
		stop := w.runServer(t)
		c := w.customer(t)
		id := c.submit(t, submitBody("SUCCESS_FAST"))
		w.await(t, id, "RUNNING")
		assertEqual(t, "checks", len(failing()), 0)
		stop()
		assertEqual(t, "checks", strings.Join(failing(), ", "), "forgerun workers")
		c.submit(t, submitBody("SUCCESS_FAST")) // is accepted all the same (G-FR-29)
	})
}
