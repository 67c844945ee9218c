package httpapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"time"

	"github.com/millrace/millrace/internal/job"
)

// bufferedResponse is an answer that is kept until it is complete.
type bufferedResponse struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (b *bufferedResponse) Header() http.Header { return b.header }

func (b *bufferedResponse) WriteHeader(status int) {
	if b.status == 0 && status >= http.StatusOK {
		b.status = status
	}
}

func (b *bufferedResponse) Write(p []byte) (int, error) { return b.body.Write(p) }

// handleWithTimeout is handle with the router's Timeout: the caller is answered by then,
// whatever the handler waits for (FR-203). The handler runs in a goroutine of its own and
// writes to a buffer; its context ends at the same time. What it still does afterwards no
// longer reaches the answer: a caller learns the outcome by repeating the request under the
// same idempotency key.
func (r *Router) handleWithTimeout(c *Call) error {
	ctx, cancel := context.WithTimeout(c.Context(), r.Timeout)
	defer cancel()
	response := &bufferedResponse{header: c.Header().Clone()}
	inner := c.withWriter(ctx, response)
	done := make(chan error, 1)
	go func() { done <- r.handleRecovered(inner) }()
	timer := time.NewTimer(r.Timeout)
	defer timer.Stop()
	select {
	case err := <-done:
		maps.Copy(c.Header(), response.header)
		timedOut := errors.Is(ctx.Err(), context.DeadlineExceeded)
		switch {
		case errors.Is(err, http.ErrAbortHandler):
			panic(http.ErrAbortHandler)
		case timedOut && isInterrupted(err):
			return r.timeoutError(err)
		case err != nil:
			return err
		}
		if inner.status != 0 {
			c.WriteHeader(inner.status)
			c.write(response.body.Bytes())
		}
		return nil
	case <-timer.C:
		return r.timeoutError(nil)
	}
}

func (r *Router) timeoutError(err error) error {
	return &job.Error{Kind: job.Timeout, Op: "httpapi",
		Msg: fmt.Sprintf("the request took longer than %s", r.Timeout), Err: err}
}

// isInterrupted reports an error that says no more than that the context ended.
func isInterrupted(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) ||
		job.IsKind(err, job.Aborted)
}

// withWriter returns a copy of the call with another context that answers to another writer.
func (c *Call) withWriter(ctx context.Context, w http.ResponseWriter) *Call {
	if c.attrList == nil {
		c.attrList = &attrList{}
	}
	return &Call{
		ResponseWriter: w,
		Request:        c.Request.WithContext(ctx),
		Route:          c.Route,
		router:         c.router,
		pathValues:     c.pathValues,
		stopwatch:      c.stopwatch,
		id:             c.RequestID(),
		attrList:       c.attrList,
	}
}

// handleRecovered is handle with panics returned as errors: a panic in a goroutine of ours
// would end the process.
func (r *Router) handleRecovered(c *Call) (err error) {
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		if e, ok := p.(error); ok && errors.Is(e, http.ErrAbortHandler) {
			err = http.ErrAbortHandler
			return
		}
		c.logPanic(p)
		err = errPanic
	}()
	return r.handle(c)
}
