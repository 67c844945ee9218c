package relay

import (
	"github.com/millrace/millrace/internal/contract"
	"github.com/millrace/millrace/internal/job"
)

// Name is the contract's name in the store, in settings and in metrics.
const Name = "relay"

// The states.
const (
	queued  job.State = "queued"
	running job.State = "running"
)

// machine is the state machine of a job; doc.go draws it. A job that is completed, requeued or
// deleted leaves nothing behind. A job that runs out of retries leaves a dead letter (G-RL-04).
var machine = job.MustMachine(
	map[job.State]job.Phase{queued: job.Ready, running: job.Leased},
	[]job.Transition{
		{From: job.StateNone, On: job.Submitted, To: queued},
		{From: queued, On: job.Replaced, To: queued},
		{From: queued, On: job.Claimed, To: running},
		{From: queued, On: job.Removed, To: job.StateNone},

		{From: running, On: job.Succeeded, To: job.StateNone},
		{From: running, On: job.Requeued, To: job.StateNone},
		{From: running, On: job.Removed, To: job.StateNone},
		{From: running, On: job.Replaced, To: queued},
		{From: running, On: job.Released, To: queued}, // claimed for a caller that had left
		{From: running, On: job.Expired, To: queued, CountsFailed: true},
		{From: running, On: job.ExpiredForGood, To: job.StateNone, DeadLetter: true},
		{From: running, On: job.Failed, To: queued, CountsFailed: true},
		{From: running, On: job.FailedForGood, To: job.StateNone, DeadLetter: true},
	})

// eventTypes are the types of events that operators may subscribe to (WH-002).
var eventTypes = []contract.EventType{
	contract.JobEvent(Name, contract.Submitted).When(job.Submitted, job.Replaced),
	contract.JobEvent(Name, contract.Started).When(job.Claimed),
	contract.JobEvent(Name, contract.Retrying).When(job.Expired, job.Failed, job.Released),
	contract.JobEvent(Name, contract.Completed).When(job.Succeeded, job.Requeued),
	contract.JobEvent(Name, contract.Dead).When(job.ExpiredForGood, job.FailedForGood),
	contract.JobEvent(Name, contract.Deleted).When(job.Removed),
}
