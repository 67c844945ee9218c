package taskflow

import (
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/uuids"
	"github.com/millrace/millrace/internal/workerapi"
)

// RemoteWorkers describes the contract to the worker API. Remote workers claim the jobs of queues
// without a handler.
func (t *TaskFlow) RemoteWorkers() workerapi.Adapter {
	return workerapi.Adapter{
		Name:     Name,
		Attempt:  attempt,
		State:    func(s job.State) string { return string(s) },
		Complete: successOutcome,
		Fail:     failureOutcome,
		ID: func(jobID string) (job.ID, bool) {
			key, ok := uuids.Parse(jobID)
			return engineJobID(key), ok
		},
		RunsLocally: func(queue string) bool {
			q := t.Queues[queue]
			return q != nil && q.hasHandler()
		},
	}
}

// attempt returns the number of a job's current attempt, from 1.
func attempt(j *job.Job) int { return j.FailedAttempts + 1 }

// successOutcome returns the outcome of an attempt that succeeded; result is JSON or nil. The
// worker API calls it and failureOutcome in the transaction, perhaps more than once; they have no
// side effects.
func successOutcome(_ *job.Job, result []byte) engine.Outcome {
	return engine.Outcome{On: job.Succeeded, Result: result}
}

// failureOutcome returns the outcome of an attempt that failed. A retryable failure is retried by
// the job's policy; any other one fails the job (G-TF-30).
func failureOutcome(_ *job.Job, message, errorType string, retryable bool) engine.Outcome {
	on := job.FailedForGood
	if retryable {
		on = job.Failed
	}
	return engine.Outcome{On: on, Failure: encodeFailure(message, errorType, retryable),
		Reason: failureText(message, errorType)}
}

// encodeFailure returns a failure as clients see it in last_error.
func encodeFailure(message, errorType string, retryable bool) []byte {
	o := strictjson.NewObject(nil)
	o.Text("error", message)
	o.Text("error_type", errorType)
	o.Bool("retryable", retryable)
	return o.End()
}

// failureText is a failure as the history and the log show it.
func failureText(message, errorType string) string {
	if errorType == "" {
		return message
	}
	return errorType + ": " + message
}

// Types of failures that no worker has reported, besides those of package external.
const (
	typeLost      = "lost"      // the lease passed without a heartbeat or an outcome
	typeCanceled  = "canceled"  // by a request to cancel the attempt
	typePanic     = "panic"     // a handler in Go panicked
	typeHandler   = "handler"   // the handler of the queue cannot be called
	typeSimulated = "simulated" // the payload asks the simulator to fail
	typePayload   = "payload"   // the simulator cannot read the payload
)

const (
	lostMessage     = "the lease expired before the worker sent a heartbeat or an outcome"
	canceledMessage = "the attempt was canceled"
)

// lostRunFailure is the failure of an attempt whose lease expired.
var lostRunFailure = encodeFailure(lostMessage, typeLost, true)
