package taskflow

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/millrace/millrace/internal/engine"
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
	codeIdempotency  = "IDEMPOTENCY_CONFLICT" // RT-002
)

// errorTable is how errors are answered; the titles are for the documentation. A body that came too
// slowly is incomplete and therefore invalid, as is whatever else package httpapi refuses.
var errorTable = httpapi.ErrorTable{
	{Code: codeValidation, Status: http.StatusBadRequest, Title: "The request breaks a rule",
		Kinds: []job.Kind{job.Malformed, job.Invalid}, OtherStatuses: true},
	{Code: codeUnauthorized, Status: http.StatusUnauthorized, Title: "A token is needed",
		Statuses: []int{http.StatusUnauthorized}},
	{Code: codeNotFound, Status: http.StatusNotFound,
		Title: "Not found", Kinds: []job.Kind{job.NotFound},
		Statuses: []int{http.StatusNotFound}},
	{Code: codeMethod, Status: http.StatusMethodNotAllowed, Title: "The method is not allowed",
		Statuses: []int{http.StatusMethodNotAllowed}},
	{Code: codeConflict, Status: http.StatusConflict,
		Title: "The state of the job forbids this, or its dependencies would close a cycle",
		Kinds: []job.Kind{job.Conflict, job.Cycle, job.RunLost}}, // of cycles: G-TF-05
	{Code: codeIdempotency, Status: http.StatusConflict,
		Title: "The Idempotency-Key was used with another request"},
	{Code: codeTooLarge, Status: http.StatusRequestEntityTooLarge,
		Title: "The body is too large", Kinds: []job.Kind{job.TooLarge},
		Statuses: []int{http.StatusRequestEntityTooLarge}},
	{Code: codeInternal, Status: http.StatusServiceUnavailable,
		Title: "The store is unavailable", RetryAfter: time.Second,
		Kinds: []job.Kind{job.Full, job.Unavailable, job.ReadOnly, job.Aborted, job.Timeout}},
	{Code: codeInternal, Status: http.StatusInternalServerError,
		Title: "Unexpected error", Kinds: []job.Kind{job.Internal}},
}

// invalid returns the error of a request that breaks a rule; the text names the member (TF-070).
func invalid(format string, args ...any) error {
	return &job.Error{Kind: job.Invalid, Op: Name, Msg: fmt.Sprintf(format, args...)}
}

// conflict returns the error of a request that the state of a job does not allow (TF-075).
func conflict(format string, args ...any) error {
	return &job.Error{Kind: job.Conflict, Op: Name, Msg: fmt.Sprintf(format, args...)}
}

// notFound returns the error of an id in a path that cannot be one; the engine returns the same
// kind for an id that no job has.
func notFound(what string) error {
	return &job.Error{Kind: job.NotFound, Op: Name, Msg: "there is no such " + what}
}

// sendError writes an error (G-TF-21). The text of a server error stays in the log; the answer
// carries only the request id to find it by. An outage is logged once and not for each request, so
// its answers name none.
func (t *TaskFlow) sendError(c *httpapi.Call, err error) {
	if errors.Is(err, engine.ErrKeyReused) {
		err = &httpapi.CodedError{Code: codeIdempotency,
			Detail: "the Idempotency-Key was used with another request"}
	}
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
	appendDetails(&o, err)
	c.Send(a.Status, httpapi.JSON, o.End())
}

// appendDetails writes what programs need of an error beside its code.
func appendDetails(o *strictjson.Object, err error) {
	if e, is := errors.AsType[*job.Error](err); is && e.Kind == job.Cycle { // TF-037
		o.Object("details", func(o *strictjson.Object) { o.Texts("cycle_path", e.Path) })
	}
	if before, is := errors.AsType[*rerunError](err); is { // RT-001
		o.Object("details", func(o *strictjson.Object) {
			o.Object("jobs", func(o *strictjson.Object) { appendCopies(o, before.copies) })
		})
	}
}
