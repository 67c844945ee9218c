package taskflow

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/job"
)

// code is the member code of an error's body: one of the document's three (TF-085), or one for an
// error that the document does not define (G-TF-29, G-TF-32).
type code string

const (
	codeValidation   code = "VALIDATION_ERROR"
	codeNotFound     code = "NOT_FOUND"
	codeConflict     code = "CONFLICT"
	codeUnauthorized code = "UNAUTHORIZED"
	codeMethod       code = "METHOD_NOT_ALLOWED"
	codeTooLarge     code = "PAYLOAD_TOO_LARGE"
	codeInternal     code = "INTERNAL_ERROR"
)

// errorInfo is an error's status and code.
type errorInfo struct {
	status int
	code   code
}

// errorInfos maps the kinds of job.Error.
var errorInfos = map[job.Kind]errorInfo{
	job.Internal:    {http.StatusInternalServerError, codeInternal},
	job.Malformed:   {http.StatusBadRequest, codeValidation},
	job.Invalid:     {http.StatusBadRequest, codeValidation},
	job.NotFound:    {http.StatusNotFound, codeNotFound},
	job.Conflict:    {http.StatusConflict, codeConflict},
	job.Cycle:       {http.StatusConflict, codeConflict}, // G-TF-05
	job.RunLost:     {http.StatusConflict, codeConflict},
	job.TooLarge:    {http.StatusRequestEntityTooLarge, codeTooLarge},
	job.Full:        {http.StatusServiceUnavailable, codeInternal},
	job.Unavailable: {http.StatusServiceUnavailable, codeInternal},
	job.ReadOnly:    {http.StatusServiceUnavailable, codeInternal},
	job.Aborted:     {http.StatusServiceUnavailable, codeInternal},
	job.Timeout:     {http.StatusServiceUnavailable, codeInternal},
}

// httpErrorInfos maps the errors of httpapi, which come before the contract's own. A body that
// came too slowly is incomplete and therefore invalid.
var httpErrorInfos = map[int]errorInfo{
	http.StatusUnauthorized:          {http.StatusUnauthorized, codeUnauthorized},
	http.StatusNotFound:              {http.StatusNotFound, codeNotFound},
	http.StatusMethodNotAllowed:      {http.StatusMethodNotAllowed, codeMethod},
	http.StatusRequestTimeout:        {http.StatusBadRequest, codeValidation},
	http.StatusRequestEntityTooLarge: {http.StatusRequestEntityTooLarge, codeTooLarge},
}

func invalid(format string, args ...any) error {
	return &job.Error{Kind: job.Invalid, Op: Name, Msg: fmt.Sprintf(format, args...)}
}

func conflict(format string, args ...any) error {
	return &job.Error{Kind: job.Conflict, Op: Name, Msg: fmt.Sprintf(format, args...)}
}

var errNotFound = &job.Error{Kind: job.NotFound, Op: Name, Msg: "there is no such job"}

// errorInfoOf returns the status and code of an error, and the text that a client may read.
func errorInfoOf(err error) (errorInfo, string) {
	return httpapi.MapError(err, errorInfos, httpErrorInfos,
		errorInfo{http.StatusBadRequest, codeValidation})
}

// sendError writes an error (G-TF-21). The text of a server error stays in the log; the answer
// carries only the request id to find it by. An outage is logged once and not for each request, so
// its answers name none.
func (t *TaskFlow) sendError(c *httpapi.Call, err error) {
	m, msg := errorInfoOf(err)
	switch {
	case m.status == http.StatusServiceUnavailable:
		c.Header().Set("Retry-After", "1")
		msg = "a dependency of the server is unavailable; try again"
	case m.status >= http.StatusInternalServerError:
		msg = "the request could not be served; see the server's log for request " + c.RequestID()
	}
	t.metrics.errors.WithLabelValues(string(m.code)).Inc()
	o := strictjson.NewObject(make([]byte, 0, 256))
	o.Text("code", string(m.code))
	o.Text("message", msg)
	var e *job.Error
	if errors.As(err, &e) && e.Kind == job.Cycle { // TF-037
		o.Object("details", func(o *strictjson.Object) { o.Texts("cycle_path", e.Path) })
	}
	c.Send(m.status, httpapi.JSON, o.End())
}
