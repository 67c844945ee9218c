package console

import (
	"net/url"
	"strconv"
	"strings"

	"github.com/millrace/millrace/internal/admin"
	"github.com/millrace/millrace/internal/contract"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/job"
)

// jobPages are the page of a job and the forms of the actions on it.
func (o *Console) jobPages() []admin.Page {
	const one = Path + "/jobs/{number}"
	all := []admin.Page{
		{Method: "GET", Pattern: one, Action: "console.job", Handle: o.show(o.showJob)},
		{Method: "GET", Pattern: one + "/graph", Action: "console.job.graph",
			Handle: o.show(o.showGraph)},
	}
	for _, name := range contract.Actions {
		all = append(all, admin.Page{Method: "POST", Pattern: one + "/" + name, Audit: "job." + name,
			Action: "console.job." + name,
			Target: func(c *httpapi.Call) string { return "job:" + c.PathValue("number") },
			Handle: o.submit(func(c *httpapi.Call, _ url.Values) (string, error) {
				return o.actOnJob(c, name)
			})})
	}
	return all
}

// actOnJob is POST /console/jobs/{number}/{action}. It goes to the job that is there then.
func (o *Console) actOnJob(c *httpapi.Call, name string) (string, error) {
	j, err := o.api.PathJob(c)
	if err != nil {
		return "", err
	}
	after, err := o.api.Act(c, name, j)
	if err != nil {
		return "", err
	}
	if after.State == job.StateNone {
		return pathOf("queues", after.ID.Contract, after.Queue), nil
	}
	return pathOf("jobs", strconv.FormatInt(after.Seq, 10)), nil
}

// jobPage is what the page of a job shows.
type jobPage struct {
	*admin.JobDetail
	Timeline timeline
	Queued   string // the contract under which its queue is found
	HasGraph bool   // it may depend on other jobs
	Actions  []action
	Why      job.Why
	Bodies   []body
}

// action is an action that the job allows now.
type action struct {
	Name     string
	IsDanger bool
}

// body is something that a job carries, as it is shown.
type body struct {
	Name, ID, Text, Size string
	Whole                string // where all of it is, where it was cut
}

// showJob is GET /console/jobs/{number}.
func (o *Console) showJob(c *httpapi.Call) (view, error) {
	d, err := o.api.PathJobDetail(c)
	if err != nil {
		return view{}, err
	}
	entries, truncated, err := o.api.Timeline(c.Context(), d.Number)
	if err != nil {
		return view{}, err
	}
	who := o.api.Caller(c)
	who.LimitJob(d)
	who.LimitTimeline(entries)
	p := jobPage{JobDetail: d, Queued: d.Job.ID.Contract, Bodies: bodiesOf(d.Job),
		HasGraph: o.api.Engine.HasDependencies(d.Job.ID.Contract)}
	p.Timeline = timelineOf(d, entries, o.api.Now())
	p.Timeline.Truncated = truncated
	for _, name := range d.Actions {
		p.Actions = append(p.Actions, action{name, name == contract.ActionDelete ||
			name == contract.ActionCancel})
	}
	if d.Job.State != job.StateNone {
		p.Why, err = o.api.Engine.Why(c.Context(), d.Number, o.api.Node.PollersOf)
	}
	return view{Name: "job", Title: "Job " + strconv.FormatInt(d.Number, 10), Page: p}, err
}

// bodiesOf returns what a job carries, formatted.
func bodiesOf(j *job.Job) (all []body) {
	for _, b := range []struct {
		name string
		part job.Part
	}{{"Failure", job.Failure}, {"Result", job.Result}, {"Progress", job.Progress},
		{"Payload", job.Payload}, {"Definition", job.Definition}} {
		raw := *j.Body(b.part)
		if len(raw) == 0 {
			continue
		}
		made := body{Name: b.name, ID: "body-" + b.name, Size: formatSize(int64(len(raw)))}
		if len(raw) > maxShown {
			made.Whole = "/admin/v1/jobs/" + strconv.FormatInt(j.Seq, 10) + "/" +
				strings.ToLower(b.name)
			made.Text = shown(string(raw))
		} else {
			made.Text = shown(indentJSON(raw))
		}
		all = append(all, made)
	}
	return all
}
