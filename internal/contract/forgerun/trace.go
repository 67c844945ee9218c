package forgerun

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/telemetry"
)

// traceTransition adds a span to the trace of the request, a submit or a retry, that has queued the
// job. Together they show how long the job was QUEUED, ASSIGNED and RUNNING, and when its report
// was ready (FR-242, FR-243, FR-245).
func (f *ForgeRun) traceTransition(m *engine.Moved) {
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

// deliverySpan starts the span of a try of a delivery (FR-244).
func (f *ForgeRun) deliverySpan(ctx context.Context, attrs ...attribute.KeyValue) (context.Context,
	trace.Span) {
	return f.Tracing.StartClient(ctx, "deliver", attrs...)
}
