package relay

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/job"
)

// retryableStatus stands for the status of "try again", which is a setting (G-RL-09).
const retryableStatus = 0

// statuses says what each kind of error is in HTTP.
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
	job.ReadOnly:    retryableStatus, // a job is not to be given up because a disk is full
	job.Aborted:     retryableStatus, // whoever reads this did not go away
	job.Timeout:     retryableStatus,
}

func malformed(msg string) *job.Error { return &job.Error{Kind: job.Malformed, Op: Name, Msg: msg} }

func invalid(msg string) *job.Error { return &job.Error{Kind: job.Invalid, Op: Name, Msg: msg} }

var errNotFound = &job.Error{Kind: job.NotFound, Op: Name, Msg: "there is no such job"}

// sendError writes an error as plain text (RL-031). What is our own fault is not
// explained beyond the number under which the log has it.
func (r *Relay) sendError(c *httpapi.Call, err error) {
	status, msg, kind := r.statusOf(err)
	if status >= http.StatusInternalServerError && status != r.RetryableStatus {
		msg = "an unexpected error; the server's log has it under " + c.RequestID()
	}
	if status == r.RetryableStatus {
		c.Header().Set("Retry-After", "1")
	}
	r.metrics.errors.WithLabelValues(kind).Inc()
	c.Send(status, httpapi.Text, []byte(msg+"\n"))
}

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

// errorText is what may be shown of an error: never its cause.
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
