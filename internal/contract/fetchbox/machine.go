package fetchbox

import (
	"github.com/millrace/millrace/internal/contract"
	"github.com/millrace/millrace/internal/job"
)

// Name is the contract's name in settings, in metrics and in the worker API. The engine has two
// contracts: Name holds the jobs, which are the ledger, and Tasks their tasks.
const (
	Name  = "fetchbox"
	Tasks = "fetchbox.task"
)

// The states of a job. Clients see the four statuses of statusOf instead.
const (
	queued              job.State = "queued"      // no task has started
	inProgress          job.State = "in_progress" // some tasks have not finished
	awaitingFinalizer   job.State = "ended"       // all tasks have finished
	awaitingDeadLetters job.State = "listing"     // its dead letters are being published
	finalizing          job.State = "finalizing"  // its handler's Finalize runs
	completed           job.State = "completed"   // all tasks succeeded
	failed              job.State = "failed"      // some tasks failed
	// A job whose tasks were replayed after Finalize has run, which does not run again (G-FB-37).
	replaying job.State = "replaying" // like in_progress
	replayed  job.State = "replayed"  // like ended
	closing   job.State = "closing"   // like listing
)

// jobMachine is the life of a job. Its tasks and the finalizer move it. The engine makes the
// transitions that follow from its tasks: Started with the first claim of one, Satisfied when the
// last one finishes, Retried when a finished one is replayed or a direct producer adds one. A
// replay thus takes a job out of every state that follows the last task. Whether Finalize was
// started by then decides where it leads: back to in_progress, or to replaying.
var jobMachine = job.MustMachine(
	map[job.State]job.Phase{queued: job.Waiting, inProgress: job.Waiting,
		awaitingFinalizer: job.Ready, awaitingDeadLetters: job.Leased, finalizing: job.Leased,
		completed: job.Done, failed: job.Done, replaying: job.Waiting, replayed: job.Ready,
		closing: job.Leased},
	[]job.Transition{
		{From: job.StateNone, On: job.Submitted, To: queued},

		{From: queued, On: job.Started, To: inProgress},
		{From: queued, On: job.Satisfied, To: awaitingFinalizer},
		{From: inProgress, On: job.Satisfied, To: awaitingFinalizer},

		{From: awaitingFinalizer, On: job.Claimed, To: awaitingDeadLetters},
		{From: awaitingFinalizer, On: job.Retried, To: inProgress},
		{From: awaitingDeadLetters, On: job.Started, To: finalizing},
		{From: awaitingDeadLetters, On: job.Expired, To: awaitingFinalizer},
		{From: awaitingDeadLetters, On: job.Released, To: awaitingFinalizer},
		{From: awaitingDeadLetters, On: job.Retried, To: inProgress}, // Finalize has not run
		{From: finalizing, On: job.Succeeded, To: completed},
		{From: finalizing, On: job.FailedForGood, To: failed},
		// The node that ran Finalize was lost: it runs again.
		{From: finalizing, On: job.Expired, To: awaitingFinalizer},
		{From: finalizing, On: job.Released, To: awaitingFinalizer},
		{From: finalizing, On: job.Retried, To: replaying},

		{From: completed, On: job.Retried, To: replaying},
		{From: failed, On: job.Retried, To: replaying},
		{From: replaying, On: job.Satisfied, To: replayed},
		{From: replayed, On: job.Claimed, To: closing},
		{From: replayed, On: job.Retried, To: replaying},
		{From: closing, On: job.Succeeded, To: completed},
		{From: closing, On: job.FailedForGood, To: failed},
		{From: closing, On: job.Expired, To: replayed},
		{From: closing, On: job.Released, To: replayed},
		{From: closing, On: job.Retried, To: replaying},
	})

// The states of a task.
const (
	waiting     job.State = "queued"
	downloading job.State = "downloading"
	done        job.State = "done"
	dead        job.State = "dead" // given up, with a dead letter that can be replayed
)

