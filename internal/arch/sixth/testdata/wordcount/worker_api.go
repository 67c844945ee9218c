package wordcount

import (
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/workerapi"
)

// RemoteWorkers describes the contract to the worker API. Where the texts are counted in the
// process, remote workers cannot claim them: RunsLocally says so, of every queue. Every failure is
// final: another attempt would count the same words.
func (w *WordCount) RemoteWorkers() workerapi.Adapter {
	return workerapi.Adapter{
		Name:    Name,
		Attempt: func(j *job.Job) int { return max(1, j.Attempts) },
		Complete: func(_ *job.Job, result []byte) engine.Outcome {
			return engine.Outcome{On: job.Succeeded, Result: result}
		},
		Fail: func(*job.Job, string, string, bool) engine.Outcome {
			return engine.Outcome{On: job.FailedForGood}
		},
		RunsLocally: func(string) bool { return !w.NoLocalWorkers },
	}
}
