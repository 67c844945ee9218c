package engine_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
)

// model is a second, simple implementation of what the engine promises: in memory, one operation
// after the other, each of which looks at all jobs.
type model struct {
	now      time.Time
	node     *modelNode // that carries out the next verb; nil is one whose clock never jumps
	jobTypes map[string]engine.JobType
	jobs     map[int64]modelJob
	paused   map[string]bool
	limits   map[string]int
	dead     []modelDeadLetter
	out      []string // messages
	seq      int64
	handle   int // of the last run
}

type modelJob struct {
	job.Job
	deps    []int64
	handle  int // of its run
	history []string
}

type modelDeadLetter struct {
	jobType, line string
	at            time.Time
	seq           int64 // of the job, where that stays stored
	replayed      bool
}

// remove deletes a job and the dead letters of one that was stored.
func (m *model) remove(seq int64) {
	delete(m.jobs, seq)
	m.dead = slices.DeleteFunc(m.dead, func(l modelDeadLetter) bool { return l.seq == seq })
}

func newModel(jobTypes []engine.JobType, now time.Time) *model {
	m := &model{now: now, jobTypes: map[string]engine.JobType{}, jobs: map[int64]modelJob{},
		paused: map[string]bool{}, limits: map[string]int{}}
	for _, c := range jobTypes {
		m.jobTypes[c.Name] = c
	}
	return m
}

// clone returns a copy that later verbs do not change. What nodes remember is not copied.
func (m *model) clone() model {
	before := *m
	before.jobs = map[int64]modelJob{}
	for seq, j := range m.jobs {
		j.deps, j.history = slices.Clone(j.deps), slices.Clone(j.history)
		before.jobs[seq] = j
	}
	before.dead, before.out = slices.Clone(m.dead), slices.Clone(m.out)
	before.paused, before.limits = maps.Clone(m.paused), maps.Clone(m.limits)
	return before
}

// atomically runs a verb. If the verb fails it restores the state before it.
func (m *model) atomically(verb func() string) string {
	before := m.clone()
	result := verb()
	if strings.HasPrefix(result, "!") {
		*m = before
	}
	return result
}

func (m *model) find(id job.ID) int64 {
	for seq, j := range m.jobs {
		if j.ID == id {
			return seq
		}
	}
	return 0
}

func (m *model) seqs() []int64 { return slices.Sorted(maps.Keys(m.jobs)) }

func (m *model) lapsed(j modelJob) bool {
	return j.Phase == job.Leased && !j.LeaseUntil.After(m.now) && !m.node.spares(j, m.now)
}

func (m *model) due(j modelJob) bool {
	return j.Phase == job.Waiting && j.OpenDeps == 0 && !j.DueAt.After(m.now)
}

// move applies a cause to a job and reports whether the machine has a transition for it.
func (m *model) move(seq int64, on job.Cause) bool {
	j := m.jobs[seq]
	machine := m.jobTypes[j.ID.JobType].Machine
	tr, ok := machine.Next(j.State, on)
	if !ok {
		return false
	}
	if tr.CountsFailed {
		j.FailedAttempts++
		if j.MaxAttempts > 0 && j.FailedAttempts >= j.MaxAttempts {
			tr, _ = machine.Next(j.State, on.ForGood())
		}
	}
	if tr.CountsLost {
		j.LostAttempts++
		if limit := m.jobTypes[j.ID.JobType].MaxLostAttempts; limit > 0 &&
			j.LostAttempts >= limit {
			tr, _ = machine.Next(j.State, on.ForGood())
		}
	}
	if on == job.Retried {
		j.LostAttempts = 0
		for i := range m.dead {
			m.dead[i].replayed = m.dead[i].replayed || m.dead[i].seq == seq
		}
	}
	was := j.Job
	m.jobs[seq] = j
	m.applyTransition(seq, tr)
	m.propagate(seq, was)
	return true
}

