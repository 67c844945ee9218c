package httpapi

import (
	"context"
	"net/http"
	"slices"
	"time"
)

// Check is one part of the process that has to work for it to be of use.
type Check struct {
	Name string
	Run  func(context.Context) error
}

// healthTime bounds all checks of one request.
const healthTime = 5 * time.Second

// Health answers who asks whether the process lives: /health and /health/live
// with 200 and nothing else (RL-099), /health/ready with 200, or 503 and the
// names of the parts that fail.
func Health(checks ...Check) Mount {
	serve := func(w http.ResponseWriter, r *http.Request) {
		path := escapedPath(r)
		if !slices.Contains([]string{"/health", "/health/live", "/health/ready"}, path) {
			http.Error(w, "there is nothing at this path", http.StatusNotFound)
			return
		}
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "this path takes GET, HEAD", http.StatusMethodNotAllowed)
			return
		}
		w.Header().Set("Cache-Control", "no-store")
		if path == "/health/ready" {
			ready(w, r, checks)
		}
	}
	return Mount{Name: "health", Prefixes: []string{"/health"}, Handler: http.HandlerFunc(serve)}
}

func ready(w http.ResponseWriter, r *http.Request, checks []Check) {
	ctx, cancel := context.WithTimeout(r.Context(), healthTime)
	defer cancel()
	failing := ""
	for _, c := range checks {
		if c.Run(ctx) != nil {
			failing += c.Name + " fails\n"
		}
	}
	if failing != "" {
		w.Header()["Content-Type"] = Text
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = w.Write([]byte(failing))
	}
}
