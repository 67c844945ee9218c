package fetchbox

import "github.com/millrace/millrace/internal/job"

// Name is the contract's name in settings, in metrics and for workers outside. In the store it is
// that of the jobs, the ledger; Tasks is that of their tasks.
const (
	Name  = "fetchbox"
	Tasks = "fetchbox.task"
)

// The states of a job. What is shown of them are four words, see statusOf.
const (
	queued              job.State = "queued"      // no task has been taken up
	inProgress          job.State = "in_progress" // tasks are open
	awaitingFinalizer   job.State = "ended"       // all are settled; the handler is to be told
	awaitingDeadLetters job.State = "listing"     // its dead letters are waited for before
	finalizing          job.State = "finalizing"  // it is being told
	completed           job.State = "completed"   // all tasks succeeded
	failed              job.State = "failed"      // not all did
	// A job whose tasks were opened again when the handler had been told. It is not told again
	// (G-FB-37).
	replaying job.State = "replaying"
	replayed  job.State = "replayed"
	closing   job.State = "closing"
)

// jobMachine is the life of a job. Only the end of the last task and the finalizer move it;
// Replaced clears an idempotency key whose window is over and changes no state.
var jobMachine = job.MustMachine(
	map[job.State]job.Phase{queued: job.Waiting, inProgress: job.Waiting,
		awaitingFinalizer: job.Ready, awaitingDeadLetters: job.Leased, finalizing: job.Leased,
		completed: job.Done, failed: job.Done, replaying: job.Waiting, replayed: job.Ready,
		closing: job.Leased},
	append(replacedAnywhere(queued, inProgress, awaitingFinalizer, awaitingDeadLetters, finalizing,
		completed, failed, replaying, replayed, closing), []job.Move{
		{From: job.StateNone, On: job.Submitted, To: queued},

		{From: queued, On: job.Started, To: inProgress},
		{From: queued, On: job.Satisfied, To: awaitingFinalizer},
		{From: inProgress, On: job.Satisfied, To: awaitingFinalizer},

		{From: awaitingFinalizer, On: job.Claimed, To: awaitingDeadLetters},
		{From: awaitingFinalizer, On: job.Retried, To: inProgress},
		{From: awaitingDeadLetters, On: job.Started, To: finalizing},
		{From: awaitingDeadLetters, On: job.Expired, To: awaitingFinalizer},
		{From: awaitingDeadLetters, On: job.Released, To: awaitingFinalizer},
		{From: awaitingDeadLetters, On: job.Retried, To: inProgress}, // nobody was told yet
		{From: finalizing, On: job.Succeeded, To: completed},
		{From: finalizing, On: job.FailedForGood, To: failed},
		// who told it died: it is told again
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
	}...))

func replacedAnywhere(states ...job.State) (moves []job.Move) {
	for _, s := range states {
		moves = append(moves, job.Move{From: s, On: job.Replaced, To: s})
	}
	return moves
}

// The states of a task.
const (
	waiting     job.State = "queued"
	downloading job.State = "downloading"
	done        job.State = "done"
	dead        job.State = "dead" // it has a dead letter, and may be replayed
)

// taskMachine is the life of a task: one resource of a job.
var taskMachine = job.MustMachine(
	map[job.State]job.Phase{waiting: job.Ready, downloading: job.Leased, done: job.Done,
		dead: job.Done},
	[]job.Move{
		{From: job.StateNone, On: job.Submitted, To: waiting},

		{From: waiting, On: job.Claimed, To: downloading},

		{From: downloading, On: job.Succeeded, To: done},
		{From: downloading, On: job.Failed, To: waiting, CountsFailed: true},
		{From: downloading, On: job.FailedForGood, To: dead},
		{From: downloading, On: job.Expired, To: waiting, CountsLost: true}, // FB-087, G-FB-43
		{From: downloading, On: job.ExpiredForGood, To: dead},
		{From: downloading, On: job.Released, To: waiting},

		{From: dead, On: job.Retried, To: waiting},
	})

// The statuses of a job (FB-054).
const (
	statusQueued     = "queued"
	statusInProgress = "in_progress"
	statusCompleted  = "completed"
	statusFailed     = "failed"
)

// statuses says which states have a status. A job whose tasks are settled is completed where none
// failed; else it is in progress until it has ended, which is after its dead letters were published
// (G-FB-03).
var statuses = map[string][]job.State{
	statusQueued: {queued},
	statusInProgress: {inProgress, replaying, awaitingFinalizer, awaitingDeadLetters, finalizing,
		replayed, closing},
	statusCompleted: {completed, awaitingFinalizer, awaitingDeadLetters, finalizing, replayed,
		closing},
	statusFailed: {failed},
}

// statusOf is what is shown of where a job stands (FB-055).
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

// outcomeOf is the status of a job whose tasks are settled once it has ended.
func outcomeOf(j *job.Job) string {
	if j.FailedDeps > 0 {
		return statusFailed
	}
	return statusCompleted
}

// finalCause is the outcome under which the finalizer lets a job end.
func finalCause(j *job.Job) job.Cause {
	if j.FailedDeps > 0 {
		return job.FailedForGood
	}
	return job.Succeeded
}
