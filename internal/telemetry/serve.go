package telemetry

import (
	"cmp"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"

	"github.com/millrace/millrace/internal/outage"
)

// maxScrapes bounds concurrent scrapes: each keeps all metrics in memory.
const maxScrapes = 8

// Handler serves /metrics with all metrics under added labels, and /metrics/{contract} and
// /metrics/{contract}/{role} with the literal names of one registry. Metrics that cannot be
// gathered are left out; where nothing else is left, the answer is 503, so that the scrape counts
// as failed. The scrapes of a path are a loop: that they begin to lack metrics is logged once, but
// not while a part is unavailable.
func (r *Registries) Handler(log *slog.Logger) http.Handler {
	slots := make(chan struct{}, maxScrapes)
	var loops sync.Map // path to *outage.Loop
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Method != http.MethodGet && req.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "use GET", http.StatusMethodNotAllowed)
			return
		}
		g := r.gatherer(req.URL.Path)
		if g == nil {
			http.Error(w, "there are no such metrics", http.StatusNotFound)
			return
		}
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
		default:
			http.Error(w, "too many concurrent scrapes", http.StatusServiceUnavailable)
			return
		}
		loop, _ := loops.LoadOrStore(req.URL.Path,
			&outage.Loop{Log: log, Name: "scrapes of " + req.URL.Path})
		families, err := g.Gather()
		cause := gatherCause(err)
		loop.(*outage.Loop).Report(req.Context(), cause)
		if len(families) == 0 && cause != nil {
			http.Error(w, "the metrics cannot be gathered; /health/ready may say why",
				http.StatusServiceUnavailable)
			return
		}
		gathered := prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
			return families, nil
		})
		s := &scrapeWriter{ResponseWriter: w, log: log}
		promhttp.HandlerFor(gathered, promhttp.HandlerOpts{
			ErrorHandling: promhttp.ContinueOnError, ErrorLog: s}).ServeHTTP(s, req)
	})
}

// gatherer returns the registry of a path, or nil if there is none.
func (r *Registries) gatherer(path string) prometheus.Gatherer {
	if path == "/metrics" {
		return r
	}
	rest, ok := strings.CutPrefix(path, "/metrics/")
	if !ok {
		return nil
	}
	contract, role, _ := strings.Cut(rest, "/")
	registry := r.find(contract, role)
	if registry == nil || strings.HasSuffix(path, "/") {
		return nil
	}
	return registry
}

// gatherCause returns why metrics could not be gathered, in few words: the error of the first one,
// without the description of the metric. The error of a part counts only if there is no other.
func gatherCause(err error) error {
	var all prometheus.MultiError
	if !errors.As(err, &all) {
		return cmp.Or(errors.Unwrap(err), err)
	}
	var first error
	for _, one := range all {
		cause := gatherCause(one)
		if !outage.Is(cause) {
			return cause
		}
		first = cmp.Or(first, cause)
	}
	return first
}

// scrapeWriter writes the answer to a scrape and logs its errors.
type scrapeWriter struct {
	http.ResponseWriter
	log    *slog.Logger
	hungUp bool // a write has failed
}

// Write implements http.ResponseWriter. A scraper that has hung up is logged at debug level: it
// needs no attention.
func (s *scrapeWriter) Write(p []byte) (int, error) {
	n, err := s.ResponseWriter.Write(p)
	if err != nil && !s.hungUp {
		s.hungUp = true
		s.log.Debug("a scraper hung up", ErrorMessage, err)
	}
	return n, err
}

// Println is the error log of promhttp, which reports a scraper that has hung up once for each
// metric: those reports are dropped.
func (s *scrapeWriter) Println(v ...any) {
	if !s.hungUp {
		s.log.Warn("metrics could not be sent", ErrorMessage, v)
	}
}
