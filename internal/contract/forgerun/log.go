package forgerun

import (
	"cmp"
	"context"
	"log/slog"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/telemetry"
)

// Attributes of the log that are this contract's own (FR-117).
const (
	scenarioAttr = "scenario"
	durationAttr = "scenario_duration_ms"
	expectedAttr = "expected_outcome"
	eventAttr    = "event"
)

// logAttrs are the attributes of every line about a job.
func (f *ForgeRun) logAttrs(j *job.Job) []slog.Attr {
	attrs := []slog.Attr{slog.String(telemetry.JobID, j.ID.Key),
		slog.String(telemetry.ClientID, j.Owner),
		slog.String(scenarioAttr, j.Kind), slog.Int(telemetry.Attempt, attempt(j))}
	if k := kindByName[j.Kind]; k != nil {
		attrs = append(attrs, slog.Int64(durationAttr, k.duration(f.MaxRunTime).Milliseconds()),
			slog.String(expectedAttr, string(k.expected())))
	}
	return attrs
}

// logTransition logs a change of state (FR-219), and a failure with its reason (FR-220,
// FR-241). With LogRequests off only the latter is more than Debug.
func (f *ForgeRun) logTransition(m *engine.Moved) {
	level := slog.LevelDebug
	switch {
	case m.To == failed:
		level = slog.LevelWarn
	case f.LogRequests:
		level = slog.LevelInfo
	}
	ctx := context.Background()
	if !f.Log.Enabled(ctx, level) {
		return
	}
	e := newEvent(m.Job.ID.Key, m.On, m.From, m.To, m.At, m.Reason)
	attrs := append(f.logAttrs(&m.Job), slog.String(telemetry.CurrentState, string(m.From)),
		slog.String(telemetry.NextState, string(m.To)), slog.String(eventAttr, e.name))
	if m.To == failed {
		attrs = append(attrs, slog.String(telemetry.ErrorCode, e.reason),
			slog.String(telemetry.ErrorMessage,
				cmp.Or(failureText[e.reason], e.reason, "the run failed")))
	} else if e.reason != "" {
		attrs = append(attrs, slog.String("reason", e.reason))
	}
	f.Log.LogAttrs(ctx, level, "job", attrs...)
}
