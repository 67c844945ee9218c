package forgerun

import (
	"cmp"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/workerapi"
)

// RemoteWorkers describes the contract to the worker API. A remote worker must start an attempt
// before it finishes it. A node with workers of its own gives remote ones no jobs.
func (f *ForgeRun) RemoteWorkers() workerapi.Adapter {
	return workerapi.Adapter{
		Name:        Name,
		Attempt:     func(j *job.Job) int { return attempt(j) + 1 },
		Payload:     workPayload,
		Complete:    successOutcome,
		Fail:        failureOutcome,
		RunsLocally: func(string) bool { return !f.NoLocalWorkers },
		TimedOut:    f.runTimedOut,
		OnHeartbeat: f.metrics.heartbeats.Inc,
	}
}

// runTimedOut returns the outcome of an attempt that takes longer than MaxRunTime, or nil. The
// worker API asks for it at each call of the worker (FR-180). A worker that makes no more calls is
// ended by its lease instead. It goes by the clock of this process, so it may be off by as much as
// its clock differs from the store's.
func (f *ForgeRun) runTimedOut(j *job.Job) *engine.Outcome {
	if j.State != running || f.Now().Sub(j.StartedAt) <= f.MaxRunTime {
		return nil
	}
	o := runTimeout.outcome()
	return &o
}

// workPayload returns the definition as clients see it (FR-075). To a worker it is the payload. It
// is nil for a definition that cannot be read.
func workPayload(j *job.Job) []byte {
	d, err := decodeDefinition(j.Definition)
	if err != nil {
		return nil
	}
	o := strictjson.NewObject(nil)
	d.append(&o)
	return o.End()
}

// successOutcome returns the outcome of an attempt that succeeded; see outputReceipt.
func successOutcome(_ *job.Job, result []byte) engine.Outcome {
	return engine.Outcome{On: job.Succeeded, Result: outputReceipt(result)}
}

// failureOutcome returns the outcome of a failure that a worker reports. Whether it is retryable
// does not decide anything: a failed job waits for its client, who reads that in failure.retryable
// (G-FR-06).
func failureOutcome(_ *job.Job, message, errorType string, retryable bool) engine.Outcome {
	f := failure{code: cmp.Or(errorType, codeFailed), message: message, retryable: retryable}
	return f.outcome()
}