// taskMachine is the life of a task: one resource of a job. An attempt that failed and one that was
// lost are counted apart, each with a limit of its own. A release counts as neither: the host asked
// for a pause, the bucket had an outage, or the node stops.
var taskMachine = job.MustMachine(
	map[job.State]job.Phase{waiting: job.Ready, downloading: job.Leased, done: job.Done,
		dead: job.Done},
	[]job.Transition{
		{From: job.StateNone, On: job.Submitted, To: waiting},

		{From: waiting, On: job.Claimed, To: downloading},
		{From: waiting, On: job.Canceled, To: dead, DeadLetter: true}, // RT-003

		{From: downloading, On: job.Succeeded, To: done},
		{From: downloading, On: job.Failed, To: waiting, CountsFailed: true},
		{From: downloading, On: job.FailedForGood, To: dead, DeadLetter: true},
		{From: downloading, On: job.Expired, To: waiting, CountsLost: true}, // FB-087, G-FB-43
		{From: downloading, On: job.ExpiredForGood, To: dead, DeadLetter: true},
		{From: downloading, On: job.Released, To: waiting},
		{From: downloading, On: job.Canceled, To: dead, DeadLetter: true},

		{From: dead, On: job.Retried, To: waiting},
	})

// The statuses of a job (FB-054).
const (
	statusQueued     = "queued"
	statusInProgress = "in_progress"
	statusCompleted  = "completed"
	statusFailed     = "failed"
)

// statuses lists the states of each status. A job whose tasks have finished is completed if none
// failed. With failed tasks it stays in progress until it is in the state failed, which is after
// its dead letters were published (G-FB-03). So some states stand for two statuses.
var statuses = map[string][]job.State{
	statusQueued: {queued},
	statusInProgress: {inProgress, replaying, awaitingFinalizer, awaitingDeadLetters, finalizing,
		replayed, closing},
	statusCompleted: {completed, awaitingFinalizer, awaitingDeadLetters, finalizing, replayed,
		closing},
	statusFailed: {failed},
}

// statusOf is the status of a job (FB-055).
func statusOf(j *job.Job) string {
	switch j.State {
	case queued:
		return statusQueued
	case inProgress, replaying:
		return statusInProgress
	case completed:
		return statusCompleted
	case failed:
		return statusFailed
	}
	if j.FailedDeps > 0 {
		return statusInProgress
	}
	return statusCompleted
}

// statusBefore is the status of a job before a change, as its events show it: the job was in
// progress until the event of its end, which comes when its handler has finished.
func statusBefore(j *job.Job) string {
	switch j.State {
	case queued, completed, failed:
		return statusOf(j)
	}
	return statusInProgress
}

// outcomeOf is the status that a job whose tasks have finished will end with.
func outcomeOf(j *job.Job) string {
	if j.FailedDeps > 0 {
		return statusFailed
	}
	return statusCompleted
}

// finalCause is the cause by which the finalizer ends a job.
func finalCause(j *job.Job) job.Cause {
	if j.FailedDeps > 0 {
		return job.FailedForGood
	}
	return job.Succeeded
}

// jobEventTypes and resourceEventTypes are the types of events that operators may subscribe to
// (WH-002). A job runs, to its clients, until its handler has finished.
var jobEventTypes = []contract.EventType{
	contract.JobEvent(Name, contract.Submitted).When(job.Submitted),
	contract.JobEvent(Name, contract.Started).From(queued).To(inProgress),
	contract.JobEvent(Name, contract.Retrying).When(job.Retried),
	contract.JobEvent(Name, contract.Completed).To(completed),
	contract.JobEvent(Name, contract.Failed).To(failed),
}

var resourceEventTypes = []contract.EventType{
	{Name: "fetchbox.resource.completed", States: []job.State{done},
		Meaning: "A resource was fetched and stored."},
	{Name: "fetchbox.resource.failed", States: []job.State{dead},
		Meaning: "A resource was given up; it has a dead letter."},
}
