package console

import (
	"html/template"
	"slices"
	"strconv"

	"github.com/millrace/millrace/internal/admin"
	"github.com/millrace/millrace/internal/job"
)

// What holds a job back is shown as the conditions that have to be met until a job starts, in their
// order: those that are met, those that are not with the reasons, and those of which nothing is
// known before the others are met. job.Explain has the reasons, also for the API and the command,
// so all say the same; each reason belongs to one condition.

// startCondition is one of them, as it is shown for a job.
type startCondition struct {
	Badge   template.HTML
	Reasons []job.Reason // why it is not met
	Links   []pageLink   // to what that is
	Resume  string       // the address of the form that opens a paused queue; "" for none
}

// startConditions has the name of each condition where it is met and where it is not, and the
// reasons why it is not.
var startConditions = []struct {
	met, unmet string
	codes      []job.ReasonCode
	class      string // where it is not met: "bad" where somebody has to act
	isLast     bool   // it is checked when the job is due and depends on nothing unfinished
}{
	{"due", "not due", []job.ReasonCode{job.ReasonNotDue, job.ReasonBackingOff}, "leased",
		false},
	{"depends on nothing open", "waits for others", []job.ReasonCode{
		job.ReasonWaitsForDependencies, job.ReasonWaitsForChildren,
		job.ReasonMessagePending}, "leased", false},
	{"queue open", "queue paused", []job.ReasonCode{job.ReasonQueuePaused}, "bad", false},
	{"within limits", "limited", []job.ReasonCode{job.ReasonQueueLimit, job.ReasonJobTypeLimit,
		job.ReasonRateLimited}, "leased", true},
	{"first of its queue", "others first", []job.ReasonCode{job.ReasonBehindOtherJobs}, "leased",
		true},
	{"a worker asks", "no worker asks", []job.ReasonCode{job.ReasonNoWorkers,
		job.ReasonNodeDraining}, "bad", false},
}

// startConditionsOf returns the conditions of a job that has not started; nil for others.
func startConditionsOf(d *admin.JobDetail, why job.Why) (all []startCondition) {
	if d.Job.State == job.StateNone || (d.Job.Phase != job.Waiting && d.Job.Phase != job.Ready) {
		return nil
	}
	isReady := true
	for i, s := range startConditions {
		made := startCondition{Badge: badge("good", check, s.met)}
		for _, r := range why.Reasons {
			if slices.Contains(s.codes, r.Code) {
				made.Reasons = append(made.Reasons, r)
				made.addLinks(d, &r)
			}
		}
		switch {
		case len(made.Reasons) > 0:
			made.Badge = badge(s.class, bars, s.unmet)
			isReady = isReady && i > 1
		case s.isLast && !isReady:
			made.Badge = badge("waiting", ring, s.met)
		}
		all = append(all, made)
	}
	return all
}

// addLinks adds the pages about a reason why the condition is not met.
func (s *startCondition) addLinks(d *admin.JobDetail, r *job.Reason) {
	add := func(text, path string) { s.Links = append(s.Links, pageLink{text, path}) }
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
		s.Resume = pathOf("queues", d.Job.ID.JobType, d.Queue, "resume")
	case job.ReasonQueueLimit:
		add("Running jobs", jobsWhere("contract", d.Contract, "queue", d.Queue, "phase",
			job.Leased.String()))
	case job.ReasonJobTypeLimit:
		add("Running jobs", jobsWhere("contract", d.Contract, "phase", job.Leased.String()))
	case job.ReasonRateLimited, job.ReasonBehindOtherJobs:
		add("Queue", pathOf("queues", d.Job.ID.JobType, d.Queue))
	case job.ReasonNoWorkers, job.ReasonNodeDraining:
		s.Links = nil
		add("Workers", Path+"/workers")
	}
}
