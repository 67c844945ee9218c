package httpapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"

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

// handleWithTimeout is handle with the router's Timeout: the caller is answered by then, whatever
// the handler waits for (FR-203). The handler writes to a buffer, and its context ends at the same
// time. What it still does afterwards no longer reaches the answer: a caller learns the outcome by
// repeating the request under the same idempotency key.
func (r *Router) handleWithTimeout(c *Call) error {
	ctx, cancel := context.WithTimeout(c.Context(), r.Timeout)
	defer cancel()
	response := &bufferedResponse{header: c.Header().Clone()}
	inner := c.withWriter(ctx, response)
	err := r.handleUntilTimeout(c, inner)
	timedOut := errors.Is(ctx.Err(), context.DeadlineExceeded)
	switch {
	case c.status != 0:
		return nil // the timeout was answered
	case timedOut && isInterrupted(err):
		return r.timeoutError(err)
	}
	maps.Copy(c.Header(), response.header)
	if err != nil {
		return err
	}
	if inner.status != 0 {
		c.WriteHeader(inner.status)
		c.write(response.body.Bytes())
	}
	return nil
}

// handleUntilTimeout calls the handler of the inner call. When the time of that one ends first, the
// outer call is answered meanwhile.
func (r *Router) handleUntilTimeout(c, inner *Call) error {
	ctx := inner.Context() // before a guard gives the call another one
	answered := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(answered)
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			c.answerTimeout()
		}
	})
	defer func() {
		if !stop() {
			<-answered
		}
	}()
	return r.handle(inner)
}

// answerTimeout answers while the handler is running, which uses neither the writer nor the headers
// of this call. The connection serves no further request, as that one would wait for the handler.
func (c *Call) answerTimeout() {
	if c.Request.ProtoMajor == 1 {
		c.Header().Set("Connection", "close")
	}
	c.fail(c.router.timeoutError(nil))
	_ = http.NewResponseController(c.ResponseWriter).Flush()
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
		outer:          c,
		pathValues:     c.pathValues,
		stopwatch:      c.stopwatch,
		id:             c.RequestID(),
		attrList:       c.attrList,
	}
}
