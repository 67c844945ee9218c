package forgerun

import (
	"cmp"
	"context"
	"log/slog"

	"go.opentelemetry.io/otel/attribute"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/telemetry"
)

// Keys of log lines that are this contract's own (FR-117).
const (
	scenarioAttr = "scenario"
	durationAttr = "scenario_duration_ms"
	expectedAttr = "expected_outcome"
	eventAttr    = "event"
)

// onTransitions counts, logs and traces the transitions that this node has committed. A canceled
// job that runs on this node is stopped at once (FR-135). The engine calls it after the commit, and
// it must not block. A job that runs on another node is stopped by that node when its next
// heartbeat is refused.
func (f *ForgeRun) onTransitions(transitions []engine.Transitioned) {
	for i := range transitions {
		m := &transitions[i]
		f.metrics.observeTransition(m)
		f.logTransition(m)
		f.traceTransition(m)
		if m.On == job.Canceled && f.pool != nil {
			f.pool.Cancel(m.Job.ID)
		}
	}
}

// logAttrs returns the attributes of every line about a job.
func (f *ForgeRun) logAttrs(j *job.Job) []slog.Attr {
	attrs := []slog.Attr{
		slog.String(telemetry.JobID, j.ID.Key),
		slog.String(telemetry.ClientID, j.Owner),
		slog.String(scenarioAttr, j.Kind),
		slog.Int(telemetry.Attempt, attempt(j)),
	}
	if k := kindByName[j.Kind]; k != nil {
		attrs = append(attrs,
			slog.Int64(durationAttr, k.duration(f.MaxRunTime).Milliseconds()),
			slog.String(expectedAttr, string(k.expected())))
	}
	return attrs
}

// logTransition logs a transition (FR-219), and a failure with its reason (FR-220, FR-241). The
// line is only made if its level is logged.
func (f *ForgeRun) logTransition(m *engine.Transitioned) {
	e := newEvent(m.Job.ID.Key, m.On, m.From, m.To, m.At, m.Reason)
	level := f.transitionLevel(&e)
	ctx := context.Background()
	if !f.Log.Enabled(ctx, level) {
		return
	}
	attrs := append(f.logAttrs(&m.Job),
		slog.String(telemetry.CurrentState, string(m.From)), // FR-219: also where it is empty
		slog.String(telemetry.NextState, string(m.To)),
		slog.String(eventAttr, e.name))
	switch {
	case m.To == failed:
		message := cmp.Or(failureText[e.reason], e.reason, "the run failed")
		attrs = append(attrs,
			slog.String(telemetry.ErrorCode, cmp.Or(e.reason, codeFailed)),
			slog.String(telemetry.ErrorMessage, message))
	case e.reason != "":
		attrs = append(attrs, slog.String("reason", e.reason))
	}
	f.Log.LogAttrs(ctx, level, "job", attrs...)
}

// serverFailures are the codes of failures whose cause is the server or a worker and not the job.
var serverFailures = map[string]bool{
	codeRunnerLost:         true,
	missingDefinition.code: true,
	invalidOutput.code:     true,
	runnerPanicked.code:    true,
}

// transitionLevel returns the level of a transition's line. Operators should see, at WARN, a job
// that failed with no retries left, and any failure of the server or a worker. A failed attempt
// that a client may retry is routine, at INFO. Other transitions are at INFO with LogRequests, else
// at DEBUG.
func (f *ForgeRun) transitionLevel(e *event) slog.Level {
	switch {
	case e.next == failed && (e.final || serverFailures[e.reason]):
		return slog.LevelWarn
	case e.next == failed, f.LogRequests:
		return slog.LevelInfo
	}
	return slog.LevelDebug
}

// traceTransition adds a span to the trace of the request, a submit or a retry, that has queued the
// job. Together they show how long the job was QUEUED, ASSIGNED and RUNNING, and when its report
// was ready (FR-242, FR-243, FR-245).
func (f *ForgeRun) traceTransition(m *engine.Transitioned) {
	if !f.Tracing.Enabled() || m.Job.Trace == "" {
		return
	}
	ctx := telemetry.Resume(context.Background(), m.Job.Trace)
	attrs := []attribute.KeyValue{
		attribute.String(telemetry.JobID, m.Job.ID.Key),
		attribute.String(telemetry.ClientID, m.Job.Owner),
		attribute.String(scenarioAttr, m.Job.Kind),
		attribute.String(telemetry.NextState, string(m.To)),
	}
	switch {
	case m.From == running:
		ctx = f.Tracing.RecordRun(ctx, m.Failure(), m.Job.StartedAt, m.At, attrs...)
	case m.To == queued:
		f.Tracing.Record(ctx, "enqueue", m.At, m.At, attrs...)
	case m.To == assigned:
		f.Tracing.Record(ctx, "assign", m.Since, m.At, attrs...)
	case m.To == running:
		f.Tracing.Record(ctx, "start", m.Since, m.At, attrs...)
	}
	if final(m.To) {
		f.Tracing.Record(ctx, "report", m.At, m.At, attrs...)
	}
}
