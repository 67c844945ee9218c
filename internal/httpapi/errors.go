package httpapi

import (
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"time"

	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/telemetry"
)

// StatusError is an error of HTTP itself, such as a wrong method or a body that is too large.
// The errors of a contract are *job.Error and *CodedError.
type StatusError struct {
	Status int
	Msg    string
}

func (e *StatusError) Error() string { return e.Msg }

// CodedError is an error with a code of the contract, for what the kind of a job.Error does not
// express.
type CodedError struct {
	Code       string
	Detail     string        // for the caller
	RetryAfter time.Duration // 0: as the code's row says
	Err        error         // the cause, for logs only
}

func (e *CodedError) Error() string {
	if e.Err != nil {
		return e.Detail + ": " + e.Err.Error()
	}
	return e.Detail
}

func (e *CodedError) Unwrap() error { return e.Err }

// errPanic is what a caller is sent when a handler panicked. It shows nothing of the cause,
// which is logged.
var errPanic = &job.Error{Kind: job.Internal, Op: "httpapi", Msg: "panic"}

// ErrorRow is one way in which a contract answers errors, and the errors that it answers so.
type ErrorRow struct {
	Code       string // what programs distinguish errors by; "" in a contract without codes
	Status     int
	Title      string        // of problem documents, the same for every error of the code
	RetryAfter time.Duration // for errors that pass by themselves

	Kinds         []job.Kind // the kinds of job.Error
	Statuses      []int      // the statuses of StatusError
	OtherStatuses bool       // every StatusError whose status no row lists
}

// ErrorTable is how a contract answers all errors. Every kind of job.Error is in one row;
// testkit.CheckErrorTable is the test of it.
type ErrorTable []ErrorRow

// Answer is how one error is answered: its row, and the text about it that may be shown to the
// caller, "" if there is none.
type Answer struct {
	ErrorRow
	Detail string
}

// Answer returns the answer to an error. An error of no known type is one of the kind
// job.Internal; a StatusError for which there is no row keeps its status.
func (t ErrorTable) Answer(err error) Answer {
	var coded *CodedError
	var status *StatusError
	var e *job.Error
	switch {
	case errors.As(err, &coded):
		a := Answer{t.row(func(r *ErrorRow) bool { return r.Code == coded.Code }), coded.Detail}
		if coded.RetryAfter > 0 {
			a.RetryAfter = coded.RetryAfter
		}
		return a
	case errors.As(err, &status):
		return Answer{t.statusRow(status.Status), status.Msg}
	case errors.As(err, &e):
		return Answer{t.kindRow(e.Kind), e.Msg}
	}
	return Answer{t.kindRow(job.Internal), ""}
}

// row returns the first row that matches; the zero row if none does.
func (t ErrorTable) row(matches func(*ErrorRow) bool) ErrorRow {
	for i := range t {
		if matches(&t[i]) {
			return t[i]
		}
	}
	return ErrorRow{}
}

func (t ErrorTable) kindRow(k job.Kind) ErrorRow {
	return t.row(func(r *ErrorRow) bool { return slices.Contains(r.Kinds, k) })
}

func (t ErrorTable) statusRow(status int) ErrorRow {
	r := t.row(func(r *ErrorRow) bool { return slices.Contains(r.Statuses, status) })
	if r.Status == 0 {
		r = t.row(func(r *ErrorRow) bool { return r.OtherStatuses })
	}
	if r.Status == 0 {
		r.Status = status
	}
	return r
}

// SetRetryAfter sets the header Retry-After in whole seconds, rounded up; 0 sets none.
func (c *Call) SetRetryAfter(wait time.Duration) {
	if wait > 0 {
		seconds := int64((wait + time.Second - 1) / time.Second)
		c.Header().Set("Retry-After", strconv.FormatInt(seconds, 10))
	}
}

var problemJSON = []string{"application/problem+json"}

// SendProblem writes an answer as a problem document (RFC 9457); the contract is part of its type.
// Its instance is the id of the request, under which the log has the code and the cause.
func (c *Call) SendProblem(contract string, a Answer) {
	c.AddAttrs(slog.String(telemetry.ErrorCode, a.Code))
	o := strictjson.NewObject(make([]byte, 0, 320))
	o.Text("type", "urn:millrace:"+contract+":"+a.Code)
	o.Text("title", a.Title)
	o.Int("status", int64(a.Status))
	o.Text("detail", a.Detail)
	o.Text("instance", c.RequestID())
	o.Text("code", a.Code)
	c.Send(a.Status, problemJSON, o.End())
}