// applyTransition puts a job into the state of a transition, with the effects on the job itself.
func (m *model) applyTransition(seq int64, tr job.Transition) {
	j := m.jobs[seq]
	c := m.jobTypes[j.ID.JobType]
	ran := j.Phase == job.Leased
	j.State, j.Phase = tr.To, c.Machine.Phase(tr.To)
	j.UpdatedAt = laterOf(m.now, j.UpdatedAt.Add(time.Microsecond))
	late := j.DueAt.After(m.now) && !(ran &&
		(tr.On == job.Failed || tr.On == job.Expired || tr.On == job.Released))
	if delay := j.Retry.Delay(j.FailedAttempts); tr.CountsFailed && !tr.Immediate &&
		j.Phase != job.Done && delay > 0 {
		j.DueAt = m.now.Add(delay)
		late = true
	}
	if j.Phase == job.Ready && late {
		j.Phase = job.Waiting
	}
	if j.Phase != job.Leased {
		j.handle, j.LeaseUntil = 0, time.Time{}
	}
	j.FinishedAt = time.Time{}
	if j.Phase == job.Done {
		j.FinishedAt = j.UpdatedAt
	}
	if tr.From != tr.To {
		if c.History {
			j.history = append(j.history, fmt.Sprintf("%s>%s", tr.On, tr.To))
		}
		if c.Publish {
			m.out = append(m.out, fmt.Sprintf("%s %s %s>%s", name(j.ID), tr.On, tr.From, tr.To))
		}
	}
	if tr.DeadLetter {
		l := modelDeadLetter{jobType: j.ID.JobType, at: j.UpdatedAt, seq: seq,
			line: fmt.Sprintf("dead %s %s payload= failure=", name(j.ID), tr.On)}
		if tr.To == job.StateNone {
			l.seq = 0
			l.line = fmt.Sprintf("dead %s %s payload=%s failure=", name(j.ID), tr.On,
				short(j.Payload))
		}
		m.dead = append(m.dead, l)
	}
	m.jobs[seq] = j
}

// propagate applies the effects of a finished job to its parents and dependents.
func (m *model) propagate(seq int64, was job.Job) {
	j := m.jobs[seq]
	defer func() {
		if j.State == job.StateNone {
			m.remove(seq)
		}
	}()
	before, now := was.Seq != 0 && was.Phase == job.Done, j.Phase == job.Done
	if before == now {
		return
	}
	c := m.jobTypes[j.ID.JobType]
	// no test job type with dependencies or children removes a job that succeeds
	good := c.Machine.IsSuccess(j.State) && j.State != job.StateNone
	if before {
		good = c.Machine.IsSuccess(was.State)
	}
	if p, ok := m.jobs[j.Parent]; ok {
		n := 1
		if now {
			n = -1
		}
		p.OpenDeps += n
		if !good {
			p.FailedDeps -= n
		}
		p.UpdatedAt = laterOf(m.now, p.UpdatedAt)
		m.jobs[p.Seq] = p
		if !now && m.move(p.Seq, job.Retried) {
			return
		}
		if m.jobs[p.Seq].OpenDeps == 0 {
			m.move(p.Seq, job.Satisfied)
		}
	}
	for _, d := range m.seqs() {
		if now && slices.Contains(m.jobs[d].deps, seq) {
			m.depend(d, good)
		}
	}
}

func (m *model) depend(seq int64, good bool) {
	d := m.jobs[seq]
	if _, waits := m.jobTypes[d.ID.JobType].Machine.Next(d.State, job.Unsatisfiable); !waits {
		return
	}
	d.UpdatedAt = laterOf(m.now, d.UpdatedAt)
	m.jobs[seq] = d
	if !good {
		m.move(seq, job.Unsatisfiable)
		return
	}
	d.OpenDeps--
	m.jobs[seq] = d
	if d.OpenDeps == 0 {
		m.move(seq, job.Satisfied)
	}
}

func (m *model) promote(seq int64) {
	if m.move(seq, job.Due) || m.move(seq, job.Satisfied) {
		return
	}
	j := m.jobs[seq]
	j.Phase = m.jobTypes[j.ID.JobType].Machine.Phase(j.State)
	m.jobs[seq] = j
}

