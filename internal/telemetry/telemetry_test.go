package telemetry_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/telemetry"
	"github.com/millrace/millrace/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func scrapeMetrics(t *testing.T, r *telemetry.Registries, method, path string) (int, string) {
	t.Helper()
	w := httptest.NewRecorder()
	r.Handler(slog.New(slog.DiscardHandler)).ServeHTTP(w, httptest.NewRequest(method, path, nil))
	return w.Code, w.Body.String()
}

func wantLines(t *testing.T, text string, lines ...string) {
	t.Helper()
	for _, l := range lines {
		if !strings.Contains(text, l+"\n") {
			t.Errorf("there is no line %q", l)
		}
	}
}

// TestRegistries: names that two contracts share stay apart, and come together under added labels.
func TestRegistries(t *testing.T) {
	t.Parallel()
	r, err := telemetry.NewRegistries()
	if err != nil {
		t.Fatal(err)
	}
	gauge := func(contract, role string, v float64) {
		g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "job_queue_depth",
			Help: "Of " + contract}, []string{"queue"})
		r.For(contract, role).MustRegister(g)
		g.WithLabelValues("q").Set(v)
	}
	gauge("forgerun", "", 1)
	gauge("images", "worker", 2)
	c := prometheus.NewCounter(prometheus.CounterOpts{Name: "job_queue_depth",
		Help: "another type"})
	r.For("odd", "").MustRegister(c)
	own := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "said_by_itself", Help: "x"},
		[]string{"contract"})
	r.For("forgerun", "").MustRegister(own)
	own.WithLabelValues("its own").Set(1)

	code, all := scrapeMetrics(t, r, "GET", "/metrics")
	if code != 200 || !strings.Contains(all, `go_goroutines{contract="core"}`) {
		t.Errorf("got %d %s", code, all)
	}
	wantLines(t, all, `job_queue_depth{contract="forgerun",queue="q"} 1`,
		`job_queue_depth{component="worker",contract="images",queue="q"} 2`,
		`said_by_itself{contract="its own"} 1`)
	if strings.Contains(all, `contract="odd"`) ||
		strings.Count(all, "# TYPE job_queue_depth") != 1 {
		t.Error("a name has two types")
	}
	_, one := scrapeMetrics(t, r, "GET", "/metrics/forgerun")
	wantLines(t, one, `job_queue_depth{queue="q"} 1`)
	_, one = scrapeMetrics(t, r, "GET", "/metrics/images/worker")
	wantLines(t, one, `job_queue_depth{queue="q"} 2`)
	for path, want := range map[string]int{"/metrics/": 404, "/metrics/nobody": 404,
		"/metrics/images": 404, "/metrics/images/": 404,
		"/metrics/images/worker/": 404, "/metricsx": 404, "/metrics/core": 200} {
		if code, _ := scrapeMetrics(t, r, "GET", path); code != want {
			t.Errorf("%s: got %d", path, code)
		}
	}
	if code, _ := scrapeMetrics(t, r, "POST", "/metrics"); code != 405 {
		t.Errorf("POST: got %d", code)
	}
}

// hangingUpWriter is the connection to a scraper that hangs up after the first bytes.
type hangingUpWriter struct {
	*httptest.ResponseRecorder
	left int
}

func (d *hangingUpWriter) Write(p []byte) (int, error) {
	if len(p) > d.left {
		return 0, syscall.EPIPE
	}
	d.left -= len(p)
	return d.ResponseRecorder.Write(p)
}

// TestScraperHangsUp: only what the server is to blame for needs attention.
func TestScraperHangsUp(t *testing.T) {
	t.Parallel()
	r, err := telemetry.NewRegistries()
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	log := slog.New(slog.NewTextHandler(&b, &slog.HandlerOptions{Level: slog.LevelDebug}))
	r.Handler(log).ServeHTTP(&hangingUpWriter{httptest.NewRecorder(), 200},
		httptest.NewRequest("GET", "/metrics", nil))
	if got := b.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "level=DEBUG") ||
		!strings.Contains(got, "broken pipe") {
		t.Errorf("of a scraper that hung up the log has %q", got)
	}
	b.Reset()
	d := telemetry.NewQueueDepth("depth", 2, func(context.Context) ([]job.QueueCount, error) {
		return nil, errors.New("the store is unavailable")
	})
	if err := r.For("relay", "").Register(d); err != nil {
		t.Fatal(err)
	}
	r.Handler(log).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/metrics", nil))
	if got := b.String(); !strings.Contains(got, "level=WARN") ||
		!strings.Contains(got, "the store is unavailable") {
		t.Errorf("of metrics that are missing the log has %q", got)
	}
}

