package relay

import (
	"context"

	"go.opentelemetry.io/otel/attribute"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/telemetry"
)

// onTransitions traces transitions, and counts and logs timeouts and failures, which no handler
// sees. The engine calls it after the commit, on the node that has committed, so the sum over all
// nodes counts each once (RL-093). It must not block.
func (r *Relay) onTransitions(transitions []engine.Transitioned) {
	for i := range transitions {
		m := &transitions[i]
		if r.Tracing.Enabled() {
			r.traceTransition(m)
		}
		r.metrics.observeTransition(m)
		if m.Failure() == "" || m.To == queued {
			continue
		}
		why := "its lease ended and no attempt is left; its dead letter has what its worker reported"
		if m.On == job.FailedForGood {
			why = "its attempt failed for good; it is a dead letter: " + m.Failure()
		}
		telemetry.LogFinalFailure(r.Log, m.Job.ID.Key, m.Job.Queue, m.Job.Attempts, why)
	}
}

// traceTransition adds a span to the trace of the request that enqueued the job. Together they show
// how long the job was due and queued, each of its attempts, and its end.
func (r *Relay) traceTransition(m *engine.Transitioned) {
	if m.Job.Trace == "" {
		return
	}
	ctx := telemetry.Resume(context.Background(), m.Job.Trace)
	attrs := []attribute.KeyValue{
		attribute.String(telemetry.Queue, m.Job.Queue),
		attribute.String(telemetry.JobID, m.Job.ID.Key),
		attribute.String("cause", string(m.On)),
	}
	run := append(attrs, attribute.Int(telemetry.Attempt, m.Job.Attempts))
	if m.On == job.Claimed {
		since := m.Since
		if since.Before(m.Job.DueAt) {
			since = m.Job.DueAt
		}
		r.Tracing.Record(ctx, "queue", since, m.At, run...)
	}
	if m.From == running {
		r.Tracing.RecordRun(ctx, m.Failure(), m.Job.StartedAt, m.At, run...)
	}
	if m.To == job.StateNone {
		r.Tracing.Record(ctx, "end", m.At, m.At, attrs...)
	}
}
