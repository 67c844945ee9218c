package workerapi

import (
	"cmp"
	"errors"
	"net/http"

	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/httpapi/jsontext"
	"github.com/millrace/millrace/internal/job"
)

// code is the word by which a caller tells errors apart.
type code string

const (
	codeInvalid      code = "VALIDATION_ERROR"
	codeUnauthorized code = "UNAUTHORIZED"
	codeNotFound     code = "NOT_FOUND"
	codeMethod       code = "METHOD_NOT_ALLOWED"
	codeSlow         code = "REQUEST_TIMEOUT"
	codeNotClaimable code = "NOT_CLAIMABLE"
	codeRunLost      code = "RUN_LOST"
	codeConflict     code = "CONFLICT"
	codeTooLarge     code = "PAYLOAD_TOO_LARGE"
	codeMediaType    code = "UNSUPPORTED_MEDIA_TYPE"
	codeUnavailable  code = "STORAGE_UNAVAILABLE"
	codeInternal     code = "INTERNAL_ERROR"
)

type meaning struct {
	status int
	title  string
}

// meanings is what each code says in HTTP.
var meanings = map[code]meaning{
	codeInvalid:      {http.StatusBadRequest, "The request breaks a rule"},
	codeUnauthorized: {http.StatusUnauthorized, "A token is needed"},
	codeNotFound:     {http.StatusNotFound, "Not found"},
	codeMethod:       {http.StatusMethodNotAllowed, "The method is not allowed"},
	codeSlow:         {http.StatusRequestTimeout, "The body came too slowly"},
	codeNotClaimable: {http.StatusConflict, "The job cannot be claimed"},
	codeRunLost:      {http.StatusConflict, "The run is lost"},
	codeConflict:     {http.StatusConflict, "The job's state forbids this"},
	codeTooLarge:     {http.StatusRequestEntityTooLarge, "The body is too large"},
	codeMediaType:    {http.StatusUnsupportedMediaType, "The media type is not supported"},
	codeUnavailable:  {http.StatusServiceUnavailable, "The store is unavailable"},
	codeInternal:     {http.StatusInternalServerError, "Unexpected error"},
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
	http.StatusRequestTimeout:        codeSlow,
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

// runHere refuses what this process does itself.
func runHere(what string) error {
	return &problem{code: codeNotClaimable, detail: what + " are run by the server itself"}
}

var (
	errLost    = &problem{code: codeRunLost, detail: "the run is not its job's current one: stop, nothing it writes counts"}
	errOverdue = &problem{code: codeRunLost, detail: "the run has taken longer than the job may run and has ended as failed: what its worker says comes too late"}
	errNoJob   = &problem{code: codeNotFound, detail: "there is no such job"}
)

// judge finds what an error is to the caller.
func judge(err error) *problem {
	var p *problem
	if errors.As(err, &p) {
		return p
	}
	var refusal *httpapi.Refusal
	if errors.As(err, &refusal) {
		if c, known := statusCodes[refusal.Status]; known {
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
		return errLost
	case codeNotFound:
		return errNoJob
	default:
		return &problem{code: c, detail: e.Msg, cause: err}
	}
}

// answer writes an error as a problem document. What is our own fault is not explained beyond the number under which
// the log has it.
func (a *API) answer(c *httpapi.Call, err error) {
	p := judge(err)
	m := meanings[p.code]
	a.metrics.errors.WithLabelValues(string(p.code)).Inc()
	detail := p.detail
	refused, is := "", false
	if a.Refused != nil {
		refused, is = a.Refused(err)
	}
	switch {
	case is:
		detail = refused
	case p.code == codeInternal:
		detail = "an unexpected error; the server's log has it under " + c.RequestID()
	case p.code == codeUnavailable:
		detail = "the store does not answer; try again"
		c.Header().Set("Retry-After", "1")
	case detail == "":
		detail = m.title
	}
	c.SendProblem(httpapi.Problem{Room: "worker", Code: string(p.code), Status: m.status, Title: m.title, Detail: detail})
}

// appendRefusal writes why one outcome of many is refused.
func (a *API) appendRefusal(b []byte, p *problem) []byte {
	a.metrics.errors.WithLabelValues(string(p.code)).Inc()
	b = jsontext.AppendString(append(b, `"code":`...), string(p.code))
	return jsontext.AppendString(append(b, `,"detail":`...), cmp.Or(p.detail, meanings[p.code].title))
}
