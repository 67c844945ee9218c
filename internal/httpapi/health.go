package httpapi

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"time"
)

// Check is one part of the process that has to work for it to be of use.
type Check struct {
	Name string
	Run  func(context.Context) error
	// Lesser is a part that only some requests need: when it fails it is named, and
	// the node stays ready for the others.
	Lesser bool
}

// healthTime bounds all checks of one request.
const healthTime = 5 * time.Second

// Health answers who asks whether the process lives: /health and /health/live
// with 200 and nothing else (RL-099), /health/ready with the names of the parts
// that fail, as 503 unless they all are lesser ones.
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
	errs := make([]error, len(checks))
	var all sync.WaitGroup
	for i, c := range checks { // at the same time: one that takes all of it leaves the others theirs
		all.Go(func() { errs[i] = c.Run(ctx) })
	}
	all.Wait()
	failing, status := "", http.StatusOK
	for i, c := range checks {
		if errs[i] == nil {
			continue
		}
		failing += c.Name + " fails\n"
		if !c.Lesser {
			status = http.StatusServiceUnavailable
		}
	}
	if failing != "" {
		w.Header()["Content-Type"] = Text
		w.WriteHeader(status)
		_, _ = w.Write([]byte(failing))
	}
}
