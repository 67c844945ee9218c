package fetchbox

import (
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	workerapi "github.com/millrace/millrace/internal/worker/api"
)

// RemoteWorkers is how tasks are run by workers outside the process, where this one downloads
// nothing itself. A task goes by an id of its own there; its payload is the message (G-FB-35).
func (f *FetchBox) RemoteWorkers() workerapi.Contract {
	return workerapi.Contract{Name: Name, EngineName: Tasks,
		Attempt: func(j *job.Job) int { return tryNumber(j, job.Claimed) }, // G-FB-43
		Complete: func(_ *job.Job, result []byte) engine.Outcome {
			return successOutcome(result)
		},
		Fail: func(_ *job.Job, message, errorType string, retryable bool) engine.Outcome {
			if errorType == "" {
				errorType = codeWorker
			}
			return failureOutcome(errorType, message, retryable, 0)
		},
		RunsLocally: func(string) bool { return !f.NoLocalWorkers },
		Check:       f.Shared.Check}
}
