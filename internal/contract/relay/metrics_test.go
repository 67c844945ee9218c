package relay_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/internal/testkit"
)

func newRegistry() *prometheus.Registry { return prometheus.NewRegistry() }

// metric sums a metric over all children that have the labels, and counts these.
func (w *world) metric(t *testing.T, name string, labels map[string]string) (sum float64,
	children int) {
	t.Helper()
	return testkit.MetricSum(t, w.registry, name, labels)
}

// TestMetrics is G-RL-23.
func TestMetrics(t *testing.T) {
	t.Parallel()
	w := inMemory(t, config())
	w.put(t, jobBody("m", "1", `"timeout":5,"max_retries":1`), jobBody("m", "2"), jobBody("m", "3"),
		jobBody("m", "4"))
	w.enqueue(t, "ignore", jobBody("m", "1"), jobBody("m", "5"), jobBody("n", "1")).WantStatus(t,
		202)
	w.enqueue(t, "", jobBody("m", "1")).WantStatus(t, 409)
	w.clock.Advance(2 * time.Second)
	runs := w.next(t, "m", 5)
	w.heartbeat(t, runs[1], "").WantStatus(t, 202)
	w.Do(t, "DELETE", runs[1].runPath(), "").WantStatus(t, 200)
	w.Do(t, "DELETE", runs[1].runPath(), "").WantStatus(t, 200)
	w.Do(t, "PUT", runs[2].runPath(), "["+jobBody("m", "6")+"]").WantStatus(t, 202)
	// of a lost run: counts nowhere
	w.Do(t, "PUT", runs[2].runPath(), "["+jobBody("m", "7")+"]").WantStatus(t, 202)
	w.Do(t, "DELETE", jobPath("m", "4"), "").WantStatus(t, 200)
	w.Do(t, "DELETE", jobPath("m", "4"), "").WantStatus(t, 200)
	w.Do(t, "HEAD", jobPath("m", "1"), "").WantStatus(t, 200)
	w.Do(t, "GET", jobPath("m", "1"), "").WantStatus(t, 200)
	w.clock.Advance(5 * time.Second)
	w.runMaintenance(t)
	w.claim(t, "m")
	w.clock.Advance(5 * time.Second)
	w.runMaintenance(t)
	for name, want := range map[string]float64{"relay_enqueued_total": 6, "relay_fetched_total": 6,
		"relay_heartbeat_total": 1,
		"relay_completed_total": 1, "relay_requeued_total": 1, "relay_deleted_total": 1,
		"relay_exists_total": 1, "relay_get_total": 1,
		"relay_retries_total": 1, "relay_exhausted_total": 1, "relay_latency_seconds": 6,
		"relay_duration_seconds": 3} {
		got, _ := w.metric(t, name, map[string]string{"queue": "m"})
		assertEqual(t, name, got, want)
	}
	conflicts, _ := w.metric(t, "relay_errors_total", map[string]string{"type": "conflict"})
	assertEqual(t, "conflicts", conflicts, 1)
	posts, _ := w.metric(t, "relay_http_request_duration_seconds",
		map[string]string{"route": "POST /v2/queues/jobs", "code": "2xx"})
	assertEqual(t, "posts", posts, 2)
}

// TestMetricLabels: neither many queues nor questions about unknown ones make labels without end.
func TestMetricLabels(t *testing.T) {
	t.Parallel()
	w := inMemory(t, config())
	for i := range 250 {
		w.Do(t, "HEAD", jobPath(fmt.Sprint("unknown-", i), "1"), "").WantStatus(t, 404)
	}
	var specs []string
	for i := range 250 {
		specs = append(specs, jobBody(fmt.Sprint("q", i), "1"))
	}
	w.put(t, specs...)
	_, children := w.metric(t, "relay_enqueued_total", nil)
	assertEqual(t, "labels", children, 101)
	sum, _ := w.metric(t, "relay_enqueued_total", nil)
	assertEqual(t, "jobs", sum, 250)
	other, _ := w.metric(t, "relay_exists_total", map[string]string{"queue": "_other"})
	assertEqual(t, "questions", other, 250)
}
