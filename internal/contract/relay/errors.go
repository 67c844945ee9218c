package relay

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/job"
)

// errorTable returns how errors are answered, with a status alone: Relay has no codes, and the
// titles are for the documentation. retryable is Config.RetryableStatus (G-RL-09). A StatusError
// keeps its status.
func errorTable(retryable int) httpapi.ErrorTable {
	return httpapi.ErrorTable{
		{Status: http.StatusBadRequest,
			Title: "The request cannot be understood", Kinds: []job.Kind{job.Malformed}},
		{Status: http.StatusUnprocessableEntity,
			Title: "A value is beyond a documented limit", Kinds: []job.Kind{job.Invalid}},
		{Status: http.StatusNotFound,
			Title: "No such job, or the run is lost", Kinds: []job.Kind{job.NotFound, job.RunLost}},
		{Status: http.StatusConflict,
			Title: "A job of the batch exists", Kinds: []job.Kind{job.Conflict}},
		{Status: http.StatusRequestEntityTooLarge,
			Title: "The body is too large", Kinds: []job.Kind{job.TooLarge}},
		// ReadOnly may be a full disk: clients should not give up the job.
		{Status: retryable,
			Title:      "The store is busy or unavailable",
			RetryAfter: time.Second, Kinds: []job.Kind{job.Full, job.Unavailable,
				job.ReadOnly, job.Aborted, job.Timeout}},
		// Relay has no dependencies, so that a cycle is a defect.
		{Status: http.StatusInternalServerError,
			Title: "Unexpected error", Kinds: []job.Kind{job.Internal, job.Cycle}},
	}
}

// malformed returns the error of a request that cannot be understood, status 400: broken JSON, a
// missing or mistyped member, a wrong parameter or run id (RL-026, G-RL-07).
func malformed(format string, args ...any) error {
	return &job.Error{Kind: job.Malformed, Op: Name, Msg: fmt.Sprintf(format, args...)}
}

// invalid returns the error of a value that was understood and is beyond a documented limit,
// status 422: the same request fails whenever it is sent again (RL-028, G-RL-07).
func invalid(format string, args ...any) error {
	return &job.Error{Kind: job.Invalid, Op: Name, Msg: fmt.Sprintf(format, args...)}
}

// tooLarge returns the error of a request that has more than a limit allows, status 413.
func tooLarge(format string, args ...any) error {
	return &job.Error{Kind: job.TooLarge, Op: Name, Msg: fmt.Sprintf(format, args...)}
}

// notFound returns the error of a thing that does not exist. Only a HEAD for a job needs it: the
// other routes have the engine's error.
func notFound(what string) error {
	return &job.Error{Kind: job.NotFound, Op: Name, Msg: "there is no such " + what}
}

// sendError writes an error as plain text (RL-031). The text of a server error stays in the log;
// the client gets only the request id to find it by. An outage is no such error: its text is sent,
// with the status on which clients retry.
func (r *Relay) sendError(c *httpapi.Call, err error) {
	a := r.errors.Answer(err)
	msg := cmp.Or(a.Detail, job.KindOf(err).String())
	var e *job.Error
	switch {
	case a.Status >= http.StatusInternalServerError && a.Status != r.RetryableStatus:
		msg = "an unexpected error; see the server's log for request " + c.RequestID()
	case errors.As(err, &e) && e.Kind == job.Conflict && e.ID.Key != "": // RL-027
		msg = fmt.Sprintf("a job with queue %q and id %q exists already", e.ID.Scope, e.ID.Key)
	}
	c.SetRetryAfter(a.RetryAfter)
	r.metrics.errors.WithLabelValues(kindLabel(err)).Inc()
	c.Send(a.Status, httpapi.Text, []byte(msg+"\n"))
}

// kindLabel returns the label "type" of an error: its kind or, for what package httpapi refuses,
// its status. Both have few values, so clients cannot create labels without end.
func kindLabel(err error) string {
	var refusal *httpapi.StatusError
	if errors.As(err, &refusal) {
		return "http " + strconv.Itoa(refusal.Status)
	}
	return job.KindOf(err).String()
}
