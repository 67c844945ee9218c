package taskflow

import (
	"github.com/millrace/millrace/internal/contract"
	"github.com/millrace/millrace/internal/job"
)

// Name is the contract's name in the store, in settings and in metrics.
const Name = "taskflow"

// The statuses (TF-022).
const (
	Pending   job.State = "PENDING"
	Ready     job.State = "READY"
	Running   job.State = "RUNNING"
	Completed job.State = "COMPLETED"
	Failed    job.State = "FAILED"
	Blocked   job.State = "BLOCKED"
)

// statuses lists the statuses in the order of the document.
var statuses = []job.State{Pending, Ready, Running, Completed, Failed, Blocked}

// machine is the state machine of a job; doc.go draws it. Every status change goes through it
// (TF-030). An update is a transition from a state to itself, which terminal states do not have
// (TF-075). A transition that counts a failure becomes its ForGood form when no attempt is left
// (G-TF-01).
var machine = job.MustMachine(
	map[job.State]job.Phase{
		Pending:   job.Waiting,
		Ready:     job.Ready,
		Running:   job.Leased,
		Completed: job.Done,
		Failed:    job.Done,
		Blocked:   job.Done,
	},
	[]job.Transition{
		{From: job.StateNone, On: job.Submitted, To: Pending},

		{From: Pending, On: job.Satisfied, To: Ready},
		{From: Pending, On: job.Unsatisfiable, To: Blocked},
		{From: Pending, On: job.Replaced, To: Pending},
		{From: Pending, On: job.Removed, To: job.StateNone},

		{From: Ready, On: job.Claimed, To: Running},
		{From: Ready, On: job.Replaced, To: Ready},
		{From: Ready, On: job.Removed, To: job.StateNone},

		{From: Running, On: job.Succeeded, To: Completed},
		{From: Running, On: job.Failed, To: Ready, CountsFailed: true},
		{From: Running, On: job.FailedForGood, To: Failed, DeadLetter: true},
		{From: Running, On: job.Expired, To: Ready, CountsFailed: true}, // G-TF-26
		{From: Running, On: job.ExpiredForGood, To: Failed, DeadLetter: true},
		{From: Running, On: job.Released, To: Ready}, // G-TF-30
		{From: Running, On: job.Replaced, To: Running},
		{From: Running, On: job.Canceled, To: Failed},       // RT-001
		{From: Running, On: job.Removed, To: job.StateNone}, // G-TF-19

		{From: Completed, On: job.Removed, To: job.StateNone},
		{From: Failed, On: job.Removed, To: job.StateNone},
		{From: Blocked, On: job.Removed, To: job.StateNone},
	})

// terminal reports whether a job in this status has finished (TF-031).
func terminal(s job.State) bool { return machine.Phase(s) == job.Done }

// attemptCount returns the number of failed attempts (G-TF-30). The engine does not count a
// failure that is not retryable, nor a cancelled attempt, since they use up no attempt. Both are
// recognised by a FAILED job that has attempts left.
func attemptCount(j *job.Job) int {
	if j.State == Failed && j.FailedAttempts < j.MaxAttempts {
		return j.FailedAttempts + 1
	}
	return j.FailedAttempts
}

// eventTypes are the types of events that operators may subscribe to (WH-002).
var eventTypes = []contract.EventType{
	contract.JobEvent(Name, contract.Submitted).When(job.Submitted),
	contract.JobEvent(Name, contract.Started).When(job.Claimed),
	contract.JobEvent(Name, contract.Retrying).When(job.Failed, job.Expired, job.Released),
	contract.JobEvent(Name, contract.Completed).To(Completed),
	contract.JobEvent(Name, contract.Failed).To(Failed),
	contract.JobEvent(Name, contract.Blocked).To(Blocked),
	contract.JobEvent(Name, contract.Deleted).When(job.Removed),
}
