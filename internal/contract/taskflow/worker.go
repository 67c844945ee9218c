package taskflow

import (
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/job"
)

// What whoever runs jobs of this contract needs to know of it, in the process or
// through the worker API.

// Attempt is the number of the run a job is in, from 1.
func Attempt(j *job.Job) int { return j.FailedAttempts + 1 }

// StatusOf is how the contract calls a state.
func StatusOf(s job.State) string { return string(s) }

// CompletedWith is the outcome of a run that ended well; result is JSON or nil.
func CompletedWith(_ *job.Job, result []byte) engine.Outcome {
	return engine.Outcome{On: job.Succeeded, Result: result}
}

// FailedWith is the outcome of a run that failed: tried again as the policy says,
// or never where that is of no use (G-TF-30).
func FailedWith(_ *job.Job, message, errorType string, retryable bool) engine.Outcome {
	on := job.FailedForGood
	if retryable {
		on = job.Failed
	}
	return engine.Outcome{On: on, Failure: encodeFailure(message, errorType, retryable),
		Reason: failureText(message, errorType)}
}

func encodeFailure(message, errorType string, retryable bool) []byte {
	o := strictjson.NewObject(nil)
	o.Text("error", message)
	o.Text("error_type", errorType)
	o.Bool("retryable", retryable)
	return o.End()
}

// failureText is a failure as the history and the log have it.
func failureText(message, errorType string) string {
	if errorType == "" {
		return message
	}
	return errorType + ": " + message
}

const (
	lostType    = "lost"
	lostMessage = "the run was neither prolonged nor ended by its worker before its lease was over"
)

// lostRunFailure is the failure of a run whose worker fell silent.
var lostRunFailure = encodeFailure(lostMessage, lostType, true)
