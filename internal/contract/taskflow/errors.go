package taskflow

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/job"
)

// The codes of an error's body: the document's three (TF-085), and those for errors that it does
// not define (G-TF-29, G-TF-32).
const (
	codeValidation   = "VALIDATION_ERROR"
	codeNotFound     = "NOT_FOUND"
	codeConflict     = "CONFLICT"
	codeUnauthorized = "UNAUTHORIZED"
	codeMethod       = "METHOD_NOT_ALLOWED"
	codeTooLarge     = "PAYLOAD_TOO_LARGE"
	codeInternal     = "INTERNAL_ERROR"
)

// errorTable is how errors are answered. A body that came too slowly is incomplete and therefore
// invalid, as is whatever else package httpapi refuses.
var errorTable = httpapi.ErrorTable{
	{Code: codeValidation, Status: http.StatusBadRequest,
		Kinds: []job.Kind{job.Malformed, job.Invalid}, Unlisted: true},
	{Code: codeUnauthorized, Status: http.StatusUnauthorized,
		Statuses: []int{http.StatusUnauthorized}},
	{Code: codeNotFound, Status: http.StatusNotFound, Kinds: []job.Kind{job.NotFound},
		Statuses: []int{http.StatusNotFound}},
	{Code: codeMethod, Status: http.StatusMethodNotAllowed,
		Statuses: []int{http.StatusMethodNotAllowed}},
	{Code: codeConflict, Status: http.StatusConflict, // of cycles: G-TF-05
		Kinds: []job.Kind{job.Conflict, job.Cycle, job.RunLost}},
	{Code: codeTooLarge, Status: http.StatusRequestEntityTooLarge, Kinds: []job.Kind{job.TooLarge},
		Statuses: []int{http.StatusRequestEntityTooLarge}},
	{Code: codeInternal, Status: http.StatusServiceUnavailable, RetryAfter: time.Second,
		Kinds: []job.Kind{job.Full, job.Unavailable, job.ReadOnly, job.Aborted, job.Timeout}},
	{Code: codeInternal, Status: http.StatusInternalServerError, Kinds: []job.Kind{job.Internal}},
}

// invalid returns the error of a request that breaks a rule; the text names the member (TF-070).
func invalid(format string, args ...any) error {
	return &job.Error{Kind: job.Invalid, Op: Name, Msg: fmt.Sprintf(format, args...)}
}

// conflict returns the error of a request that the state of a job does not allow (TF-075).
func conflict(format string, args ...any) error {
	return &job.Error{Kind: job.Conflict, Op: Name, Msg: fmt.Sprintf(format, args...)}
}

// errNotFound is the error of an id in a path that cannot be one; the engine returns the same kind
// for an id that no job has.
var errNotFound = &job.Error{Kind: job.NotFound, Op: Name, Msg: "there is no such job"}

// sendError writes an error (G-TF-21). The text of a server error stays in the log; the answer
// carries only the request id to find it by. An outage is logged once and not for each request, so
// its answers name none.
func (t *TaskFlow) sendError(c *httpapi.Call, err error) {
	a := errorTable.Answer(err)
	msg := cmp.Or(a.Detail, job.KindOf(err).String())
	switch {
	case a.Status == http.StatusServiceUnavailable:
		msg = "a dependency of the server is unavailable; try again"
	case a.Status >= http.StatusInternalServerError:
		msg = "the request could not be served; see the server's log for request " + c.RequestID()
	}
	c.SetRetryAfter(a.RetryAfter)
	t.metrics.errors.WithLabelValues(a.Code).Inc()
	o := strictjson.NewObject(make([]byte, 0, 256))
	o.Text("code", a.Code)
	o.Text("message", msg)
	var e *job.Error
	if errors.As(err, &e) && e.Kind == job.Cycle { // TF-037
		o.Object("details", func(o *strictjson.Object) { o.Texts("cycle_path", e.Path) })
	}
	c.Send(a.Status, httpapi.JSON, o.End())
}
