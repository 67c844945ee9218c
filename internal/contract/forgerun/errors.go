package forgerun

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/millrace/millrace/internal/account"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/webhook"
)

// code is one of the 22 names of the document.
type code string

const (
	codeMalformed         code = "RFA_REQUEST_MALFORMED"
	codeMediaType         code = "RFA_REQUEST_UNSUPPORTED_MEDIA_TYPE"
	codeMethod            code = "RFA_REQUEST_METHOD_NOT_ALLOWED"
	codeNotAcceptable     code = "RFA_REQUEST_NOT_ACCEPTABLE"
	codeTooLarge          code = "RFA_REQUEST_PAYLOAD_TOO_LARGE"
	codeRateLimited       code = "RFA_REQUEST_RATE_LIMITED"
	codeCredentials       code = "RFA_AUTH_INVALID_CREDENTIALS"
	codeExpired           code = "RFA_AUTH_TOKEN_EXPIRED"
	codeForbidden         code = "RFA_AUTH_FORBIDDEN"
	codeDisabled          code = "RFA_AUTH_API_KEY_DISABLED"
	codeInvalid           code = "RFA_JOB_VALIDATION_FAILED"
	codeNotFound          code = "RFA_JOB_NOT_FOUND"
	codeConflict          code = "RFA_JOB_CONFLICT"
	codeQueueFull         code = "RFA_EXEC_QUEUE_FULL"
	codeTimeout           code = "RFA_EXEC_TIMEOUT"
	codeIdempotency       code = "RFA_EXEC_IDEMPOTENCY_CONFLICT"
	codeNoWorker          code = "RFA_EXEC_WORKER_UNAVAILABLE"
	codeDatabase          code = "RFA_STORAGE_DB_ERROR"
	codeUnavailable       code = "RFA_STORAGE_UNAVAILABLE"
	codeDependencyTimeout code = "RFA_DEPENDENCY_TIMEOUT"
	codeConfig            code = "RFA_CONFIG_INVALID"
	codeInternal          code = "RFA_INTERNAL"
)

// codeInfo is a code's status and title.
type codeInfo struct {
	status int
	title  string
}

// codeInfos is the document's table of codes.
var codeInfos = map[code]codeInfo{
	codeMalformed:     {http.StatusBadRequest, "The request is malformed"},
	codeMediaType:     {http.StatusUnsupportedMediaType, "The media type is not supported"},
	codeMethod:        {http.StatusMethodNotAllowed, "The method is not allowed"},
	codeNotAcceptable: {http.StatusNotAcceptable, "No acceptable media type"},
	codeTooLarge:      {http.StatusRequestEntityTooLarge, "The body is too large"},
	codeRateLimited:   {http.StatusTooManyRequests, "Too many requests"},
	codeCredentials:   {http.StatusUnauthorized, "Invalid credentials"},
	codeExpired:       {http.StatusUnauthorized, "The API key has expired"},
	codeForbidden:     {http.StatusForbidden, "Not allowed"},
	codeDisabled:      {http.StatusForbidden, "The API key is disabled"},
	codeInvalid:       {http.StatusBadRequest, "The request breaks a rule"},
	codeNotFound:      {http.StatusNotFound, "Not found"},
	codeConflict:      {http.StatusConflict, "Conflict"},
	codeQueueFull:     {http.StatusServiceUnavailable, "The queue is full"},
	codeTimeout:       {http.StatusGatewayTimeout, "The operation took too long"},
	codeIdempotency: {http.StatusConflict,
		"The idempotency key was used with another payload"},
	codeNoWorker:          {http.StatusServiceUnavailable, "No worker is available"},
	codeDatabase:          {http.StatusServiceUnavailable, "The database is unavailable"},
	codeUnavailable:       {http.StatusServiceUnavailable, "A dependency is unavailable"},
	codeDependencyTimeout: {http.StatusGatewayTimeout, "A dependency took too long"},
	codeConfig:            {http.StatusServiceUnavailable, "The server is misconfigured"},
	codeInternal:          {http.StatusInternalServerError, "Unexpected error"},
}

// kindCodes maps the kinds of job.Error.
var kindCodes = map[job.Kind]code{
	job.Internal:    codeInternal,
	job.Malformed:   codeMalformed,
	job.Invalid:     codeInvalid,
	job.NotFound:    codeNotFound, // FR-016: also for clients, keys and webhooks
	job.Conflict:    codeConflict,
	job.Cycle:       codeInternal, // ForgeRun has no dependencies
	job.RunLost:     codeConflict,
	job.TooLarge:    codeTooLarge,
	job.Full:        codeQueueFull,
	job.Unavailable: codeDatabase,
	job.ReadOnly:    codeDatabase,
	job.Aborted:     codeDatabase,
	job.Timeout:     codeTimeout,
}

