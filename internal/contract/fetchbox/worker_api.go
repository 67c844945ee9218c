package fetchbox

import (
	"cmp"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/workerapi"
)

// RemoteWorkers is the contract of the worker API: remote workers execute tasks where no process
// of this node downloads. They see a task under an id of its own, with the message of jobs.tasks as
// its payload (G-FB-35).
func (f *FetchBox) RemoteWorkers() workerapi.Adapter {
	return workerapi.Adapter{
		Name:    Name,
		JobType: Tasks,
		Attempt: func(j *job.Job) int { // G-FB-43
			return attemptNumber(j, job.Claimed, waiting)
		},
		Complete:    successOutcome,
		Fail:        failureOutcome,
		RunsLocally: func(string) bool { return !f.NoLocalWorkers },
		Check:       f.Binding.Check,
	}
}

// successOutcome ends an attempt that stored its resource; result is JSON or nil.
func successOutcome(_ *job.Job, result []byte) engine.Outcome {
	return engine.Outcome{On: job.Succeeded, Result: result}
}

// failureOutcome ends an attempt that a remote worker reports as failed.
func failureOutcome(_ *job.Job, message, errorType string, retryable bool) engine.Outcome {
	e := taskError{code: cmp.Or(errorType, codeWorker), message: message, retryable: retryable}
	return e.outcome()
}

// outcome ends an attempt that failed (FB-083). A retryable error leads to another attempt while
// some are left, a final one to a dead letter.
func (e *taskError) outcome() engine.Outcome {
	cause := job.FailedForGood
	if e.retryable {
		cause = job.Failed
	}
	return engine.Outcome{On: cause, Failure: e.encode(), Reason: e.code, Delay: e.delay}
}
