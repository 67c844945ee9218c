package taskflow

import (
	"context"

	"go.opentelemetry.io/otel/attribute"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/telemetry"
)

// traceTransition adds a span to the trace of the request that created the job. Together they show
// how long the job was PENDING ("wait") and READY ("queue"), each of its attempts, on whatever node
// or worker it ran, and its end.
func (t *TaskFlow) traceTransition(m *engine.Moved) {
	if m.Job.Trace == "" {
		return
	}
	ctx := telemetry.Resume(context.Background(), m.Job.Trace)
	attrs := []attribute.KeyValue{
		attribute.String(telemetry.JobID, m.Job.ID.Key),
		attribute.String(telemetry.NextState, string(m.To)),
	}
	switch m.From {
	case Pending:
		t.Tracing.Record(ctx, "wait", m.Job.CreatedAt, m.At, attrs...)
	case Ready:
		t.Tracing.Record(ctx, "queue", m.Since, m.At, attrs...)
	case Running:
		t.Tracing.RecordRun(ctx, m.Failure(), m.Job.StartedAt, m.At,
			append(attrs, attribute.Int(telemetry.Attempt, m.Job.Attempts))...)
	}
	if terminal(m.To) {
		t.Tracing.Record(ctx, "end", m.At, m.At, attrs...)
	}
}
