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

// Keys of the log lines about attempts (G-IP-22).
const (
	jobTypeAttr  = "job_type"
	durationAttr = "duration_ms"
	retriesAttr  = "retries"
	reasonAttr   = "reason"
	fileAttr     = "file_id"
)

// onTransitions observes every claim and every end of an attempt on this node, also those of
// remote workers. The engine calls it after the commit, so it must not block.
func (m *Images) onTransitions(transitions []engine.Transitioned) {
	for i := range transitions {
		c := &transitions[i]
		m.worker.observeTransition(c)
		m.traceTransition(c)
		if c.On == job.Claimed {
			// A job that was stale has lost its lease: its next claim is the takeover (G-IP-03).
			if c.From == stale {
				m.Log.Warn("lock taken over", telemetry.JobID, c.Job.ID.Key, jobTypeAttr,
					c.Job.Queue, telemetry.Attempt, c.Job.Attempts, telemetry.Worker, c.Job.Worker)
			}
			continue
		}
		m.logAttempt(c)
	}
}

// traceTransition adds spans to the trace of the request that created a job: one for each time it
// was ready, and one for each attempt.
func (m *Images) traceTransition(c *engine.Transitioned) {
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

// logAttempt logs an attempt with its duration and error, the retries of the job and its status
// (IP-058 to IP-061). Only an attempt that fails the job for good is logged above the level debug,
// unless its picture was deleted; its line has the error as the other contracts have it, so its
// reason is the type alone.
func (m *Images) logAttempt(c *engine.Transitioned) {
	reason := c.Reason
	if c.On != job.Succeeded {
		reason = failureReason(c)
	}
	attrs := []slog.Attr{slog.String(jobTypeAttr, c.Job.Queue),
		slog.Int64(durationAttr, c.At.Sub(c.Job.StartedAt).Milliseconds()),
		slog.Int(retriesAttr, c.Job.Attempts-1),
		slog.String(telemetry.CurrentState, statusOf(c.To))}
	wasDeleted := errorType(c) == typeDeleted // at a user's wish, which is no alarm
	if (statusOf(c.To) == string(failed)) && !wasDeleted {
		telemetry.LogFinalFailure(m.Log, c.Job.ID.Key, c.Job.Queue, c.Job.Attempts, reason,
			append(attrs, slog.String(reasonAttr, errorType(c)))...)
		return
	}
	m.Log.LogAttrs(context.Background(), slog.LevelDebug, "attempt",
		append(attrs, slog.String(reasonAttr, reason),
			slog.String(telemetry.JobID, c.Job.ID.Key),
			slog.Int(telemetry.Attempt, c.Job.Attempts))...)
}

// failureReason is why an attempt failed.
func failureReason(c *engine.Transitioned) string {
	return cmp.Or(c.Reason, typeWorkerLost+": "+textWorkerLost)
}

// onPurgeFailed logs failed attempts at a purge. A purge that is given up leaves old copies in the
// CDN, so that is a warning.
func (m *Images) onPurgeFailed(transitions []engine.Transitioned) {
	for i := range transitions {
		c := &transitions[i]
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
