package fetchbox

import (
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/internal/httpapi"
)

// Values of the label result: how a submit ended.
const (
	resultAccepted = "accepted"
	resultRepeated = "repeated" // its idempotency key has a job already
	resultRejected = "rejected"
	resultFailed   = "failed"
)

// metrics are the metrics of G-FB-42. All series exist from the start, so that a rate over the
// first event is right.
type metrics struct {
	requests *prometheus.CounterVec // route, status

	ingested      *prometheus.CounterVec // result
	ingestBytes   prometheus.Counter
	ingestSeconds prometheus.Histogram

	inflight         prometheus.Gauge
	downloadSeconds  prometheus.Histogram
	downloadBytes    prometheus.Counter
	downloadFailures *prometheus.CounterVec // code
	storageFailures  *prometheus.CounterVec // code
	deadLetters      prometheus.Counter
	proxyFailures    *prometheus.CounterVec // pool

	prunedJobs prometheus.Counter
}

// downloadCodes are the codes that exist as series from the start. Other HTTP statuses get theirs
// when they occur.
var downloadCodes = []string{codeURL, codeHeader, codeRefused, codeRedirects, codeDownloadTooLarge,
	codeChecksum, codeTimeout, codeUnknownHost, codeTLS, codeConnection, codeTruncated, codeProxy,
	codeUnknownPool, "HTTP_403", "HTTP_404", "HTTP_429", "HTTP_500", "HTTP_503"}

func newMetrics(r prometheus.Registerer, pools map[string]*Pool) (*metrics, error) {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "fetchbox_" + name, Help: help})
	}
	counters := func(name, help string, label ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "fetchbox_" + name,
			Help: help}, label)
	}
	histogram := func(name, help string, buckets ...float64) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{Name: "fetchbox_" + name,
			Help: help, Buckets: buckets})
	}
	m := &metrics{
		requests: counters("api_requests_total", "Requests by route and status.", "route",
			"status"),
		ingested: counters("ingest_jobs_total", "Submits by result.", "result"),
		ingestBytes: counter("ingest_bytes_total",
			"Bytes of the manifests that were accepted, after decompression."),
		ingestSeconds: histogram("ingest_duration_seconds",
			"Time from the header of a submit to its answer.",
			1e-3, 2.5e-3, 5e-3, 10e-3, 25e-3, 50e-3, 100e-3, 250e-3, 500e-3, 1, 2.5, 10),
		inflight: prometheus.NewGauge(prometheus.GaugeOpts{Name: "fetchbox_worker_tasks_inflight",
			Help: "Downloads in progress on this node."}),
		downloadSeconds: histogram("worker_download_seconds",
			"Time of one attempt at a download, including the upload to the object storage.",
			5e-3, 10e-3, 25e-3, 50e-3, 100e-3, 250e-3, 500e-3, 1, 2.5, 5, 10, 30, 60),
		downloadBytes: counter("worker_download_bytes_total", "Bytes downloaded."),
		downloadFailures: counters("worker_download_failures_total",
			"Attempts that failed, by the code of the failure.", "code"),
		storageFailures: counters("worker_storage_failures_total",
			"Downloads that could not be stored, by the code of the failure.", "code"),
		deadLetters: counter("worker_dlq_total", "Dead letters."),
		proxyFailures: counters("proxy_failures_total",
			"Failures of proxies, by pool.", "pool"),
		prunedJobs: counter("ledger_pruned_jobs_total",
			"Jobs removed from the ledger by age or size."),
	}
	for _, c := range []prometheus.Collector{m.requests,
		m.ingested, m.ingestBytes, m.ingestSeconds,
		m.inflight, m.downloadSeconds, m.downloadBytes, m.downloadFailures, m.storageFailures,
		m.deadLetters, m.proxyFailures, m.prunedJobs} {
		if err := r.Register(c); err != nil {
			return nil, fmt.Errorf("fetchbox: %w", err)
		}
	}
	m.createSeries(pools)
	return m, nil
}

// createSeries makes the series exist whose labels are known from the start.
func (m *metrics) createSeries(pools map[string]*Pool) {
	for _, result := range []string{resultAccepted, resultRepeated, resultRejected, resultFailed} {
		m.ingested.WithLabelValues(result)
	}
	for _, code := range downloadCodes {
		m.downloadFailures.WithLabelValues(code)
	}
	for _, code := range storageCodes {
		m.storageFailures.WithLabelValues(code)
	}
	for pool := range pools {
		m.proxyFailures.WithLabelValues(pool)
	}
}

// observe counts the requests of routes. The series of common statuses exist from the start.
func (m *metrics) observe(routes []httpapi.Route) {
	for i := range routes {
		r := &routes[i]
		name := r.Method + " " + r.Pattern
		success := http.StatusOK
		if r.Method == http.MethodPost {
			success = http.StatusAccepted
		}
		for _, status := range []int{success, http.StatusBadRequest,
			http.StatusInternalServerError} {
			m.requests.WithLabelValues(name, strconv.Itoa(status))
		}
		r.Observe = func(status int, _ time.Duration) {
			m.requests.WithLabelValues(name, strconv.Itoa(status)).Inc()
		}
	}
}

// pruned counts jobs that the engine has pruned.
func (m *metrics) pruned(jobs int) { m.prunedJobs.Add(float64(jobs)) }
