package fetchbox

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"

	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/outage"
	"github.com/millrace/millrace/internal/storageid"
)

// The codes in the body of an error: those of the document (FB-039 to FB-044), and some for cases
// that it does not mention (G-FB-19, G-FB-38).
const (
	codeInvalid      = "INVALID_PAYLOAD"
	codeUnauthorized = "UNAUTHORIZED"
	codeUnsupported  = "UNSUPPORTED_JOB_TYPE"
	codeBodyTooLarge = "PAYLOAD_TOO_LARGE"
	codeRateLimited  = "RATE_LIMITED"
	codeInternal     = "INTERNAL_ERROR"
	codeNotFound     = "NOT_FOUND"
	codeConflict     = "CONFLICT"
	codeMethod       = "METHOD_NOT_ALLOWED"
)

// errorTable is how errors are answered; the titles are for the documentation. The document has one
// answer for all outages (G-FB-20). A test demands a row for every kind of error, also for those
// that no route of FetchBox returns now.
var errorTable = httpapi.ErrorTable{
	{Code: codeInvalid, Status: http.StatusBadRequest, Title: "The request breaks a rule",
		Kinds: []job.Kind{job.Malformed, job.Invalid}, OtherStatuses: true},
	{Code: codeUnauthorized, Status: http.StatusUnauthorized, Title: "A token is needed",
		Statuses: []int{http.StatusUnauthorized}},
	{Code: codeUnsupported, Status: http.StatusForbidden,
		Title: "The job type is not registered", Statuses: []int{http.StatusForbidden}},
	{Code: codeNotFound, Status: http.StatusNotFound,
		Title: "Not found", Kinds: []job.Kind{job.NotFound},
		Statuses: []int{http.StatusNotFound}},
	{Code: codeMethod, Status: http.StatusMethodNotAllowed, Title: "The method is not allowed",
		Statuses: []int{http.StatusMethodNotAllowed}},
	{Code: codeConflict, Status: http.StatusConflict, Title: "The state of the task forbids this",
		Kinds: []job.Kind{job.Conflict, job.RunLost}},
	{Code: codeBodyTooLarge, Status: http.StatusRequestEntityTooLarge,
		Title: "The manifest is too large",
		Kinds: []job.Kind{job.TooLarge}, Statuses: []int{http.StatusRequestEntityTooLarge}},
	{Code: codeRateLimited, Status: http.StatusTooManyRequests,
		Title: "The queue is full", Kinds: []job.Kind{job.Full}},
	{Code: codeInternal, Status: http.StatusInternalServerError,
		Title: "Unexpected error, or a dependency is unavailable",
		Kinds: []job.Kind{job.Internal, job.Cycle, job.Unavailable, job.ReadOnly, job.Aborted,
			job.Timeout}},
}

// invalid returns the error of a request that breaks a rule of the document. It is answered with
// 400, and with the text.
func invalid(format string, args ...any) error {
	return &job.Error{Kind: job.Invalid, Op: Name, Msg: fmt.Sprintf(format, args...)}
}

// conflict returns the error of a replay that the state of its task does not allow. It is answered
// with 409, and with the text.
func conflict(format string, args ...any) error {
	return &job.Error{Kind: job.Conflict, Op: Name, Msg: fmt.Sprintf(format, args...)}
}

// tooLarge returns the error of a manifest that is larger than a limit. It is answered with 413,
// and with the text.
func tooLarge(format string, args ...any) error {
	return &job.Error{Kind: job.TooLarge, Op: Name, Msg: fmt.Sprintf(format, args...)}
}

// notFound returns the error of an id in a path that cannot be one. For an id that no job has, the
// engine returns the same kind, with the id (FB-053).
func notFound(what string) error {
	return &job.Error{Kind: job.NotFound, Op: Name, Msg: "there is no such " + what}
}

// sendError writes an error (FB-045). An error of the server itself is only explained in its log;
// the caller gets the request id to look for. An outage is logged once and not for each request, so
// its answers name none.
func (f *FetchBox) sendError(c *httpapi.Call, err error) {
	a := errorTable.Answer(err)
	msg := cmp.Or(a.Detail, job.KindOf(err).String())
	refused, isRefused := storageid.Refused(err)
	switch {
	case isRefused:
		msg = refused
	case outage.Is(err):
		msg = "a dependency of the server is unavailable; try again"
	case a.Status >= http.StatusInternalServerError:
		msg = "the request could not be served; see the server's log for request " + c.RequestID()
	}
	o := strictjson.NewObject(make([]byte, 0, 256))
	o.Object("error", func(o *strictjson.Object) {
		o.Text("code", a.Code)
		o.Text("message", msg)
		var e *job.Error
		if errors.As(err, &e) && e.ID.JobType == Name {
			o.Text("job_id", e.ID.Key)
		}
	})
	c.Send(a.Status, httpapi.JSON, o.End())
}
