package forgerun

import (
	"cmp"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/job"
	workerapi "github.com/millrace/millrace/internal/worker/api"
)

// RemoteWorkers is how jobs are run by workers outside the process, which must start a
// run before they end it. Where this node has workers of its own it hands out none.
func (f *ForgeRun) RemoteWorkers() workerapi.Contract {
	return workerapi.Contract{
		Name:    Name,
		Attempt: func(j *job.Job) int { return attempt(j) + 1 },
		Payload: workPayload,
		Complete: func(_ *job.Job, result []byte) engine.Outcome {
			return completeOutcome(result)
		},
		Fail:        failOutcome,
		RunsLocally: func(string) bool { return f.Workers > 0 },
		TimedOut:    f.runTimedOut,
		OnHeartbeat: f.metrics.heartbeats.Inc,
	}
}

// runTimedOut ends a run that takes longer than jobs may, when its worker says something
// the next time (FR-180).
func (f *ForgeRun) runTimedOut(j *job.Job) *engine.Outcome {
	if j.State != running || f.Now().Sub(j.StartedAt) <= f.MaxRunTime {
		return nil
	}
	o := runTimeout.outcome()
	return &o
}

// work is the definition as clients see it: what a run does (FR-075).
func workPayload(j *job.Job) []byte {
	d, err := decodeDefinition(j.Definition)
	if err != nil {
		return nil
	}
	o := strictjson.NewObject(nil)
	d.append(&o)
	return o.End()
}

// completeOutcome is a run that ended well; see outputReceipt.
func completeOutcome(result []byte) engine.Outcome {
	return engine.Outcome{On: job.Succeeded, Result: outputReceipt(result)}
}

// failOutcome is a failure as a worker tells it. None is final by itself: a failed job
// waits for its client, and that it is not worth a retry stands in failure.retryable
// (G-FR-06).
func failOutcome(_ *job.Job, message, errorType string, retryable bool) engine.Outcome {
	f := failure{code: cmp.Or(errorType, "failed"), message: message, retryable: retryable}
	return f.outcome()
}
