package forgerun

import (
	"github.com/millrace/millrace/internal/contract"
	"github.com/millrace/millrace/internal/job"
)

// Name is the contract's name in the store, in settings and in metrics.
const Name = "forgerun"

// queue is the one queue of all jobs (FR-169, G-FR-66).
const queue = "default"

// The engine moves jobs by this table and refuses what it does not have, so no request and no
// worker can make a transition that the document forbids (FR-155 to FR-161). outcome and attempt
// are computed from a job and not stored.

// The states (FR-154).
const (
	created   job.State = "CREATED"
	queued    job.State = "QUEUED"
	assigned  job.State = "ASSIGNED"
	running   job.State = "RUNNING"
	succeeded job.State = "SUCCEEDED"
	failed    job.State = "FAILED"
	canceled  job.State = "CANCELED"
)

// states lists the states in the order of the document.
var states = []job.State{created, queued, assigned, running, succeeded, failed, canceled}

// machine is the state machine of a job; doc.go draws it. An attempt that fails for whatever reason
// ends in FAILED and is counted. Only a retry leads out of FAILED (G-FR-06), as long as retries are
// left (FR-142). A job that was claimed and not started has not failed. Nothing retries a FAILED
// job by itself, so each leaves a dead letter.
var machine = job.MustMachine(
	map[job.State]job.Phase{
		created:   job.Waiting,
		queued:    job.Ready,
		assigned:  job.Leased,
		running:   job.Leased,
		succeeded: job.Done,
		failed:    job.Done,
		canceled:  job.Done,
	},
	[]job.Transition{
		{From: job.StateNone, On: job.Submitted, To: created},

		{From: created, On: job.Due, To: queued},
		{From: created, On: job.Canceled, To: canceled},

		{From: queued, On: job.Claimed, To: assigned},
		{From: queued, On: job.Canceled, To: canceled},

		{From: assigned, On: job.Started, To: running},
		{From: assigned, On: job.Canceled, To: canceled},
		{From: assigned, On: job.Expired, To: queued},  // G-FR-01
		{From: assigned, On: job.Released, To: queued}, // a node that stops (G-X-13)

		{From: running, On: job.Succeeded, To: succeeded},
		{From: running, On: job.Canceled, To: canceled},
		{From: running, On: job.Failed, To: failed, CountsFailed: true, DeadLetter: true},
		{From: running, On: job.FailedForGood, To: failed, DeadLetter: true},
		{From: running, On: job.Expired, To: failed, CountsFailed: true,
			DeadLetter: true}, // G-FR-35
		{From: running, On: job.ExpiredForGood, To: failed, DeadLetter: true},
		{From: running, On: job.Released, To: failed, CountsFailed: true,
			DeadLetter: true}, // G-X-18

		{From: failed, On: job.Retried, To: queued},
	})

// final reports whether a job in this state has finished. Only a retry can follow.
func final(s job.State) bool { return s == succeeded || s == failed || s == canceled }

// outcome returns the word for a final state in a job and its report (FR-121), or "" if the state
// is not final.
func outcome(s job.State) string {
	switch s {
	case succeeded:
		return "SUCCESS"
	case failed:
		return "FAILED"
	case canceled:
		return "CANCELED"
	}
	return ""
}

// attempt returns how often a job was retried (G-FR-20). Every failed attempt was followed by a
// retry, except the one that a FAILED job is in.
func attempt(j *job.Job) int {
	if j.State == failed {
		return max(0, j.FailedAttempts-1)
	}
	return j.FailedAttempts
}

// eventTypes are the types of events that operators may subscribe to (WH-002). Clients have
// events of their own, see events.go.
var eventTypes = []contract.EventType{
	contract.JobEvent(Name, contract.Submitted).When(job.Submitted),
	contract.JobEvent(Name, contract.Started).To(running),
	contract.JobEvent(Name, contract.Retrying).When(job.Retried),
	contract.JobEvent(Name, contract.Completed).To(succeeded),
	contract.JobEvent(Name, contract.Failed).To(failed),
	contract.JobEvent(Name, contract.Canceled).To(canceled),
}
