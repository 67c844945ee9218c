package bulk

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
)

// maxCountTime is how long a preview counts what needs no search of texts.
const maxCountTime = 5 * time.Second

// maxSample is how many items a preview shows, and maxSampleTime how long it looks for them where
// they need not be counted.
const (
	maxSample     = 10
	maxSampleTime = 12 * time.Millisecond
)

// Preview is what an operation would be about (AD-020).
type Preview struct {
	AsOf     time.Time // Request.AsOf of an operation that means what was looked at
	Matching int       // at most MaxCounted
	More     bool      // more may match, which were not looked at
	Read     int       // how many were looked at, where not the counts alone were
	// SearchedTo is when the last job was created that was looked at, where a bound has ended it
	// before all were.
	SearchedTo  time.Time
	Refused     int // what the action does not fit
	Jobs        []*job.Job
	DeadLetters []*job.DeadLetter
}

// errNoMoreNeeded ends a search before its last match.
var errNoMoreNeeded = errors.New("bulk: no more is needed")

// Preview looks at what matches a request now, and changes nothing. Where the store keeps the
// number of what matches, the sample alone is read. A search of texts goes on for searchTime at
// most and has the bounds of one request, as that of a list has; any other looks for maxCountTime.
func (b *Bulk) Preview(ctx context.Context, r Request,
	searchTime time.Duration) (p Preview, err error) {
	o := &Operation{Request: r}
	kept, err := b.keptCount(ctx, &r)
	if err != nil {
		return p, err
	}
	o.StartedAt = kept.at
	p.AsOf = o.meantAt()
	bounds := JobPage{MaxTime: maxCountTime, WithoutBodies: !r.searchesTexts()}
	switch {
	case kept.known:
		bounds.MaxTime, bounds.Limit = maxSampleTime, maxSample
	case !bounds.WithoutBodies:
		bounds.MaxTime, bounds.MaxJobs = searchTime, MaxSearchJobs
	}
	seen, err := b.each(ctx, o, bounds, func(i *item) error {
		isSampled := len(p.Jobs)+len(p.DeadLetters) == maxSample
		if p.Matching == MaxCounted || (isSampled && kept.known) {
			return errNoMoreNeeded
		}
		p.Matching++
		if !i.allowed || i.changed {
			p.Refused++
		}
		if isSampled {
			return nil
		}
		if i.deadLetter != nil {
			p.DeadLetters = append(p.DeadLetters, i.deadLetter)
		} else {
			p.Jobs = append(p.Jobs, i.job)
		}
		return nil
	})
	p.More, p.Read, p.SearchedTo = seen.more, seen.read, seen.searchedTo
	if err != nil || !bounds.WithoutBodies {
		return p, err
	}
	if kept.known {
		kept.setTo(&p)
	}
	if err := b.fillDeadLetters(ctx, p.DeadLetters); err != nil {
		return p, err
	}
	return p, b.fillSample(ctx, p.Jobs)
}

// fillDeadLetters loads the jobs of some dead letters that were read without. One that is gone
// meanwhile stays as it is.
func (b *Bulk) fillDeadLetters(ctx context.Context, deadLetters []*job.DeadLetter) error {
	ids := make([]int64, len(deadLetters))
	for i, l := range deadLetters {
		ids[i] = l.ID
	}
	loaded, err := b.Engine.DeadLettersByID(ctx, ids...)
	for i := range loaded {
		isOf := func(l *job.DeadLetter) bool { return l.ID == loaded[i].ID }
		at := slices.IndexFunc(deadLetters, isOf)
		deadLetters[at] = &loaded[i]
	}
	return err
}

// fillSample loads definition and failure of some jobs that were read without. One that is gone
// meanwhile, or was before, stays as it is.
func (b *Bulk) fillSample(ctx context.Context, jobs []*job.Job) error {
	numbers := make([]int64, len(jobs))
	for i, j := range jobs {
		numbers[i] = j.Seq
	}
	loaded, err := b.Engine.GetBySeqs(ctx, numbers, store.FailureOnly)
	for _, full := range loaded {
		at := slices.IndexFunc(jobs, func(j *job.Job) bool { return j.Seq == full.Seq })
		jobs[at].Definition, jobs[at].Failure = full.Definition, full.Failure
	}
	return err
}

// keptCount is how many jobs or dead letters match a request, by the counts that the store keeps.
type keptCount struct {
	at       time.Time // of the store, when it was read
	known    bool      // the store keeps it
	matching int64
	refused  int64 // of these, what the action does not fit
}

// setTo sets what a preview says of all that matches.
func (k *keptCount) setTo(p *Preview) {
	p.Matching, p.Refused = int(min(k.matching, MaxCounted)), int(min(k.refused, MaxCounted))
	p.More, p.SearchedTo = k.matching > MaxCounted, time.Time{}
}

