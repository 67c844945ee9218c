package engine

import (
	"github.com/millrace/millrace/internal/job"
)

// flush writes what the unit gathered, after what follows from it.
func (u *unit) flush() error {
	for _, step := range []func() error{u.writeJobsMoved, u.writeEvents, u.writeCounts} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// writeJobsMoved writes the jobs moved so far and what depends on them, so that a
// later look in the same transaction finds it.
func (u *unit) writeJobsMoved() error {
	for _, step := range []func() error{u.applyParentUpdates, u.propagateFinished,
		u.writeDeadLetters, u.composeMessages, u.writeJobs, u.writeBodies} {
		if err := step(); err != nil {
			return err
		}
	}
	u.saves, u.edits, u.rewrites, u.deletes, u.bodies = set{}, set{}, set{}, set{}, [job.Parts]set{}
	clear(u.leasedNow)
	clear(u.exhausted)
	return nil
}

func (u *unit) writeDeadLetters() error {
	if len(u.deadLetters) == 0 {
		return nil
	}
	jobs := make([]*job.Job, len(u.deadLetters))
	for i, b := range u.deadLetters {
		then := *b.job
		jobs[i] = &then
	}
	if err := u.fillBodies(jobs); err != nil {
		return err
	}
	letters := make([]job.DeadLetter, len(u.deadLetters))
	for i, b := range u.deadLetters {
		letters[i] = job.DeadLetter{Job: *jobs[i], Cause: b.on, CreatedAt: u.now}
	}
	u.deadLetters = nil
	return u.tx.AddDeadLetters(letters)
}

// composeMessages makes the bodies of messages while those of their jobs are there.
func (u *unit) composeMessages() error {
	var jobs []*job.Job
	for _, p := range u.events[u.composed:] {
		if p.snapshot != nil {
			jobs = append(jobs, p.snapshot)
		}
	}
	if err := u.fillBodies(jobs); err != nil {
		return err
	}
	for ; u.composed < len(u.events); u.composed++ {
		p := &u.events[u.composed]
		if p.snapshot == nil {
			continue
		}
		contract := p.job.ID.Contract
		if p.moveIndex > 0 {
			u.moved[contract][p.moveIndex-1].Job.Definition = p.snapshot.Definition
		}
		p.body, p.snapshot = u.e.contracts[contract].Body(p.snapshot, p.event), nil
	}
	return nil
}

// fillBodies fills in the bodies of copies of jobs, those this transaction has set
// included. The same job may be there more than once.
func (u *unit) fillBodies(copies []*job.Job) error {
	if len(copies) == 0 {
		return nil
	}
	var whole set
	for _, j := range copies {
		once := *j
		whole.add(&once)
	}
	if err := u.tx.LoadBodies(whole.jobs); err != nil {
		return err
	}
	for _, j := range copies {
		for p := range job.Parts {
			from := whole.by[j.Seq]
			if set := u.bodies[p].by[j.Seq]; set != nil {
				from = set
			}
			*j.Body(p) = *from.Body(p)
		}
	}
	return nil
}

func (u *unit) writeJobs() error {
	if len(u.deletes.jobs) > 0 {
		if err := u.delete(u.deletes.jobs); err != nil {
			return err
		}
	}
	if err := u.tx.UpdateAll(u.rewrites.without(&u.deletes)); err != nil {
		return err
	}
	if err := u.tx.UpdateLeases(u.edits.without(&u.deletes, &u.rewrites, &u.saves)); err != nil {
		return err
	}
	saves := u.saves.without(&u.deletes, &u.rewrites)
	for p := range job.Parts {
		var err error
		if saves, err = u.saveWith(p, saves); err != nil {
			return err
		}
	}
	return u.tx.UpdateState(saves)
}

// saveWith saves those of the jobs of which the body is set as well, in one write, and returns the
// others.
func (u *unit) saveWith(p job.Part, jobs []*job.Job) (left []*job.Job, err error) {
	if len(u.bodies[p].jobs) == 0 {
		return jobs, nil
	}
	var both set
	for _, j := range jobs {
		if u.bodies[p].by[j.Seq] != nil {
			both.add(j)
		} else {
			left = append(left, j)
		}
	}
	u.bodies[p].jobs = u.bodies[p].without(&both) // what writeBodies has left to do
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
		if err := u.tx.UpdateBodies(p, u.bodies[p].without(&u.deletes)); err != nil {
			return err
		}
	}
	return nil
}

func (u *unit) writeEvents() error {
	var events []job.Event
	var messages []job.Message
	for _, p := range u.events {
		c := u.e.contracts[p.job.ID.Contract]
		ev := p.event
		ev.Job = p.job.Seq
		if c.History && p.job.State != job.StateNone {
			events = append(events, ev)
		}
		if c.Publish {
			messages = append(messages, job.Message{JobID: p.job.ID, Job: ev.Job, Cause: ev.Cause,
				Prev: ev.Prev, Next: ev.Next, At: ev.At, Reason: ev.Reason, Body: p.body})
		}
	}
	if err := u.tx.AddEvents(events); err != nil {
		return err
	}
	for i := range messages {
		if u.outboxDirty == nil {
			u.outboxDirty = map[string]bool{}
		}
		u.outboxDirty[messages[i].JobID.Contract] = true
	}
	return u.tx.AddMessages(messages)
}

func (u *unit) writeCounts() error {
	deltas := make([]job.QueueCount, 0, len(u.counts))
	for _, c := range u.counts {
		if c.Waiting != 0 || c.Delayed != 0 || c.Ready != 0 || c.Leased != 0 {
			deltas = append(deltas, *c)
		}
	}
	return u.tx.AddCounts(deltas)
}
