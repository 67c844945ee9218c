package fetchbox

import (
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	workerapi "github.com/millrace/millrace/internal/worker/api"
)

// Outside is how tasks are run by workers outside the process, where this one downloads nothing itself. A task goes by
// an id of its own there; its payload is the message (G-FB-35).
func (f *FetchBox) Outside() workerapi.Contract {
	return workerapi.Contract{Name: Name, Engine: Tasks,
		Attempt: func(j *job.Job) int { return tryOf(j, job.Claimed) }, // G-FB-43
		Complete: func(_ *job.Job, result []byte) engine.Outcome {
			return succeeded(result)
		},
		Fail: func(_ *job.Job, message, errorType string, retryable bool) engine.Outcome {
			if errorType == "" {
				errorType = codeWorker
			}
			return failedWith(errorType, message, retryable, 0)
		},
		Bound: func(string) bool { return !f.Off },
		Check: f.Shared.Check}
}
