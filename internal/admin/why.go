package admin

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/setting"
)

// Why a job does not run is decided by package job (job.Explain), from facts that the engine
// gathers in one view. This file writes the answer: each fact is a member whose kind of value
// follows from its type.

// whyRoutes are the routes that explain why a job does not run, and what happened to it.
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
	why, err := a.Why(c, number)
	if job.IsKind(err, job.NotFound) {
		return errJobNotFound
	}
	if err != nil {
		return err
	}
	o := strictjson.NewObject(make([]byte, 0, 1024))
	writeWhy(&o, &why)
	sendObject(c, http.StatusOK, &o)
	return nil
}

// Why says why a job does not run, as the caller may see it.
func (a *API) Why(c *httpapi.Call, number int64) (job.Why, error) {
	return a.Engine.Why(c.Context(), number, engine.WhySources{Pollers: a.Node.PollersOf,
		PausedBy: a.pausedBy, StartedPerMinute: a.Series.StartedPerMinute,
		HidesFailure: !a.disclosureTo(c).SeesPayloads()})
}

// maxPauseSearch bounds the entries of the audit that are searched for the one that says who paused
// a queue.
const maxPauseSearch = 100

// pausedBy returns who has paused a queue, and when, by the audit.
func (a *API) pausedBy(r engine.RecordReader, contract, queue string) (string, time.Time, error) {
	records, err := r.Records(auditByTargetKind, ownerOf("queue:"+contract+"/"+queue), "",
		maxPauseSearch)
	for i := range records {
		e, err := decodeEntry(&records[i])
		if err != nil {
			return "", time.Time{}, err
		}
		if e.RefusalCode == "" && !pausedIn(e.Before) && pausedIn(e.After) {
			return e.Actor, e.At, nil
		}
	}
	return "", time.Time{}, err
}

// pausedIn reports whether a queue is paused in a state of the audit.
func pausedIn(state json.RawMessage) bool {
	var q queueState
	if err := json.Unmarshal(state, &q); err != nil {
		return false
	}
	return q.Paused
}

// writeWhy writes the answer about a job.
func writeWhy(o *strictjson.Object, why *job.Why) {
	o.Int("number", why.Number)
	o.Text("contract", why.JobType)
	o.Text("queue", why.Queue)
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
}

// writeFact writes a fact as the member of its name.
func writeFact(o *strictjson.Object, f *job.Fact) {
	switch value := f.Value.(type) {
	case int:
		o.Int(f.Name, int64(value))
	case string:
		o.Text(f.Name, value)
	case float64:
		o.Raw(f.Name, formatNumber(value))
	case *job.Why:
		o.Object(f.Name, func(o *strictjson.Object) { writeWhy(o, value) })
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
