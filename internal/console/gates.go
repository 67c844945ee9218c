package console

import (
	"html/template"
	"slices"
	"strconv"

	"github.com/millrace/millrace/internal/admin"
	"github.com/millrace/millrace/internal/job"
)

// What holds a job back is shown as the gates that a job passes until it starts, in their order:
// those that are open, those that are closed with what closes them, and those of which nothing is
// known before the others are open. The reasons are those of the answer why (job.Explain), so page,
// API and command say the same; no reason closes two gates.

// gate is one of them.
type gate struct {
	Mark    template.HTML
	Reasons []job.Reason // what closes it
	Links   []pageLink   // to what that is
	Resume  string       // the address of the form that opens a paused queue; "" for none
}

// gates are what a job passes: the names of one that is open and of one that is closed, and the
// reasons that close it.
var gates = []struct {
	open, closed string
	codes        []job.ReasonCode
	class        string // of one that is closed: "bad" where somebody has to open it
	isLast       bool   // it is looked at when the job is due and depends on nothing that is open
}{
	{"due", "not due", []job.ReasonCode{job.ReasonNotDue, job.ReasonBackingOff}, "leased",
		false},
	{"depends on nothing open", "waits for others", []job.ReasonCode{
		job.ReasonWaitsForDependencies, job.ReasonWaitsForChildren,
		job.ReasonMessagePending}, "leased", false},
	{"queue open", "queue paused", []job.ReasonCode{job.ReasonQueuePaused}, "bad", false},
	{"within limits", "limited", []job.ReasonCode{job.ReasonQueueLimit, job.ReasonContractLimit,
		job.ReasonRateLimited}, "leased", true},
	{"first of its queue", "others first", []job.ReasonCode{job.ReasonBehind}, "leased",
		true},
	{"a worker asks", "no worker asks", []job.ReasonCode{job.ReasonNobodyAsks,
		job.ReasonNodeDraining}, "bad", false},
}

// gatesOf returns the gates of a job that has not started; nil for others.
func gatesOf(d *admin.JobDetail, why job.Why) (all []gate) {
	if d.Job.State == job.StateNone || (d.Job.Phase != job.Waiting && d.Job.Phase != job.Ready) {
		return nil
	}
	isReady := true
	for i, g := range gates {
		made := gate{Mark: mark("good", check, g.open)}
		for _, r := range why.Reasons {
			if slices.Contains(g.codes, r.Code) {
				made.Reasons = append(made.Reasons, r)
				made.addLinks(d, &r)
			}
		}
		switch {
		case len(made.Reasons) > 0:
			made.Mark = mark(g.class, bars, g.closed)
			isReady = isReady && i > 1
		case g.isLast && !isReady:
			made.Mark = mark("waiting", ring, g.open)
		}
		all = append(all, made)
	}
	return all
}

// addLinks adds the pages about what closes the gate for a reason.
func (g *gate) addLinks(d *admin.JobDetail, r *job.Reason) {
	add := func(text, path string) { g.Links = append(g.Links, pageLink{text, path}) }
	switch r.Code {
	case job.ReasonWaitsForDependencies:
		for _, f := range r.Facts {
			relatives, _ := f.Value.([]job.Relative)
			if f.Name != "dependencies" { // their chain is among the reason's other facts
				continue
			}
			for _, one := range relatives {
				number := strconv.FormatInt(one.Number, 10)
				add("Job "+number, pathOf("jobs", number))
			}
		}
	case job.ReasonWaitsForChildren:
		add("Children", jobsWhere("parent", strconv.FormatInt(d.Number, 10)))
	case job.ReasonQueuePaused:
		g.Resume = pathOf("queues", d.Job.ID.Contract, d.Queue, "resume")
	case job.ReasonQueueLimit:
		add("Running jobs", jobsWhere("contract", d.Contract, "queue", d.Queue, "phase",
			job.Leased.String()))
	case job.ReasonContractLimit:
		add("Running jobs", jobsWhere("contract", d.Contract, "phase", job.Leased.String()))
	case job.ReasonRateLimited, job.ReasonBehind:
		add("Queue", pathOf("queues", d.Job.ID.Contract, d.Queue))
	case job.ReasonNobodyAsks, job.ReasonNodeDraining:
		g.Links = nil
		add("Workers", Path+"/workers")
	}
}
