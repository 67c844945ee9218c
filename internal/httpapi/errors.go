package httpapi

import (
	"errors"
	"log/slog"

	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/telemetry"
)

// StatusError is an error of HTTP itself, such as a wrong method or a body that is too large.
// The errors of a contract are *job.Error.
type StatusError struct {
	Status int
	Msg    string
}

func (e *StatusError) Error() string { return e.Msg }

// errPanic is what a caller is sent when a handler panicked. It shows nothing of the cause,
// which is logged.
var errPanic = &job.Error{Kind: job.Internal, Op: "httpapi", Msg: "panic"}

// MapError translates an error to a contract's own meaning M, and returns the text that may be
// shown to the caller. A StatusError is looked up by its status in statuses, and means other
// where it is not listed; every other error is looked up by its kind in kinds.
func MapError[M any](err error, kinds map[job.Kind]M, statuses map[int]M, other M) (M, string) {
	var statusErr *StatusError
	if errors.As(err, &statusErr) {
		if m, ok := statuses[statusErr.Status]; ok {
			return m, statusErr.Msg
		}
		return other, statusErr.Msg
	}
	var jobErr *job.Error
	if errors.As(err, &jobErr) && jobErr.Msg != "" {
		return kinds[jobErr.Kind], jobErr.Msg
	}
	return kinds[job.KindOf(err)], job.KindOf(err).String()
}

// Problem is an error of a contract whose errors are problem documents (RFC 9457).
type Problem struct {
	Contract string // the contract that defines the code; part of the type URN
	Code     string
	Status   int
	Title    string // the same for every problem of the code
	Detail   string // about this one
}

var problemJSON = []string{"application/problem+json"}

// SendProblem writes a problem. Its instance is the id of the request, under which the log has
// the code and the cause.
func (c *Call) SendProblem(p Problem) {
	c.AddAttrs(slog.String(telemetry.ErrorCode, p.Code))
	o := strictjson.NewObject(make([]byte, 0, 320))
	o.Text("type", "urn:millrace:"+p.Contract+":"+p.Code)
	o.Text("title", p.Title)
	o.Int("status", int64(p.Status))
	o.Text("detail", p.Detail)
	o.Text("instance", c.RequestID())
	o.Text("code", p.Code)
	c.Send(p.Status, problemJSON, o.End())
}
