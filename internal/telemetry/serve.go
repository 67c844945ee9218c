package telemetry

import (
	"log/slog"
	"net/http"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// maxScrapes bounds concurrent scrapes: each keeps all metrics in memory.
const maxScrapes = 8

// Handler serves /metrics with all metrics under added labels, and /metrics/{contract} and
// /metrics/{contract}/{role} with the literal names of one registry. Metrics that cannot be
// gathered are logged and left out.
func (r *Registries) Handler(log *slog.Logger) http.Handler {
	slots := make(chan struct{}, maxScrapes)
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
		s := &scrapeWriter{ResponseWriter: w, log: log}
		promhttp.HandlerFor(g, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError,
			ErrorLog: s}).ServeHTTP(s, req)
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
		s.log.Warn("metrics could not be gathered", ErrorMessage, v)
	}
}
