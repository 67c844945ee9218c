package engine

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
)

// A new job makes its first transitions before it is stored: Submitted, and then what holds for it
// at once, such as Satisfied without dependencies and Due without a delay. It is inserted in the
// state these lead to, in one row write. The transitions are recorded afterwards, when it is known
// which of the jobs are new, and the store has numbered these:
//
//	link                locks dependencies and parents
//	initialTransitions  for each job, in memory
//	links.store         inserts the jobs, parents before children, and their edges
//	recordInitialTransitions
//
// A submission in mode Replace redefines the jobs that exist and inserts the rest.

// insert stores new jobs in the state they begin in and records their initial transitions. existing
// has the indexes of those whose identity exists already; they are not stored.
func (u *unit) insert(batch []Submission) (jobs []*job.Job, existing []int, err error) {
	links, err := u.link(batch)
	if err != nil {
		return nil, nil, err
	}
	jobs = make([]*job.Job, len(batch))
	transitions := make([][]initialTransition, len(batch))
	for i := range batch {
		j := batch[i].fresh()
		jobs[i] = &j
		j.CreatedAt, j.Searchable = u.now, u.e.jobTypes[j.ID.JobType].Searchable
		if j.OrderTime.IsZero() {
			j.OrderTime = u.now
		}
		if j.DueAt.IsZero() {
			j.DueAt = u.now
		}
		blocked := links.apply(u, i, &j)
		transitions[i] = u.initialTransitions(&j, blocked)
	}
	if existing, err = links.store(u, jobs); err != nil {
		return nil, nil, err
	}
	u.inserted = jobs
	next := 0
	for i, j := range jobs {
		if next < len(existing) && existing[next] == i {
			next++
			continue
		}
		u.recordInitialTransitions(j, transitions[i])
	}
	return jobs, existing, nil
}

// initialTransition is a transition of a new job and when it happened.
type initialTransition struct {
	job.Transition
	at time.Time
}

// recordInitialTransitions records the transitions of a new job, and their effects together.
func (u *unit) recordInitialTransitions(j *job.Job, transitions []initialTransition) {
	t := u.e.jobTypes[j.ID.JobType]
	last := job.Transition{On: job.Submitted, To: j.State}
	first := len(u.writes.events)
	for _, tr := range transitions {
		last.On, last.DeadLetter = tr.On, last.DeadLetter || tr.DeadLetter
		u.record(t, j, job.RunID{}, tr.at,
			job.Event{Cause: tr.On, Prev: tr.From, Next: tr.To, At: tr.at})
	}
	for i := range u.writes.events[first:] {
		u.writes.events[first+i].hasBodies = true
	}
	u.recordEffects(t, j, last, job.Done)
	u.activityOf(j).Submitted++
}

// initialTransitions moves a new job through Submitted and the causes that hold for it at once, and
// returns these transitions.
func (u *unit) initialTransitions(j *job.Job, blocked bool) (transitions []initialTransition) {
	t := u.e.jobTypes[j.ID.JobType]
	causes := append(make([]job.Cause, 0, 3), job.Submitted)
	switch {
	case blocked:
		causes = append(causes, job.Unsatisfiable)
	case j.OpenDeps == 0:
		causes = append(causes, job.Satisfied)
	}
	if !j.DueAt.After(u.now) && !blocked {
		causes = append(causes, job.Due)
	}
	for _, on := range causes {
		tr, ok := t.Machine.Next(j.State, on)
		if !ok || (on == job.Due && j.OpenDeps > 0) {
			continue
		}
		if on == job.Unsatisfiable && t.Machine.Phase(tr.To) == job.Ready {
			j.OpenDeps = 0 // as in updateDependent
		}
		u.applyTransition(t, j, tr, 0)
		transitions = append(transitions, initialTransition{tr, j.UpdatedAt})
	}
	return transitions
}

// checkQueueSize refuses the jobs that were stored where a job type has more than its MaxQueueSize
// by them. It comes after the insert, so that jobs which exist already, and which a caller that
// lost the answer submits again, are counted once.
func (u *unit) checkQueueSize() error {
	more := map[string]int64{}
	for key, c := range u.counts.changed {
		if u.e.jobTypes[key.jobType].MaxQueueSize > 0 {
			more[key.jobType] += c.Delayed + c.Ready
		}
	}
	for _, name := range slices.Sorted(maps.Keys(more)) {
		if more[name] <= 0 {
			continue
		}
		left, err := u.availableQueueSize(name)
		if err != nil {
			return err
		}
		if left < 0 {
			return &job.Error{Kind: job.Full, Op: "engine.submit",
				Msg: fmt.Sprintf("%s has its limit of %d jobs", name,
					u.e.jobTypes[name].MaxQueueSize)}
		}
	}
	return nil
}

// sizeSlack is more than all concurrent transactions together may add.
const sizeSlack = 64 * maxSubmitGroup

// availableQueueSize returns how many more ready jobs the MaxQueueSize of a job type allows, exact
// over all nodes: near the limit the transactions that ask for it run one after another.
func (u *unit) availableQueueSize(name string) (int64, error) {
	left := func() (int64, error) {
		delete(u.counts.stored, name)
		counts, err := u.currentCounts(name)
		n := int64(u.e.jobTypes[name].MaxQueueSize)
		for _, c := range counts {
			n -= c.Delayed + c.Ready
		}
		return n, err
	}
	n, err := left()
	if err != nil || n > sizeSlack {
		return n, err
	}
	if err := u.tx.LockName("size:" + name); err != nil {
		return 0, err
	}
	return left()
}

// replace gives those jobs of a batch that exist their new definition and ends their runs; it
// returns the rest, to be inserted. Of two submissions with the same identity the last counts.
func (u *unit) replace(batch []Submission) (rest []Submission, err error) {
	last := map[job.ID]int{}
	ids := make([]job.ID, 0, len(batch))
	for i, s := range batch {
		if _, twice := last[s.Job.ID]; !twice {
			ids = append(ids, s.Job.ID)
		}
		last[s.Job.ID] = i
	}
	existing, err := u.tx.Load(store.Selector{IDs: ids, Lock: true})
	if err != nil {
		return nil, err
	}
	if err := ensureNoRecordedEnds(existing); err != nil {
		return nil, err
	}
	for _, j := range existing {
		if err := u.redefine(j, batch[last[j.ID]]); err != nil {
			return nil, err
		}
		delete(last, j.ID)
	}
	for i, s := range batch {
		if at, left := last[s.Job.ID]; left && at == i {
			rest = append(rest, s)
		}
	}
	return rest, nil
}

// redefine replaces what a submitter sets of a job. The job keeps its number and the time it was
// created; its attempts are counted from zero again.
func (u *unit) redefine(j *job.Job, s Submission) error {
	d := s.fresh()
	if d.Queue != j.Queue {
		u.setQueue(j, d.Queue)
	}
	copySubmitted(j, &d)
	if j.OrderTime.IsZero() {
		j.OrderTime = u.now
	}
	if j.DueAt.IsZero() {
		j.DueAt = u.now
	}
	j.Attempts, j.FailedAttempts, j.LostAttempts = 0, 0, 0
	if err := u.transition(j, job.Replaced); err != nil {
		return err
	}
	u.updateAll(j)
	for p := range job.Bodies {
		u.setBody(j, p, *d.Body(p))
	}
	return nil
}
