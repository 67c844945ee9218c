package engine

import (
	"slices"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
)

// flush writes what the unit gathered, after what follows from it for relatives.
func (u *unit) flush() error {
	if err := u.completeJobs(); err != nil {
		return err
	}
	if err := u.updateDeadLetters(); err != nil {
		return err
	}
	u.addEvents()
	u.addCounts()
	u.addStarts()
	err := u.apply()
	u.flushedAt = u.e.guard.monotonic()
	return err
}

// flushJobs writes the jobs changed so far and what depends on them, so that a later query of
// the same transaction finds it. Events and counts wait for flush.
func (u *unit) flushJobs() error {
	if err := u.completeJobs(); err != nil {
		return err
	}
	if err := u.apply(); err != nil {
		return err
	}
	clear(u.claims.leased)
	clear(u.claims.exhausted)
	return nil
}

// completeJobs adds what follows from the jobs whose state has changed.
func (u *unit) completeJobs() error {
	for _, step := range []func() error{u.applyParentUpdates, u.propagateFinished,
		u.addDeadLetters, u.composeMessages} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// apply writes the changes gathered so far and forgets them.
func (u *unit) apply() error {
	w := &u.writes
	for _, j := range w.Delete {
		if c := u.e.jobTypes[j.ID.JobType]; c.History || c.Graph {
			w.DeleteEvents = append(w.DeleteEvents, j.Seq)
			w.DeleteEdges = append(w.DeleteEdges, j.Seq)
		}
	}
	w.Update = slices.DeleteFunc(w.Update, func(c store.JobUpdate) bool {
		return c.Job.State == job.StateNone // it is in Delete
	})
	changes := w.Changes
	u.hasWritten = u.hasWritten || len(changes.Update)+len(changes.Delete) > 0
	w.Changes, w.jobs = store.Changes{}, nil
	return u.tx.Apply(changes)
}

// composeMessages makes the bodies of messages before the bodies of their jobs change again.
func (u *unit) composeMessages() error {
	w := &u.writes
	var jobs []*job.Job
	for i := range w.events[w.composed:] {
		switch p := &w.events[w.composed+i]; {
		case p.snapshot == nil:
		case p.hasBodies:
			u.copyBodies(p.snapshot, p.snapshot)
		default:
			jobs = append(jobs, p.snapshot)
		}
	}
	if err := u.fillBodies(jobs); err != nil {
		return err
	}
	for ; w.composed < len(w.events); w.composed++ {
		p := &w.events[w.composed]
		if p.snapshot == nil {
			continue
		}
		c := u.e.jobTypes[p.job.ID.JobType]
		if p.isStored && c.hasMessageBody() {
			if p.transitionIndex > 0 {
				u.after.transitioned[c.Name][p.transitionIndex-1].Job.Definition = p.snapshot.Definition
			}
			p.body = c.MessageBody(p.snapshot, p.event)
		}
		if p.isWanted {
			p.feedBody = u.subscriptions.Message(p.snapshot, p.event)
		}
		p.snapshot = nil
	}
	return nil
}

// fillBodies fills in the bodies of jobs that were loaded without them, also those that this
// transaction has set. They may be copies, and the same job may be there more than once.
func (u *unit) fillBodies(jobs []*job.Job) error {
	if len(jobs) == 0 {
		return nil
	}
	stored := map[int64]*job.Job{}
	seqs := make([]int64, 0, len(jobs))
	for _, j := range jobs {
		if _, listed := stored[j.Seq]; !listed {
			stored[j.Seq] = j
			seqs = append(seqs, j.Seq)
		}
	}
	loaded, err := u.tx.Load(store.Selector{Seqs: seqs, Bodies: store.OnlyBodies})
	if err != nil {
		return err
	}
	for _, j := range loaded {
		stored[j.Seq] = j
	}
	for _, j := range jobs {
		u.copyBodies(j, stored[j.Seq])
	}
	return nil
}

// copyBodies gives a job the bodies that this transaction has set, and those of another for the
// rest.
func (u *unit) copyBodies(j, other *job.Job) {
	changed := u.writes.changed(j.Seq)
	for p := range job.Bodies {
		from := other
		if changed.Fields.Has(store.BodyField(p)) {
			from = changed.Job
		}
		*j.Body(p) = *from.Body(p)
	}
}

// addEvents adds the events of the transaction to the histories and to the outbox, where a job type
// publishes them or subscriptions want them.
func (u *unit) addEvents() {
	w := &u.writes
	for _, p := range w.events {
		c := u.e.jobTypes[p.job.ID.JobType]
		ev := p.event
		ev.Job = p.job.Seq
		if p.isStored && c.History && p.job.State != job.StateNone {
			w.Events = append(w.Events, ev)
		}
		if p.isStored && c.Publish {
			put(&u.after.outboxDirty, c.Name, true)
			w.Messages = append(w.Messages, job.Message{JobID: p.job.ID, Job: ev.Job,
				Cause: ev.Cause, Prev: ev.Prev, Next: ev.Next, At: ev.At, Reason: ev.Reason,
				Body: p.body})
		}
		if p.feedBody != nil {
			u.publishToFeed(ev.At, p.feedBody)
		}
	}
}

// addCounts adds what the transaction changes in the counts of queues.
func (u *unit) addCounts() {
	for _, c := range u.counts.changed {
		if *c != (job.QueueCount{JobType: c.JobType, Queue: c.Queue}) {
			u.writes.Counts = append(u.writes.Counts, *c)
		}
	}
}