func (m *model) expire(except map[int64]bool) (n int) {
	var expired []int64
	for _, seq := range m.seqs() {
		if m.lapsed(m.jobs[seq]) && !except[seq] {
			expired = append(expired, seq)
		}
	}
	for _, seq := range expired {
		m.move(seq, job.Expired)
	}
	return len(expired)
}

func (m *model) promoteDue() (n int) {
	var due []int64
	for _, seq := range m.seqs() {
		if m.due(m.jobs[seq]) {
			due = append(due, seq)
		}
	}
	for _, seq := range due {
		m.promote(seq)
	}
	return len(due)
}

// submit stores a batch; a result that begins with ! is an error.
func (m *model) submit(mode engine.Mode, batch []engine.Submission) string {
	for _, s := range batch {
		for _, id := range append([]job.ID{s.Parent}, s.DependsOn...) {
			inside := slices.ContainsFunc(batch, func(o engine.Submission) bool {
				return o.Job.ID == id
			})
			if id != (job.ID{}) && !inside && m.find(id) == 0 {
				return "!" + job.NotFound.String()
			}
		}
	}
	var existing []int
	var fresh []int64
	stored := len(batch)
	for i, s := range batch {
		found := m.find(s.Job.ID)
		again := slices.Contains(fresh, found)
		switch {
		case found == 0:
			fresh = append(fresh, m.insert(s))
		case mode == engine.Unique:
			return "!" + job.Conflict.String()
		case mode == engine.Ignore:
			existing = append(existing, i)
			stored--
		case again: // the last of the batch counts, as if the others were not there
			m.remove(found)
			fresh = append(slices.DeleteFunc(fresh, func(seq int64) bool {
				return seq == found
			}), m.insert(s))
		default:
			last := !slices.ContainsFunc(batch[i+1:], func(o engine.Submission) bool {
				return o.Job.ID == s.Job.ID
			})
			if last && !m.redefine(found, s) {
				return "!" + job.Conflict.String()
			}
		}
	}
	for _, s := range batch {
		p := m.jobs[m.find(s.Parent)]
		if p.Seq != 0 && !slices.Contains(fresh, p.Seq) && !m.move(p.Seq, job.Retried) &&
			p.Phase == job.Done {
			return "!" + job.Conflict.String()
		}
	}
	m.begin(batch, fresh)
	return fmt.Sprint("stored ", stored, " taken ", existing)
}

func (m *model) insert(s engine.Submission) int64 {
	m.seq++
	d := s.Job
	m.jobs[m.seq] = modelJob{Job: job.Job{Seq: m.seq, ID: d.ID, Alias: d.Alias, Queue: d.Queue,
		CreatedAt: m.now,
		Priority:  d.Priority, OrderTime: m.now, DueAt: m.dueAt(d),
		Lease: d.Lease, MaxAttempts: d.MaxAttempts, Retry: d.Retry, Payload: d.Payload,
		Progress: d.Progress}}
	return m.seq
}

func (m *model) dueAt(d job.Job) time.Time {
	if d.DueAt.IsZero() {
		return m.now
	}
	return d.DueAt
}

func (m *model) redefine(seq int64, s engine.Submission) bool {
	j, d := m.jobs[seq], s.Job
	j.Priority, j.Lease, j.MaxAttempts, j.Retry = d.Priority, d.Lease, d.MaxAttempts, d.Retry
	j.Alias, j.Queue, j.OrderTime, j.DueAt = d.Alias, d.Queue, m.now, m.dueAt(d)
	j.Attempts, j.FailedAttempts, j.LostAttempts, j.Payload, j.Progress, j.Result, j.Failure = 0, 0,
		0, d.Payload, d.Progress, nil, nil
	m.jobs[seq] = j
	return m.move(seq, job.Replaced)
}

