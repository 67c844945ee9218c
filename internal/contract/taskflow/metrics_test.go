package taskflow_test

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/internal/contract/taskflow"
	"github.com/millrace/millrace/internal/testkit"
)

// metric sums a metric over all children that have the labels.
func (w *world) metric(t testing.TB, name string, labels map[string]string) float64 {
	t.Helper()
	sum, _ := testkit.MetricSum(t, w.registry, name, labels)
	return sum
}

// TestMetrics compares what is counted with what has happened.
func TestMetrics(t *testing.T) {
	t.Parallel()
	w := inMemory(t, config())
	a := w.create(t, attempts(3, "FIXED", 5, 5)).ID
	b := w.create(t, dependenciesMember(a)).ID
	c := w.create(t, dependenciesMember(b)).ID
	w.create(t)
	w.Do(t, "POST", jobsPath, "{}").WantStatus(t, 400)
	w.fail(t, a, true)
	for status, want := range map[string]float64{"PENDING": 2, "READY": 2, "RUNNING": 0} {
		assertEqual(t, status, w.metric(t, "taskflow_jobs", map[string]string{"status": status}),
			want)
	}
	w.clock.Advance(5 * time.Second)
	j := w.claimAndStart(t, a)
	assertEqual(t, "running", w.metric(t, "taskflow_jobs", map[string]string{"status": "RUNNING"}),
		1)
	w.finish(t, j, taskflow.SuccessOutcome(j, nil))
	w.fail(t, b, false)
	w.status(t, c, "BLOCKED")
	for status, want := range map[string]float64{"PENDING": 4, "READY": 4, "RUNNING": 3,
		"COMPLETED": 1, "FAILED": 1, "BLOCKED": 1} {
		assertEqual(t, status, w.metric(t, "taskflow_transitions_total",
			map[string]string{"status": status}), want)
	}
	assertEqual(t, "retries", w.metric(t, "taskflow_retries_total", nil), 1)
	assertEqual(t, "runs", w.metric(t, "taskflow_run_seconds", nil), 3)
	assertEqual(t, "waits", w.metric(t, "taskflow_wait_seconds", nil), 3)
	assertEqual(t, "creates", w.metric(t, "taskflow_http_request_duration_seconds",
		map[string]string{"route": "POST /api/v1/jobs", "code": "2xx"}), 4)
	assertEqual(t, "errors", w.metric(t, "taskflow_errors_total",
		map[string]string{"code": "VALIDATION_ERROR"}), 1)
}

// TestConfig: what is missing is named before anything is served.
func TestConfig(t *testing.T) {
	t.Parallel()
	for name, invalidate := range map[string]func(*taskflow.Config){
		"Engine": func(c *taskflow.Config) { c.Engine = nil },
		"Log": func(c *taskflow.Config) {
			c.Log = nil
		}, "Registry": func(c *taskflow.Config) {
			c.Registry = nil
		}, "Now": func(c *taskflow.Config) { c.Now = nil },
		"Random": func(c *taskflow.Config) {
			c.Random = nil
		}, "Lease": func(c *taskflow.Config) { c.Lease = 0 },
		"MaxConcurrent": func(c *taskflow.Config) {
			c.MaxConcurrent = 0
		}, "BodyLimit": func(c *taskflow.Config) { c.BodyLimit = 0 },
		"GraphBodyLimit": func(c *taskflow.Config) { c.GraphBodyLimit = c.BodyLimit - 1 },
	} {
		c := config()
		c.Engine = testkit.MemoryEngine(t)
		c.Registry, c.Now, c.Random, c.Log = prometheus.NewRegistry(), testkit.NewClock().Now,
			testkit.RandomBytes, slog.New(slog.DiscardHandler)
		if _, err := taskflow.New(c); err != nil {
			t.Fatal(err)
		}
		c.Registry = prometheus.NewRegistry()
		invalidate(&c)
		if _, err := taskflow.New(c); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("without %s: %v", name, err)
		}
	}
}

// What happens to a job goes on in the trace of the request that made it, also where a worker
// outside runs it.
func TestTraces(t *testing.T) {
	t.Parallel()
	collector := testkit.NewCollector(t)
	c := config()
	var flush func()
	c.Tracing, flush = collector.Tracing(t)
	w := inMemory(t, c)
	const (
		caller = "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01"
		failer = "00-1123456789abcdef0123456789abcdef-0123456789abcdef-01"
		loser  = "00-2123456789abcdef0123456789abcdef-0123456789abcdef-01"
	)
	create := func(trace string, members ...string) string {
		r := w.Do(t, "POST", "/api/v1/jobs", jobSpec(members...), "Traceparent", trace,
			"Tracestate", "vendor=a-b").WantStatus(t, 201)
		return testkit.DecodeReply[struct{ ID string }](t, r).ID
	}
	a := w.create(t)
	b := create(caller, dependenciesMember(a.ID))
	w.succeed(t, a.ID)
	w.succeed(t, b)
	bad := create(failer)
	create(loser, dependenciesMember(bad))
	w.fail(t, bad, false)
	flush()
	assertEqual(t, "the caller's trace", testkit.NamesOf(collector.Trace(caller)),
		"create end queue run wait")
	assertEqual(t, "the trace of one that failed", testkit.NamesOf(collector.Trace(failer)),
		"create end queue run! wait")
	assertEqual(t, "the trace of one that is blocked by it",
		testkit.NamesOf(collector.Trace(loser)), "create end wait")
	for _, s := range collector.Trace(failer) {
		assertEqual(t, "the tracestate of "+s.Name, s.TraceState, "vendor=a-b")
		if s.Name == "run" && !strings.Contains(s.Status.Message, "it broke") {
			t.Errorf("the run's status is %v", s.Status)
		}
	}
}
