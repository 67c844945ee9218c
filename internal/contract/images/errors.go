package images

import (
	"fmt"
	"net/http"
	"time"

	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/storageid"
)

// The codes of problems (G-IP-19), with some for cases that the document does not mention.
const (
	codeInvalid       = "VALIDATION_FAILED"
	codeUnauthorized  = "UNAUTHORIZED"
	codeNotFound      = "NOT_FOUND" // of paths
	codeNoFile        = "FILE_NOT_FOUND"
	codeNoJob         = "JOB_NOT_FOUND"
	codeDeleted       = "FILE_DELETED"
	codeNotReady      = "VARIANT_NOT_FOUND"
	codeMethod        = "METHOD_NOT_ALLOWED"
	codeNotReplayable = "NOT_REPLAYABLE"
	codeConflict      = "CONFLICT"
	codeTooLarge      = "UPLOAD_TOO_LARGE"
	codeUnsupported   = "UNSUPPORTED_IMAGE_TYPE"
	codeMediaType     = "UNSUPPORTED_MEDIA_TYPE"
	codePrecondition  = "PRECONDITION_FAILED"
	codeRange         = "RANGE_NOT_SATISFIABLE"
	codeUnavailable   = "SERVICE_UNAVAILABLE"
	codeInternal      = "INTERNAL_ERROR"
)

// errorTable is how errors are answered. A row without kinds and statuses is for errors that carry
// its code themselves (httpapi.CodedError).
var errorTable = httpapi.ErrorTable{
	{Code: codeInvalid, Status: http.StatusBadRequest, Title: "The request breaks a rule",
		Kinds: []job.Kind{job.Malformed, job.Invalid}, Statuses: []int{http.StatusRequestTimeout}},
	{Code: codeUnauthorized, Status: http.StatusUnauthorized, Title: "A token is needed",
		Statuses: []int{http.StatusUnauthorized}},
	{Code: codeNotFound, Status: http.StatusNotFound, Title: "Nothing at this path",
		Statuses: []int{http.StatusNotFound}},
	{Code: codeNoFile, Status: http.StatusNotFound, Title: "No such file"},
	{Code: codeNoJob, Status: http.StatusNotFound, Title: "No such job",
		Kinds: []job.Kind{job.NotFound}},
	{Code: codeNotReady, Status: http.StatusNotFound, Title: "No such variant"},
	{Code: codeDeleted, Status: http.StatusGone, Title: "The file is deleted"},
	{Code: codeMethod, Status: http.StatusMethodNotAllowed, Title: "The method is not allowed",
		Statuses: []int{http.StatusMethodNotAllowed}},
	{Code: codeNotReplayable, Status: http.StatusConflict, Title: "Not a dead letter"},
	{Code: codeConflict, Status: http.StatusConflict, Title: "Conflict",
		Kinds: []job.Kind{job.Conflict, job.RunLost}},
	{Code: codeTooLarge, Status: http.StatusRequestEntityTooLarge,
		Title: "The upload is too large", Kinds: []job.Kind{job.TooLarge},
		Statuses: []int{http.StatusRequestEntityTooLarge}},
	{Code: codeUnsupported, Status: http.StatusUnsupportedMediaType,
		Title: "Not a supported image type"},
	{Code: codeMediaType, Status: http.StatusUnsupportedMediaType,
		Title:    "The media type is not supported",
		Statuses: []int{http.StatusUnsupportedMediaType}},
	{Code: codePrecondition, Status: http.StatusPreconditionFailed,
		Title:    "A precondition of the request fails",
		Statuses: []int{http.StatusPreconditionFailed}},
	{Code: codeRange, Status: http.StatusRequestedRangeNotSatisfiable,
		Title:    "The file has no such range",
		Statuses: []int{http.StatusRequestedRangeNotSatisfiable}},
	{Code: codeUnavailable, Status: http.StatusServiceUnavailable,
		Title: "A dependency is unavailable", RetryAfter: time.Second,
		Kinds: []job.Kind{job.Full, job.Unavailable, job.ReadOnly, job.Aborted, job.Timeout}},
	// There are no dependencies, so that a cycle is a defect.
	{Code: codeInternal, Status: http.StatusInternalServerError, Title: "Unexpected error",
		Kinds: []job.Kind{job.Internal, job.Cycle}, OtherStatuses: true},
}

// Errors whose code does not follow from a kind.
var (
	errNoFile    = &httpapi.CodedError{Code: codeNoFile, Detail: "there is no such file"}
	errNoVariant = &httpapi.CodedError{Code: codeNotReady,
		Detail: "the file has no variant of this size"}
	errVariantPending = &httpapi.CodedError{Code: codeNotReady,
		Detail: "the variant of this size is still being made"}
	errDeleted     = &httpapi.CodedError{Code: codeDeleted, Detail: "the file is deleted"}
	errUnsupported = &httpapi.CodedError{Code: codeUnsupported,
		Detail: "an upload must be a JPEG, PNG, GIF or WebP image, " +
			"by its content type or the extension of its name"}
)

// invalid returns the error of a request that breaks a rule, status 400.
func invalid(format string, args ...any) error {
	return &job.Error{Kind: job.Invalid, Op: Name, Msg: fmt.Sprintf(format, args...)}
}

// tooLarge returns the error of an upload that is larger than a limit, status 413.
func tooLarge(format string, args ...any) error {
	return &job.Error{Kind: job.TooLarge, Op: Name, Msg: fmt.Sprintf(format, args...)}
}

// notFound returns the error of a thing that does not exist. Its code is that of a job; clients get
// errNoFile for a file.
func notFound(what string) error {
	return &job.Error{Kind: job.NotFound, Op: Name, Msg: "there is no such " + what}
}

// sendError writes an error as a problem document. An error of the server itself is only explained
// in its log; the caller gets the request id to look for. A node that is refused by storageid says
// so, since an operator has to act.
func (m *Images) sendError(c *httpapi.Call, err error) {
	a := errorTable.Answer(err)
	refused, isRefused := storageid.Refused(err)
	switch {
	case isRefused:
		a.Detail = refused
	case a.Code == codeUnavailable:
		c.SetRetryAfter(a.RetryAfter)
		a.Detail = "a dependency of the server is unavailable; try again"
	case a.Code == codeInternal:
		a.Detail = "an unexpected error; see the server's log for request " + c.RequestID()
	case a.Detail == "":
		a.Detail = a.Title
	}
	c.SendProblem(Name, a)
}