// begin makes the initial transitions of new jobs, when all of them exist.
func (m *model) begin(batch []engine.Submission, fresh []int64) {
	blocked := map[int64]bool{}
	for _, seq := range fresh {
		j := m.jobs[seq]
		s := batch[slices.IndexFunc(batch, func(s engine.Submission) bool {
			return s.Job.ID == j.ID
		})]
		for _, id := range s.DependsOn {
			d := m.find(id)
			if slices.Contains(j.deps, d) {
				continue
			}
			j.deps = append(j.deps, d)
			dep := m.jobs[d]
			if slices.Contains(fresh, d) || dep.Phase != job.Done {
				j.OpenDeps++
			} else if !m.jobTypes[dep.ID.JobType].Machine.IsSuccess(dep.State) {
				blocked[seq] = true
			}
		}
		m.jobs[seq] = j
		if p, ok := m.jobs[m.find(s.Parent)]; ok {
			p.OpenDeps++
			p.Children++
			m.jobs[p.Seq] = p
			j = m.jobs[seq]
			j.Parent = p.Seq
			m.jobs[seq] = j
		}
	}
	for _, seq := range fresh {
		machine := m.jobTypes[m.jobs[seq].ID.JobType].Machine
		for _, on := range []job.Cause{job.Submitted, job.Unsatisfiable, job.Satisfied, job.Due} {
			j := m.jobs[seq]
			tr, ok := machine.Next(j.State, on)
			if !ok || (on == job.Unsatisfiable && !blocked[seq]) ||
				(on == job.Satisfied && (blocked[seq] || j.OpenDeps > 0)) ||
				(on == job.Due && (blocked[seq] || j.OpenDeps > 0 || j.DueAt.After(m.now))) {
				continue
			}
			m.applyTransition(seq, tr)
		}
	}
	for _, seq := range fresh {
		if m.jobs[seq].Phase == job.Done {
			m.propagate(seq, job.Job{})
		}
	}
}

// free returns how many runs the limits of a queue still allow.
func (m *model) free(jobType, queue string) int {
	free := 1 << 30
	for _, l := range []struct {
		queue string
		max   int
	}{{"", m.jobTypes[jobType].MaxRunning}, {queue, m.limits[jobType+" "+queue]}} {
		if l.max == 0 {
			continue
		}
		for _, j := range m.jobs {
			if j.ID.JobType == jobType && j.Phase == job.Leased &&
				(l.queue == "" || j.Queue == l.queue) {
				l.max--
			}
		}
		free = min(free, max(0, l.max))
	}
	return free
}

func (m *model) lease(seq int64) {
	j := m.jobs[seq]
	m.handle++
	j.Attempts++
	m.jobs[seq] = j
	m.move(seq, job.Claimed)
	j = m.jobs[seq]
	j.handle, j.LeaseUntil = m.handle, m.now.Add(j.Lease)
	m.jobs[seq] = j
	if p, ok := m.jobs[j.Parent]; ok && j.Attempts == 1 && p.Phase == job.Waiting {
		m.move(p.Seq, job.Started)
	}
}

// claim claims up to n jobs and returns their numbers.
func (m *model) claim(jobType string, queues []string, n int) (seqs []int64) {
	own := map[int64]bool{}
	serve := func() {
		var ready []*job.Job
		for _, seq := range m.seqs() {
			j := m.jobs[seq]
			if j.ID.JobType == jobType && j.Phase == job.Ready &&
				(len(queues) == 0 || slices.Contains(queues, j.Queue)) &&
				!m.paused[jobType+" "+j.Queue] {
				ready = append(ready, &j.Job)
			}
		}
		slices.SortFunc(ready, job.CompareClaim)
		for _, j := range ready {
			if len(seqs) < n && m.free(jobType, j.Queue) > 0 {
				m.lease(j.Seq)
				own[j.Seq] = true
				seqs = append(seqs, j.Seq)
			}
		}
	}
	serve()
	if len(seqs) < n && m.expire(own)+m.promoteDue() > 0 {
		serve()
	}
	slices.SortFunc(seqs, func(a, b int64) int {
		x, y := m.jobs[a].Job, m.jobs[b].Job
		return job.CompareClaim(&x, &y)
	})
	return seqs
}

func (m *model) claimJob(id job.ID) string {
	seq := m.find(id)
	if seq == 0 {
		return "!" + job.NotFound.String()
	}
	if j := m.jobs[seq]; m.lapsed(j) {
		m.move(seq, job.Expired)
	} else if m.due(j) {
		m.promote(seq)
	}
	j, there := m.jobs[seq]
	if !there || j.Phase != job.Ready || m.paused[j.ID.JobType+" "+j.Queue] ||
		m.free(j.ID.JobType, j.Queue) == 0 {
		return "!" + job.Conflict.String()
	}
	m.lease(seq)
	return "claimed"
}

