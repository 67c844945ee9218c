package forgerun

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/telemetry"
	"github.com/millrace/millrace/internal/webhook"
)

// Every transition of a job writes a message to the outbox, in its transaction. The leader among
// the nodes passes the messages to Deliver, oldest first:
//
//	transition ─► outbox ─► Deliver ─┬─► webhook.Deliver  a delivery for each URL (FR-189, FR-190)
//	                                 └─► autoRetry        FAILED → QUEUED, AutoRetry (G-FR-06)
//
// So a receiver that is slow or dead delays no job (FR-193), and a crash loses no event (FR-195).
// After an error or a crash the same messages come again. That does no harm: webhook.Deliver
// recognises an event by its id, and autoRetry a failure by its time.

// Deliver receives the messages of the engine's outbox, some of them more than once. It makes
// deliveries to webhooks and callbacks of them (FR-189, FR-190) and, with AutoRetry, retries failed
// jobs. The deliveries of all messages are stored before a job is retried.
func (f *ForgeRun) Deliver(ctx context.Context, messages []job.Message) error {
	jobs, err := f.jobsByNumber(ctx, messages)
	if err != nil {
		return err
	}
	var all []webhook.Event
	for i := range messages {
		if j := jobs[messages[i].Job]; j != nil { // nil: the job was pruned
			all = append(all, f.webhookEvent(j, &messages[i]))
		}
	}
	if err := f.webhooks.Deliver(ctx, all); err != nil {
		return err
	}
	for i := range messages {
		if j := jobs[messages[i].Job]; j != nil && f.shouldAutoRetry(j, &messages[i]) {
			if err := f.autoRetry(ctx, &messages[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// jobsByNumber loads the jobs of messages. They have their definition and no other body. A job that
// was pruned since has a nil entry.
func (f *ForgeRun) jobsByNumber(ctx context.Context, messages []job.Message) (map[int64]*job.Job,
	error) {
	jobs := map[int64]*job.Job{}
	var seqs []int64
	for i := range messages {
		if _, found := jobs[messages[i].Job]; !found {
			jobs[messages[i].Job] = nil
			seqs = append(seqs, messages[i].Job)
		}
	}
	loaded, err := f.Engine.GetBySeqs(ctx, seqs, store.DefinitionOnly)
	if err != nil {
		return nil, err
	}
	for _, j := range loaded {
		jobs[j.Seq] = j
	}
	return jobs, nil
}

// webhookEvent returns an event with the body that its receivers get (FR-196). It has the id of
// the event in the report (FR-149).
func (f *ForgeRun) webhookEvent(j *job.Job, m *job.Message) webhook.Event {
	e := newEvent(j.ID.Key, m.Cause, m.Prev, m.Next, m.At, m.Reason)
	o := strictjson.NewObject(make([]byte, 0, 384))
	e.append(&o, j.ID.Key, j.Kind, "occurred_at")
	d, _ := decodeDefinition(j.Definition) // a definition that cannot be read has no callback
	return webhook.Event{
		Owner:      j.Owner,
		Chain:      j.ID.Key,
		Ref:        webhook.EventRef{ID: e.id, Name: e.name},
		OccurredAt: m.At,
		Body:       o.End(),
		Callback:   d.callback,
		Trace:      j.Trace,
		EarlierEvents: func(ctx context.Context) ([]webhook.EventRef, error) {
			return f.earlierEvents(ctx, j.ID, m.At)
		},
	}
}

// earlierEvents returns the events of a job before a time. Deliveries use them to keep the events
// of a job in order. A job that was pruned has none.
func (f *ForgeRun) earlierEvents(ctx context.Context, id job.ID,
	before time.Time) ([]webhook.EventRef, error) {
	history, err := f.Engine.History(ctx, id)
	if job.IsKind(err, job.NotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var refs []webhook.EventRef
	for _, e := range eventsOf(id.Key, history) {
		if e.at.Before(before) {
			refs = append(refs, webhook.EventRef{ID: e.id, Name: e.name})
		}
	}
	return refs, nil
}

// shouldAutoRetry reports whether the server retries a failure by itself (G-FR-06). A run whose
// recorded end was refused is not repeated: its worker has committed what it wrote.
func (f *ForgeRun) shouldAutoRetry(j *job.Job, m *job.Message) bool {
	k := kindByName[j.Kind]
	hasCommitted := m.Reason == engine.RefusedType
	return f.AutoRetry && m.Next == failed && !hasCommitted && k != nil && k.retryable
}

// autoRetry retries a job unless it has changed since the message. The time of the failure
// identifies it: a job that was retried since, and has failed once more, has a later one and a
// message of its own.
func (f *ForgeRun) autoRetry(ctx context.Context, m *job.Message) error {
	_, err := f.Engine.Change(ctx, m.JobID, job.Retried, func(j *job.Job, now time.Time) error {
		if j.State != failed || !j.FinishedAt.Equal(m.At) {
			return errUnchanged
		}
		return f.prepareRetry(j, now)
	})
	if errors.Is(err, errUnchanged) || job.IsKind(err, job.Conflict) ||
		job.IsKind(err, job.NotFound) {
		return nil // retried before, no retries left, or pruned
	}
	return err
}

// deliverySpan returns what starts the span of an attempt at a delivery (FR-244).
func deliverySpan(t *telemetry.Tracing) func(context.Context, ...attribute.KeyValue) (
	context.Context, trace.Span) {
	return func(ctx context.Context, attrs ...attribute.KeyValue) (context.Context, trace.Span) {
		return t.StartClient(ctx, "deliver", attrs...)
	}
}
