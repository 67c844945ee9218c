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
func (w *world) metric(t *testing.T, name string, labels map[string]string) (sum float64, children int) {
	t.Helper()
	return testkit.Metric(t, w.registry, name, labels)
}

// TestMetrics is G-RL-23.
func TestMetrics(t *testing.T) {
	t.Parallel()
	w := inMemory(t, config())
	w.put(t, spec("m", "1", `"timeout":5,"max_retries":1`), spec("m", "2"), spec("m", "3"), spec("m", "4"))
	w.enqueue(t, "ignore", spec("m", "1"), spec("m", "5"), spec("n", "1")).Want(t, 202)
	w.enqueue(t, "", spec("m", "1")).Want(t, 409)
	w.clock.Advance(2 * time.Second)
	runs := w.next(t, "m", 5)
	w.beat(t, runs[1], "").Want(t, 202)
	w.Do(t, "DELETE", runs[1].runPath(), "").Want(t, 200)
	w.Do(t, "DELETE", runs[1].runPath(), "").Want(t, 200)
	w.Do(t, "PUT", runs[2].runPath(), "["+spec("m", "6")+"]").Want(t, 202)
	w.Do(t, "PUT", runs[2].runPath(), "["+spec("m", "7")+"]").Want(t, 202) // of a lost run: counts nowhere
	w.Do(t, "DELETE", jobPath("m", "4"), "").Want(t, 200)
	w.Do(t, "DELETE", jobPath("m", "4"), "").Want(t, 200)
	w.Do(t, "HEAD", jobPath("m", "1"), "").Want(t, 200)
	w.Do(t, "GET", jobPath("m", "1"), "").Want(t, 200)
	w.clock.Advance(5 * time.Second)
	w.sweep(t)
	w.claim(t, "m")
	w.clock.Advance(5 * time.Second)
	w.sweep(t)
	for name, want := range map[string]float64{"relay_enqueued_total": 6, "relay_fetched_total": 6, "relay_heartbeat_total": 1,
		"relay_completed_total": 1, "relay_requeued_total": 1, "relay_deleted_total": 1, "relay_exists_total": 1, "relay_get_total": 1,
		"relay_retries_total": 1, "relay_exhausted_total": 1, "relay_latency_seconds": 6, "relay_duration_seconds": 3} {
		got, _ := w.metric(t, name, map[string]string{"queue": "m"})
		equal(t, name, got, want)
	}
	conflicts, _ := w.metric(t, "relay_errors_total", map[string]string{"type": "conflict"})
	equal(t, "conflicts", conflicts, 1)
	posts, _ := w.metric(t, "relay_http_request_duration_seconds", map[string]string{"route": "POST /v2/queues/jobs", "code": "2xx"})
	equal(t, "posts", posts, 2)
}

// TestMetricLabels: neither many queues nor questions about unknown ones make
// labels without end.
func TestMetricLabels(t *testing.T) {
	t.Parallel()
	w := inMemory(t, config())
	for i := range 250 {
		w.Do(t, "HEAD", jobPath(fmt.Sprint("unknown-", i), "1"), "").Want(t, 404)
	}
	var specs []string
	for i := range 250 {
		specs = append(specs, spec(fmt.Sprint("q", i), "1"))
	}
	w.put(t, specs...)
	_, children := w.metric(t, "relay_enqueued_total", nil)
	equal(t, "labels", children, 101)
	sum, _ := w.metric(t, "relay_enqueued_total", nil)
	equal(t, "jobs", sum, 250)
	other, _ := w.metric(t, "relay_exists_total", map[string]string{"queue": "_other"})
	equal(t, "questions", other, 250)
}
