package relay

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/telemetry"
)

// maxQueueLabels is how many queues get a label of their own, in the order in which they first
// have jobs. The others share the label telemetry.OtherQueues. Each label has all metrics of
// queueMetrics, and queues are named by clients, so the number must have a bound. A queue keeps its
// label until the process ends.
const maxQueueLabels = 100

// metrics holds the metrics of G-RL-23: the counters of the original, by queue, and the durations
// of requests.
type metrics struct {
	latency  *prometheus.HistogramVec
	duration *prometheus.HistogramVec
	errors   *prometheus.CounterVec
	requests *prometheus.HistogramVec
	events   map[string]*prometheus.CounterVec

	// mu guards queues. Requests only read it, except the first one for each queue.
	mu     sync.RWMutex
	queues map[string]*queueMetrics
	other  *queueMetrics
}

// queueMetrics holds the metrics of one queue, so that a request looks up its label once.
type queueMetrics struct {
	enqueued, fetched, read, exists, heartbeats, completed, requeued, deleted, retries,
	exhausted prometheus.Counter
	latency, duration prometheus.Observer
}

// observeRun observes how long an attempt took.
func (q *queueMetrics) observeRun(d time.Duration) { q.duration.Observe(d.Seconds()) }

// eventNames lists the counters by queue and their help.
var eventNames = map[string]string{
	"enqueued":  "Jobs stored by enqueue and requeue.",
	"fetched":   "Jobs claimed.",
	"get":       "Jobs read.",
	"exists":    "Requests whether a job exists.",
	"heartbeat": "Heartbeats of current attempts.",
	"completed": "Jobs completed by their worker.",
	"requeued":  "Jobs replaced by others by their worker.",
	"deleted":   "Jobs deleted.",
	"retries":   "Attempts that timed out and were retried.",
	"exhausted": "Jobs that used up their retries.",
}

// newMetrics registers all metrics. Those by queue have no series but that of the other queues
// until a queue has jobs.
func newMetrics(r prometheus.Registerer) (*metrics, error) {
	all := telemetry.NewMetrics(r)
	buckets := []float64{1e-3, 5e-3, 25e-3, 100e-3, 500e-3, 1, 5, 30, 60, 300, 1800, 3600, 21600}
	m := &metrics{
		latency: all.Histograms("relay_latency_seconds",
			"Time from when a job was due to when it was claimed.", buckets, "queue"),
		duration: all.Histograms("relay_duration_seconds",
			"Time from the claim of a job to its completion or timeout.", buckets, "queue"),
		errors: all.Counters("relay_errors_total",
			"Requests answered with an error, by its kind.", "type"),
		requests: all.Histograms("relay_http_request_duration_seconds",
			"Time from the header of a request to its answer, by route and class of status; long "+
				"polls include their wait.",
			[]float64{250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 10e-3, 25e-3, 50e-3, 100e-3, 500e-3, 2.5,
				10, 30}, "route", "code"),
		events: map[string]*prometheus.CounterVec{},
		queues: map[string]*queueMetrics{},
	}
	for name, help := range eventNames {
		m.events[name] = all.Counters("relay_"+name+"_total", help, "queue")
	}
	m.other = m.newQueueMetrics(telemetry.OtherQueues)
	return m, all.Err()
}

func (m *metrics) newQueueMetrics(label string) *queueMetrics {
	count := func(name string) prometheus.Counter { return m.events[name].WithLabelValues(label) }
	return &queueMetrics{
		enqueued:   count("enqueued"),
		fetched:    count("fetched"),
		read:       count("get"),
		exists:     count("exists"),
		heartbeats: count("heartbeat"),
		completed:  count("completed"),
		requeued:   count("requeued"),
		deleted:    count("deleted"),
		retries:    count("retries"),
		exhausted:  count("exhausted"),
		latency:    m.latency.WithLabelValues(label),
		duration:   m.duration.WithLabelValues(label),
	}
}

// existingQueue returns the metrics of a queue without giving it a label: a client that asks for
// queues that have never had jobs must not use up the labels.
func (m *metrics) existingQueue(queue string) *queueMetrics {
	m.mu.RLock()
	q := m.queues[queue]
	m.mu.RUnlock()
	if q == nil {
		return m.other
	}
	return q
}

// queue returns the metrics of a queue that has jobs. It gives the queue a label of its own if
// there are some left.
func (m *metrics) queue(queue string) *queueMetrics {
	if q := m.existingQueue(queue); q != m.other {
		return q
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if q := m.queues[queue]; q != nil {
		return q
	}
	if len(m.queues) >= maxQueueLabels {
		return m.other
	}
	q := m.newQueueMetrics(queue)
	m.queues[queue] = q
	return q
}

// countSubmitted counts the jobs of a batch, without those that existed before, whose indexes are
// given in order. Neighbours of one queue are counted at once.
func (m *metrics) countSubmitted(batch []engine.Submission, existing []int) {
	for i := 0; i < len(batch); {
		queue, n := batch[i].Job.Queue, 0
		for ; i < len(batch) && batch[i].Job.Queue == queue; i++ {
			if len(existing) > 0 && existing[0] == i {
				existing = existing[1:]
				continue
			}
			n++
		}
		if n > 0 {
			m.queue(queue).enqueued.Add(float64(n))
		}
	}
}

// observeTransition counts a timeout or a failure and observes how long the run took.
func (m *metrics) observeTransition(c *engine.Transitioned) {
	if c.Failure() == "" {
		return
	}
	q := m.queue(c.Job.Queue)
	q.observeRun(c.At.Sub(c.Job.StartedAt))
	if c.To == queued {
		q.retries.Inc()
	} else {
		q.exhausted.Inc()
	}
}

// countCompleted counts a job as it was when its run ended, and observes how long the run took.
func (m *metrics) countCompleted(done *job.Job) {
	q := m.existingQueue(done.Queue)
	q.completed.Inc()
	q.observeRun(done.UpdatedAt.Sub(done.StartedAt))
}

// countClaimed counts claimed jobs and observes how long they were due. A job whose run_at lies
// before its creation is due from its creation on.
func (m *metrics) countClaimed(queue string, jobs []*job.Job) {
	q := m.queue(queue)
	q.fetched.Add(float64(len(jobs)))
	for _, j := range jobs {
		since := j.DueAt
		if since.Before(j.CreatedAt) {
			since = j.CreatedAt
		}
		q.latency.Observe(j.StartedAt.Sub(since).Seconds())
	}
}

// observeRoute returns the function that observes the duration of a route's requests.
func (m *metrics) observeRoute(r *httpapi.Route) func(status int, took time.Duration) {
	return telemetry.StatusClassObserver(m.requests, r.Method+" "+r.Pattern)
}
