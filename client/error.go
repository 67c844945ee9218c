package client

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// Kinds of failure, for errors.Is on what a call returned.
var (
	// ErrNotFound: there is no such job (404), or no such file any more (410).
	ErrNotFound = errors.New("not found")
	// ErrConflict: a job of the batch exists already and the mode is unique
	// (409, RL-027). See [Error.Uncertain] for a conflict with one's own try.
	ErrConflict = errors.New("conflict")
	// ErrCycle: the dependencies of a TaskFlow job would close a cycle (TF-033);
	// it is an [ErrConflict] too where the server said so. See [Error.Cycle].
	ErrCycle = errors.New("dependency cycle")
	// ErrInvalid: the request was refused for what it says (400, 413, 415,
	// 422, and FetchBox's 403), by the server or, where nothing needs to be sent to know it, by
	// this package. Repeating it is pointless.
	ErrInvalid = errors.New("invalid request")
	// ErrUnauthorized: the token is missing, wrong or not enough (401, 403).
	ErrUnauthorized = errors.New("unauthorized")
	// ErrRetryable: the same call may succeed later. See [Error.Retryable].
	ErrRetryable = errors.New("retryable")
	// ErrRunLost: the run id is no longer the job's current one, because the
	// job timed out, was replaced, requeued, completed or deleted (RL-054).
	// It is also the cause of a handler's context ending for that reason.
	ErrRunLost = errors.New("run lost")
	// ErrRunSettled: the handler has already requeued this run, or it has
	// returned; there is nothing left to do with the run.
	ErrRunSettled = errors.New("run already settled")
	// ErrRunCanceled is the cause of a handler's context ending because the
	// server asks the run to end, in the answer to a heartbeat. The run still
	// holds its job: what the handler returns counts.
	ErrRunCanceled = errors.New("run canceled")
	// ErrRelease, returned by a [JobHandler], gives the job back to its queue:
	// the run could not do its work, for which the job is not to blame. No
	// failure is counted where the contract allows that (G-X-18).
	ErrRelease = errors.New("run released")
	// ErrDrainTimeout: a worker's handlers did not finish within its
	// DrainTimeout. It is the cause of their contexts ending, and what
	// [Worker.Run] then returns.
	ErrDrainTimeout = errors.New("drain timeout")
)

// codeRunLost is how the worker API calls a run that is not the job's current
// one (G-X-20).
const codeRunLost = "RUN_LOST"

// Error is how every call of a contract fails.
type Error struct {
	// Op is the call, such as "relay enqueue".
	Op string
	// Status is the HTTP status of the last answer; 0 when none came.
	Status int
	// Code is the contract's own word for the failure, when the answer was a
	// problem document (RFC 9457) or an error of TaskFlow or FetchBox; else empty.
	// ForgeRun's are the RFA_ codes.
	Code string
	// Message is the server's explanation, if it gave one: the detail of a
	// problem document, the message of TaskFlow or FetchBox, else the body of the
	// answer.
	Message string
	// Cycle, with [ErrCycle], names the jobs along the cycle, each once, from
	// the changed job on along its dependencies (TF-037, G-TF-33): by their
	// ids, or by their refs where a graph was refused before it was sent.
	Cycle []string
	// Instance names the request in the server's log (FR-005), when the answer
	// was a problem document.
	Instance string
	// RetryAfter is how long the server asked to wait; 0 when it did not.
	RetryAfter time.Duration
	// Uncertain is true when a try of this call may have taken effect although
	// no success was seen: its answer was lost, or it was a 5xx. With
	// [ErrConflict] it means that the conflicting job may be the caller's own.
	Uncertain bool
	// Err is the cause, such as a failed connection or the end of the
	// context. May be nil.
	Err error

	transient bool // no answer came, and another try may bring one
}

// Error gives the call, the status and the explanation.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("millrace: ")
	b.WriteString(e.Op)
	if e.Status != 0 {
		fmt.Fprintf(&b, ": %d %s", e.Status, http.StatusText(e.Status))
	}
	if e.Code != "" {
		b.WriteString(": " + e.Code)
	}
	if e.Message != "" {
		b.WriteString(": " + e.Message)
	}
	if e.Instance != "" {
		b.WriteString(" (request " + e.Instance + ")")
	}
	if e.Err != nil {
		b.WriteString(": " + e.Err.Error())
	}
	if e.Uncertain {
		b.WriteString(" (a try may have taken effect)")
	}
	return b.String()
}

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }

// Is reports whether the error is of the kind that target names.
func (e *Error) Is(target error) bool {
	switch target {
	case ErrNotFound:
		return e.Status == http.StatusNotFound || e.Status == http.StatusGone
	case ErrConflict:
		return e.Status == http.StatusConflict
	case ErrCycle:
		return len(e.Cycle) > 0
	case ErrRunLost:
		return e.Status == http.StatusConflict && e.Code == codeRunLost
	case ErrUnauthorized:
		return e.Status == http.StatusUnauthorized ||
			(e.Status == http.StatusForbidden && e.Code != FetchUnsupportedJobType)
	case ErrInvalid:
		switch e.Status {
		case http.StatusForbidden:
			return e.Code == FetchUnsupportedJobType
		case http.StatusBadRequest, http.StatusRequestEntityTooLarge,
			http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity:
			return true
		}
	case ErrRetryable:
		return e.Retryable()
	}
	return false
}

// Retryable reports whether the same call may succeed later: the server said
// so (429, 503), a gateway could not reach it (502, 504), or the connection
// failed. What the caller's own context ended without an answer is not.
func (e *Error) Retryable() bool {
	switch e.Status {
	case 0:
		return e.transient
	case http.StatusTooManyRequests, http.StatusBadGateway,
		http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

// invalid is a request refused before it was sent.
func invalid(op, format string, args ...any) *Error {
	return &Error{Op: op, Err: fmt.Errorf("%w: "+format, append([]any{ErrInvalid}, args...)...)}
}
