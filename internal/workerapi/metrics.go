package workerapi

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/telemetry"
)

// The values of the label outcome: how a run ended.
const (
	outcomeCompleted   = "completed"
	outcomeFailed      = "failed"
	outcomeReleased    = "released"
	outcomeOverdue     = "overdue"     // it timed out while its worker was alive
	outcomeUndelivered = "undelivered" // the caller of the claim was gone before the answer
)

// metrics are the requests of workers, and the jobs they claimed and finished.
type metrics struct {
	requests *prometheus.HistogramVec
	errors   *prometheus.CounterVec
	waiting  *prometheus.GaugeVec
	claimed  *prometheus.CounterVec
	finished *prometheus.CounterVec
}

// newMetrics registers the metrics, with a series for every contract, code and outcome from the
// start: a rate over a series that appears later misses its first count.
func newMetrics(r prometheus.Registerer, contracts []Adapter) (*metrics, error) {
	all := telemetry.NewMetrics(r)
	m := &metrics{
		requests: all.Histograms("millrace_worker_api_request_duration_seconds",
			"Time from the header of a request to its answer, by action and class of status; a "+
				"claim may wait for 30 s.",
			[]float64{500e-6, 1e-3, 2.5e-3, 5e-3, 10e-3, 25e-3, 100e-3, 500e-3, 2.5, 10, 30, 60},
			"action", "code"),
		errors: all.Counters("millrace_worker_api_errors_total",
			"Requests, and outcomes of a batch, answered with an error, by its code.", "code"),
		waiting: all.Gauges("millrace_worker_api_waiting_claims",
			"Claims that are being served or wait for a job.", "contract"),
		claimed: all.Counters("millrace_worker_api_claimed_jobs_total", "Jobs claimed.",
			"contract"),
		finished: all.Counters("millrace_worker_api_ended_runs_total",
			"Runs that ended here, by outcome; the other claimed runs are in progress, were "+
				"canceled or lost their lease.", "contract", "outcome"),
	}
	// All series exist from the start, at zero.
	for i := range errorTable {
		m.errors.WithLabelValues(errorTable[i].Code)
	}
	for i := range contracts {
		name := contracts[i].Name
		m.waiting.WithLabelValues(name)
		m.claimed.WithLabelValues(name)
		for _, outcome := range []string{outcomeCompleted, outcomeFailed, outcomeReleased,
			outcomeOverdue, outcomeUndelivered} {
			m.finished.WithLabelValues(name, outcome)
		}
	}
	return m, all.Err()
}

// observeRoute returns the function that observes the duration of a route's requests.
func (m *metrics) observeRoute(r *httpapi.Route) func(status int, took time.Duration) {
	return telemetry.StatusClassObserver(m.requests, r.Action)
}
