package fetchbox

import (
	"cmp"
	"log/slog"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/telemetry"
)

// onTransitions counts and logs the tasks that were given up on this node. The engine calls it
// after the commit. A lost worker has reported no reason, so the line has codeWorkerLost. What an
// operator has canceled has not failed, and the log has the request.
func (f *FetchBox) onTransitions(transitions []engine.Transitioned) {
	for i := range transitions {
		f.metrics.observeTransition(&transitions[i])
		j := &transitions[i].Job
		if transitions[i].On == job.Canceled {
			continue
		}
		l := decodeTaskLabel(j)
		attempt := attemptNumber(j, transitions[i].On, transitions[i].From)
		telemetry.LogFinalFailure(f.Log, l.jobID, j.Queue, attempt,
			cmp.Or(transitions[i].Reason, codeWorkerLost), slog.String("resource_id", l.resourceID))
	}
}
