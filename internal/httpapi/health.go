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

// Check tests one part that the process depends on, such as the store.
type Check struct {
	Name string
	// Run returns why the part fails. Its context ends when nobody waits for the answer any longer;
	// a check that asks nothing outside of the process needs none.
	Run func(context.Context) error
	// Optional says that only some requests need the part. When it fails, it is listed as failing
	// and the node stays ready for other requests, unless the failure lasts until an operator acts
	// (job.ReadOnly).
	Optional bool
}

// healthTimeout bounds all checks of one request.
const healthTimeout = 5 * time.Second

// Health serves the health of the process: /health and /health/live answer 200 with an empty
// body (RL-099), /health/ready answers with one line for each check, and with status 503 when
// one fails that is not optional.
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

// writeReadiness runs the checks at the same time, so that one that uses up the whole timeout
// leaves the others theirs.
func writeReadiness(w http.ResponseWriter, r *http.Request, checks []Check) {
	ctx, cancel := context.WithTimeout(r.Context(), healthTimeout)
	defer cancel()
	errs := make([]error, len(checks))
	var all sync.WaitGroup
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

// statusLine describes the result of a check, with the part of an error that callers may see.
func (c *Check) statusLine(err error) string {
	var jobErr *job.Error
	switch {
	case err == nil:
		return c.Name + " ok\n"
	case errors.As(err, &jobErr) && jobErr.Msg != "":
		return c.Name + " fails: " + jobErr.Msg + "\n"
	}
	return c.Name + " fails\n"
}
