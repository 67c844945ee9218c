package relay

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/job"
)

// retryable stands for the status of "try again", which is a setting (G-RL-09).
const retryable = 0

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
	job.Full:        retryable,
	job.Unavailable: retryable,
	job.ReadOnly:    retryable, // a job is not to be given up because a disk is full
	job.Aborted:     retryable, // whoever reads this did not go away
	job.Timeout:     retryable,
}

func malformed(msg string) *job.Error { return &job.Error{Kind: job.Malformed, Op: Name, Msg: msg} }

func invalid(msg string) *job.Error { return &job.Error{Kind: job.Invalid, Op: Name, Msg: msg} }

var notFound = &job.Error{Kind: job.NotFound, Op: Name, Msg: "there is no such job"}

// answer writes an error as plain text (RL-031). What is our own fault is not
// explained beyond the number under which the log has it.
func (r *Relay) answer(c *httpapi.Call, err error) {
	status, msg, kind := r.status(err)
	if status >= http.StatusInternalServerError && status != r.RetryableStatus {
		msg = "an unexpected error; the server's log has it under " + c.RequestID()
	}
	if status == r.RetryableStatus {
		c.Header().Set("Retry-After", "1")
	}
	r.metrics.errors.WithLabelValues(kind).Inc()
	c.Send(status, httpapi.Text, []byte(msg+"\n"))
}

func (r *Relay) status(err error) (status int, msg, kind string) {
	var refusal *httpapi.Refusal
	if errors.As(err, &refusal) {
		return refusal.Status, refusal.Msg, "http " + strconv.Itoa(refusal.Status)
	}
	k := job.KindOf(err)
	if status = statuses[k]; status == retryable {
		status = r.RetryableStatus
	}
	return status, message(err), k.String()
}

// message is what may be shown of an error: never its cause.
func message(err error) string {
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
