package images

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/places"
)

// code is what a problem is called (G-IP-19, and what the document does not speak of).
type code string

const (
	codeInvalid       code = "VALIDATION_FAILED"
	codeUnauthorized  code = "UNAUTHORIZED"
	codeNotFound      code = "NOT_FOUND" // of paths
	codeNoFile        code = "FILE_NOT_FOUND"
	codeNoJob         code = "JOB_NOT_FOUND"
	codeDeleted       code = "FILE_DELETED"
	codeNotReady      code = "VARIANT_NOT_FOUND"
	codeMethod        code = "METHOD_NOT_ALLOWED"
	codeNotReplayable code = "NOT_REPLAYABLE"
	codeConflict      code = "CONFLICT"
	codeTooLarge      code = "UPLOAD_TOO_LARGE"
	codeUnsupported   code = "UNSUPPORTED_IMAGE_TYPE"
	codeMediaType     code = "UNSUPPORTED_MEDIA_TYPE"
	codePrecondition  code = "PRECONDITION_FAILED"
	codeRange         code = "RANGE_NOT_SATISFIABLE"
	codeUnavailable   code = "SERVICE_UNAVAILABLE"
	codeInternal      code = "INTERNAL_ERROR"
)

// codeInfo is what a code says in HTTP.
type codeInfo struct {
	status int
	title  string
}

var codeInfos = map[code]codeInfo{
	codeInvalid:       {http.StatusBadRequest, "The request breaks a rule"},
	codeUnauthorized:  {http.StatusUnauthorized, "A token is needed"},
	codeNotFound:      {http.StatusNotFound, "Nothing at this path"},
	codeNoFile:        {http.StatusNotFound, "No such file"},
	codeNoJob:         {http.StatusNotFound, "No such job"},
	codeNotReady:      {http.StatusNotFound, "No such variant"},
	codeDeleted:       {http.StatusGone, "The file is deleted"},
	codeMethod:        {http.StatusMethodNotAllowed, "The method is not allowed"},
	codeNotReplayable: {http.StatusConflict, "Not a dead letter"},
	codeConflict:      {http.StatusConflict, "Conflict"},
	codeTooLarge:      {http.StatusRequestEntityTooLarge, "The upload is too large"},
	codeUnsupported:   {http.StatusUnsupportedMediaType, "Not a supported image type"},
	codeMediaType:     {http.StatusUnsupportedMediaType, "The media type is not supported"},
	codePrecondition:  {http.StatusPreconditionFailed, "A precondition of the request fails"},
	codeRange:         {http.StatusRequestedRangeNotSatisfiable, "The file has no such range"},
	codeUnavailable:   {http.StatusServiceUnavailable, "A dependency is unavailable"},
	codeInternal:      {http.StatusInternalServerError, "Unexpected error"},
}

// kindCodes says what each kind of error is.
var kindCodes = map[job.Kind]code{
	job.Internal:    codeInternal,
	job.Malformed:   codeInvalid,
	job.Invalid:     codeInvalid,
	job.NotFound:    codeNoJob,
	job.Conflict:    codeConflict,
	job.Cycle:       codeInternal, // there are no dependencies
	job.RunLost:     codeConflict,
	job.TooLarge:    codeTooLarge,
	job.Full:        codeUnavailable,
	job.Unavailable: codeUnavailable,
	job.ReadOnly:    codeUnavailable,
	job.Aborted:     codeUnavailable,
	job.Timeout:     codeUnavailable,
}

// statusCodes says what a request turned down by HTTP alone is.
var statusCodes = map[int]code{
	http.StatusUnauthorized:                 codeUnauthorized,
	http.StatusNotFound:                     codeNotFound,
	http.StatusMethodNotAllowed:             codeMethod,
	http.StatusRequestTimeout:               codeInvalid,
	http.StatusPreconditionFailed:           codePrecondition,
	http.StatusRequestEntityTooLarge:        codeTooLarge,
	http.StatusUnsupportedMediaType:         codeMediaType,
	http.StatusRequestedRangeNotSatisfiable: codeRange,
}

// problem is an error with a code, where its kind alone does not tell it.
type problem struct {
	code   code
	detail string
}

func (p *problem) Error() string { return p.detail }

var (
	errNoFile         = &problem{codeNoFile, "there is no such file"}
	errNoJob          = &problem{codeNoJob, "there is no such job"}
	errNoVariant      = &problem{codeNotReady, "the file has no variant of this size"}
	errVariantPending = &problem{codeNotReady, "the variant of this size is still being made"}
	errDeleted        = &problem{codeDeleted, "the file is deleted"}
	errUnsupported    = &problem{codeUnsupported,
		"an upload is a JPEG, PNG, GIF or WebP image and says so by its content type or the extension of its name"}
)

func invalid(format string, args ...any) error {
	return &job.Error{Kind: job.Invalid, Op: Name, Msg: fmt.Sprintf(format, args...)}
}

// codeOf finds what an error is to the caller, and what may be shown of it.
func codeOf(err error) (code, string) {
	var p *problem
	if errors.As(err, &p) {
		return p.code, p.detail
	}
	var refusal *httpapi.StatusError
	if errors.As(err, &refusal) {
		if c, known := statusCodes[refusal.Status]; known {
			return c, refusal.Msg
		}
		return codeInternal, ""
	}
	var e *job.Error
	if errors.As(err, &e) {
		return kindCodes[e.Kind], e.Msg
	}
	return codeInternal, ""
}

// sendError writes an error as a problem document. What is our own fault is not explained beyond
// the number under which the log has it.
func (m *Images) sendError(c *httpapi.Call, err error) {
	code, detail := codeOf(err)
	info := codeInfos[code]
	refused, is := places.Refused(err)
	switch {
	case is:
		detail = refused
	case code == codeUnavailable:
		c.Header().Set("Retry-After", "1")
		detail = "what this needs does not answer; try again"
	case code == codeInternal:
		detail = "an unexpected error; the server's log has it under " + c.RequestID()
	case detail == "":
		detail = info.title
	}
	c.SendProblem(httpapi.Problem{Contract: Name, Code: string(code), Status: info.status,
		Title: info.title, Detail: detail})
}
