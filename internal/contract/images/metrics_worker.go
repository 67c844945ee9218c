package images

import (
	"context"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/internal/contract/images/cdn"
	"github.com/millrace/millrace/internal/contract/images/picture"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/telemetry"
)

// The types of errors, besides those of package picture.
const (
	typeWorkerLost = "worker_lost"      // the lease passed, or the worker released the job
	typeDeleted    = "file_deleted"     // the file was deleted meanwhile
	typeStorage    = "storage_error"    // the object storage failed
	typeOriginal   = "original_missing" // the uploaded picture is not in the object storage
	typeInternal   = "internal_error"   // the server itself failed
	typeCanceled   = "canceled"         // by a request to cancel the job
	typeOther      = "other"            // a remote worker reported a failure without a type
)

// errorTypes are all values of the label error_type; typeOther stands there for each other type of
// a remote worker.
var errorTypes = []string{picture.DecodeError, picture.TooLarge, picture.Unsupported,
	picture.Timeout, picture.OutOfMemory, picture.Crashed,
	typeDeleted, typeStorage, typeOriginal, typeInternal, typeWorkerLost, typeOther}

// workerMetrics are the metrics of attempts (IP-070 to IP-084). They count the transitions that the
// engine reports, which include those of remote workers (G-IP-21).
type workerMetrics struct {
	bucket string

	seconds   *prometheus.HistogramVec
	latency   *prometheus.HistogramVec
	processed *prometheus.CounterVec
	errors    *prometheus.CounterVec
	s3        watch
	db        watch
	cdn       watch
}

// newWorkerMetrics registers the metrics.
func newWorkerMetrics(r prometheus.Registerer, bucket string,
	e *engine.Engine) (*workerMetrics, error) {
	all := telemetry.NewMetrics(r)
	runs := []float64{0.1, 0.3, 0.5, 0.7, 1, 3, 5, 7, 10}
	calls := []float64{0.1, 0.3, 0.5, 1, 3, 5, 7, 10}
	m := &workerMetrics{bucket: bucket,
		seconds: all.Histograms("job_processing_duration_seconds",
			"Time of attempts, by the status they led to.", runs, "job_type", "status"),
		latency: all.Histograms("job_queue_latency_milliseconds",
			"Time from when a job could be claimed to the claim.", latencyBuckets(), "job_type"),
		processed: all.Counters("job_processed_total", "Attempts, by the status they led to.",
			"job_type", "status"),
		errors: all.Counters("image_processing_errors_total",
			"Attempts to process an image that failed, by the type of the error.", "error_type"),
		s3: newWatch(all, "s3_operation_duration_seconds", "s3_operation_errors_total",
			"error_code", calls, "operation", "bucket"),
		db: newWatch(all, "db_query_duration_seconds", "db_query_errors_total", "error_type", runs,
			"query_type"),
		cdn: newWatch(all, "cloudfront_operation_duration_seconds",
			"cloudfront_operation_errors_total", "error_code", calls, "operation"),
	}
	all.Register(queueGauges(e))
	m.expectAll()
	return m, all.Err()
}

// expectAll creates the series of all known labels, at zero (G-IP-23).
func (m *workerMetrics) expectAll() {
	for _, jobType := range jobTypes {
		m.latency.WithLabelValues(jobType)
		for _, s := range []job.State{completed, retryable, failed} {
			m.seconds.WithLabelValues(jobType, string(s))
			m.processed.WithLabelValues(jobType, string(s))
		}
	}
	for _, t := range errorTypes {
		m.errors.WithLabelValues(t)
	}
	for _, op := range []string{opPut, opGet, opDelete, opList} {
		m.s3.expect(op, m.bucket)
	}
	for _, query := range []string{opClaim, opSelect, opInsert, opUpdate} {
		m.db.expect(query)
	}
	for _, op := range cdn.Operations {
		m.cdn.expect(op)
	}
}

// latencyBuckets are the 27 buckets of IP-071.
func latencyBuckets() []float64 {
	all := []float64{10, 30, 50, 70, 100, 300, 500, 700, 1000, 1500, 2000}
	for ms := 2500.0; ms <= 10000; ms += 500 {
		all = append(all, ms)
	}
	return all
}

// query makes a call of the store for the background work.
func (m *workerMetrics) query(kind string, fn func() error) error { return m.db.call(fn, kind) }

// object makes a call of the object storage for the background work.
func (m *workerMetrics) object(op string, fn func() error) error {
	return m.s3.call(fn, op, m.bucket)
}

// observeTransition observes a claim or the end of an attempt.
func (m *workerMetrics) observeTransition(c *engine.Transitioned) {
	if c.On == job.Claimed {
		m.claimed(c)
		return
	}
	m.attempted(c)
}

// claimed observes how long a job was ready before it was claimed (G-IP-13). The unit is
// milliseconds (IP-071).
func (m *workerMetrics) claimed(c *engine.Transitioned) {
	since := c.Since
	if c.From == retryDue { // it was promoted some time after it was due
		since = c.Job.DueAt
	}
	m.latency.WithLabelValues(jobTypeLabel(&c.Job)).Observe(max(0,
		float64(c.At.Sub(since).Microseconds())/1000))
}

// attempted counts an attempt that has ended, by the status it led to (G-IP-11). A lost attempt
// counts as one that failed and is retried. Both metrics have the same labels, and one observation
// for each attempt (IP-082).
func (m *workerMetrics) attempted(c *engine.Transitioned) {
	status := statusOf(c.To)
	if c.To == stale {
		status = string(retryable)
	}
	m.seconds.WithLabelValues(jobTypeLabel(&c.Job),
		status).Observe(c.At.Sub(c.Job.StartedAt).Seconds())
	m.processed.WithLabelValues(jobTypeLabel(&c.Job), status).Inc()
	if c.Job.Queue == processFile && c.On != job.Succeeded {
		m.errors.WithLabelValues(errorType(c)).Inc()
	}
}

// jobTypeLabel is the type of a job as a label, which has two values whatever the store holds.
func jobTypeLabel(j *job.Job) string {
	if j.Queue == deleteFile {
		return deleteFile
	}
	return processFile
}

// errorType is the type of the error an attempt ended with, as a label. An attempt without a
// reason was lost or released. Remote workers choose types freely, so those that are not known
// share one value.
func errorType(c *engine.Transitioned) string {
	if c.Reason == "" {
		return typeWorkerLost
	}
	kind, _, _ := strings.Cut(c.Reason, ":")
	for _, known := range errorTypes {
		if kind == known {
			return known
		}
	}
	return typeOther
}

var (
	depthDesc = prometheus.NewDesc("job_queue_depth",
		"Jobs that wait to be claimed or for their next attempt.", []string{"job_type"}, nil)
	activeDesc = prometheus.NewDesc("job_active_count", "Attempts in progress.",
		[]string{"job_type"}, nil)
)

// queueGauges collects how many jobs of each type there are that have not finished.
func queueGauges(e *engine.Engine) prometheus.Collector {
	return &telemetry.QueueGauges{
		Descs: []*prometheus.Desc{depthDesc, activeDesc},
		Counts: func(ctx context.Context) ([]job.QueueCount, error) {
			return e.Queues(ctx, Name)
		},
		Gauges: func(counts []job.QueueCount, set telemetry.SetGauge) {
			all := map[string]job.QueueCount{}
			for _, c := range counts {
				all[c.Queue] = c
			}
			for _, jobType := range jobTypes {
				c := all[jobType]
				set(depthDesc, c.Waiting+c.Delayed+c.Ready, jobType)
				set(activeDesc, c.Leased, jobType)
			}
		}}
}
