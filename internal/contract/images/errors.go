package images

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/storageid"
)

// code is the code of a problem (G-IP-19), with some for cases that the document does not mention.
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

// codeInfo is the HTTP status and the title of a code.
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

// kindCodes maps every kind of error.
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

// statusCodes maps the statuses with which package httpapi refuses a request.
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

// problem is an error whose code does not follow from a kind of errors.
type problem struct {
	code   code
	detail string
}

// Error implements error.
func (p *problem) Error() string { return p.detail }

var (
	errNoFile         = &problem{codeNoFile, "there is no such file"}
	errNoJob          = &problem{codeNoJob, "there is no such job"}
	errNoVariant      = &problem{codeNotReady, "the file has no variant of this size"}
	errVariantPending = &problem{codeNotReady, "the variant of this size is still being made"}
	errDeleted        = &problem{codeDeleted, "the file is deleted"}
	errUnsupported    = &problem{codeUnsupported,
		"an upload must be a JPEG, PNG, GIF or WebP image, " +
			"by its content type or the extension of its name"}
	errCursor = invalid("invalid cursor")
)

func invalid(format string, args ...any) error {
	return &job.Error{Kind: job.Invalid, Op: Name, Msg: fmt.Sprintf(format, args...)}
}

// codeOf maps an error to its code and to a message that the caller may see.
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

// sendError writes an error as a problem document. An error of the server itself is only explained
// in its log; the caller gets the request id to look for.
func (m *Images) sendError(c *httpapi.Call, err error) {
	code, detail := codeOf(err)
	info := codeInfos[code]
	refused, isRefused := storageid.Refused(err)
	switch {
	case isRefused:
		detail = refused
	case code == codeUnavailable:
		c.Header().Set("Retry-After", "1")
		detail = "a dependency of the server is unavailable; try again"
	case code == codeInternal:
		detail = "an unexpected error; see the server's log for request " + c.RequestID()
	case detail == "":
		detail = info.title
	}
	c.SendProblem(httpapi.Problem{Contract: Name, Code: string(code), Status: info.status,
		Title: info.title, Detail: detail})
}
