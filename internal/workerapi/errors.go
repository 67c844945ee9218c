package workerapi

import (
	"cmp"
	"errors"
	"net/http"
	"time"

	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/job"
)

// The codes of problems.
const (
	codeInvalid        = "VALIDATION_ERROR"
	codeUnauthorized   = "UNAUTHORIZED"
	codeNotFound       = "NOT_FOUND"
	codeMethod         = "METHOD_NOT_ALLOWED"
	codeRequestTimeout = "REQUEST_TIMEOUT"
	codeNotClaimable   = "NOT_CLAIMABLE"
	codeRunLost        = "RUN_LOST"
	codeConflict       = "CONFLICT"
	codeTooLarge       = "PAYLOAD_TOO_LARGE"
	codeMediaType      = "UNSUPPORTED_MEDIA_TYPE"
	codeUnavailable    = "STORAGE_UNAVAILABLE"
	codeInternal       = "INTERNAL_ERROR"
)

// errorTable is how errors are answered.
var errorTable = httpapi.ErrorTable{
	{Code: codeInvalid, Status: http.StatusBadRequest, Title: "The request breaks a rule",
		Kinds: []job.Kind{job.Malformed, job.Invalid}, Statuses: []int{http.StatusBadRequest}},
	{Code: codeUnauthorized, Status: http.StatusUnauthorized, Title: "A token is needed",
		Statuses: []int{http.StatusUnauthorized}},
	{Code: codeNotFound, Status: http.StatusNotFound, Title: "Not found",
		Kinds: []job.Kind{job.NotFound}, Statuses: []int{http.StatusNotFound}},
	{Code: codeMethod, Status: http.StatusMethodNotAllowed, Title: "The method is not allowed",
		Statuses: []int{http.StatusMethodNotAllowed}},
	{Code: codeRequestTimeout, Status: http.StatusRequestTimeout,
		Title: "The body came too slowly", Statuses: []int{http.StatusRequestTimeout}},
	{Code: codeNotClaimable, Status: http.StatusConflict, Title: "The job cannot be claimed"},
	{Code: codeRunLost, Status: http.StatusConflict, Title: "The run is lost",
		Kinds: []job.Kind{job.RunLost}},
	{Code: codeConflict, Status: http.StatusConflict, Title: "The job's state forbids this",
		Kinds: []job.Kind{job.Conflict}},
	{Code: codeTooLarge, Status: http.StatusRequestEntityTooLarge, Title: "The body is too large",
		Kinds: []job.Kind{job.TooLarge}, Statuses: []int{http.StatusRequestEntityTooLarge}},
	{Code: codeMediaType, Status: http.StatusUnsupportedMediaType,
		Title:    "The media type is not supported",
		Statuses: []int{http.StatusUnsupportedMediaType}},
	// A caller who reads the answer did not abort the request.
	{Code: codeUnavailable, Status: http.StatusServiceUnavailable,
		Title: "The store is unavailable", RetryAfter: time.Second,
		Kinds: []job.Kind{job.Full, job.Unavailable, job.ReadOnly, job.Aborted, job.Timeout}},
	// No request here changes dependencies, so that a cycle is a defect.
	{Code: codeInternal, Status: http.StatusInternalServerError, Title: "Unexpected error",
		Kinds: []job.Kind{job.Internal, job.Cycle}, OtherStatuses: true},
}

// Errors returns how requests are refused, for the documentation.
func Errors() httpapi.ErrorTable { return errorTable }

func invalid(msg string) error { return &httpapi.CodedError{Code: codeInvalid, Detail: msg} }

// errRunsLocally is the refusal of a claim for jobs that the server executes itself.
func errRunsLocally(what string) error {
	return &httpapi.CodedError{Code: codeNotClaimable, Detail: what + " are run by the server itself"}
}

var (
	errRunLost = &httpapi.CodedError{Code: codeRunLost,
		Detail: "the run is not its job's current one: stop, nothing it writes counts"}
	errRunTimedOut = &httpapi.CodedError{Code: codeRunLost,
		Detail: "the run has exceeded the time limit of its job and has ended as failed: its " +
			"worker must stop"}
	errJobNotFound = &httpapi.CodedError{Code: codeNotFound, Detail: "there is no such job"}
)

// answerTo returns the answer to an error. A run that is lost and a job that there is not are
// explained in the API's own words.
func answerTo(err error) httpapi.Answer {
	var coded *httpapi.CodedError
	if !errors.As(err, &coded) {
		switch job.KindOf(err) {
		case job.RunLost:
			err = errRunLost
		case job.NotFound:
			err = errJobNotFound
		}
	}
	a := errorTable.Answer(err)
	a.Detail = cmp.Or(a.Detail, a.Title)
	return a
}

// sendError sends an error as a problem document. An internal error is not explained to the caller:
// it gets the id of the request, under which the log has the cause.
func (a *Server) sendError(c *httpapi.Call, err error) {
	answer := answerTo(err)
	a.metrics.errors.WithLabelValues(answer.Code).Inc()
	refused, isRefused := "", false
	if a.Refused != nil {
		refused, isRefused = a.Refused(err)
	}
	switch {
	case isRefused:
		answer.Detail = refused
	case answer.Code == codeInternal:
		answer.Detail = "an unexpected error; see the server's log for request " + c.RequestID()
	case answer.Code == codeUnavailable:
		answer.Detail = "the store does not answer; try again"
		c.SetRetryAfter(answer.RetryAfter)
	}
	c.SendProblem(Name, answer)
}

// appendRefusal appends the members that say why one outcome of many was refused.
func (a *Server) appendRefusal(b []byte, err error) []byte {
	answer := answerTo(err)
	a.metrics.errors.WithLabelValues(answer.Code).Inc()
	b = strictjson.AppendString(append(b, `"code":`...), answer.Code)
	return strictjson.AppendString(append(b, `,"detail":`...), answer.Detail)
}
