package forgerun

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/millrace/millrace/internal/account"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/webhook"
)

// The 22 codes of the document.
const (
	codeMalformed         = "RFA_REQUEST_MALFORMED"
	codeMediaType         = "RFA_REQUEST_UNSUPPORTED_MEDIA_TYPE"
	codeMethod            = "RFA_REQUEST_METHOD_NOT_ALLOWED"
	codeNotAcceptable     = "RFA_REQUEST_NOT_ACCEPTABLE"
	codeTooLarge          = "RFA_REQUEST_PAYLOAD_TOO_LARGE"
	codeRateLimited       = "RFA_REQUEST_RATE_LIMITED"
	codeCredentials       = "RFA_AUTH_INVALID_CREDENTIALS"
	codeExpired           = "RFA_AUTH_TOKEN_EXPIRED"
	codeForbidden         = "RFA_AUTH_FORBIDDEN"
	codeDisabled          = "RFA_AUTH_API_KEY_DISABLED"
	codeInvalid           = "RFA_JOB_VALIDATION_FAILED"
	codeNotFound          = "RFA_JOB_NOT_FOUND"
	codeConflict          = "RFA_JOB_CONFLICT"
	codeQueueFull         = "RFA_EXEC_QUEUE_FULL"
	codeTimeout           = "RFA_EXEC_TIMEOUT"
	codeIdempotency       = "RFA_EXEC_IDEMPOTENCY_CONFLICT"
	codeNoWorker          = "RFA_EXEC_WORKER_UNAVAILABLE"
	codeDatabase          = "RFA_STORAGE_DB_ERROR"
	codeUnavailable       = "RFA_STORAGE_UNAVAILABLE"
	codeDependencyTimeout = "RFA_DEPENDENCY_TIMEOUT"
	codeConfig            = "RFA_CONFIG_INVALID"
	codeInternal          = "RFA_INTERNAL"
)

// errorTable is the document's table of codes, and how errors are answered. There is no code for a
// request that came too slowly; it is malformed, as it is incomplete. Codes without kinds and
// statuses come from a CodedError or from a health check. Errors that pass by themselves have a
// Retry-After.
var errorTable = httpapi.ErrorTable{
	{Code: codeMalformed, Status: http.StatusBadRequest, Title: "The request is malformed",
		Kinds: []job.Kind{job.Malformed}, Statuses: []int{http.StatusRequestTimeout}},
	{Code: codeMediaType, Status: http.StatusUnsupportedMediaType,
		Title:    "The media type is not supported",
		Statuses: []int{http.StatusUnsupportedMediaType}},
	{Code: codeMethod, Status: http.StatusMethodNotAllowed, Title: "The method is not allowed",
		Statuses: []int{http.StatusMethodNotAllowed}},
	{Code: codeNotAcceptable, Status: http.StatusNotAcceptable,
		Title: "No acceptable media type", Statuses: []int{http.StatusNotAcceptable}},
	{Code: codeTooLarge, Status: http.StatusRequestEntityTooLarge, Title: "The body is too large",
		Kinds: []job.Kind{job.TooLarge}, Statuses: []int{http.StatusRequestEntityTooLarge}},
	{Code: codeRateLimited, Status: http.StatusTooManyRequests, Title: "Too many requests"},
	{Code: codeCredentials, Status: http.StatusUnauthorized, Title: "Invalid credentials",
		Statuses: []int{http.StatusUnauthorized}},
	{Code: codeExpired, Status: http.StatusUnauthorized, Title: "The API key has expired"},
	{Code: codeForbidden, Status: http.StatusForbidden, Title: "Not allowed"},
	{Code: codeDisabled, Status: http.StatusForbidden, Title: "The API key is disabled"},
	{Code: codeInvalid, Status: http.StatusBadRequest, Title: "The request breaks a rule",
		Kinds: []job.Kind{job.Invalid}},
	{Code: codeNotFound, Status: http.StatusNotFound, Title: "Not found",
		Kinds:    []job.Kind{job.NotFound}, // FR-016: also for clients, keys and webhooks
		Statuses: []int{http.StatusNotFound}},
	{Code: codeConflict, Status: http.StatusConflict, Title: "Conflict",
		Kinds: []job.Kind{job.Conflict, job.RunLost}},
	{Code: codeQueueFull, Status: http.StatusServiceUnavailable, Title: "The queue is full",
		RetryAfter: time.Second, Kinds: []job.Kind{job.Full}},
	{Code: codeTimeout, Status: http.StatusGatewayTimeout, Title: "The operation took too long",
		RetryAfter: time.Second, Kinds: []job.Kind{job.Timeout}},
	{Code: codeIdempotency, Status: http.StatusConflict,
		Title: "The idempotency key was used with another payload"},
	{Code: codeNoWorker, Status: http.StatusServiceUnavailable, Title: "No worker is available"},
	{Code: codeDatabase, Status: http.StatusServiceUnavailable,
		Title: "The database is unavailable", RetryAfter: time.Second,
		Kinds: []job.Kind{job.Unavailable, job.ReadOnly, job.Aborted}},
	{Code: codeUnavailable, Status: http.StatusServiceUnavailable,
		Title: "A dependency is unavailable", RetryAfter: time.Second},
	{Code: codeDependencyTimeout, Status: http.StatusGatewayTimeout,
		Title: "A dependency took too long", RetryAfter: time.Second},
	{Code: codeConfig, Status: http.StatusServiceUnavailable, Title: "The server is misconfigured"},
	// ForgeRun has no dependencies, so that a cycle is a defect.
	{Code: codeInternal, Status: http.StatusInternalServerError, Title: "Unexpected error",
		Kinds: []job.Kind{job.Internal, job.Cycle}, OtherStatuses: true},
}

