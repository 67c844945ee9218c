package forgerun

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/telemetry"
)

// metrics holds the metrics FR-221 to FR-240 under the names of G-FR-59. Those of jobs are counted
// by committed transitions, so that they agree with the events.
type metrics struct {
	entries         map[job.State]prometheus.Counter // entries into each state but ASSIGNED
	idempotencyNew  prometheus.Counter
	idempotencyHits prometheus.Counter
	// idempotencyConflicts counts submits whose key belongs to a job with another payload.
	idempotencyConflicts prometheus.Counter

	queueWait, assigned, execution prometheus.Histogram
	scenarios, scenarioSubmits     *prometheus.CounterVec
	retries, retrySuccesses        prometheus.Counter

	deliveries, deliveryFailures prometheus.Counter
	deliverySeconds              prometheus.Histogram

	heartbeats prometheus.Counter
	workers    prometheus.Gauge

	requests       *prometheus.CounterVec
	latency        *prometheus.HistogramVec
	errors         *prometheus.CounterVec
	databaseErrors prometheus.Counter
}

func counter(name, help string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
}

func counters(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
}

func gauge(name, help string) prometheus.Gauge {
	return prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
}

func histogram(name, help string, buckets []float64) prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help,
		Buckets: buckets})
}

var (
	waitBuckets = []float64{1e-3, 5e-3, 10e-3, 25e-3, 50e-3, 100e-3, 250e-3, 500e-3, 1, 2.5, 5,
		10, 30, 60, 300, 1800, 3600}
	runBuckets = []float64{5e-3, 50e-3, 500e-3, 1, 2, 3, 5, 8, 10, 15, 20, 30, 60, 90, 110, 120,
		300}
	requestBuckets = []float64{250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 10e-3, 25e-3, 50e-3, 100e-3,
		250e-3, 500e-3, 1, 2.5, 10, 30}
)

// newMetrics registers the metrics. Each label value has a sample from the start.
func newMetrics(r prometheus.Registerer, depth prometheus.Collector,
	available func() float64) (*metrics, error) {
	m := &metrics{
		entries: map[job.State]prometheus.Counter{
			created:   counter("jobs_submitted_total", "Jobs stored by submits."),
			queued:    counter("jobs_queued_total", "Entries into QUEUED."),
			running:   counter("jobs_running_total", "Entries into RUNNING."),
			succeeded: counter("jobs_succeeded_total", "Entries into SUCCEEDED."),
			failed:    counter("jobs_failed_total", "Entries into FAILED."),
			canceled:  counter("jobs_canceled_total", "Entries into CANCELED."),
		},
		idempotencyNew: counter("idempotency_new_total", "Submits that made a job."),
		idempotencyHits: counter("idempotency_hits_total",
			"Submits answered with the job that their key had made before."),
		idempotencyConflicts: counter("idempotency_conflicts_total",
			"Submits refused because their key belongs to another payload."),
		queueWait: histogram("job_queue_wait_seconds", "Time from QUEUED to ASSIGNED.",
			waitBuckets),
		assigned: histogram("job_assigned_seconds", "Time from ASSIGNED to RUNNING.",
			waitBuckets),
		execution: histogram("job_execution_seconds",
			"Time from RUNNING to the state after it.", runBuckets),
		scenarios: counters("jobs_by_scenario_total",
			"Entries into a final state, by work kind and outcome.", "scenario", "outcome"),
		scenarioSubmits: counters("jobs_submitted_by_scenario_total",
			"Jobs stored by submits, by work kind.", "scenario"),
		retries: counter("job_retries_total", "Failed jobs that were queued again."),
		retrySuccesses: counter("job_retry_successes_total",
			"Jobs that succeeded after a retry."),
		deliveries: counter("webhook_deliveries_total",
			"Tries of deliveries that were sent."),
		deliveryFailures: counter("webhook_failures_total",
			"Tries of deliveries that failed: no answer, too late, or not 2xx."),
		deliverySeconds: histogram("webhook_delivery_seconds",
			"Time that a try of a delivery took.", requestBuckets),
		heartbeats: counter("worker_heartbeats_total",
			"Heartbeats of this node's workers."),
		workers: gauge("workers", "Workers of this node."),
		requests: counters("http_requests_total", "Requests, by route and status.",
			"method", "route", "status_code"),
		latency: prometheus.NewHistogramVec(
			prometheus.HistogramOpts{Name: "http_request_duration_seconds",
				Help:    "Time from the header of a request to its answer, by route.",
				Buckets: requestBuckets}, []string{"method", "route"}),
		errors: counters("http_errors_total",
			"Requests answered with an error, by its code.", "error_code"),
		databaseErrors: counter("database_errors_total",
			"Requests and runs that met an error of the database."),
	}
	if err := m.register(r, depth, available); err != nil {
		return nil, err
	}
	for i := range kinds {
		m.scenarioSubmits.WithLabelValues(kinds[i].name)
		for _, s := range []job.State{succeeded, failed, canceled} {
			m.scenarios.WithLabelValues(kinds[i].name, outcome(s))
		}
	}
	for i := range errorTable {
		m.errors.WithLabelValues(errorTable[i].Code)
	}
	return m, nil
}

