package admin

import (
	"cmp"
	"net/http"
	"time"

	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/job"
)

// The codes of problems (G-AD-01).
const (
	codeInvalid      = "VALIDATION_ERROR"
	codeUnauthorized = "UNAUTHORIZED"
	codeForbidden    = "FORBIDDEN"
	codeReadOnly     = "READ_ONLY"
	codeNotFound     = "NOT_FOUND"
	codeMethod       = "METHOD_NOT_ALLOWED"
	codeNotAllowed   = "NOT_ALLOWED"
	codeConflict     = "CONFLICT"
	codeUnavailable  = "UNAVAILABLE"
	// codeInternal is a defect of the server, for which the requirements have no code.
	codeInternal = "INTERNAL_ERROR"
)

const invalidTitle = "The request breaks a rule"

// errorTable is how errors are answered.
var errorTable = httpapi.ErrorTable{
	{Code: codeInvalid, Status: http.StatusBadRequest, Title: invalidTitle,
		Kinds: []job.Kind{job.Malformed, job.Invalid}, Statuses: []int{http.StatusBadRequest}},
	{Code: codeInvalid, Status: http.StatusRequestTimeout, Title: invalidTitle,
		Statuses: []int{http.StatusRequestTimeout}},
	{Code: codeInvalid, Status: http.StatusRequestEntityTooLarge, Title: invalidTitle,
		Kinds:    []job.Kind{job.TooLarge},
		Statuses: []int{http.StatusRequestEntityTooLarge}},
	{Code: codeInvalid, Status: http.StatusUnsupportedMediaType, Title: invalidTitle,
		Statuses: []int{http.StatusUnsupportedMediaType}},
	{Code: codeUnauthorized, Status: http.StatusUnauthorized, Title: "A token is needed",
		Statuses: []int{http.StatusUnauthorized}},
	{Code: codeForbidden, Status: http.StatusForbidden, Title: "This is not permitted",
		Statuses: []int{http.StatusForbidden}},
	{Code: codeReadOnly, Status: http.StatusForbidden, Title: "The token only reads"},
	{Code: codeNotFound, Status: http.StatusNotFound, Title: "Not found",
		Kinds: []job.Kind{job.NotFound}, Statuses: []int{http.StatusNotFound}},
	{Code: codeMethod, Status: http.StatusMethodNotAllowed, Title: "The method is not allowed",
		Statuses: []int{http.StatusMethodNotAllowed}},
	{Code: codeNotAllowed, Status: http.StatusConflict, Title: "The state does not allow this"},
	{Code: codeConflict, Status: http.StatusConflict, Title: "The present state forbids this",
		Kinds: []job.Kind{job.Conflict, job.Cycle, job.RunLost}},
	// A caller who reads the answer did not abort the request.
	{Code: codeUnavailable, Status: http.StatusServiceUnavailable,
		Title: "This is unavailable now", RetryAfter: time.Second,
		Kinds: []job.Kind{job.Full, job.Unavailable, job.ReadOnly, job.Aborted, job.Timeout}},
	{Code: codeInternal, Status: http.StatusInternalServerError, Title: "Unexpected error",
		Kinds: []job.Kind{job.Internal}, OtherStatuses: true},
}

// Errors returns how requests are refused, for the documentation.
func Errors() httpapi.ErrorTable { return errorTable }

// Answer returns how an error is answered.
func Answer(err error) httpapi.Answer {
	answer := errorTable.Answer(err)
	answer.Detail = cmp.Or(answer.Detail, answer.Title)
	return answer
}

// invalid refuses a request that breaks a rule.
func invalid(msg string) error { return &httpapi.CodedError{Code: codeInvalid, Detail: msg} }

var (
	errUnauthorized = &httpapi.CodedError{Code: codeUnauthorized,
		Detail: "a valid operator token or session is needed"}
	errReadOnly = &httpapi.CodedError{Code: codeReadOnly,
		Detail: "this token reads everything and changes nothing"}
	errForeignOrigin = &httpapi.CodedError{Code: codeForbidden,
		Detail: "the request comes from a page of another origin"}
)

// sendError answers an error, with a page below /console and with a problem document elsewhere. An
// internal error is not explained: its instance is the id of the request, under which the log has
// the cause.
func (a *API) sendError(c *httpapi.Call, err error) {
	answer := Answer(err)
	switch answer.Code {
	case codeInternal:
		answer.Detail = "an unexpected error; see the server's log for request " + c.RequestID()
	case codeUnauthorized:
		c.Header().Set("WWW-Authenticate", `Bearer realm="millrace"`)
	case codeUnavailable:
		c.SetRetryAfter(answer.RetryAfter)
	}
	if a.console != nil && isPage(c) {
		a.console.SendError(c, answer)
		return
	}
	c.SendProblem(Name, answer)
}
