package engine

import (
	"fmt"
	"maps"
	"slices"

	"github.com/millrace/millrace/internal/job"
)

// insert stores new jobs in the state they begin in and records how they came
// to be there. taken lists those whose identity exists; they are not stored.
func (u *unit) insert(batch []Submission) (jobs []*job.Job, taken []int, err error) {
	links, err := u.link(batch)
	if err != nil {
		return nil, nil, err
	}
	jobs = make([]*job.Job, len(batch))
	stories := make([][]job.Move, len(batch))
	for i := range batch {
		j := batch[i].fresh()
		jobs[i] = &j
		j.CreatedAt = u.now
		if j.OrderTime.IsZero() {
			j.OrderTime = u.now
		}
		if j.DueAt.IsZero() {
			j.DueAt = u.now
		}
		blocked := links.apply(u, i, &j)
		stories[i] = u.begin(&j, blocked)
	}
	if taken, err = links.store(u, jobs); err != nil {
		return nil, nil, err
	}
	next := 0
	for i, j := range jobs {
		if next < len(taken) && taken[next] == i {
			next++
			continue
		}
		u.begun(j, stories[i])
	}
	return jobs, taken, nil
}

// begun draws the consequences of how a job that is stored now began.
func (u *unit) begun(j *job.Job, story []job.Move) {
	c := u.e.contracts[j.ID.Contract]
	last := job.Move{On: job.Submitted, To: j.State}
	for _, mv := range story {
		last.On, last.Bury = mv.On, last.Bury || mv.Bury
		u.record(c, j, job.RunID{}, job.Event{Cause: mv.On, Prev: mv.From, Next: mv.To, At: u.now})
	}
	u.landed(c, j, last, job.Done)
}

// begin takes a new job through Submitted and whatever holds for it at once,
// and returns the moves of that.
func (u *unit) begin(j *job.Job, blocked bool) (story []job.Move) {
	c := u.e.contracts[j.ID.Contract]
	causes := []job.Cause{job.Submitted}
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
		mv, ok := c.Machine.Next(j.State, on)
		if !ok || on == job.Due && j.OpenDeps > 0 {
			continue
		}
		u.place(c, j, mv)
		story = append(story, mv)
	}
	return story
}

// admit refuses what was stored where it makes a contract hold more than its
// QueueSize. It comes after the insert, so that what exists already, which a
// caller that lost the answer submits again, counts once.
func (u *unit) admit(batch []Submission) error {
	limited := map[string]bool{}
	for _, s := range batch {
		if u.e.contracts[s.Job.ID.Contract].QueueSize > 0 {
			limited[s.Job.ID.Contract] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(limited)) {
		more := int64(0)
		for key, c := range u.counts {
			if key.contract == name {
				more += c.Waiting + c.Ready
			}
		}
		if more <= 0 {
			continue
		}
		if err := u.tx.LockName("size:" + name); err != nil {
			return err
		}
		delete(u.stored, name)
		counts, err := u.counted(name)
		if err != nil {
			return err
		}
		n := int64(0)
		for _, c := range counts {
			n += c.Waiting + c.Ready
		}
		if limit := u.e.contracts[name].QueueSize; n > int64(limit) {
			return &job.Error{Kind: job.Full, Op: "engine.submit", Msg: fmt.Sprintf("%s holds its limit of %d jobs", name, limit)}
		}
	}
	return nil
}

// replace gives the jobs of a batch that exist their new definition and takes
// them out of flight; it returns the rest, to be inserted. Of two entries with
// the same identity the last counts.
func (u *unit) replace(batch []Submission) (rest []Submission, err error) {
	last := map[job.ID]int{}
	ids := make([]job.ID, 0, len(batch))
	for i, s := range batch {
		if _, twice := last[s.Job.ID]; !twice {
			ids = append(ids, s.Job.ID)
		}
		last[s.Job.ID] = i
	}
	existing, err := u.tx.Lock(ids)
	if err != nil {
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

// redefine exchanges what a submitter says of a job. It keeps its number and
// the time it was created; runs and failures begin anew.
func (u *unit) redefine(j *job.Job, s Submission) error {
	d := s.fresh()
	if d.Queue != j.Queue {
		u.setQueue(j, d.Queue)
	}
	j.Priority, j.Lease, j.RunLimit, j.Trace = d.Priority, d.Lease, d.RunLimit, d.Trace
	j.Owner, j.OrderTime, j.DueAt = d.Owner, d.OrderTime, d.DueAt
	if j.OrderTime.IsZero() {
		j.OrderTime = u.now
	}
	if j.DueAt.IsZero() {
		j.DueAt = u.now
	}
	j.Runs, j.Failures = 0, 0
	if err := u.move(j, job.Replaced); err != nil {
		return err
	}
	u.rewrites.add(j)
	for p := range job.Parts {
		u.setBody(j, p, *d.Body(p))
	}
	return nil
}
