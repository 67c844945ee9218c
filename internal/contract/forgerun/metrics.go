package forgerun

import (
	"context"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/telemetry"
)

// metrics holds the metrics FR-221 to FR-240 under the names of G-FR-59. Those of jobs are counted
// by committed transitions, so that they agree with the events. Each transition is counted by the
// node that has committed it, so the sum over all nodes counts it once. The gauges of the queue are
// read from the store, so every node reports the same.
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

var (
	waitBuckets = []float64{1e-3, 5e-3, 10e-3, 25e-3, 50e-3, 100e-3, 250e-3, 500e-3, 1, 2.5, 5,
		10, 30, 60, 300, 1800, 3600}
	runBuckets = []float64{5e-3, 50e-3, 500e-3, 1, 2, 3, 5, 8, 10, 15, 20, 30, 60, 90, 110, 120,
		300}
	requestBuckets = []float64{250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 10e-3, 25e-3, 50e-3, 100e-3,
		250e-3, 500e-3, 1, 2.5, 10, 30}
)

// newMetrics registers the metrics. Each label value has a sample from the start. So a rate that
// includes the first event is right.
func newMetrics(r prometheus.Registerer, depth prometheus.Collector,
	available func() float64) (*metrics, error) {
	all := telemetry.NewMetrics(r)
	m := &metrics{
		entries: map[job.State]prometheus.Counter{
			created:   all.Counter("jobs_submitted_total", "Jobs stored by submits."),
			queued:    all.Counter("jobs_queued_total", "Entries into QUEUED."),
			running:   all.Counter("jobs_running_total", "Entries into RUNNING."),
			succeeded: all.Counter("jobs_succeeded_total", "Entries into SUCCEEDED."),
			failed:    all.Counter("jobs_failed_total", "Entries into FAILED."),
			canceled:  all.Counter("jobs_canceled_total", "Entries into CANCELED."),
		},
		idempotencyNew: all.Counter("idempotency_new_total", "Submits that made a job."),
		idempotencyHits: all.Counter("idempotency_hits_total",
			"Submits answered with the job that their key had made before."),
		idempotencyConflicts: all.Counter("idempotency_conflicts_total",
			"Submits refused because their key belongs to another payload."),
		queueWait: all.Histogram("job_queue_wait_seconds", "Time from QUEUED to ASSIGNED.",
			waitBuckets),
		assigned: all.Histogram("job_assigned_seconds", "Time from ASSIGNED to RUNNING.",
			waitBuckets),
		execution: all.Histogram("job_execution_seconds",
			"Time from RUNNING to the state after it.", runBuckets),
		scenarios: all.Counters("jobs_by_scenario_total",
			"Entries into a final state, by work kind and outcome.", "scenario", "outcome"),
		scenarioSubmits: all.Counters("jobs_submitted_by_scenario_total",
			"Jobs stored by submits, by work kind.", "scenario"),
		retries: all.Counter("job_retries_total", "Failed jobs that were queued again."),
		retrySuccesses: all.Counter("job_retry_successes_total",
			"Jobs that succeeded after a retry."),
		deliveries: all.Counter("webhook_deliveries_total",
			"Attempts at deliveries that were sent."),
		deliveryFailures: all.Counter("webhook_failures_total",
			"Attempts at deliveries that failed: no answer, too late, or not 2xx."),
		deliverySeconds: all.Histogram("webhook_delivery_seconds",
			"Time that an attempt at a delivery took.", requestBuckets),
		heartbeats: all.Counter("worker_heartbeats_total",
			"Heartbeats of this node's workers."),
		workers: all.Gauge("workers", "Workers of this node."),
		requests: all.Counters("http_requests_total", "Requests, by route and status.",
			"method", "route", "status_code"),
		latency: all.Histograms("http_request_duration_seconds",
			"Time from the header of a request to its answer, by route.", requestBuckets,
			"method", "route"),
		errors: all.Counters("http_errors_total",
			"Requests answered with an error, by its code.", "error_code"),
		databaseErrors: all.Counter("database_errors_total",
			"Requests and runs that met an error of the database."),
	}
	all.Register(depth)
	all.GaugeFunc("workers_available", "Workers of this node that can take a job.", available)
	for i := range kinds {
		m.scenarioSubmits.WithLabelValues(kinds[i].name)
		for _, s := range []job.State{succeeded, failed, canceled} {
			m.scenarios.WithLabelValues(kinds[i].name, outcome(s))
		}
	}
	for i := range errorTable {
		m.errors.WithLabelValues(errorTable[i].Code)
	}
	return m, all.Err()
}

// observeTransition counts a transition and observes how long its job waited or its run took.
func (m *metrics) observeTransition(c *engine.Transitioned) {
	if transitions := m.entries[c.To]; transitions != nil {
		transitions.Inc()
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

// countAttempt counts an attempt at a delivery.
func (m *metrics) countAttempt(ok bool, elapsed time.Duration) {
	m.deliveries.Inc()
	m.deliverySeconds.Observe(elapsed.Seconds())
	if !ok {
		m.deliveryFailures.Inc()
	}
}

// observeRoute returns the function that counts and observes the requests of a route. The function
// keeps the counters of its statuses, as finding one by its labels costs more than the count
// itself. The counter of success exists from the start.
func (m *metrics) observeRoute(r *httpapi.Route) func(status int, took time.Duration) {
	method, pattern := r.Method, r.Pattern
	latency := m.latency.WithLabelValues(method, pattern)
	m.requests.WithLabelValues(method, pattern, strconv.Itoa(successStatus(method, pattern)))
	var counters sync.Map // status to its counter
	return func(status int, took time.Duration) {
		latency.Observe(took.Seconds())
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

// unmatched counts and times a request that no route is for. All of them have one label for the
// route, so that callers cannot make labels without end.
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

// queueGauges collects how many jobs there are that have not finished.
func queueGauges(e *engine.Engine) prometheus.Collector {
	return &telemetry.QueueGauges{
		Descs: []*prometheus.Desc{depthDesc, activeDesc, scheduledDesc},
		Counts: func(ctx context.Context) ([]job.QueueCount, error) {
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
