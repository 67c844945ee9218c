package httpapi

import (
	"log/slog"

	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/telemetry"
)

// Problem is an error as those contracts tell it whose errors are problem
// documents (RFC 9457): a status, a title that is always the same for a code, and
// what is to be said of this one.
type Problem struct {
	Contract string // whose code it is, as in the type urn:millrace:ROOM:CODE
	Code     string
	Status   int
	Title    string
	Detail   string
}

var problemJSON = []string{"application/problem+json"}

// SendProblem writes a problem. Its instance is the id of the request, under which
// the log has the code and the rest.
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
