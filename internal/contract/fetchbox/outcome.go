package fetchbox

import (
	"cmp"
	"log/slog"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/telemetry"
)

// successOutcome ends an attempt that stored its resource; result is JSON or nil.
func successOutcome(result []byte) engine.Outcome {
	return engine.Outcome{On: job.Succeeded, Result: result}
}

// failureOutcome ends an attempt that failed (FB-083). A retryable error leads to another attempt
// while some are left, a final one to a dead letter.
func failureOutcome(e *taskError) engine.Outcome {
	cause := job.FailedForGood
	if e.retryable {
		cause = job.Failed
	}
	return engine.Outcome{On: cause, Failure: e.encode(), Reason: e.code, Delay: e.delay}
}

// onDeadTasks counts and logs the tasks that were given up on this node.
func (f *FetchBox) onDeadTasks(moves []engine.Moved) {
	f.metrics.deadLetters.Add(float64(len(moves)))
	for i := range moves {
		j := &moves[i].Job
		l := decodeTaskLabel(j)
		telemetry.LogFinalFailure(f.Log, l.jobID, j.Queue, attemptNumber(j, moves[i].On),
			cmp.Or(moves[i].Reason, codeWorkerLost), slog.String("resource_id", l.resourceID))
	}
}
