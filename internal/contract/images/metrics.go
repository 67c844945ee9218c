package images

import (
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/telemetry"
)

// watch measures the time of calls and counts those that fail. The kinds NotFound, Conflict and
// RunLost are regular answers and do not count. Calls of the database, the storage, the queue and
// the CDN are made through one, which has the metrics of the API or of the worker (G-IP-09).
type watch struct {
	seconds  *prometheus.HistogramVec
	failures *prometheus.CounterVec // with one more label, the kind of the error
}

// newWatch registers both metrics. code is the label of the kind of error, for which the document
// has two names (G-IP-10).
func newWatch(all *telemetry.Metrics, seconds, failures string, code string, buckets []float64,
	labels ...string) watch {
	return watch{
		seconds: all.Histograms(seconds, "Time of calls, by operation.", buckets, labels...),
		failures: all.Counters(failures, "Calls that failed, by operation and kind of error.",
			append(slices.Clone(labels), code)...),
	}
}

// expect creates the series of a call before the first call (G-IP-23).
func (w *watch) expect(labels ...string) {
	w.seconds.WithLabelValues(labels...)
	w.failures.WithLabelValues(append(labels, job.Unavailable.String())...)
}

// call calls fn once and returns its error.
func (w *watch) call(fn func() error, labels ...string) error {
	elapsed := telemetry.StartStopwatch()
	err := fn()
	w.seconds.WithLabelValues(labels...).Observe(elapsed.Elapsed().Seconds())
	switch kind := job.KindOf(err); {
	case err == nil, kind == job.NotFound, kind == job.Conflict, kind == job.RunLost:
	default:
		w.failures.WithLabelValues(append(labels, kind.String())...).Inc()
	}
	return err
}

// Values of labels, as the document has them, also where the storage is a directory and the
// queue a stream (G-IP-12).
const (
	tableJobs = "jobs"
	opSelect  = "select"
	opInsert  = "insert"
	opUpdate  = "update"
	opClaim   = "claim"

	storage   = "s3"
	queueName = "sqs"
	opPut     = "put_object"
	opGet     = "get_object"
	opDelete  = "delete_object"
	opList    = "list_objects"
	opSend    = "send_message"
)

// metrics are the metrics of requests (IP-062 to IP-069).
type metrics struct {
	seconds  *prometheus.HistogramVec
	requests *prometheus.CounterVec
	uploads  *prometheus.HistogramVec
	db       watch
	external watch
}

// newMetrics registers the metrics, with the series of all known labels at zero (G-IP-23).
func newMetrics(r prometheus.Registerer) (*metrics, error) {
	all := telemetry.NewMetrics(r)
	buckets := []float64{0.1, 0.3, 0.5, 1, 2, 5, 10}
	m := &metrics{
		seconds: all.Histograms("http_request_duration_seconds",
			"Time from the header of a request to its answer.", buckets,
			"method", "route", "status_code"),
		requests: all.Counters("http_requests_total", "Requests.",
			"method", "route", "status_code"),
		uploads: all.Histograms("upload_size_bytes", "Sizes of accepted uploads.",
			[]float64{1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072, 262144, 524288,
				1048576}, "mime_type"),
		db: newWatch(all, "db_query_duration_seconds", "db_query_error_total", "error_code",
			buckets, "operation", "table"),
		external: newWatch(all, "external_duration_seconds", "external_error_total", "error_code",
			buckets, "service", "operation"),
	}
	for _, mime := range slices.Sorted(supportedTypes()) {
		m.uploads.WithLabelValues(mime)
	}
	for _, op := range []string{opSelect, opInsert} {
		m.db.expect(op, tableJobs)
	}
	for _, op := range []string{opPut, opGet, opDelete} {
		m.external.expect(storage, op)
	}
	m.external.expect(queueName, opSend)
	return m, all.Err()
}

// query makes a call of the store for a request.
func (m *metrics) query(op string, fn func() error) error { return m.db.call(fn, op, tableJobs) }

// object makes a call of the object storage for a request.
func (m *metrics) object(op string, fn func() error) error {
	return m.external.call(fn, storage, op)
}

// send makes a call of the message queue.
func (m *metrics) send(fn func() error) error { return m.external.call(fn, queueName, opSend) }

// observeRoute returns the function that observes the requests of a route, which is labelled with
// its pattern (IP-069). The series of its success exist from the start.
func (m *metrics) observeRoute(r *httpapi.Route) func(status int, took time.Duration) {
	method, pattern := r.Method, r.Pattern
	success := http.StatusOK
	if method == http.MethodPost || method == http.MethodDelete {
		success = http.StatusAccepted
	}
	m.seconds.WithLabelValues(method, pattern, strconv.Itoa(success))
	m.requests.WithLabelValues(method, pattern, strconv.Itoa(success))
	return func(status int, took time.Duration) { m.request(method, pattern, status, took) }
}

// unmatched observes a request that matches no route. Its path is not a label, as clients choose
// it (IP-069).
func (m *metrics) unmatched(method string, status int, elapsed time.Duration) {
	m.request(method, "none", status, elapsed)
}

func (m *metrics) request(method, route string, status int, elapsed time.Duration) {
	code := strconv.Itoa(status)
	m.seconds.WithLabelValues(method, route, code).Observe(elapsed.Seconds())
	m.requests.WithLabelValues(method, route, code).Inc()
}