// statusCodes maps the errors of httpapi, which come before the contract's own. There is no code
// for a request that came too slowly; it is malformed, as it is incomplete.
var statusCodes = map[int]code{
	http.StatusNotFound:              codeNotFound,
	http.StatusMethodNotAllowed:      codeMethod,
	http.StatusRequestTimeout:        codeMalformed,
	http.StatusRequestEntityTooLarge: codeTooLarge,
	http.StatusUnsupportedMediaType:  codeMediaType,
	http.StatusUnauthorized:          codeCredentials,
	http.StatusNotAcceptable:         codeNotAcceptable,
}

// problem is an error with a code, for errors whose kind does not determine the code.
type problem struct {
	code       code
	detail     string        // for the client
	retryAfter time.Duration // 0: see retryAfterByCode
	cause      error         // for the log
}

func (p *problem) Error() string {
	if p.cause != nil {
		return p.detail + ": " + p.cause.Error()
	}
	return p.detail
}

func (p *problem) Unwrap() error { return p.cause }

func malformed(msg string) error { return &problem{code: codeMalformed, detail: msg} }

func invalid(msg string) error { return &problem{code: codeInvalid, detail: msg} }

func notFound(what string) error {
	return &problem{code: codeNotFound, detail: "there is no such " + what}
}

func conflict(msg string) error { return &problem{code: codeConflict, detail: msg} }

// retryAfterByCode is the Retry-After of errors that pass by themselves.
var retryAfterByCode = map[code]time.Duration{
	codeQueueFull:         time.Second,
	codeDatabase:          time.Second,
	codeUnavailable:       time.Second,
	codeTimeout:           time.Second,
	codeDependencyTimeout: time.Second,
}

// toProblem translates an error of any package to a problem.
func toProblem(err error) *problem {
	var p *problem
	if errors.As(err, &p) {
		return p
	}
	var denied *account.Denied
	if errors.As(err, &denied) {
		return denialProblems[denied.Reason]
	}
	switch {
	case errors.Is(err, account.ErrForbidden), errors.Is(err, webhook.ErrForbidden):
		return errForbidden
	case errors.Is(err, account.ErrKeyReused), errors.Is(err, webhook.ErrKeyReused):
		return &problem{code: codeIdempotency,
			detail: "the idempotency key was used with another request", cause: err}
	}
	var refusal *httpapi.StatusError
	if errors.As(err, &refusal) {
		c, found := statusCodes[refusal.Status]
		if !found {
			c = codeInternal
		}
		return &problem{code: c, detail: refusal.Msg}
	}
	var e *job.Error
	if errors.As(err, &e) {
		detail := e.Msg
		if detail == "" {
			detail = e.Kind.String()
		}
		return &problem{code: kindCodes[e.Kind], detail: detail, cause: err}
	}
	return &problem{code: networkCode(err), cause: err}
}

// networkCode returns the code of a network error of a dependency (FR-022, FR-026). Any other error
// is a defect of the server.
func networkCode(err error) code {
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
// log; the client gets only the request id to find it by (FR-020).
func (p *problem) publicDetail(requestID string) string {
	m := codeInfos[p.code]
	switch {
	case p.code == codeInternal:
		return "an unexpected error; see the server's log for request " + requestID
	case (m.status >= http.StatusInternalServerError && p.code != codeQueueFull &&
		p.code != codeTimeout) || p.detail == "":
		return m.title + "; try again later"
	}
	return p.detail
}

// sendError writes an error as a problem document (FR-004, FR-005). An error of a client that has
// closed the connection is not counted.
func (f *ForgeRun) sendError(c *httpapi.Call, err error) {
	p := toProblem(err)
	m := codeInfos[p.code]
	clientLeft := job.IsKind(err, job.Aborted) && c.Request.Context().Err() != nil
	if !clientLeft {
		f.metrics.countError(p.code)
	}
	wait := p.retryAfter
	if wait <= 0 {
		wait = retryAfterByCode[p.code]
	}
	if wait > 0 {
		c.Header().Set("Retry-After", wholeSeconds(wait))
	}
	if m.status == http.StatusUnauthorized {
		c.Header().Set("WWW-Authenticate", `Bearer realm="forgerun"`)
	}
	c.SendProblem(httpapi.Problem{
		Contract: Name,
		Code:     string(p.code),
		Status:   m.status,
		Title:    m.title,
		Detail:   p.publicDetail(c.RequestID()),
	})
}

// wholeSeconds formats a duration in seconds, rounded up (G-FR-65).
func wholeSeconds(d time.Duration) string {
	return strconv.FormatInt(int64((d+time.Second-1)/time.Second), 10)
}
