package images

import (
	"cmp"
	"context"
	"log/slog"

	"go.opentelemetry.io/otel/attribute"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/telemetry"
)

// Keys of the lines about attempts (G-IP-22).
const (
	jobTypeAttr  = "job_type"
	durationAttr = "duration_ms"
	retriesAttr  = "retries"
	reasonAttr   = "reason"
	fileAttr     = "file_id"
)

// onTransitions is told of every claim and of every end of an attempt on this node, whoever made
// it.
func (m *Images) onTransitions(moves []engine.Moved) {
	for i := range moves {
		c := &moves[i]
		m.traceTransition(c)
		if c.On == job.Claimed {
			m.worker.claimed(c)
			if c.From == stale {
				m.Log.Warn("lock taken over", telemetry.JobID, c.Job.ID.Key, jobTypeAttr,
					c.Job.Queue, telemetry.Attempt, c.Job.Attempts, telemetry.Worker, c.Job.Worker)
			}
			continue
		}
		m.worker.attempted(c)
		m.logAttempt(c)
	}
}

// traceTransition adds to the trace of the request that a job comes from how long it could be
// claimed, and each of its attempts, wherever that was.
func (m *Images) traceTransition(c *engine.Moved) {
	if c.Job.Trace == "" || !m.Tracing.Enabled() {
		return
	}
	ctx := telemetry.Resume(context.Background(), c.Job.Trace)
	attrs := []attribute.KeyValue{attribute.String(telemetry.JobID, c.Job.ID.Key),
		attribute.String(telemetry.NextState, statusOf(c.To))}
	if c.On == job.Claimed {
		m.Tracing.Record(ctx, "queue", c.Since, c.At, attrs...)
		return
	}
	m.Tracing.RecordRun(ctx, c.Failure(), c.Job.StartedAt, c.At, attrs...)
}

// logAttempt tells how an attempt went: how long it took, why it failed, how often the job was
// retried, what its state is (IP-058 to IP-061). Of those of a job only one that fails it for good
// is more than routine.
func (m *Images) logAttempt(c *engine.Moved) {
	reason := c.Reason
	if c.On != job.Succeeded {
		reason = failureReason(c)
	}
	attrs := []slog.Attr{slog.String(jobTypeAttr, c.Job.Queue),
		slog.Int64(durationAttr, c.At.Sub(c.Job.StartedAt).Milliseconds()),
		slog.Int(retriesAttr, c.Job.Attempts-1), slog.String(reasonAttr, reason),
		slog.String(telemetry.CurrentState, statusOf(c.To))}
	if statusOf(c.To) == string(failed) {
		telemetry.LogFinalFailure(m.Log, c.Job.ID.Key, c.Job.Queue, c.Job.Attempts, reason,
			attrs...)
		return
	}
	m.Log.LogAttrs(context.Background(), slog.LevelDebug, "attempt",
		append(attrs, slog.String(telemetry.JobID, c.Job.ID.Key),
			slog.Int(telemetry.Attempt, c.Job.Attempts))...)
}

// failureReason is why an attempt failed.
func failureReason(c *engine.Moved) string {
	return cmp.Or(c.Reason, typeWorkerLost+": "+textWorkerLost)
}

// onPurgeFailed is told of every attempt at a purge that failed; one that was given up leaves old
// copies in the CDN.
func (m *Images) onPurgeFailed(moves []engine.Moved) {
	for i := range moves {
		c := &moves[i]
		level := slog.LevelDebug
		if c.To == purgeFailed {
			level = slog.LevelWarn
		}
		m.Log.LogAttrs(context.Background(), level, "purge",
			slog.String(telemetry.JobID, c.Job.ID.Key), slog.String(fileAttr, c.Job.Owner),
			slog.Int(telemetry.Attempt, c.Job.Attempts), slog.String(reasonAttr, failureReason(c)),
			slog.String(telemetry.CurrentState, string(c.To)))
	}
}
