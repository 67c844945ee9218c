package taskflow_test

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/millrace/millrace/internal/contract/taskflow"
	"github.com/millrace/millrace/internal/testkit"
)

// metric sums a metric's values, or the number of what a histogram has seen, over
// all children that have the labels.
func (w *world) metric(t testing.TB, name string, labels map[string]string) (sum float64) {
	t.Helper()
	families, err := w.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.Metric {
			if has(m, labels) {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
		return sum
	}
	t.Errorf("there is no metric %s", name)
	return 0
}

func has(m *dto.Metric, labels map[string]string) bool {
	found := 0
	for _, l := range m.Label {
		if labels[l.GetName()] == l.GetValue() {
			found++
		}
	}
	return found == len(labels)
}

// TestMetrics holds what is counted against what has happened.
func TestMetrics(t *testing.T) {
	t.Parallel()
	w := inMemory(t, config())
	a := w.create(t, attempts(3, "FIXED", 5, 5)).ID
	b := w.create(t, after(a)).ID
	c := w.create(t, after(b)).ID
	w.create(t)
	w.do(t, "POST", jobsPath, "{}").want(t, 400)
	w.fail(t, a, true)
	for status, want := range map[string]float64{"PENDING": 2, "READY": 2, "RUNNING": 0} {
		equal(t, status, w.metric(t, "taskflow_jobs", map[string]string{"status": status}), want)
	}
	w.clock.Advance(5 * time.Second)
	j := w.begin(t, a)
	equal(t, "running", w.metric(t, "taskflow_jobs", map[string]string{"status": "RUNNING"}), 1)
	w.finish(t, j, taskflow.CompletedWith(j, nil))
	w.fail(t, b, false)
	w.status(t, c, "BLOCKED")
	for status, want := range map[string]float64{"PENDING": 4, "READY": 4, "RUNNING": 3, "COMPLETED": 1, "FAILED": 1, "BLOCKED": 1} {
		equal(t, status, w.metric(t, "taskflow_transitions_total", map[string]string{"status": status}), want)
	}
	equal(t, "retries", w.metric(t, "taskflow_retries_total", nil), 1)
	equal(t, "runs", w.metric(t, "taskflow_run_seconds", nil), 3)
	equal(t, "waits", w.metric(t, "taskflow_wait_seconds", nil), 3)
	equal(t, "creates", w.metric(t, "taskflow_http_request_duration_seconds", map[string]string{"route": "POST /api/v1/jobs", "code": "2xx"}), 4)
	equal(t, "errors", w.metric(t, "taskflow_errors_total", map[string]string{"code": "VALIDATION_ERROR"}), 1)
}

// TestConfig: what is missing is named before anything is served.
func TestConfig(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(*taskflow.Config){
		"Log": func(c *taskflow.Config) { c.Log = nil }, "Registry": func(c *taskflow.Config) { c.Registry = nil }, "Now": func(c *taskflow.Config) { c.Now = nil },
		"Random": func(c *taskflow.Config) { c.Random = nil }, "Lease": func(c *taskflow.Config) { c.Lease = 0 },
		"MaxConcurrent": func(c *taskflow.Config) { c.MaxConcurrent = 0 }, "BodyLimit": func(c *taskflow.Config) { c.BodyLimit = 0 },
		"GraphBodyLimit": func(c *taskflow.Config) { c.GraphBodyLimit = c.BodyLimit - 1 },
	} {
		c := config()
		c.Registry, c.Now, c.Random, c.Log = prometheus.NewRegistry(), testkit.NewClock().Now, testkit.Random, slog.New(slog.DiscardHandler)
		if _, err := taskflow.New(c); err != nil {
			t.Fatal(err)
		}
		c.Registry = prometheus.NewRegistry()
		spoil(&c)
		if _, err := taskflow.New(c); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("without %s: %v", name, err)
		}
	}
}