// TestScrapesInAnOutage checks that scrapes log nothing while a part is unavailable, which logs its
// outage itself, and that another failure of theirs is one line in few words and one when it is
// over.
func TestScrapesInAnOutage(t *testing.T) {
	t.Parallel()
	r, err := telemetry.NewRegistries()
	if err != nil {
		t.Fatal(err)
	}
	var failure error
	for _, contract := range []string{"relay", "taskflow"} {
		r.For(contract, "").MustRegister(telemetry.NewQueueDepth("depth", 2,
			func(context.Context) ([]job.QueueCount, error) { return nil, failure }))
	}
	var b bytes.Buffer
	handler := r.Handler(slog.New(slog.NewTextHandler(&b, nil)))
	scrapes := func(err error) string {
		failure = err
		b.Reset()
		for range 3 {
			for _, path := range []string{"/metrics", "/metrics/core"} {
				w := httptest.NewRecorder()
				handler.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
				if !strings.Contains(w.Body.String(), "go_goroutines") {
					t.Errorf("%s lacks what can be gathered: %d %s", path, w.Code, w.Body)
				}
			}
		}
		return b.String()
	}
	unavailable := &job.Error{Kind: job.Unavailable, Op: "store.begin",
		Msg: "the store is unavailable",
		Err: errors.New("dial 10.1.2.3:5432")}
	if got := scrapes(unavailable); got != "" {
		t.Errorf("scrapes log the outage of the store: %s", got)
	}
	got := scrapes(errors.New("counts are broken"))
	if strings.Count(got, "\n") != 1 || !strings.Contains(got, "level=WARN") ||
		!strings.Contains(got, `loop="scrapes of /metrics" error_message="counts are broken"`) {
		t.Errorf("scrapes that fail log %s", got)
	}
	got = scrapes(nil)
	if strings.Count(got, "\n") != 1 || !strings.Contains(got, "works again") {
		t.Errorf("scrapes that work again log %s", got)
	}
}

// A path whose metrics all come from the store has no answer without it: an empty one would count
// as a scrape that succeeded. With a store that has no jobs the empty answer is right.
func TestScrapeOfNothing(t *testing.T) {
	t.Parallel()
	r, err := telemetry.NewRegistries()
	if err != nil {
		t.Fatal(err)
	}
	var failure error
	r.For("relay", "").MustRegister(telemetry.NewQueueDepth("depth", 2,
		func(context.Context) ([]job.QueueCount, error) { return nil, failure }))
	if code, text := scrapeMetrics(t, r, "GET", "/metrics/relay"); code != 200 || text != "" {
		t.Errorf("without jobs: %d %s", code, text)
	}
	failure = &job.Error{Kind: job.Unavailable, Op: "store.begin", Msg: "the store is unavailable",
		Err: errors.New("dial 10.1.2.3:5432")}
	code, text := scrapeMetrics(t, r, "GET", "/metrics/relay")
	if code != 503 || !strings.Contains(text, "cannot be gathered") ||
		strings.Contains(text, "10.1.2.3") {
		t.Errorf("without the store: %d %s", code, text)
	}
	if code, _ := scrapeMetrics(t, r, "GET", "/metrics"); code != 200 {
		t.Errorf("all metrics without the store: %d", code)
	}
}

// blockedCollector is a metric that is gathered when it is let go.
type blockedCollector struct{ started, release chan struct{} }

func (h blockedCollector) Describe(chan<- *prometheus.Desc) {}

func (h blockedCollector) Collect(chan<- prometheus.Metric) {
	h.started <- struct{}{}
	<-h.release
}

// So many scrapes are served at a time and no more, and others after them.
func TestScrapesAreBounded(t *testing.T) {
	t.Parallel()
	r, err := telemetry.NewRegistries()
	if err != nil {
		t.Fatal(err)
	}
	h := blockedCollector{make(chan struct{}), make(chan struct{})}
	r.For("relay", "").MustRegister(h)
	handler := r.Handler(slog.New(slog.DiscardHandler))
	ask := func() int {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
		return w.Code
	}
	codes := make(chan int)
	for range 8 {
		go func() { codes <- ask() }()
		<-h.started
	}
	if code := ask(); code != 503 {
		t.Errorf("one too many: got %d", code)
	}
	close(h.release)
	for range 8 {
		if code := <-codes; code != 200 {
			t.Errorf("got %d", code)
		}
	}
	go func() { <-h.started }()
	if code := ask(); code != 200 {
		t.Errorf("afterwards: got %d", code)
	}
}

