package fetchbox

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/outage"
	"github.com/millrace/millrace/internal/storageid"
)

// code is the code in the body of an error: those of the document (FB-039 to FB-044), and some for
// cases that it does not mention (G-FB-19, G-FB-38).
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

// errorInfo is how an error appears in HTTP.
type errorInfo struct {
	status int
	code   code
}

var internalError = errorInfo{http.StatusInternalServerError, codeInternal}

// errorInfos maps every kind of error. The document has one answer for all outages (G-FB-20).
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

// httpErrorInfos maps the statuses with which package httpapi refuses a request.
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

const noSuchJob = "there is no such job"

func errNoJob(key string) error {
	return &job.Error{Kind: job.NotFound, Op: Name, ID: engineJobID(key),
		Msg: noSuchJob}
}

// errorInfoOf maps an error to HTTP and to a message that the caller may see.
func errorInfoOf(err error) (errorInfo, string) {
	return httpapi.MapError(err, errorInfos, httpErrorInfos,
		errorInfo{http.StatusBadRequest, codeInvalid})
}

// sendError writes an error (FB-045). An error of the server itself is only explained in its log;
// the caller gets the request id to look for. An outage is logged once and not for each request, so
// its answers name none.
func (f *FetchBox) sendError(c *httpapi.Call, err error) {
	info, msg := errorInfoOf(err)
	refused, isRefused := storageid.Refused(err)
	switch {
	case isRefused:
		msg = refused
	case outage.Is(err):
		msg = "a dependency of the server is unavailable; try again"
	case info.status >= http.StatusInternalServerError:
		msg = "the request could not be served; see the server's log for request " + c.RequestID()
	}
	o := strictjson.NewObject(make([]byte, 0, 256))
	o.Object("error", func(o *strictjson.Object) {
		o.Text("code", string(info.code))
		o.Text("message", msg)
		var e *job.Error
		if errors.As(err, &e) && e.ID.Contract == Name {
			o.Text("job_id", e.ID.Key)
		}
	})
	c.Send(info.status, httpapi.JSON, o.End())
}
