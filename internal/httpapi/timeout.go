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

// bufferedResponse is an answer that has not been sent.
type bufferedResponse struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (h *bufferedResponse) Header() http.Header { return h.header }

func (h *bufferedResponse) WriteHeader(status int) {
	if h.status == 0 && status >= http.StatusOK {
		h.status = status
	}
}

func (h *bufferedResponse) Write(p []byte) (int, error) { return h.body.Write(p) }

// handleWithTimeout is handle within the table's Timeout: whatever a handler waits
// for, its caller is answered by then (FR-203). The handler's context ends at the
// same time; what it still does is of no consequence for the answer, so who asks
// again under the same idempotency key finds out what became of it.
func (t *Router) handleWithTimeout(c *Call) error {
	ctx, cancel := context.WithTimeout(c.Request.Context(), t.Timeout)
	defer cancel()
	response := &bufferedResponse{header: c.Header().Clone()}
	inner := c.withWriter(ctx, response)
	done := make(chan error, 1)
	go func() { done <- t.handleRecovered(inner) }()
	timer := time.NewTimer(t.Timeout)
	defer timer.Stop()
	select {
	case err := <-done:
		maps.Copy(c.Header(), response.header)
		switch {
		case errors.Is(err, http.ErrAbortHandler):
			panic(http.ErrAbortHandler)
		case err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) && isInterrupted(err):
			return t.timeoutError(err)
		case err != nil:
			return err
		}
		if inner.status != 0 {
			c.WriteHeader(inner.status)
			c.write(response.body.Bytes())
		}
		return nil
	case <-timer.C:
		return t.timeoutError(nil)
	}
}

func (t *Router) timeoutError(err error) error {
	return &job.Error{Kind: job.Timeout, Op: "httpapi",
		Msg: fmt.Sprintf("the request took longer than %s", t.Timeout), Err: err}
}

// isInterrupted reports an error that says no more than that the time was up.
func isInterrupted(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) ||
		job.IsKind(err, job.Aborted)
}

// withWriter is a call that answers elsewhere.
func (c *Call) withWriter(ctx context.Context, w http.ResponseWriter) *Call {
	if c.attrList == nil {
		c.attrList = &attrList{}
	}
	return &Call{ResponseWriter: w, Request: c.Request.WithContext(ctx), Route: c.Route,
		router: c.router, pathValues: c.pathValues,
		stopwatch: c.stopwatch, id: c.RequestID(), attrList: c.attrList}
}

// handleRecovered is handle, and a panic is an error.
func (t *Router) handleRecovered(c *Call) (err error) {
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
	return t.handle(c)
}
