package relay

import (
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/job"
)

// recordedEnds returns the outcomes of attempts whose ends workers have recorded in the database
// (TX-006). Relay has no part in the worker API, as its own routes are for workers. An attempt can
// fail in the database alone: over HTTP it times out. One that fails costs a retry, as a timeout
// does, and leaves a dead letter where none is left or where no retry can help. A result has no
// place in Relay.
func (r *Relay) recordedEnds() *engine.RecordedEnds {
	return &engine.RecordedEnds{
		Complete: func(*job.Job, []byte) engine.Outcome { return succeeded },
		Fail:     failureOutcome,
		Ended: func(j *job.Job, end *job.RunEnd) {
			if end.Succeeded {
				r.metrics.countCompleted(j)
			}
		},
	}
}

// failureOutcome returns the outcome of an attempt that has failed. Its failure is shown to
// operators.
func failureOutcome(_ *job.Job, message, errorType string, retryable bool) engine.Outcome {
	o := engine.Outcome{On: job.FailedForGood, Reason: message}
	if retryable {
		o.On = job.Failed
	}
	failure := strictjson.NewObject(nil)
	failure.Text("error", message)
	failure.Text("error_type", errorType)
	failure.Bool("retryable", retryable)
	o.Failure = failure.End()
	return o
}
