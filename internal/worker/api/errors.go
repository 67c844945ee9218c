package workerapi

import (
	"cmp"
	"errors"
	"net/http"

	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/job"
)

// code is the word by which a caller tells errors apart.
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

type codeInfo struct {
	status int
	title  string
}

// codeInfos is what each code says in HTTP.
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

// kindCodes says what each kind of error is.
var kindCodes = map[job.Kind]code{
	job.Internal:    codeInternal,
	job.Malformed:   codeInvalid,
	job.Invalid:     codeInvalid,
	job.NotFound:    codeNotFound,
	job.Conflict:    codeConflict,
	job.Cycle:       codeInternal, // nothing here changes dependencies
	job.RunLost:     codeRunLost,
	job.TooLarge:    codeTooLarge,
	job.Full:        codeUnavailable,
	job.Unavailable: codeUnavailable,
	job.ReadOnly:    codeUnavailable,
	job.Aborted:     codeUnavailable, // whoever reads this did not go away
	job.Timeout:     codeUnavailable,
}

// statusCodes says what a request turned down by HTTP alone is.
var statusCodes = map[int]code{
	http.StatusNotFound:              codeNotFound,
	http.StatusMethodNotAllowed:      codeMethod,
	http.StatusRequestTimeout:        codeRequestTimeout,
	http.StatusRequestEntityTooLarge: codeTooLarge,
	http.StatusUnsupportedMediaType:  codeMediaType,
	http.StatusUnauthorized:          codeUnauthorized,
	http.StatusBadRequest:            codeInvalid,
}

// problem is an error with a code, where its kind alone does not tell it.
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

// errRunsLocally refuses what this process does itself.
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

// toProblem finds what an error is to the caller.
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

// sendError writes an error as a problem document. What is our own fault is not explained beyond
// the number under which the log has it.
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
		detail = "an unexpected error; the server's log has it under " + c.RequestID()
	case p.code == codeUnavailable:
		detail = "the store does not answer; try again"
		c.Header().Set("Retry-After", "1")
	case detail == "":
		detail = m.title
	}
	c.SendProblem(httpapi.Problem{Contract: "worker", Code: string(p.code), Status: m.status,
		Title: m.title, Detail: detail})
}

// appendRefusal writes why one outcome of many is refused.
func (a *API) appendRefusal(b []byte, p *problem) []byte {
	a.metrics.errors.WithLabelValues(string(p.code)).Inc()
	b = strictjson.AppendString(append(b, `"code":`...), string(p.code))
	return strictjson.AppendString(append(b, `,"detail":`...),
		cmp.Or(p.detail, codeInfos[p.code].title))
}