func (m *metrics) register(r prometheus.Registerer, depth prometheus.Collector,
	available func() float64) error {
	all := []prometheus.Collector{m.idempotencyNew, m.idempotencyHits, m.idempotencyConflicts,
		m.queueWait, m.assigned, m.execution, m.scenarios, m.scenarioSubmits,
		m.retries, m.retrySuccesses, m.deliveries, m.deliveryFailures, m.deliverySeconds,
		m.heartbeats, m.workers, m.requests, m.latency, m.errors, m.databaseErrors, depth,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "workers_available",
			Help: "Workers of this node that can take a job."}, available)}
	for _, c := range m.entries {
		all = append(all, c)
	}
	for _, c := range all {
		if err := r.Register(c); err != nil {
			return fmt.Errorf("forgerun: %w", err)
		}
	}
	return nil
}

// onTransition counts a transition.
func (m *metrics) onTransition(c *engine.Moved) {
	if entered := m.entries[c.To]; entered != nil {
		entered.Inc()
	}
	scenario := c.Job.Kind
	if kindByName[scenario] == nil {
		scenario = "unknown" // stored names must not make an unlimited number of labels
	}
	switch {
	case c.To == created:
		m.scenarioSubmits.WithLabelValues(scenario).Inc()
	case c.To == assigned:
		m.queueWait.Observe(c.At.Sub(c.Since).Seconds())
	case c.To == running:
		m.assigned.Observe(c.At.Sub(c.Since).Seconds())
	case c.From == running:
		m.execution.Observe(c.At.Sub(c.Job.StartedAt).Seconds())
	case c.From == failed:
		m.retries.Inc()
	}
	if !final(c.To) {
		return
	}
	m.scenarios.WithLabelValues(scenario, outcome(c.To)).Inc()
	if c.To == succeeded && c.Job.FailedAttempts > 0 {
		m.retrySuccesses.Inc()
	}
}

// countError counts a request that was answered with an error.
func (m *metrics) countError(code string) {
	m.errors.WithLabelValues(code).Inc()
	if code == codeDatabase {
		m.databaseErrors.Inc()
	}
}

// countTry counts a try of a delivery.
func (m *metrics) countTry(ok bool, elapsed time.Duration) {
	m.deliveries.Inc()
	m.deliverySeconds.Observe(elapsed.Seconds())
	if !ok {
		m.deliveryFailures.Inc()
	}
}

// route returns the function that counts and observes the requests of a route.
func (m *metrics) route(method, pattern string) func(int, time.Duration) {
	latency := m.latency.WithLabelValues(method, pattern)
	// there from the start
	m.requests.WithLabelValues(method, pattern, strconv.Itoa(successStatus(method, pattern)))
	// status to its counter
	var counters sync.Map
	return func(status int, elapsed time.Duration) {
		latency.Observe(elapsed.Seconds())
		c, ok := counters.Load(status)
		if !ok {
			c, _ = counters.LoadOrStore(status,
				m.requests.WithLabelValues(method, pattern, strconv.Itoa(status)))
		}
		c.(prometheus.Counter).Inc()
	}
}

// successStatus is the status of a route when all goes well (FR-002).
func successStatus(method, pattern string) int {
	switch {
	case method == http.MethodPost && pattern == "/v1/jobs":
		return http.StatusAccepted
	case method == http.MethodPost && (pattern == "/v1/clients" || pattern == clientKeysPath ||
		pattern == "/v1/webhooks"):
		return http.StatusCreated
	}
	return http.StatusOK
}

// unmatched counts and times a request that no route is for.
func (m *metrics) unmatched(method string, status int, elapsed time.Duration) {
	m.latency.WithLabelValues(method, "none").Observe(elapsed.Seconds())
	m.requests.WithLabelValues(method, "none", strconv.Itoa(status)).Inc()
}

var (
	depthDesc  = prometheus.NewDesc("job_queue_depth", "Jobs that are QUEUED.", nil, nil)
	activeDesc = prometheus.NewDesc("jobs_active", "Jobs that are ASSIGNED or RUNNING.", nil,
		nil)
	scheduledDesc = prometheus.NewDesc("jobs_scheduled",
		"Jobs that are CREATED and wait for their time.", nil, nil)
)

// queueGauges collects how many jobs there are that have not finished. There is no engine, and
// there are no jobs, before the contract is bound to one.
func queueGauges(bound func() *engine.Engine) prometheus.Collector {
	return &telemetry.QueueGauges{
		Descs: []*prometheus.Desc{depthDesc, activeDesc, scheduledDesc},
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
			set(depthDesc, all.Ready+all.Delayed)
			set(activeDesc, all.Leased)
			set(scheduledDesc, all.Waiting)
		}}
}