func TestClasses(t *testing.T) {
	t.Parallel()
	r := prometheus.NewRegistry()
	vec := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "request_seconds", Help: "x"},
		[]string{"route", "code"})
	r.MustRegister(vec)
	jobs, _ := telemetry.StatusClassObserver(vec, "GET /jobs"),
		telemetry.StatusClassObserver(vec, "GET /never")
	for _, status := range []int{200, 204, 404, 201} {
		jobs(status, time.Second)
	}
	for class, want := range map[string]float64{"2xx": 3, "4xx": 1} {
		sum, _ := testkit.MetricSum(t, r, "request_seconds",
			map[string]string{"route": "GET /jobs", "code": class})
		if sum != want {
			t.Errorf("%s: got %v, want %v", class, sum, want)
		}
	}
	if _, series := testkit.MetricSum(t, r, "request_seconds", nil); series != 2 {
		t.Errorf("there are %d series, want 2", series)
	}
}

func TestDepth(t *testing.T) {
	t.Parallel()
	r, err := telemetry.NewRegistries()
	if err != nil {
		t.Fatal(err)
	}
	var failure error
	d := telemetry.NewQueueDepth("relay_queue_jobs", 2,
		func(context.Context) ([]job.QueueCount, error) {
			return []job.QueueCount{{Queue: "small", Ready: 1},
				{Queue: "large", Waiting: 5, Delayed: 4, Ready: 6, Leased: 7},
				{Queue: "tiny", Leased: 1}, {Queue: "middle", Delayed: 8, Ready: 1},
				{Queue: "_other", Delayed: 50, Ready: 100}}, failure
		})
	if err := r.For("relay", "").Register(d); err != nil {
		t.Fatal(err)
	}
	_, text := scrapeMetrics(t, r, "GET", "/metrics/relay")
	wantLines(t, text, `relay_queue_jobs{phase="waiting",queue="large"} 9`,
		`relay_queue_jobs{phase="ready",queue="large"} 6`,
		`relay_queue_jobs{phase="leased",queue="large"} 7`,
		`relay_queue_jobs{phase="waiting",queue="middle"} 8`,
		`relay_queue_jobs{phase="ready",queue="middle"} 1`,
		`relay_queue_jobs{phase="waiting",queue="_other"} 50`,
		`relay_queue_jobs{phase="ready",queue="_other"} 101`,
		`relay_queue_jobs{phase="leased",queue="_other"} 1`)
	if strings.Contains(text, "small") {
		t.Error("there are more labels than the bound")
	}
	failure = errors.New("the store is unavailable")
	if code, text := scrapeMetrics(t, r, "GET", "/metrics"); code != 200 ||
		!strings.Contains(text, "go_goroutines") {
		t.Errorf("one failure hides all metrics: %d", code)
	}
}

func TestStoreObserver(t *testing.T) {
	t.Parallel()
	r, err := telemetry.NewRegistries()
	if err != nil {
		t.Fatal(err)
	}
	observe, err := telemetry.StoreObserver(r.For(telemetry.Core, ""))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		observe("lock_ready", time.Millisecond, nil)
	}
	observe("lock_ready", time.Millisecond, &job.Error{Kind: job.Unavailable})
	observe("lock_ready", time.Millisecond, errors.New("what"))
	_, text := scrapeMetrics(t, r, "GET", "/metrics/core")
	wantLines(t, text, `millrace_store_statement_seconds_count{error="",statement="lock_ready"} 2`,
		`millrace_store_statement_seconds_count{error="unavailable",statement="lock_ready"} 1`,
		`millrace_store_statement_seconds_count{error="internal",statement="lock_ready"} 1`)
	if _, err := telemetry.StoreObserver(r.For(telemetry.Core, "")); err == nil {
		t.Error("registered twice")
	}
}

func TestLogger(t *testing.T) {
	t.Parallel()
	for format, want := range map[string]string{"text": `msg="a b"`, "json": `"msg":"a b"`} {
		var b bytes.Buffer
		log, err := telemetry.NewLogger(&b, format, "warn")
		if err != nil {
			t.Fatal(err)
		}
		log.Info("left out")
		log.Warn("a b", "took", 1500*time.Millisecond)
		if got := b.String(); !strings.Contains(got, want) ||
			!strings.Contains(strings.ReplaceAll(got, `"`, ""), "1.5s") ||
			strings.Contains(got, "left") {
			t.Errorf("%s: got %s", format, got)
		}
	}
	for _, bad := range [][2]string{{"xml", "info"}, {"text", "loud"}, {"", "info"}, {"text", ""}} {
		if _, err := telemetry.NewLogger(&bytes.Buffer{}, bad[0], bad[1]); err == nil {
			t.Errorf("%q: no error", bad)
		}
	}
}

func TestStopwatch(t *testing.T) {
	t.Parallel()
	w := telemetry.StartStopwatch()
	if telemetry.Deadline(time.Hour).Before(time.Now().Add(59*time.Minute)) || w.Elapsed() < 0 {
		t.Error("the watch is wrong")
	}
}
