package httpapi

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/job"
)

// Check is one part of the process that has to work for it to be of use.
type Check struct {
	Name string
	Run  func(context.Context) error
	// Optional is a part that only some requests need: when it fails it is named, and
	// the node stays ready for the others, unless the failure lasts until an operator
	// acts (job.ReadOnly).
	Optional bool
}

// healthTimeout bounds all checks of one request.
const healthTimeout = 5 * time.Second

// Health answers who asks whether the process lives: /health and /health/live
// with 200 and nothing else (RL-099), /health/ready with a line for each part, as
// 503 when one fails that is not a lesser one.
func Health(checks ...Check) PrefixHandler {
	serve := func(w http.ResponseWriter, r *http.Request) {
		path := escapedPath(r)
		if !slices.Contains([]string{"/health", "/health/live", "/health/ready"}, path) {
			NotFound(w)
			return
		}
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "this path takes GET, HEAD", http.StatusMethodNotAllowed)
			return
		}
		w.Header().Set("Cache-Control", "no-store")
		if path == "/health/ready" {
			writeReadiness(w, r, checks)
		}
	}
	return PrefixHandler{Name: "health", Prefixes: []string{"/health"},
		Handler: http.HandlerFunc(serve)}
}

func writeReadiness(w http.ResponseWriter, r *http.Request, checks []Check) {
	ctx, cancel := context.WithTimeout(r.Context(), healthTimeout)
	defer cancel()
	errs := make([]error, len(checks))
	var all sync.WaitGroup
	// at the same time: one that takes all of it leaves the others theirs
	for i, c := range checks {
		all.Go(func() { errs[i] = c.Run(ctx) })
	}
	all.Wait()
	status, text := http.StatusOK, ""
	for i, c := range checks {
		text += c.statusLine(errs[i])
		if errs[i] != nil && (!c.Optional || job.IsKind(errs[i], job.ReadOnly)) {
			status = http.StatusServiceUnavailable
		}
	}
	w.Header()["Content-Type"] = Text
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text))
}

// statusLine says how a part is, and of an error what callers may be shown.
func (c *Check) statusLine(err error) string {
	if err == nil {
		return c.Name + " ok\n"
	}
	var jobErr *job.Error
	if errors.As(err, &jobErr) && jobErr.Msg != "" {
		return c.Name + " fails: " + jobErr.Msg + "\n"
	}
	return c.Name + " fails\n"
}
