package taskflow

import (
	"cmp"
	"context"
	"log/slog"
	"strings"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/telemetry"
)

// logTransitions logs jobs that failed, and each of their tries that did. What is blocked by
// them is only counted: a wide graph would flood the log.
func (t *TaskFlow) logTransitions(moves []engine.Moved) {
	blocked := 0
	for i := range moves {
		m := &moves[i]
		switch {
		case m.To == Failed:
			telemetry.LogFinalFailure(t.Log, m.Job.ID.Key, m.Job.Queue, attemptCount(&m.Job),
				failureReason(m))
		case m.From == Running && m.To == Ready:
			t.Log.LogAttrs(context.Background(), slog.LevelDebug, "a try of a job failed",
				slog.String(telemetry.JobID, m.Job.ID.Key),
				slog.String(telemetry.Queue, m.Job.Queue),
				slog.Int(telemetry.Attempt, attemptCount(&m.Job)),
				slog.String(telemetry.ErrorMessage, failureReason(m)))
		case m.To == Blocked:
			blocked++
		}
	}
	if blocked > 0 {
		t.Log.Info("jobs are blocked by one that failed", "jobs", blocked)
	}
}

// maxLoggedError is how many bytes of an error the log gets: workers put what they like
// into it.
const maxLoggedError = 500

// failureReason is why a run failed.
func failureReason(m *engine.Moved) string {
	why := cmp.Or(m.Reason, failureText(lostMessage, lostType))
	if len(why) > maxLoggedError {
		why = strings.ToValidUTF8(why[:maxLoggedError], "") + "…"
	}
	return why
}
