package console

import (
	"net/url"
	"strconv"

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
	admin.JobItem
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
type body struct{ Name, ID, Text, Size string }

// showJob is GET /console/jobs/{number}.
func (o *Console) showJob(c *httpapi.Call) (view, error) {
	found, err := o.api.PathJob(c)
	if err != nil {
		return view{}, err
	}
	j, err := o.api.Engine.Get(c.Context(), found.ID)
	if err != nil {
		return view{}, err
	}
	items, err := o.api.JobItems(c.Context(), []*job.Job{j})
	if err != nil {
		return view{}, err
	}
	p := jobPage{JobItem: items[0], Queued: j.ID.Contract,
		HasGraph: o.api.Engine.HasDependencies(j.ID.Contract)}
	for _, name := range o.api.Allowed(j) {
		p.Actions = append(p.Actions, action{name, name == contract.ActionDelete ||
			name == contract.ActionCancel})
	}
	if p.Why, err = o.api.Engine.Why(c.Context(), j.Seq, o.api.Node.PollersOf); err != nil {
		return view{}, err
	}
	if !o.api.Caller(c).Blind {
		p.Bodies = bodiesOf(j)
	}
	return view{Name: "job", Title: "Job " + strconv.FormatInt(j.Seq, 10), Page: p}, nil
}

// bodiesOf returns what a job carries, formatted.
func bodiesOf(j *job.Job) (all []body) {
	for _, b := range []struct {
		name string
		raw  []byte
	}{{"Failure", j.Failure}, {"Result", j.Result}, {"Progress", j.Progress},
		{"Payload", j.Payload}, {"Definition", j.Definition}} {
		if len(b.raw) > 0 {
			all = append(all, body{b.name, "body-" + b.name, shown(indentJSON(b.raw)),
				formatSize(int64(len(b.raw)))})
		}
	}
	return all
}
