package fetchbox

import (
	"cmp"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	workerapi "github.com/millrace/millrace/internal/worker/api"
)

// RemoteWorkers is the contract of the worker API: remote workers execute tasks where no process
// of this node downloads. They see a task under an id of its own, with the message of jobs.tasks as
// its payload (G-FB-35).
func (f *FetchBox) RemoteWorkers() workerapi.Contract {
	return workerapi.Contract{
		Name:       Name,
		EngineName: Tasks,
		Attempt:    func(j *job.Job) int { return attemptNumber(j, job.Claimed) }, // G-FB-43
		Complete: func(_ *job.Job, result []byte) engine.Outcome {
			return successOutcome(result)
		},
		Fail: func(_ *job.Job, message, errorType string, retryable bool) engine.Outcome {
			return failureOutcome(&taskError{code: cmp.Or(errorType, codeWorker),
				message: message, retryable: retryable})
		},
		RunsLocally: func(string) bool { return !f.NoLocalWorkers },
		Check:       f.Shared.Check,
	}
}