// keptCount reads how many match a request now: where that names job types, phases and a queue at
// most, and where the phase of a job decides whether it allows the action.
func (b *Bulk) keptCount(ctx context.Context, r *Request) (k keptCount, err error) {
	isKept, err := b.isKept(ctx, r)
	if err != nil {
		return k, err
	}
	if !isKept {
		k.at, err = b.Engine.StoreTime(ctx)
		return k, err
	}
	if r.DeadLetters != nil && r.DeadLetters.isOfGroup() {
		return b.countGroup(ctx, r.DeadLetters)
	}
	queue := ""
	if k.known = true; r.DeadLetters != nil {
		queue = r.DeadLetters.Queue
	} else {
		queue = r.Jobs.Queue
	}
	counts, at, err := b.Engine.CountQueuesNow(ctx, r.jobTypes(), queue)
	k.at = at
	for i := range counts {
		if r.DeadLetters != nil {
			k.matching += counts[i].Dead
		} else {
			b.addJobs(&k, r, &counts[i])
		}
	}
	return k, err
}

// countGroup counts the open dead letters of a fingerprint. The number is known where all were
// looked at.
func (b *Bulk) countGroup(ctx context.Context, f *DeadLetterFilter) (k keptCount, err error) {
	all, at, err := b.Engine.DeadLetterGroups(ctx, f.JobTypes, MaxCounted)
	k.at, k.known = at, true
	for _, of := range all {
		k.known = k.known && !of.More
		for i := range of.Groups {
			if of.Groups[i].Fingerprint == f.Fingerprint {
				k.matching += of.Groups[i].Count
			}
		}
	}
	return k, err
}

// isKept reports whether the counts of queues, or the groups of dead letters, say how many match a
// request. They do not for an earlier moment (as_of), as they are of now, nor where there are dead
// letters of an older schema, which they leave out.
func (b *Bulk) isKept(ctx context.Context, r *Request) (bool, error) {
	switch {
	case !r.AsOf.IsZero():
		return false, nil
	case r.DeadLetters == nil:
		return b.isKeptOfJobs(r), nil
	case !r.DeadLetters.isOfQueues() && !r.DeadLetters.isOfGroup():
		return false, nil
	}
	var unmarked []store.DeadLetterSelector
	for _, name := range r.DeadLetters.JobTypes {
		unmarked = append(unmarked, store.DeadLetterSelector{JobType: name,
			WithoutFingerprint: true, Limit: 1})
	}
	lists, err := b.Engine.DeadLetters(ctx, unmarked...)
	hasSome := func(list []job.DeadLetter) bool { return len(list) > 0 }
	return !slices.ContainsFunc(lists, hasSome), err
}

// isKeptOfJobs is isKept for jobs.
func (b *Bulk) isKeptOfJobs(r *Request) bool {
	if !r.Jobs.isOfQueues() || len(b.deletedIn(&Operation{Request: *r})) > 0 {
		return false
	}
	for _, name := range r.Jobs.JobTypes {
		for _, p := range r.Jobs.phases() {
			if _, known := b.allowsIn(r.Action, name, p); !known {
				return false
			}
		}
	}
	return true
}

// addJobs adds the jobs of a queue or job type that match.
func (b *Bulk) addJobs(k *keptCount, r *Request, n *job.QueueCount) {
	dead, f := int64(0), r.Jobs
	if b.Engine.KeepsDeadJobs(n.JobType) {
		dead = n.Dead
	}
	add := func(p job.Phase, jobs int64) {
		k.matching += jobs
		if allowed, _ := b.allowsIn(r.Action, n.JobType, p); !allowed {
			k.refused += jobs
		}
	}
	isAll := len(f.Phases) == 0 && !f.Dead
	for p, jobs := range map[job.Phase]int64{job.Waiting: n.Waiting + n.Delayed, job.Ready: n.Ready,
		job.Leased: n.Leased, job.Done: n.Done - dead} {
		if isAll || slices.Contains(f.Phases, p) {
			add(p, jobs)
		}
	}
	if isAll || f.Dead {
		add(job.Done, dead)
	}
}

// allowsIn reports whether all jobs of a phase allow an action, or none does. known is false where
// only some do, or may.
func (b *Bulk) allowsIn(action, name string, p job.Phase) (allowed, known bool) {
	for _, c := range b.Contracts {
		for i := range c.JobTypes {
			if c.JobTypes[i].Name == name {
				return b.operatorOf(name).AllowsIn(action, statesIn(c.JobTypes[i].Machine, p))
			}
		}
	}
	return false, false
}

// statesIn returns the states that jobs of a phase may have: a job whose state is ready waits until
// it is due.
func statesIn(m *job.Machine, p job.Phase) (states []job.State) {
	for _, s := range m.States() {
		if of := m.Phase(s); of == p || (p == job.Waiting && of == job.Ready) {
			states = append(states, s)
		}
	}
	return states
}
