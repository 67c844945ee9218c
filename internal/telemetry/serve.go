package telemetry

import (
	"log/slog"
	"net/http"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Handler serves /metrics with all metrics under added labels, and
// /metrics/{contract} and /metrics/{contract}/{role} with the literal names of
// one registry. What cannot be gathered is logged and left out.
func (r *Registries) Handler(log *slog.Logger) http.Handler {
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
		promhttp.HandlerFor(g, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError,
			ErrorLog: printer{log}, MaxRequestsInFlight: 8}).ServeHTTP(w, req)
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

// printer lets promhttp log.
type printer struct{ log *slog.Logger }

func (p printer) Println(v ...any) { p.log.Warn("metrics could not be gathered", ErrorMessage, v) }
