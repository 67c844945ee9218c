package relay

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/job"
)

// retryableStatus stands in statuses for Config.RetryableStatus (G-RL-09).
const retryableStatus = 0

// statuses maps the kinds of job.Error.
var statuses = map[job.Kind]int{
	job.Internal:    http.StatusInternalServerError,
	job.Malformed:   http.StatusBadRequest,
	job.Invalid:     http.StatusUnprocessableEntity,
	job.NotFound:    http.StatusNotFound,
	job.Conflict:    http.StatusConflict,
	job.Cycle:       http.StatusInternalServerError, // Relay has no dependencies
	job.RunLost:     http.StatusNotFound,
	job.TooLarge:    http.StatusRequestEntityTooLarge,
	job.Full:        retryableStatus,
	job.Unavailable: retryableStatus,
	job.ReadOnly:    retryableStatus, // such as a full disk: clients should not give up the job
	job.Aborted:     retryableStatus,
	job.Timeout:     retryableStatus,
}

func malformed(msg string) *job.Error { return &job.Error{Kind: job.Malformed, Op: Name, Msg: msg} }

func invalid(msg string) *job.Error { return &job.Error{Kind: job.Invalid, Op: Name, Msg: msg} }

var errNotFound = &job.Error{Kind: job.NotFound, Op: Name, Msg: "there is no such job"}

// sendError writes an error as plain text (RL-031). The text of a server error stays in the log;
// the client gets only the request id to find it by.
func (r *Relay) sendError(c *httpapi.Call, err error) {
	status, msg, kind := r.statusOf(err)
	if status >= http.StatusInternalServerError && status != r.RetryableStatus {
		msg = "an unexpected error; see the server's log for request " + c.RequestID()
	}
	if status == r.RetryableStatus {
		c.Header().Set("Retry-After", "1")
	}
	r.metrics.errors.WithLabelValues(kind).Inc()
	c.Send(status, httpapi.Text, []byte(msg+"\n"))
}

// statusOf returns the status of an error, the text that a client may read, and the error's kind
// for the metrics.
func (r *Relay) statusOf(err error) (status int, msg, kind string) {
	var refusal *httpapi.StatusError
	if errors.As(err, &refusal) {
		return refusal.Status, refusal.Msg, "http " + strconv.Itoa(refusal.Status)
	}
	k := job.KindOf(err)
	if status = statuses[k]; status == retryableStatus {
		status = r.RetryableStatus
	}
	return status, errorText(err), k.String()
}

// errorText returns the text that a client may read, which leaves out an error's cause.
func errorText(err error) string {
	var e *job.Error
	if !errors.As(err, &e) {
		return job.Internal.String()
	}
	switch {
	case e.Kind == job.Conflict && e.ID.Key != "": // RL-027
		return fmt.Sprintf("a job with queue %q and id %q exists already", e.ID.Scope, e.ID.Key)
	case e.Msg == "":
		return e.Kind.String()
	}
	return e.Msg
}
