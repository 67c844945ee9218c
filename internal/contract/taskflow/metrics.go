package taskflow

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/telemetry"
)

// Metrics of jobs are counted by transitions that are committed, on the node that has committed
// them (engine.JobType.OnTransitions), so that sums over all nodes count each once. How many jobs
// there are now is read from the store at each scrape, so all nodes report the same.

// metrics holds the contract's metrics of requests, transitions and attempts.
type metrics struct {
	requests    *prometheus.HistogramVec
	errors      *prometheus.CounterVec
	transitions map[job.State]prometheus.Counter
	retries     prometheus.Counter
	wait        prometheus.Histogram
	run         prometheus.Histogram
}

// newMetrics registers all metrics. Each status has its series from the start.
func newMetrics(r prometheus.Registerer, e *engine.Engine) (*metrics, error) {
	all := telemetry.NewMetrics(r)
	buckets := []float64{1e-3, 5e-3, 25e-3, 100e-3, 500e-3, 1, 5, 30, 60, 300, 1800, 3600, 21600}
	m := &metrics{
		requests: all.Histograms("taskflow_http_request_duration_seconds",
			"Time from the header of a request to its answer, by route and class of status.",
			[]float64{250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 10e-3, 25e-3, 50e-3, 100e-3, 500e-3, 2.5,
				10, 30}, "route", "code"),
		errors: all.Counters("taskflow_errors_total",
			"Requests answered with an error, by its code.", "code"),
		retries: all.Counter("taskflow_retries_total",
			"Failed attempts after which a job is retried."),
		wait: all.Histogram("taskflow_wait_seconds",
			"Time from when a job was due to when it was claimed.", buckets),
		run: all.Histogram("taskflow_run_seconds",
			"Time from the claim of a job to the end of the attempt.", buckets),
		transitions: map[job.State]prometheus.Counter{},
	}
	transitions := all.Counters("taskflow_transitions_total",
		"Jobs that entered a status; PENDING counts all that were created.", "status")
	for _, s := range statuses {
		m.transitions[s] = transitions.WithLabelValues(string(s))
	}
	all.Register(queueGauges(e))
	return m, all.Err()
}

// observeTransition counts a transition and observes how long its job waited or its attempt took. A
// job that waited for its retry waits from when it was due.
func (m *metrics) observeTransition(c *engine.Transitioned) {
	m.transitions[c.To].Inc()
	switch {
	case c.To == Running:
		since := c.Since
		if c.Job.DueAt.After(since) {
			since = c.Job.DueAt
		}
		m.wait.Observe(max(0, c.At.Sub(since).Seconds()))
	case c.From == Running:
		m.run.Observe(c.At.Sub(c.Job.StartedAt).Seconds())
		if c.To == Ready {
			m.retries.Inc()
		}
	}
}

// observeRoute returns the function that observes the duration of a route's requests.
func (m *metrics) observeRoute(r *httpapi.Route) func(status int, took time.Duration) {
	return telemetry.StatusClassObserver(m.requests, r.Method+" "+r.Pattern)
}

var jobsDesc = prometheus.NewDesc("taskflow_jobs", "Jobs that are not done, by status.",
	[]string{"status"}, nil)

// queueGauges collects how many jobs there are that have not finished. A job that waits for its
// retry is delayed for the engine and READY for clients. Finished jobs have no gauge.
func queueGauges(e *engine.Engine) prometheus.Collector {
	return &telemetry.QueueGauges{
		Descs: []*prometheus.Desc{jobsDesc},
		Counts: func(ctx context.Context) ([]job.QueueCount, error) {
			return e.Queues(ctx, Name)
		},
		Gauges: func(counts []job.QueueCount, set telemetry.SetGauge) {
			var all job.QueueCount
			for _, c := range counts {
				all = all.Plus(c)
			}
			set(jobsDesc, all.Waiting, string(Pending))
			set(jobsDesc, all.Delayed+all.Ready, string(Ready))
			set(jobsDesc, all.Leased, string(Running))
		}}
}
