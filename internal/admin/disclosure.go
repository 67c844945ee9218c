package admin

import (
	"strings"

	"github.com/millrace/millrace/internal/bulk"
	"github.com/millrace/millrace/internal/contract"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/schedule"
	"github.com/millrace/millrace/internal/webhook"
)

// disclosure says whether a caller sees what jobs carry: their definitions and bodies, the texts of
// failures, and what was made of these (AD-005, G-AD-03). Answers of the API write such members by
// its methods, which write null where the caller does not; pages show values from which its Redact
// methods have taken them. So this file alone decides.
//
// A caller who does not see them must not search them either: whether anything matches a text would
// say what is in it (checkSearch). Bulk operations are among that, as their filters may search.
type disclosure bool

// disclosureTo returns what the caller of a request sees: all, unless it has the read token and
// the setting operator.read_payloads is false.
func (a *API) disclosureTo(c *httpapi.Call) disclosure {
	return disclosure(a.ReadPayloads || callerOf(c).kind != readKind)
}

// text writes a text; null where there is none.
func (d disclosure) text(o *strictjson.Object, name, value string) {
	if !d {
		value = ""
	}
	o.Optional(name, value)
}

// textOf writes a text, or null.
func (d disclosure) textOf(o *strictjson.Object, name string, value *string) {
	if !d {
		value = nil
	}
	writeText(o, name, value)
}

// raw writes JSON; null where there is none.
func (d disclosure) raw(o *strictjson.Object, name string, value []byte) {
	if !d || len(value) == 0 {
		o.Null(name)
		return
	}
	o.Raw(name, value)
}

// redactEntry takes from an entry of the audit what a caller does not see: a bulk operation has a
// filter, which may search what jobs carry.
func (d disclosure) redactEntry(e *Entry) {
	if !bool(d) && strings.HasPrefix(e.Action, "bulk.") {
		e.Before, e.After = nil, nil
	}
}

// errHidden refuses what would disclose what jobs carry.
var errHidden = &httpapi.CodedError{Code: codeForbidden,
	Detail: "this token may not see or search what jobs carry (operator.read_payloads)"}

// checkSearch refuses filters that search what jobs carry (G-AD-03).
func (d disclosure) checkSearch(p parameters) error {
	if d {
		return nil
	}
	for _, name := range []string{"text", "error"} {
		if _, given, err := p.Query(name); given || err != nil {
			return errHidden
		}
	}
	return nil
}

// SeesPayloads reports whether the caller sees what jobs carry.
func (d disclosure) SeesPayloads() bool { return bool(d) }

// RedactText returns a text that may quote what jobs carry; it is empty where the caller does not
// see that.
func (d disclosure) RedactText(text string) string {
	if !d {
		return ""
	}
	return text
}

// RedactItems removes errors from jobs where the caller does not see them. The methods below do so
// for other values.
func (d disclosure) RedactItems(all []JobItem) {
	for i := range all {
		all[i].Error = d.RedactText(all[i].Error)
	}
}

// RedactJob removes error and bodies from a job.
func (d disclosure) RedactJob(j *JobDetail) {
	if d {
		return
	}
	j.Error = ""
	for _, p := range shownBodies {
		*j.Job.Body(p.body) = nil
	}
}

// RedactManifests removes what definitions say from manifests.
func (d disclosure) RedactManifests(all ...*Manifest) {
	for _, m := range all {
		if !d {
			m.Error, m.Manifest = "", contract.Manifest{}
		}
	}
}

// RedactResources removes what definitions and bodies say from resources.
func (d disclosure) RedactResources(all []Resource) {
	for i := range all {
		if !d {
			all[i].Error, all[i].Resource = "", contract.Resource{}
		}
	}
}

// RedactFiles removes from files what the definitions and results of their jobs say.
func (d disclosure) RedactFiles(all ...*contract.File) {
	for _, f := range all {
		if !d {
			*f = contract.File{ID: f.ID, Status: f.Status, Job: f.Job, UpdatedAt: f.UpdatedAt,
				Path: f.Path}
		}
	}
}

// RedactGraph removes names, which are of definitions, and errors from the jobs of a graph.
func (d disclosure) RedactGraph(g *JobGraph) {
	for i := range g.Jobs {
		j := &g.Jobs[i]
		j.Name, j.Error = d.RedactText(j.Name), d.RedactText(j.Error)
	}
}

// RedactTimeline removes texts from the entries of a timeline.
func (d disclosure) RedactTimeline(all []job.Entry) {
	for i := range all {
		all[i].Text, all[i].Error = d.RedactText(all[i].Text), d.RedactText(all[i].Error)
	}
}

// RedactDeadLetters removes failures from dead letters, and progress that may describe a failure.
func (d disclosure) RedactDeadLetters(all ...*job.DeadLetter) {
	for _, l := range all {
		if !d {
			l.Job.Failure, l.Job.Progress = nil, nil
		}
	}
}

// RedactInbox removes errors from requests in the inbox.
func (d disclosure) RedactInbox(all []job.InboxRequest) {
	for i := range all {
		all[i].Error = d.RedactText(all[i].Error)
	}
}

// RedactSchedule removes the request from a schedule.
func (d disclosure) RedactSchedule(s *schedule.Schedule) {
	if !d {
		s.Request = nil
	}
}

// RedactTicks removes errors from what was done at the times of a schedule.
func (d disclosure) RedactTicks(all []schedule.Tick) {
	for i := range all {
		all[i].Error = d.RedactText(all[i].Error)
	}
}

// RedactAttempts removes errors and answers from the attempts of a delivery.
func (d disclosure) RedactAttempts(all ...*webhook.Attempt) {
	for _, t := range all {
		if !bool(d) && t != nil {
			t.Error, t.Response = nil, nil
		}
	}
}

// RedactOperation removes errors from a bulk operation.
func (d disclosure) RedactOperation(o *bulk.Operation) {
	for i := range o.Errors {
		o.Errors[i].Error = d.RedactText(o.Errors[i].Error)
	}
}
