package workerapi

import (
	"cmp"
	"errors"
	"net/http"

	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/job"
)

// code identifies a kind of error to callers.
type code string

const (
	codeInvalid        code = "VALIDATION_ERROR"
	codeUnauthorized   code = "UNAUTHORIZED"
	codeNotFound       code = "NOT_FOUND"
	codeMethod         code = "METHOD_NOT_ALLOWED"
	codeRequestTimeout code = "REQUEST_TIMEOUT"
	codeNotClaimable   code = "NOT_CLAIMABLE"
	codeRunLost        code = "RUN_LOST"
	codeConflict       code = "CONFLICT"
	codeTooLarge       code = "PAYLOAD_TOO_LARGE"
	codeMediaType      code = "UNSUPPORTED_MEDIA_TYPE"
	codeUnavailable    code = "STORAGE_UNAVAILABLE"
	codeInternal       code = "INTERNAL_ERROR"
)

// codeInfo is what a code means in HTTP.
type codeInfo struct {
	status int
	title  string
}

// codeInfos has every code.
var codeInfos = map[code]codeInfo{
	codeInvalid:        {http.StatusBadRequest, "The request breaks a rule"},
	codeUnauthorized:   {http.StatusUnauthorized, "A token is needed"},
	codeNotFound:       {http.StatusNotFound, "Not found"},
	codeMethod:         {http.StatusMethodNotAllowed, "The method is not allowed"},
	codeRequestTimeout: {http.StatusRequestTimeout, "The body came too slowly"},
	codeNotClaimable:   {http.StatusConflict, "The job cannot be claimed"},
	codeRunLost:        {http.StatusConflict, "The run is lost"},
	codeConflict:       {http.StatusConflict, "The job's state forbids this"},
	codeTooLarge:       {http.StatusRequestEntityTooLarge, "The body is too large"},
	codeMediaType:      {http.StatusUnsupportedMediaType, "The media type is not supported"},
	codeUnavailable:    {http.StatusServiceUnavailable, "The store is unavailable"},
	codeInternal:       {http.StatusInternalServerError, "Unexpected error"},
}

// kindCodes are the codes of the engine's errors by their kind.
var kindCodes = map[job.Kind]code{
	job.Internal:    codeInternal,
	job.Malformed:   codeInvalid,
	job.Invalid:     codeInvalid,
	job.NotFound:    codeNotFound,
	job.Conflict:    codeConflict,
	job.Cycle:       codeInternal, // no request here changes dependencies
	job.RunLost:     codeRunLost,
	job.TooLarge:    codeTooLarge,
	job.Full:        codeUnavailable,
	job.Unavailable: codeUnavailable,
	job.ReadOnly:    codeUnavailable,
	job.Aborted:     codeUnavailable, // a caller who reads the answer did not abort the request
	job.Timeout:     codeUnavailable,
}

// statusCodes are the codes of errors that httpapi makes, by their status.
var statusCodes = map[int]code{
	http.StatusNotFound:              codeNotFound,
	http.StatusMethodNotAllowed:      codeMethod,
	http.StatusRequestTimeout:        codeRequestTimeout,
	http.StatusRequestEntityTooLarge: codeTooLarge,
	http.StatusUnsupportedMediaType:  codeMediaType,
	http.StatusUnauthorized:          codeUnauthorized,
	http.StatusBadRequest:            codeInvalid,
}

// problem is an error with a code, for what the kind of an engine's error does not express.
type problem struct {
	code   code
	detail string // for the caller
	cause  error  // for the log
}

func (p *problem) Error() string {
	if p.cause != nil {
		return p.detail + ": " + p.cause.Error()
	}
	return p.detail
}

func (p *problem) Unwrap() error { return p.cause }

func invalid(msg string) error { return &problem{code: codeInvalid, detail: msg} }

// errRunsLocally is the refusal of a claim for jobs that the server executes itself.
func errRunsLocally(what string) error {
	return &problem{code: codeNotClaimable, detail: what + " are run by the server itself"}
}

var (
	errRunLost = &problem{code: codeRunLost,
		detail: "the run is not its job's current one: stop, nothing it writes counts"}
	errRunTimedOut = &problem{code: codeRunLost,
		detail: "the run has taken longer than the job may run and has ended as failed: what its " +
			"worker says comes too late"}
	errNoJob = &problem{code: codeNotFound, detail: "there is no such job"}
)

// toProblem converts an error to what the caller is shown of it.
func toProblem(err error) *problem {
	var p *problem
	if errors.As(err, &p) {
		return p
	}
	var refusal *httpapi.StatusError
	if errors.As(err, &refusal) {
		if c, found := statusCodes[refusal.Status]; found {
			return &problem{code: c, detail: refusal.Msg}
		}
		return &problem{code: codeInternal, cause: err}
	}
	var e *job.Error
	if !errors.As(err, &e) {
		return &problem{code: codeInternal, cause: err}
	}
	switch c := kindCodes[e.Kind]; c {
	case codeRunLost:
		return errRunLost
	case codeNotFound:
		return errNoJob
	default:
		return &problem{code: c, detail: e.Msg, cause: err}
	}
}

// sendError sends an error as a problem document. An internal error is not explained to the caller:
// it gets the id of the request, under which the log has the cause.
func (a *API) sendError(c *httpapi.Call, err error) {
	p := toProblem(err)
	m := codeInfos[p.code]
	a.metrics.errors.WithLabelValues(string(p.code)).Inc()
	detail := p.detail
	refused, isRefused := "", false
	if a.Refused != nil {
		refused, isRefused = a.Refused(err)
	}
	switch {
	case isRefused:
		detail = refused
	case p.code == codeInternal:
		detail = "an unexpected error; see the server's log for request " + c.RequestID()
	case p.code == codeUnavailable:
		detail = "the store does not answer; try again"
		c.Header().Set("Retry-After", "1")
	case detail == "":
		detail = m.title
	}
	c.SendProblem(httpapi.Problem{Contract: "worker", Code: string(p.code), Status: m.status,
		Title: m.title, Detail: detail})
}

// appendRefusal appends the members that say why one outcome of many was refused.
func (a *API) appendRefusal(b []byte, p *problem) []byte {
	a.metrics.errors.WithLabelValues(string(p.code)).Inc()
	b = strictjson.AppendString(append(b, `"code":`...), string(p.code))
	return strictjson.AppendString(append(b, `,"detail":`...),
		cmp.Or(p.detail, codeInfos[p.code].title))
}
