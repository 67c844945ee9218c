package client

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// The kinds of failure, for errors.Is on the error of a call.
var (
	// ErrNotFound means that there is no such job (404), or that the file was deleted (410).
	ErrNotFound = errors.New("not found")
	// ErrConflict means that the present state forbids the call (409), such as a job of the batch
	// that exists already in mode unique (RL-027). [Error.Uncertain] marks a conflict that may be
	// with the call's own earlier try.
	ErrConflict = errors.New("conflict")
	// ErrCycle means that the dependencies of a TaskFlow job would form a cycle (TF-033). When
	// the server found it, the error is an [ErrConflict] too. [Error.Cycle] lists the jobs.
	ErrCycle = errors.New("dependency cycle")
	// ErrInvalid means that the content of the request was refused (400, 413, 415, 422, and the
	// 403 of FetchBox), by the server or, before anything was sent, by this package. The same
	// request will be refused again.
	ErrInvalid = errors.New("invalid request")
	// ErrUnauthorized means that the token is missing, wrong or without permission (401, 403).
	ErrUnauthorized = errors.New("unauthorized")
	// ErrRetryable means that the same call may succeed later, see [Error.Retryable].
	ErrRetryable = errors.New("retryable")
	// ErrNotMillrace means that the answer is not one of Millrace, such as the page of another web
	// server, or of a proxy that has another address for the server.
	ErrNotMillrace = errors.New("this is not a Millrace server")
	// ErrRunLost means that the run id is not the job's current one any more, because the job
	// timed out, was replaced, requeued, completed or deleted (RL-054). It is also the cause of
	// the handler's context when that ends for this reason.
	ErrRunLost = errors.New("run lost")
	// ErrRunFinished means that the handler has already requeued, released or ended this run, or
	// has returned, so that nothing more can be sent for it.
	ErrRunFinished = errors.New("run already finished")
	// ErrRunCanceled is the cause of a handler's context when the answer to a heartbeat asked
	// the run to end. The run still has its lease: what the handler returns counts.
	ErrRunCanceled = errors.New("run canceled")
	// ErrRelease is for a [JobHandler] to return: it releases the job, because the run could not
	// do its work for a reason outside the job. No failure is counted where the contract allows
	// that (G-X-18).
	ErrRelease = errors.New("run released")
	// ErrDrainTimeout means that the handlers of a worker did not finish within its DrainTimeout.
	// It is the cause of their contexts, and what [Worker.Run] and [JobWorker.Run] return.
	ErrDrainTimeout = errors.New("drain timeout")
)

// The codes of the worker API's errors (G-X-20).
const (
	codeRunLost = "RUN_LOST"         // the run is not the job's current one
	codeInvalid = "VALIDATION_ERROR" // a broken rule, or a result that the contract refuses
)

// Error is the error of every call of a contract.
type Error struct {
	// Op names the call, such as "relay enqueue".
	Op string
	// Status is the HTTP status of the last answer; 0 when none came.
	Status int
	// Code is the contract's code of the failure: the code of a problem document (RFC 9457), or
	// of an error of TaskFlow or FetchBox; else empty. Those of ForgeRun begin with RFA_.
	Code string
	// Message is the server's explanation, if it gave one: the detail of a problem document, the
	// message of TaskFlow or FetchBox, else the beginning of the answer's body.
	Message string
	// Cycle, with [ErrCycle], lists the jobs of the cycle, each once, from the changed job on
	// along its dependencies (TF-037, G-TF-33): by their ids, or by their refs when a graph was
	// refused before it was sent.
	Cycle []string
	// Copies, with the [ErrConflict] of a rerun, has the ids of the jobs that an earlier rerun has
	// made, by the ids of their originals (RT-001).
	Copies map[string]string
	// Instance identifies the request in the server's log (FR-005), when the answer was a problem
	// document.
	Instance string
	// Server is the address that answered, with the scheme, where it refuses the token (401): the
	// token may be that of another server. Else it is empty.
	Server string
	// RetryAfter is how long the server asked the caller to wait; 0 when it did not.
	RetryAfter time.Duration
	// Uncertain is true when a try of this call may have taken effect although no success was
	// seen: its answer was lost, or it was a 5xx. With [ErrConflict] it means that the
	// conflicting job may be the one this call has stored. A 503 counts, as a server whose
	// database became unavailable during a commit cannot tell either. That is rare, so the text of
	// an error whose tries were all refused, with 429, 503 or no connection, does not mention it.
	Uncertain bool
	// Err is the cause, such as a failed connection or the end of the context. It may be nil.
	Err error

	transient  bool // no answer came, and another try may get one
	allRefused bool // every try of the call was refused, see isRefusal
}

// Error returns the call, the status, the code and the explanation in one line.
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
	if e.Server != "" {
		b.WriteString(" (the answer of " + e.Server + ")")
	}
	if e.Instance != "" {
		b.WriteString(" (request " + e.Instance + ")")
	}
	if e.Err != nil {
		b.WriteString(": " + e.Err.Error())
	}
	if notConnected(e.Err) {
		b.WriteString("; is the server running? `millrace serve` starts one")
	}
	if e.Uncertain && !e.allRefused {
		b.WriteString(" (a try may have taken effect)")
	}
	return b.String()
}

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

// Is reports whether the error is of the kind target, one of the Err variables.
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
			(e.Status == http.StatusForbidden && e.Code != FetchBoxCodeUnsupportedJobType)
	case ErrInvalid:
		switch e.Status {
		case http.StatusForbidden:
			return e.Code == FetchBoxCodeUnsupportedJobType
		case http.StatusBadRequest, http.StatusRequestEntityTooLarge,
			http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity:
			return true
		}
	case ErrRetryable:
		return e.Retryable()
	}
	return false
}

// Retryable reports whether the same call may succeed later: the server said so (429, 503), a
// gateway could not reach it (502, 504), or the connection failed. A call that its own context
// ended before an answer came is not retryable.
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

// isRefusal reports whether a try found no server, or one that does not serve the call now.
func (e *Error) isRefusal() bool {
	notConnected := e.transient && !e.Uncertain
	return notConnected || e.Status == http.StatusTooManyRequests ||
		e.Status == http.StatusServiceUnavailable
}

// invalid is the error of a request that was refused before it was sent.
func invalid(op, format string, args ...any) *Error {
	return &Error{Op: op, Err: fmt.Errorf("%w: "+format, append([]any{ErrInvalid}, args...)...)}
}
