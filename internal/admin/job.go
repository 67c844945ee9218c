package admin

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/millrace/millrace/internal/contract"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/setting"
	"github.com/millrace/millrace/internal/telemetry"
)

// One job is shown by its number, which is unique over all contracts, with its bodies, what may be
// done with it now, and where else it is shown. A job that was deleted is shown as its latest dead
// letter has it, while that is kept. Secrets that a contract has put into a job are taken out
// before anything sees it (Operator.HideSecrets), and what jobs carry is left out for callers who
// do not see it (disclosure.go).

// maxBodyShown bounds each body in the answer about a job, in bytes. Its own route has all of it.
const maxBodyShown = 64 << 10

// shownBodies are the bodies of a job in the order in which they are shown. Each has a route.
var shownBodies = []struct {
	name string
	body job.Body
}{{"payload", job.Payload}, {"definition", job.Definition}, {"progress", job.Progress},
	{"result", job.Result}, {"failure", job.Failure}}

// jobRoutes are the routes that show one job.
func (a *API) jobRoutes() []route {
	const one = apiPrefix + "/jobs/{number}"
	all := []route{{method: "GET", pattern: one, action: "job.show", handle: a.showJob}}
	for _, p := range shownBodies {
		all = append(all, route{method: "GET", pattern: one + "/" + p.name,
			action: "job." + p.name,
			handle: func(c *httpapi.Call) error { return a.sendBody(c, p.name, p.body) }})
	}
	return all
}

// JobDetail is a job with all that operators see of it (AD-013).
type JobDetail struct {
	JobItem
	Job     *job.Job // with its bodies, secrets masked
	Actions []string // that it allows now
	// DeadLetter is the id of its latest dead letter, and ReplayedAs the number of the job that
	// this was replayed as; 0 for none.
	DeadLetter, ReplayedAs int64
	Path                   string // of the contract's own route, "" for none
}

// JobDetail returns the job with a number. One that is gone is as its dead letter has it. NotFound
// if there is no such job and no dead letter of it.
func (a *API) JobDetail(ctx context.Context, number int64) (*JobDetail, error) {
	j, deadLetters, err := a.Engine.GetWithDeadLetters(ctx, number)
	if job.IsKind(err, job.NotFound) {
		return nil, errJobNotFound
	}
	if err != nil {
		return nil, err
	}
	items, err := a.JobItems(ctx, []*job.Job{j})
	if err != nil {
		return nil, err
	}
	o := a.operatorOf(j.ID.JobType)
	d := &JobDetail{JobItem: items[0], Job: j, Actions: []string{}}
	isOpen := false
	if n := len(deadLetters); n > 0 {
		d.DeadLetter, d.ReplayedAs = deadLetters[n-1].ID, deadLetters[n-1].ReplayedAs
		isOpen = deadLetters[n-1].IsOpen()
	}
	isDeleted := j.State == job.StateNone
	if !isDeleted || isOpen {
		d.Actions = o.Allowed(j)
	}
	if !isDeleted && o.Path != nil {
		d.Path = o.Path(j)
	}
	o.HideSecrets(j)
	return d, nil
}

// TraceLink returns where the trace of a job is seen, "" where it has none or that is not known.
func (a *API) TraceLink(j *job.Job) string {
	id := telemetry.TraceID(j.Trace)
	if id == "" {
		return ""
	}
	return strings.ReplaceAll(a.TraceURL, setting.TraceIDMark, id)
}

// PathJobDetail returns the job of the path of a call.
func (a *API) PathJobDetail(c *httpapi.Call) (*JobDetail, error) {
	number, err := pathNumber(c)
	if err != nil {
		return nil, err
	}
	return a.JobDetail(c.Context(), number)
}

// showJob is GET /admin/v1/jobs/{number}.
func (a *API) showJob(c *httpapi.Call) error {
	d, err := a.PathJobDetail(c)
	if err != nil {
		return err
	}
	o := strictjson.NewObject(make([]byte, 0, 2048))
	d.write(&o, a.disclosureTo(c))
	sendObject(c, http.StatusOK, &o)
	return nil
}

// write writes the members of a job.
func (d *JobDetail) write(o *strictjson.Object, shown disclosure) {
	d.JobItem.Write(o, bool(shown))
	for _, p := range shownBodies {
		body := *d.Job.Body(p.body)
		text, isCut := contract.ShownBody(body, maxBodyShown)
		shown.raw(o, p.name, text)
		o.Bool(p.name+"_truncated", isCut)
	}
	o.Texts("actions", d.Actions)
	writePositive(o, "dead_letter", d.DeadLetter)
	writePositive(o, "replayed_as", d.ReplayedAs)
	path := apiPrefix + "/jobs/"
	o.Object("links", func(o *strictjson.Object) {
		o.Optional("contract", d.Path)
		o.Text("why", path+strconv.FormatInt(d.Number, 10)+"/why")
		o.Text("timeline", path+strconv.FormatInt(d.Number, 10)+"/timeline")
		parent := ""
		if d.Parent > 0 {
			parent = path + strconv.FormatInt(d.Parent, 10)
		}
		o.Optional("parent", parent)
	})
}

// octetStream is the content type of bodies that are not JSON.
var octetStream = []string{"application/octet-stream"}

// sendBody is GET /admin/v1/jobs/{number}/payload and the others: the body as it was sent.
func (a *API) sendBody(c *httpapi.Call, name string, which job.Body) error {
	if !a.disclosureTo(c) {
		return errHidden
	}
	d, err := a.PathJobDetail(c)
	if err != nil {
		return err
	}
	body := *d.Job.Body(which)
	if len(body) == 0 {
		return &job.Error{Kind: job.NotFound, Op: "admin.job", Msg: "the job has no " + name}
	}
	kind := octetStream
	if strictjson.IsValid(body) {
		kind = httpapi.JSON
	}
	c.Send(http.StatusOK, kind, slices.Clone(body))
	return nil
}
