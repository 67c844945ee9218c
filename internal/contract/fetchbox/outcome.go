package fetchbox

import (
	"cmp"
	"log/slog"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/telemetry"
)

// Codes of failures that are not the fetcher's (G-FB-24).
const (
	codeWorkerLost  = "SYSTEM_WORKER_LOST"      // the run of a task was silent for its lease
	codeMalformed   = "SYSTEM_MALFORMED_TASK"   // a direct producer's message is no task
	codeUnknownType = "SYSTEM_UNKNOWN_JOB_TYPE" // or one of a job type that is not registered
	// a worker outside failed and did not say by which code
	codeWorker = "SYSTEM_WORKER_ERROR"
)

// failure is why something went wrong, as it is kept with a task, becomes the last error of its job
// and is told in the dead letter.
type failure struct{ code, message string }

func (f failure) encode() []byte {
	o := strictjson.NewObject(make([]byte, 0, 64+len(f.message)))
	f.append(&o)
	return o.End()
}

func (f failure) append(o *strictjson.Object) {
	o.Text("code", f.code)
	o.Text("message", f.message)
}

// readFailure reads what encode wrote; ok is false where there is none.
func readFailure(raw []byte) (f failure, ok bool) {
	for name, value := range strictjson.Members(raw) {
		switch string(name) {
		case "code":
			f.code, _ = strictjson.String(value)
		case "message":
			f.message, _ = strictjson.String(value)
		}
	}
	return f, f.code != ""
}

// successOutcome is the outcome of a run that stored its resource; result is JSON or nil.
func successOutcome(result []byte) engine.Outcome {
	return engine.Outcome{On: job.Succeeded, Result: result}
}

// failureOutcome is the outcome of a run that failed: tried again after delay where that may help
// and tries are left, 0 leaves the delay to the backoff (FB-083).
func failureOutcome(code, message string, retry bool, delay time.Duration) engine.Outcome {
	on := job.FailedForGood
	if retry {
		on = job.Failed
	}
	return engine.Outcome{On: on, Failure: failure{code, message}.encode(), Reason: code,
		Delay: delay}
}

// workerLost is the failure of a run that was silent for its lease.
var workerLost = failure{codeWorkerLost, "the worker that had the task was lost"}

// buried is told of the tasks that died on this node.
func (f *FetchBox) onDeadTasks(moves []engine.Moved) {
	f.metrics.deadLetters.Add(float64(len(moves)))
	for i := range moves {
		j := &moves[i].Job
		l := decodeTaskLabel(j)
		telemetry.LogFinalFailure(f.Log, l.jobID, j.Queue, tryNumber(j, moves[i].On),
			cmp.Or(moves[i].Reason, codeWorkerLost), slog.String("resource_id", l.resourceID))
	}
}
