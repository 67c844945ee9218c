package telemetry

import (
	"log/slog"
	"net/http"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// maxScrapes bounds how many are served at a time: each holds all metrics in memory.
const maxScrapes = 8

// Handler serves /metrics with all metrics under added labels, and
// /metrics/{contract} and /metrics/{contract}/{role} with the literal names of
// one registry. What cannot be gathered is logged and left out.
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
			http.Error(w, "too many ask for metrics at a time", http.StatusServiceUnavailable)
			return
		}
		s := &scrapeWriter{ResponseWriter: w, log: log}
		promhttp.HandlerFor(g, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError,
			ErrorLog: s}).ServeHTTP(s, req)
	})
}

// gatherer returns what a path names, nil if nothing.
func (r *Registries) gatherer(path string) prometheus.Gatherer {
	if path == "/metrics" {
		return r
	}
	rest, ok := strings.CutPrefix(path, "/metrics/")
	if !ok {
		return nil
	}
	contract, role, _ := strings.Cut(rest, "/")
	if found := r.find(contract, role); found != nil && !strings.HasSuffix(path, "/") {
		return found
	}
	return nil
}

// scrapeWriter is who asks for metrics.
type scrapeWriter struct {
	http.ResponseWriter
	log    *slog.Logger
	hungUp bool // it takes no more
}

// Write notes when the scraper has hung up, which is nobody's fault.
func (s *scrapeWriter) Write(p []byte) (int, error) {
	n, err := s.ResponseWriter.Write(p)
	if err != nil && !s.hungUp {
		s.hungUp = true
		s.log.Debug("a scraper hung up", ErrorMessage, err)
	}
	return n, err
}

// Println lets promhttp log. Of a scraper that is gone it would do so once for each
// metric.
func (s *scrapeWriter) Println(v ...any) {
	if !s.hungUp {
		s.log.Warn("metrics could not be gathered", ErrorMessage, v)
	}
}
