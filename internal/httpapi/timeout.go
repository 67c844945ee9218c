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

// held is an answer that has not been sent.
type held struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (h *held) Header() http.Header { return h.header }

func (h *held) WriteHeader(status int) {
	if h.status == 0 && status >= http.StatusOK {
		h.status = status
	}
}

func (h *held) Write(p []byte) (int, error) { return h.body.Write(p) }

// handleWithin is handle within the table's Timeout: whatever a handler waits
// for, its caller is answered by then (FR-203). The handler's context ends at the
// same time; what it still does is of no consequence for the answer, so who asks
// again under the same idempotency key finds out what became of it.
func (t *Table) handleWithin(c *Call) error {
	ctx, cancel := context.WithTimeout(c.Request.Context(), t.Timeout)
	defer cancel()
	answer := &held{header: c.Header().Clone()}
	inner := c.fork(ctx, answer)
	ended := make(chan error, 1)
	go func() { ended <- t.guarded(inner) }()
	limit := time.NewTimer(t.Timeout)
	defer limit.Stop()
	select {
	case err := <-ended:
		maps.Copy(c.Header(), answer.header)
		switch {
		case errors.Is(err, http.ErrAbortHandler):
			panic(http.ErrAbortHandler)
		case err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) && interrupted(err):
			return t.tookTooLong(err)
		case err != nil:
			return err
		}
		if inner.status != 0 {
			c.WriteHeader(inner.status)
			c.write(answer.body.Bytes())
		}
		return nil
	case <-limit.C:
		return t.tookTooLong(nil)
	}
}

func (t *Table) tookTooLong(err error) error {
	return &job.Error{Kind: job.Timeout, Op: "httpapi", Msg: fmt.Sprintf("the request took longer than %s", t.Timeout), Err: err}
}

// interrupted reports an error that says no more than that the time was up.
func interrupted(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) || job.IsKind(err, job.Aborted)
}

// fork is a call that answers elsewhere.
func (c *Call) fork(ctx context.Context, w http.ResponseWriter) *Call {
	if c.notes == nil {
		c.notes = &notes{}
	}
	return &Call{ResponseWriter: w, Request: c.Request.WithContext(ctx), Route: c.Route, table: c.table, members: c.members,
		watch: c.watch, id: c.RequestID(), notes: c.notes}
}

// guarded is handle, and a panic is an error.
func (t *Table) guarded(c *Call) (err error) {
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		if e, is := p.(error); is && errors.Is(e, http.ErrAbortHandler) {
			err = http.ErrAbortHandler
			return
		}
		c.logPanic(p)
		err = errPanic
	}()
	return t.handle(c)
}
