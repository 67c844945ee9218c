package fetchbox

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/places"
)

// code is what the body of an error names it by: those of the document (FB-039 to FB-044), and
// those of what it does not speak of (G-FB-19, G-FB-38).
type code string

const (
	codeInvalid      code = "INVALID_PAYLOAD"
	codeUnauthorized code = "UNAUTHORIZED"
	codeUnsupported  code = "UNSUPPORTED_JOB_TYPE"
	codeBodyTooLarge code = "PAYLOAD_TOO_LARGE"
	codeRateLimited  code = "RATE_LIMITED"
	codeInternal     code = "INTERNAL_ERROR"
	codeNotFound     code = "NOT_FOUND"
	codeConflict     code = "CONFLICT"
	codeMethod       code = "METHOD_NOT_ALLOWED"
)

// errorInfo is an error in HTTP.
type errorInfo struct {
	status int
	code   code
}

var internalError = errorInfo{http.StatusInternalServerError, codeInternal}

// errorInfos says what each kind of error is. Whatever is away, the document knows one answer
// (G-FB-20).
var errorInfos = map[job.Kind]errorInfo{
	job.Internal:    internalError,
	job.Malformed:   {http.StatusBadRequest, codeInvalid},
	job.Invalid:     {http.StatusBadRequest, codeInvalid},
	job.NotFound:    {http.StatusNotFound, codeNotFound},
	job.Conflict:    {http.StatusConflict, codeConflict},
	job.Cycle:       internalError,
	job.RunLost:     {http.StatusConflict, codeConflict},
	job.TooLarge:    {http.StatusRequestEntityTooLarge, codeBodyTooLarge},
	job.Full:        {http.StatusTooManyRequests, codeRateLimited},
	job.Unavailable: internalError,
	job.ReadOnly:    internalError,
	job.Aborted:     internalError,
	job.Timeout:     internalError,
}

// httpErrorInfos says what a request turned down by HTTP alone is.
var httpErrorInfos = map[int]errorInfo{
	http.StatusUnauthorized:          {http.StatusUnauthorized, codeUnauthorized},
	http.StatusForbidden:             {http.StatusForbidden, codeUnsupported},
	http.StatusNotFound:              {http.StatusNotFound, codeNotFound},
	http.StatusMethodNotAllowed:      {http.StatusMethodNotAllowed, codeMethod},
	http.StatusRequestEntityTooLarge: {http.StatusRequestEntityTooLarge, codeBodyTooLarge},
}

func invalid(format string, args ...any) error {
	return &job.Error{Kind: job.Invalid, Op: Name, Msg: fmt.Sprintf(format, args...)}
}

func conflict(format string, args ...any) error {
	return &job.Error{Kind: job.Conflict, Op: Name, Msg: fmt.Sprintf(format, args...)}
}

func errNoJob(key string) error {
	return &job.Error{Kind: job.NotFound, Op: Name, ID: engineJobID(key),
		Msg: "there is no such job"}
}

// errorInfoOf says what an error is in HTTP, and what may be shown of it.
func errorInfoOf(err error) (errorInfo, string) {
	return httpapi.MapError(err, errorInfos, httpErrorInfos,
		errorInfo{http.StatusBadRequest, codeInvalid})
}

// sendError writes an error (FB-045). What is our own fault is not explained beyond the number
// under which the log has it.
func (f *FetchBox) sendError(c *httpapi.Call, err error) {
	m, msg := errorInfoOf(err)
	if refused, isRefused := places.Refused(err); isRefused {
		msg = refused
	} else if m.status >= http.StatusInternalServerError {
		msg = "the request could not be served; the server's log has it under " + c.RequestID()
	}
	o := strictjson.NewObject(make([]byte, 0, 256))
	o.Object("error", func(o *strictjson.Object) {
		o.Text("code", string(m.code))
		o.Text("message", msg)
		var e *job.Error
		if errors.As(err, &e) && e.ID.Contract == Name {
			o.Text("job_id", e.ID.Key)
		}
	})
	c.Send(m.status, httpapi.JSON, o.End())
}
