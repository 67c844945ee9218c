package admin

import (
	"net/http"
	"time"

	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/setting"
)

// whyRoutes are the routes that tell of a job why it does not run and what happened to it.
func (a *API) whyRoutes() []route {
	const one = apiPrefix + "/jobs/{number}"
	return []route{
		{method: "GET", pattern: one + "/why", action: "job.why", handle: a.explainJob},
		{method: "GET", pattern: one + "/timeline", action: "job.timeline",
			handle: a.showTimeline},
	}
}

// explainJob is GET /admin/v1/jobs/{number}/why (AD-015).
func (a *API) explainJob(c *httpapi.Call) error {
	number, err := pathNumber(c)
	if err != nil {
		return err
	}
	why, err := a.Engine.Why(c.Context(), number, a.Node.PollersOf)
	if job.IsKind(err, job.NotFound) {
		return errNoJob
	}
	if err != nil {
		return err
	}
	o := strictjson.NewObject(make([]byte, 0, 1024))
	o.Text("sentence", why.Sentence)
	o.Objects("reasons", len(why.Reasons), func(i int, o *strictjson.Object) {
		r := &why.Reasons[i]
		o.Text("code", string(r.Code))
		o.Text("text", r.Text)
		o.Object("facts", func(o *strictjson.Object) {
			for _, f := range r.Facts {
				writeFact(o, &f)
			}
		})
	})
	o.Time("next", why.Next)
	sendObject(c, http.StatusOK, &o)
	return nil
}

// writeFact writes a fact as the member of its name.
func writeFact(o *strictjson.Object, f *job.Fact) {
	switch value := f.Value.(type) {
	case int:
		o.Int(f.Name, int64(value))
	case string:
		o.Text(f.Name, value)
	case time.Time:
		o.Time(f.Name, value)
	case time.Duration:
		o.Text(f.Name, setting.FormatDuration(value))
	case []string:
		o.Texts(f.Name, value)
	case []job.Relative:
		o.Objects(f.Name, len(value), func(i int, o *strictjson.Object) {
			o.Int("number", value[i].Number)
			o.Text("id", value[i].ID)
			o.Text("state", string(value[i].State))
		})
	}
}
