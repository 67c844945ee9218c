package wordcount

import (
	"fmt"
	"net/http"
	"time"

	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/job"
)

// errorTable is how errors are answered.
var errorTable = httpapi.ErrorTable{
	{Status: http.StatusBadRequest, Kinds: []job.Kind{job.Malformed, job.Invalid}},
	{Status: http.StatusNotFound, Kinds: []job.Kind{job.NotFound}},
	{Status: http.StatusConflict, Kinds: []job.Kind{job.Conflict, job.Cycle, job.RunLost}},
	{Status: http.StatusRequestEntityTooLarge, Kinds: []job.Kind{job.TooLarge}},
	{Status: http.StatusServiceUnavailable, RetryAfter: time.Second,
		Kinds: []job.Kind{job.Full, job.Unavailable, job.ReadOnly, job.Aborted, job.Timeout}},
	{Status: http.StatusInternalServerError, Kinds: []job.Kind{job.Internal}},
}

// invalid returns the error of a request that breaks a rule. It is answered with 400, and with the
// text. Other kinds of errors that a contract needs have a function like it (contract_test.go of
// package arch lists them).
func invalid(format string, args ...any) error {
	return &job.Error{Kind: job.Invalid, Op: Name, Msg: fmt.Sprintf(format, args...)}
}

// sendError answers with an error as errorTable says and counts it. It is the only writer of
// errors: the router calls it also for those that it finds itself, such as a body that is too
// large.
func (w *WordCount) sendError(c *httpapi.Call, err error) {
	a := errorTable.Answer(err)
	c.SetRetryAfter(a.RetryAfter)
	w.metrics.errors.Inc()
	o := strictjson.NewObject(nil)
	o.Text("error", a.Detail)
	c.Send(a.Status, httpapi.JSON, o.End())
}
