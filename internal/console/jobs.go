package console

import (
	"encoding/json"
	"net/url"
	"strconv"
	"strings"

	"github.com/millrace/millrace/internal/admin"
	"github.com/millrace/millrace/internal/contract"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/job"
)

// The page of a job has a form of one button for each action that its contract allows now, and
// nothing for the others. What the page shows is read by the functions of package admin that the
// routes of the API use, and then limited to what the caller may see.

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
	_, after, err := o.api.Act(c, name)
	if err != nil {
		return "", err
	}
	if after.State == job.StateNone {
		return pathOf("queues", after.ID.JobType, after.Queue), nil
	}
	return pathOf("jobs", strconv.FormatInt(after.Seq, 10)), nil
}

// jobPage is what the page of a job shows.
type jobPage struct {
	*admin.JobDetail
	Timeline      timeline
	QueueContract string // the contract under which its queue is found
	HasGraph      bool   // it may depend on other jobs
	Actions       []action
	Why           job.Why
	Conditions    []startCondition // of a job that has not started
	// FailureType and FailureText are the whole failure, where it has a text.
	FailureType, FailureText string
	Bodies                   []body
	Links                    []pageLink // to what else is about the job
	Trace                    string     // where its trace is seen; "" for nowhere
	Open                     int        // how many dependencies are open
}

// pageLink is a link to a page.
type pageLink struct{ Text, Path string }

// action is an action that the job allows now.
type action struct {
	Name     string
	IsDanger bool
}

// body is something that a job carries, as it is shown.
type body struct {
	Name, ID, Text, Size string
	FullPath             string // where all of it is, where it was cut
	IsOpen               bool
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
	viewer := o.api.Viewer(c)
	viewer.RedactJob(d)
	viewer.RedactTimeline(entries)
	p := jobPage{JobDetail: d, QueueContract: d.Job.ID.JobType, Bodies: bodiesOf(d.Job),
		HasGraph: o.api.Engine.HasDependencies(d.Job.ID.JobType), Links: o.linksOf(d.Job),
		Trace: o.api.TraceLink(d.Job)}
	if d.OpenDependencies != nil {
		p.Open = *d.OpenDependencies
	}
	p.FailureType, p.FailureText = job.WholeFailureOf(d.Job.Failure)
	p.Timeline = timelineOf(d, entries, o.api.Now())
	p.Timeline.Truncated = truncated
	for _, name := range d.Actions {
		p.Actions = append(p.Actions, action{name, name == contract.ActionDelete ||
			name == contract.ActionCancel})
	}
	if d.Job.State != job.StateNone {
		p.Why, err = o.api.Why(c, d.Number)
		p.Conditions = startConditionsOf(d, p.Why)
	}
	title := "Job " + strconv.FormatInt(d.Number, 10) + " · " + printable(d.Contract+"/"+d.Queue)
	return view{Name: "job", Title: title, Page: p,
		Live: liveScope{Queue: p.QueueContract + "/" + d.Queue, Number: d.Number}}, err
}

// linksOf returns the pages about what a job is a part of.
func (o *Console) linksOf(j *job.Job) (all []pageLink) {
	if manifests := o.api.Manifests(); manifests != nil {
		switch j.ID.JobType {
		case manifests.Jobs:
			all = append(all, pageLink{"Manifest", manifestPath(j.Seq)})
		case manifests.Resources:
			all = append(all, pageLink{"Manifest", manifestPath(j.Parent)})
		}
	}
	for _, c := range o.api.Contracts {
		isOf := j.Owner != "" && contract.PublicName(j.ID.JobType) == c.Name
		if isOf && c.Files != nil {
			all = append(all, pageLink{"File", pathOf("files", j.Owner)})
		}
		if isOf && c.Accounts != nil {
			all = append(all, pageLink{"Client", pathOf("clients", j.Owner)})
		}
	}
	return all
}

// The page of a job shows at most maxOpen bodies unfolded, each shorter than maxOpenSize bytes.
const (
	maxOpen     = 2
	maxOpenSize = 4 << 10
)

// isShownAsText reports whether the text of a failure, with its type, is all that the failure says.
func isShownAsText(raw []byte) bool {
	var members map[string]any
	kind, text := job.WholeFailureOf(raw)
	switch {
	case len(raw) > maxShown:
		return false
	case json.Unmarshal(raw, &members) != nil:
		return true // it is a text
	}
	for name, value := range members {
		isText := value == kind || value == text
		isFlag := name == "retryable" || value == nil
		if !isText && !isFlag {
			return false
		}
	}
	return true
}

// bodiesOf returns what a job carries, formatted.
func bodiesOf(j *job.Job) (all []body) {
	for _, b := range []struct {
		name string
		body job.Body
	}{{"Failure", job.Failure}, {"Result", job.Result}, {"Progress", job.Progress},
		{"Payload", job.Payload}, {"Definition", job.Definition}} {
		raw := *j.Body(b.body)
		if len(raw) == 0 || (b.body == job.Failure && isShownAsText(raw)) {
			continue
		}
		made := body{Name: b.name, ID: "body-" + b.name, Size: formatSize(int64(len(raw))),
			IsOpen: len(all) < maxOpen && len(raw) < maxOpenSize}
		if len(raw) > maxShown {
			made.FullPath = "/admin/v1/jobs/" + strconv.FormatInt(j.Seq, 10) + "/" +
				strings.ToLower(b.name)
			made.Text = printable(string(raw))
		} else {
			made.Text = printable(indentJSON(raw))
		}
		all = append(all, made)
	}
	return all
}
