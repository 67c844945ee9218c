package forgerun

import (
	"context"
	"errors"
	"time"

	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/webhook"
)

// Deliver tells the webhooks and callbacks of what has happened to jobs (FR-189,
// FR-190), and retries those that are to be retried without being asked. It may be
// given the same messages again.
func (f *ForgeRun) Deliver(ctx context.Context, messages []job.Message) error {
	jobs, err := f.jobsByNumber(ctx, messages)
	if err != nil {
		return err
	}
	var all []webhook.Notification
	for i := range messages {
		if j := jobs[messages[i].Job]; j != nil { // else it is gone, and who would be told with it
			all = append(all, f.notification(j, &messages[i]))
		}
	}
	if err := f.webhooks.Notify(ctx, all); err != nil {
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

// jobsByNumber reads the jobs of messages, by their number.
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
	jobList, err := f.engine.GetWithoutBodies(ctx, seqs)
	for _, j := range jobList {
		jobs[j.Seq] = j
	}
	return jobs, err
}

// notification is what the receivers of an event get (FR-196).
func (f *ForgeRun) notification(j *job.Job, m *job.Message) webhook.Notification {
	e := newEvent(j.ID.Key, m.Cause, m.Prev, m.Next, m.At, m.Reason)
	o := strictjson.NewObject(make([]byte, 0, 384))
	e.append(&o, j.ID.Key, j.Kind, "occurred_at")
	d, _ := decodeDefinition(j.Definition) // without one there is no callback either
	return webhook.Notification{Owner: j.Owner, Chain: j.ID.Key,
		Event: webhook.EventRef{ID: e.id, Name: e.name}, OccurredAt: m.At,
		Body: o.End(), Callback: d.callback, Trace: j.Trace,
		EarlierEvents: func(ctx context.Context) ([]webhook.EventRef, error) {
			return f.earlierEvents(ctx, j.ID, m.At)
		}}
}

// earlierEvents are the events of a job before a time.
func (f *ForgeRun) earlierEvents(ctx context.Context, id job.ID,
	before time.Time) ([]webhook.EventRef, error) {
	history, err := f.engine.History(ctx, id)
	if job.IsKind(err, job.NotFound) {
		return nil, nil
	}
	var refs []webhook.EventRef
	for _, e := range eventsOf(id.Key, history) {
		if e.at.Before(before) {
			refs = append(refs, webhook.EventRef{ID: e.id, Name: e.name})
		}
	}
	return refs, err
}

// shouldAutoRetry reports whether a failure is one that the server retries
// (G-FR-06).
func (f *ForgeRun) shouldAutoRetry(j *job.Job, m *job.Message) bool {
	k := kindByName[j.Kind]
	return f.AutoRetry && m.Next == failed && k != nil && k.retryable
}

// autoRetry retries a job unless something has happened to it since.
func (f *ForgeRun) autoRetry(ctx context.Context, m *job.Message) error {
	_, err := f.engine.Change(ctx, m.JobID, job.Retried, func(j *job.Job, now time.Time) error {
		if j.State != failed || !j.FinishedAt.Equal(m.At) {
			return errUnchanged
		}
		return f.prepareRetry(j, now)
	})
	var p *problem
	if errors.Is(err, errUnchanged) || errors.As(err, &p) || job.IsKind(err, job.NotFound) {
		return nil // done before, its retries used up, or gone
	}
	return err
}
