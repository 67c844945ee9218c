package engine

import (
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
)

// flush writes what the unit gathered, after what follows from it for relatives.
func (u *unit) flush() error {
	for _, step := range []func() error{u.writeJobsMoved, u.writeEvents, u.writeCounts} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// writeJobsMoved writes the jobs moved so far and what depends on them, so that a later query of
// the same transaction finds it.
func (u *unit) writeJobsMoved() error {
	for _, step := range []func() error{u.applyParentUpdates, u.propagateFinished,
		u.writeDeadLetters, u.composeMessages, u.writeJobs, u.writeBodies} {
		if err := step(); err != nil {
			return err
		}
	}
	u.writes.clearJobs()
	clear(u.claims.leased)
	clear(u.claims.exhausted)
	return nil
}

// clearJobs forgets the jobs that are written. Events wait for flush.
func (w *pendingWrites) clearJobs() {
	w.saves, w.edits, w.rewrites, w.deletes = set{}, set{}, set{}, set{}
	w.bodies = [job.Parts]set{}
}

func (u *unit) writeDeadLetters() error {
	pending := u.writes.deadLetters
	if len(pending) == 0 {
		return nil
	}
	jobs := make([]*job.Job, len(pending))
	for i, p := range pending {
		then := *p.job
		jobs[i] = &then
	}
	if err := u.fillBodies(jobs); err != nil {
		return err
	}
	letters := make([]job.DeadLetter, len(pending))
	for i, p := range pending {
		letters[i] = job.DeadLetter{Job: *jobs[i], Cause: p.on, CreatedAt: u.now}
	}
	u.writes.deadLetters = nil
	return u.tx.AddDeadLetters(letters)
}

// composeMessages makes the bodies of messages before the bodies of their jobs change again.
func (u *unit) composeMessages() error {
	w := &u.writes
	var jobs []*job.Job
	for _, p := range w.events[w.composed:] {
		if p.snapshot != nil {
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
		contract := p.job.ID.Contract
		if p.moveIndex > 0 {
			u.after.moved[contract][p.moveIndex-1].Job.Definition = p.snapshot.Definition
		}
		p.body, p.snapshot = u.e.contracts[contract].Body(p.snapshot, p.event), nil
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
		for p := range job.Parts {
			from := stored[j.Seq]
			if changed := u.writes.bodies[p].by[j.Seq]; changed != nil {
				from = changed
			}
			*j.Body(p) = *from.Body(p)
		}
	}
	return nil
}

// writeJobs writes each job once, by the first of these that holds it: deletes, rewrites, saves,
// edits.
func (u *unit) writeJobs() error {
	w := &u.writes
	if len(w.deletes.jobs) > 0 {
		if err := u.delete(w.deletes.jobs); err != nil {
			return err
		}
	}
	if err := u.tx.UpdateAll(w.rewrites.without(&w.deletes)); err != nil {
		return err
	}
	if err := u.tx.UpdateLeases(w.edits.without(&w.deletes, &w.rewrites, &w.saves)); err != nil {
		return err
	}
	saves := w.saves.without(&w.deletes, &w.rewrites)
	for p := range job.Parts {
		var err error
		if saves, err = u.saveWithBody(p, saves); err != nil {
			return err
		}
	}
	return u.tx.UpdateState(saves)
}

// saveWithBody saves those of the jobs of which the body is set as well, in one write, and returns
// the others.
func (u *unit) saveWithBody(p job.Part, jobs []*job.Job) (left []*job.Job, err error) {
	bodies := &u.writes.bodies[p]
	if len(bodies.jobs) == 0 {
		return jobs, nil
	}
	var both set
	for _, j := range jobs {
		if bodies.by[j.Seq] != nil {
			both.add(j)
		} else {
			left = append(left, j)
		}
	}
	bodies.jobs = bodies.without(&both) // writeBodies writes the rest
	return left, u.tx.UpdateStateAndBody(p, both.jobs)
}

func (u *unit) delete(jobs []*job.Job) error {
	if err := u.tx.Delete(jobs); err != nil {
		return err
	}
	var seqs []int64
	for _, j := range jobs {
		if c := u.e.contracts[j.ID.Contract]; c.History || c.Graph {
			seqs = append(seqs, j.Seq)
		}
	}
	if len(seqs) == 0 {
		return nil
	}
	if err := u.tx.DeleteEvents(seqs); err != nil {
		return err
	}
	return u.tx.DeleteEdges(seqs)
}

func (u *unit) writeBodies() error {
	for p := range job.Parts {
		if err := u.tx.UpdateBodies(p, u.writes.bodies[p].without(&u.writes.deletes)); err != nil {
			return err
		}
	}
	return nil
}

func (u *unit) writeEvents() error {
	var events []job.Event
	var messages []job.Message
	for _, p := range u.writes.events {
		c := u.e.contracts[p.job.ID.Contract]
		ev := p.event
		ev.Job = p.job.Seq
		if c.History && p.job.State != job.StateNone {
			events = append(events, ev)
		}
		if c.Publish {
			u.after.outboxDirty[c.Name] = true
			messages = append(messages, job.Message{
				JobID:  p.job.ID,
				Job:    ev.Job,
				Cause:  ev.Cause,
				Prev:   ev.Prev,
				Next:   ev.Next,
				At:     ev.At,
				Reason: ev.Reason,
				Body:   p.body,
			})
		}
	}
	if err := u.tx.AddEvents(events); err != nil {
		return err
	}
	return u.tx.AddMessages(messages)
}

func (u *unit) writeCounts() error {
	deltas := make([]job.QueueCount, 0, len(u.counts.changed))
	for _, c := range u.counts.changed {
		if c.Waiting != 0 || c.Delayed != 0 || c.Ready != 0 || c.Leased != 0 {
			deltas = append(deltas, *c)
		}
	}
	return u.tx.AddCounts(deltas)
}
