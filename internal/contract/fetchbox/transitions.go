package fetchbox

import (
	"cmp"
	"log/slog"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/telemetry"
)

// onDeadTasks counts and logs the tasks that were given up on this node. The engine calls it after
// the commit. A lost worker has reported no reason, so the line has codeWorkerLost. What an
// operator has canceled has not failed, and the log has the request.
func (f *FetchBox) onDeadTasks(moves []engine.Moved) {
	f.metrics.deadLetters.Add(float64(len(moves)))
	for i := range moves {
		j := &moves[i].Job
		if moves[i].On == job.Canceled {
			continue
		}
		l := decodeTaskLabel(j)
		attempt := attemptNumber(j, moves[i].On, moves[i].From)
		telemetry.LogFinalFailure(f.Log, l.jobID, j.Queue, attempt,
			cmp.Or(moves[i].Reason, codeWorkerLost), slog.String("resource_id", l.resourceID))
	}
}