// malformed returns the error of a request that is not what the document describes (FR-006).
func malformed(format string, args ...any) error {
	return &job.Error{Kind: job.Malformed, Op: Name, Msg: fmt.Sprintf(format, args...)}
}

// invalid returns the error of a well-formed request that breaks a rule (FR-007). Its text names
// the member.
func invalid(format string, args ...any) error {
	return &job.Error{Kind: job.Invalid, Op: Name, Msg: fmt.Sprintf(format, args...)}
}

// notFound returns the error of a job, client, key, webhook or delivery that does not exist: the
// document has one code for all of them (G-FR-28).
func notFound(what string) error {
	return &job.Error{Kind: job.NotFound, Op: Name, Msg: "there is no such " + what}
}

// conflict returns the error of a change that the state of the job does not allow (FR-017).
func conflict(format string, args ...any) error {
	return &job.Error{Kind: job.Conflict, Op: Name, Msg: fmt.Sprintf(format, args...)}
}

// answerTo returns the answer to an error of any package. Its detail may name internals;
// publicDetail decides what a client reads of it.
func answerTo(err error) httpapi.Answer {
	a := errorTable.Answer(withCode(err))
	a.Detail = cmp.Or(a.Detail, job.KindOf(err).String())
	return a
}

// withCode gives a code to the errors of accounts, webhooks and the network; others stay as they
// are.
func withCode(err error) error {
	var coded *httpapi.CodedError
	var denied *account.Denied
	var refusal *httpapi.StatusError
	var e *job.Error
	switch {
	case errors.As(err, &coded):
		return coded
	case errors.As(err, &denied):
		return denialErrors[denied.Reason]
	case errors.Is(err, account.ErrForbidden), errors.Is(err, webhook.ErrForbidden):
		return errForbidden
	case errors.Is(err, engine.ErrKeyReused):
		return &httpapi.CodedError{Code: codeIdempotency,
			Detail: "the idempotency key was used with another request"}
	case errors.As(err, &refusal), errors.As(err, &e):
		return err
	}
	return &httpapi.CodedError{Code: networkCode(err)}
}

// networkCode returns the code of a network error of a dependency (FR-022, FR-026). Any other error
// is a defect of the server.
func networkCode(err error) string {
	var network net.Error
	var operation *net.OpError
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &network) && network.Timeout():
		return codeDependencyTimeout
	case errors.As(err, &operation):
		return codeUnavailable
	}
	return codeInternal
}

// publicDetail returns the detail that a client may read. The text of a server error stays in the
// log; the client gets only the request id to find it by (FR-020). The texts of a full queue and of
// a timeout name no internals.
func publicDetail(a httpapi.Answer, requestID string) string {
	readable := a.Status < http.StatusInternalServerError || a.Code == codeQueueFull ||
		a.Code == codeTimeout
	switch {
	case a.Code == codeInternal:
		return "an unexpected error; see the server's log for request " + requestID
	case !readable:
		return a.Title + "; try again later"
	}
	return a.Detail
}

// sendError writes an error as a problem document (FR-004, FR-005). An error of a client that has
// closed the connection is not counted.
func (f *ForgeRun) sendError(c *httpapi.Call, err error) {
	a := answerTo(err)
	clientLeft := job.IsKind(err, job.Aborted) && c.Context().Err() != nil
	if !clientLeft {
		f.metrics.countError(a.Code)
	}
	c.SetRetryAfter(a.RetryAfter)
	if a.Status == http.StatusUnauthorized {
		c.Header().Set("WWW-Authenticate", `Bearer realm="forgerun"`)
	}
	a.Detail = publicDetail(a, c.RequestID())
	c.SendProblem(Name, a)
}
