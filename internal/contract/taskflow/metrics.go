package taskflow

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/telemetry"
)

// metrics holds the contract's metrics of requests, transitions and attempts.
type metrics struct {
	requests    *prometheus.HistogramVec
	errors      *prometheus.CounterVec
	transitions map[job.State]prometheus.Counter
	retries     prometheus.Counter
	wait        prometheus.Histogram
	run         prometheus.Histogram
}

func newMetrics(r prometheus.Registerer, e func() *engine.Engine) (*metrics, error) {
	buckets := []float64{1e-3, 5e-3, 25e-3, 100e-3, 500e-3, 1, 5, 30, 60, 300, 1800, 3600, 21600}
	entered := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "taskflow_transitions_total",
		Help: "Jobs that entered a status; PENDING counts all that were created."},
		[]string{"status"})
	m := &metrics{
		requests: prometheus.NewHistogramVec(
			prometheus.HistogramOpts{Name: "taskflow_http_request_duration_seconds",
				Help: "Time from the header of a request to its answer, by route and class of " +
					"status.",
				Buckets: []float64{250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 10e-3, 25e-3, 50e-3, 100e-3,
					500e-3, 2.5, 10, 30}}, []string{"route", "code"}),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "taskflow_errors_total",
			Help: "Requests answered with an error, by its code."}, []string{"code"}),
		retries: prometheus.NewCounter(prometheus.CounterOpts{Name: "taskflow_retries_total",
			Help: "Failed attempts after which a job is retried."}),
		wait: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "taskflow_wait_seconds",
			Help: "Time from when a job was due to when it was claimed.", Buckets: buckets}),
		run: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "taskflow_run_seconds",
			Help: "Time from the claim of a job to the end of the attempt.", Buckets: buckets}),
		transitions: map[job.State]prometheus.Counter{},
	}
	for _, c := range []prometheus.Collector{m.requests, m.errors, m.retries, m.wait, m.run,
		entered, queueGauges(e)} {
		if err := r.Register(c); err != nil {
			return nil, fmt.Errorf("taskflow: %w", err)
		}
	}
	for _, s := range statuses {
		m.transitions[s] = entered.WithLabelValues(string(s))
	}
	return m, nil
}

// countTransitions counts transitions and observes how long jobs waited and attempts took.
func (m *metrics) countTransitions(moves []engine.Moved) {
	for i := range moves {
		mv := &moves[i]
		m.transitions[mv.To].Inc()
		switch {
		case mv.To == Running:
			since := mv.Since
			if mv.Job.DueAt.After(since) {
				since = mv.Job.DueAt
			}
			m.wait.Observe(max(0, mv.At.Sub(since).Seconds()))
		case mv.From == Running:
			m.run.Observe(mv.At.Sub(mv.Job.StartedAt).Seconds())
			if mv.To == Ready {
				m.retries.Inc()
			}
		}
	}
}

// route returns the function that observes the duration of a route's requests.
func (m *metrics) route(name string) func(int, time.Duration) {
	return telemetry.StatusClassObserver(m.requests, name)
}

var jobsDesc = prometheus.NewDesc("taskflow_jobs", "Jobs that are not over, by status.",
	[]string{"status"}, nil)

// queueGauges collects how many jobs there are that have not finished. There is no engine, and
// there are no jobs, before the contract is bound to one.
func queueGauges(bound func() *engine.Engine) prometheus.Collector {
	return &telemetry.QueueGauges{
		Descs: []*prometheus.Desc{jobsDesc},
		Counts: func(ctx context.Context) ([]job.QueueCount, error) {
			e := bound()
			if e == nil {
				return nil, nil
			}
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