// currentJob finds the job of a run.
func (m *model) currentJob(handle int) int64 {
	for seq, j := range m.jobs {
		if handle != 0 && j.handle == handle {
			return seq
		}
	}
	return 0
}

func (m *model) finish(handle int, on job.Cause, result []byte) string {
	seq := m.currentJob(handle)
	if seq == 0 {
		return job.RunLost.String()
	}
	j := m.jobs[seq]
	if _, ok := m.jobTypes[j.ID.JobType].Machine.Next(j.State, on); !ok {
		if on == job.Started {
			return string(j.State)
		}
		return job.Conflict.String()
	}
	if on == job.Started {
		j.LeaseUntil = m.now.Add(j.Lease)
	} else if result != nil {
		j.Result = result
	}
	m.jobs[seq] = j
	m.move(seq, on)
	return string(m.jobs[seq].State) // of what is gone: nowhere
}

func (m *model) heartbeat(seq int64, progress []byte) string {
	if seq == 0 {
		return job.RunLost.String()
	}
	j := m.jobs[seq]
	j.LeaseUntil, j.UpdatedAt = m.now.Add(j.Lease), laterOf(m.now, j.UpdatedAt)
	if progress != nil {
		j.Progress = progress
	}
	m.jobs[seq] = j
	return "until " + j.Lease.String()
}

func (m *model) requeue(seq int64, mode engine.Mode, batch []engine.Submission) string {
	if seq == 0 || m.jobs[seq].handle == 0 {
		return "!" + job.RunLost.String()
	}
	if !m.move(seq, job.Requeued) {
		return "!" + job.Conflict.String()
	}
	return m.submit(mode, batch)
}

func (m *model) change(id job.ID, on job.Cause, edit func(*job.Job)) string {
	seq := m.find(id)
	if seq == 0 {
		return "!" + job.NotFound.String()
	}
	if on == job.Removed {
		for _, j := range m.jobs {
			if slices.Contains(j.deps, seq) {
				return "!" + job.Conflict.String()
			}
		}
	}
	j := m.jobs[seq]
	edit(&j.Job)
	m.jobs[seq] = j
	if !m.move(seq, on) {
		return "!" + job.Conflict.String()
	}
	return string(m.jobs[seq].State)
}

func (m *model) prune() {
	for seq, j := range m.jobs {
		if keep := m.jobTypes[j.ID.JobType].Retention; keep > 0 && j.Phase == job.Done &&
			j.FinishedAt.Before(m.now.Add(-keep)) {
			m.remove(seq)
			for child, c := range m.jobs {
				if c.Parent == seq {
					m.remove(child)
				}
			}
		}
	}
	m.dead = slices.DeleteFunc(m.dead, func(l modelDeadLetter) bool {
		keep := m.jobTypes[l.jobType].DeadLetterRetention
		return keep > 0 && l.at.Before(m.now.Add(-keep))
	})
}

// snapshot is the snapshot of a world whose clock has the time of the model.
func (m *model) snapshot(w *world) string {
	counts := map[string][3]int{}
	var lines []string
	for _, seq := range m.seqs() {
		j := m.jobs[seq]
		line := w.line(&j.Job)
		if len(j.history) > 0 {
			line += " [" + strings.Join(j.history, " ") + "]"
		}
		lines = append(lines, line)
		if j.Phase != job.Done {
			c := counts[j.ID.JobType+" "+j.Queue]
			c[j.Phase]++
			counts[j.ID.JobType+" "+j.Queue] = c
		}
	}
	for key, c := range counts {
		lines = append(lines, fmt.Sprintf("%s: %d waiting %d ready %d leased", key, c[job.Waiting],
			c[job.Ready], c[job.Leased]))
	}
	for _, l := range m.dead {
		if l.replayed {
			l.line += " replayed"
		}
		lines = append(lines, l.line)
	}
	return strings.Join(sorted(lines), "\n")
}
