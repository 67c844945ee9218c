package taskflow

import (
	"cmp"
	"context"
	"log/slog"
	"strings"

	"go.opentelemetry.io/otel/attribute"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/telemetry"
)

// onTransitions counts, logs and traces the transitions that this node has committed, and stops
// canceled jobs that run on this node; another node stops one when its next heartbeat is refused.
// The engine calls it after the commit, so it must not block; if the node dies in between, the
// transitions appear in no metric, log or trace.
func (t *TaskFlow) onTransitions(transitions []engine.Transitioned) {
	for i := range transitions {
		t.metrics.observeTransition(&transitions[i])
		j := &transitions[i].Job
		if pool := t.pools[j.Queue]; pool != nil && transitions[i].On == job.Canceled {
			pool.Cancel(j.ID)
		}
	}
	t.logTransitions(transitions)
	if !t.Tracing.Enabled() {
		return
	}
	for i := range transitions {
		t.traceTransition(&transitions[i])
	}
}

// logTransitions logs jobs that failed for good, and at DEBUG each failed attempt before that. Jobs
// blocked by them are only counted: a wide graph would flood the log. A job that was cancelled is
// none that went wrong.
func (t *TaskFlow) logTransitions(transitions []engine.Transitioned) {
	blocked := 0
	for i := range transitions {
		m := &transitions[i]
		switch {
		case m.To == Failed && m.On != job.Canceled:
			telemetry.LogFinalFailure(t.Log, m.Job.ID.Key, m.Job.Queue, attemptCount(&m.Job),
				failureReason(m))
		case m.From == Running && m.To == Ready:
			t.Log.LogAttrs(context.Background(), slog.LevelDebug, "an attempt of a job failed",
				slog.String(telemetry.JobID, m.Job.ID.Key),
				slog.String(telemetry.Queue, m.Job.Queue),
				slog.Int(telemetry.Attempt, attemptCount(&m.Job)),
				slog.String(telemetry.ErrorMessage, failureReason(m)))
		case m.To == Blocked:
			blocked++
		}
	}
	if blocked > 0 {
		t.Log.Info("jobs are blocked by a failed job", "jobs", blocked)
	}
}

// maxLoggedError is how many bytes of an error are logged. Workers choose its text and length.
const maxLoggedError = 500

// failureReason returns why an attempt failed, cut to maxLoggedError.
func failureReason(m *engine.Transitioned) string {
	reason := cmp.Or(m.Reason, failureText(lostMessage, typeLost))
	if len(reason) > maxLoggedError {
		reason = strings.ToValidUTF8(reason[:maxLoggedError], "") + "…"
	}
	return reason
}

// traceTransition adds a span to the trace of the request that created the job. Together they show
// how long the job was PENDING ("wait") and READY ("queue"), each of its attempts, on whatever node
// or worker it ran, and its end.
func (t *TaskFlow) traceTransition(m *engine.Transitioned) {
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
		failure := m.Failure()
		if m.On == job.Canceled {
			failure = failureText(canceledMessage, typeCanceled)
		}
		t.Tracing.RecordRun(ctx, failure, m.Job.StartedAt, m.At,
			append(attrs, attribute.Int(telemetry.Attempt, m.Job.Attempts))...)
	}
	if terminal(m.To) {
		t.Tracing.Record(ctx, "end", m.At, m.At, attrs...)
	}
}
