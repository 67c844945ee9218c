package fetchbox

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/telemetry"
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

// newMetrics registers the metrics, with a series for each pool of proxies. It fails if r has a
// metric of the same name. The names are literal (G-FB-42).
func newMetrics(r prometheus.Registerer, pools map[string]*Pool) (*metrics, error) {
	all := telemetry.NewMetrics(r)
	m := &metrics{
		requests: all.Counters("fetchbox_api_requests_total", "Requests by route and status.",
			"route", "status"),
		ingested: all.Counters("fetchbox_ingest_jobs_total", "Submits by result.", "result"),
		ingestBytes: all.Counter("fetchbox_ingest_bytes_total",
			"Bytes of the manifests that were accepted, after decompression."),
		ingestSeconds: all.Histogram("fetchbox_ingest_duration_seconds",
			"Time from the header of a submit to its answer.",
			[]float64{1e-3, 2.5e-3, 5e-3, 10e-3, 25e-3, 50e-3, 100e-3, 250e-3, 500e-3, 1, 2.5,
				10}),
		inflight: all.Gauge("fetchbox_worker_tasks_inflight",
			"Downloads in progress on this node."),
		downloadSeconds: all.Histogram("fetchbox_worker_download_seconds",
			"Time of one attempt at a download, including the upload to the object storage.",
			[]float64{5e-3, 10e-3, 25e-3, 50e-3, 100e-3, 250e-3, 500e-3, 1, 2.5, 5, 10, 30, 60}),
		downloadBytes: all.Counter("fetchbox_worker_download_bytes_total", "Bytes downloaded."),
		downloadFailures: all.Counters("fetchbox_worker_download_failures_total",
			"Attempts that failed, by the code of the failure.", "code"),
		storageFailures: all.Counters("fetchbox_worker_storage_failures_total",
			"Downloads that could not be stored, by the code of the failure.", "code"),
		deadLetters: all.Counter("fetchbox_worker_dlq_total", "Dead letters."),
		proxyFailures: all.Counters("fetchbox_proxy_failures_total",
			"Failures of proxies, by pool.", "pool"),
		prunedJobs: all.Counter("fetchbox_ledger_pruned_jobs_total",
			"Jobs removed from the ledger by age or size."),
	}
	m.createSeries(pools)
	return m, all.Err()
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

// observeTransition counts a task that was given up.
func (m *metrics) observeTransition(_ *engine.Transitioned) { m.deadLetters.Inc() }

// observeRoute returns the function that counts the requests of a route. The series of common
// statuses exist from the start. A request that matches no route is not counted.
func (m *metrics) observeRoute(r *httpapi.Route) func(status int, took time.Duration) {
	name := r.Method + " " + r.Pattern
	success := http.StatusOK
	if r.Method == http.MethodPost {
		success = http.StatusAccepted
	}
	for _, status := range []int{success, http.StatusBadRequest, http.StatusInternalServerError} {
		m.requests.WithLabelValues(name, strconv.Itoa(status))
	}
	return func(status int, _ time.Duration) {
		m.requests.WithLabelValues(name, strconv.Itoa(status)).Inc()
	}
}

// pruned counts jobs that the engine has pruned.
func (m *metrics) pruned(jobs int) { m.prunedJobs.Add(float64(jobs)) }
