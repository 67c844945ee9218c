package engine

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
)

// Queues returns the counts of a job type's queues, without the jobs that are done; an empty name
// means all job types.
func (e *Engine) Queues(ctx context.Context, jobType string) (counts []job.QueueCount, err error) {
	return e.counts(ctx, store.QueueSelector{JobType: jobType})
}

// CountQueues returns the counts of the selected queues that have jobs, with those that are done.
func (e *Engine) CountQueues(ctx context.Context, s store.QueueSelector) ([]job.QueueCount, error) {
	s.WithDone = true
	return e.counts(ctx, s)
}

func (e *Engine) counts(ctx context.Context, s store.QueueSelector) (counts []job.QueueCount,
	err error) {
	err = e.view(ctx, func(r reader) error { counts, err = r.Counts(s); return err })
	return counts, err
}

// CountQueuesNow returns the counts of a queue of each of some job types, or the sums of these
// job types where queue is empty, with jobs that are done, and the time of the store at which they
// are right.
func (e *Engine) CountQueuesNow(ctx context.Context, jobTypes []string,
	queue string) (counts []job.QueueCount, at time.Time, err error) {
	err = e.view(ctx, func(r reader) error {
		counts, at = nil, r.Now()
		for _, name := range jobTypes {
			some, err := r.Counts(store.QueueSelector{JobType: name, Queue: queue,
				Sums:     queue == "",
				WithDone: true})
			if err != nil {
				return err
			}
			counts = append(counts, some...)
		}
		return nil
	})
	return counts, at, err
}

// KeepsDeadJobs reports whether the jobs of a job type stay stored when they are given up.
func (e *Engine) KeepsDeadJobs(jobType string) bool {
	t := e.jobTypes[jobType]
	return t != nil && t.keepsDeadJobs
}

// CountQuery asks how many jobs have each value of a field.
type CountQuery struct {
	JobTypes []string
	Queue    string // empty means all
	By       store.JobField
	Limit    int // up to how many jobs are counted one by one
	// Kinds are those that jobs of a job type have, for the job types whose jobs have a kind each.
	Kinds map[string][]string
	// UsesFailedDeps reports whether what a state means depends on JobGroup.FailedDeps; nil: none.
	UsesFailedDeps func(jobType string, s job.State) bool
	// ShouldStop reports whether to stop reading: phases that were not read yet are left out, and
	// what they may have is AtLeast. It may be nil.
	ShouldStop func() bool
}

// JobCount is how many jobs of a job type have one value of a field.
type JobCount struct {
	JobType    string
	Value      string
	FailedDeps bool // see store.JobGroup
	Jobs       int64
	AtLeast    bool // there may be more
}

// CountJobs counts the jobs of job types by a field, as they were at one moment. Where a phase has
// one state, the counts of the queues say how many there are; the others are counted one by one, up
// to the limit in a phase or, of those that are done, in a state.
func (e *Engine) CountJobs(ctx context.Context, q CountQuery) (all []JobCount, err error) {
	err = e.view(ctx, func(r reader) error {
		all = nil
		totals, err := totalsOf(r, q.JobTypes)
		if err != nil {
			return err
		}
		for _, name := range q.JobTypes {
			t, err := e.jobType(name)
			if err != nil {
				return err
			}
			k := counter{reader: r, jobType: t, query: &q, total: totals[name],
				found: map[store.JobGroup]*JobCount{}}
			if err := k.count(); err != nil {
				return err
			}
			for _, n := range k.found {
				all = append(all, *n)
			}
		}
		return nil
	})
	return all, err
}

// totalsOf returns the sums of the counts of job types, and perhaps of others: the counters of
// several are read together.
func totalsOf(r reader, jobTypes []string) (map[string]job.QueueCount, error) {
	s := store.QueueSelector{Sums: true, WithDone: true}
	if len(jobTypes) == 1 {
		s.JobType = jobTypes[0]
	}
	sums, err := r.Counts(s)
	totals := make(map[string]job.QueueCount, len(sums))
	for _, c := range sums {
		totals[c.JobType] = c
	}
	return totals, err
}

// counter counts the jobs of one job type.
type counter struct {
	reader
	jobType *JobType
	query   *CountQuery
	// total is of the queues that are asked for; hasOthers says that there are others with jobs.
	total     job.QueueCount
	hasOthers bool
	found     map[store.JobGroup]*JobCount // by the group without its number
}

func (k *counter) count() error {
	if k.query.Queue != "" {
		one, err := k.Counts(store.QueueSelector{JobType: k.jobType.Name, Queue: k.query.Queue,
			WithDone: true})
		if err != nil {
			return err
		}
		all := k.total.Jobs()
		k.total = job.QueueCount{}
		for _, c := range one {
			k.total = c
		}
		k.hasOthers = all != k.total.Jobs()
	}
	switch kinds := k.query.Kinds[k.jobType.Name]; {
	case k.query.By == store.ByState:
		return k.countStates()
	case k.query.By == store.ByKind && len(kinds) > 0 && !k.hasOthers:
		if counted, err := k.countKinds(kinds); counted || err != nil {
			return err
		}
	}
	isAll := true
	for p := range job.Done + 1 {
		complete, err := k.countPhase(p)
		if err != nil {
			return err
		}
		isAll = isAll && complete
	}
	for _, n := range k.found {
		n.AtLeast = !isAll // a worker, say, may have more in the phase that was not read to its end
	}
	return nil
}

// countPhase counts the jobs of a phase, and reports whether these are all of them.
func (k *counter) countPhase(p job.Phase) (complete bool, err error) {
	if k.query.By == store.ByWorker && (p == job.Waiting || p == job.Ready) {
		return k.countByWorker(p)
	}
	_, complete, err = k.groups(p, func(store.JobGroup) bool { return true })
	return complete, err
}

// countByWorker counts the jobs of a phase by worker, of those that had one before. The others have
// none.
func (k *counter) countByWorker(p job.Phase) (complete bool, err error) {
	left := k.inPhase(p)
	s := store.CountSelector{JobType: k.jobType.Name, Queue: k.query.Queue, By: k.query.By,
		Phase:     p,
		HadWorker: true}
	for window := firstCounted; left > 0; window = min(2*window, lastCounted) {
		if window = min(window, maxPassed-s.Skip); window <= 0 || k.shouldStop() {
			return false, nil
		}
		groups, err := k.CountUpTo(s, window)
		if err != nil {
			return false, err
		}
		looked := 0
		for _, g := range groups {
			looked += g.Jobs
			if g.Value != "" { // it is of this job type
				left -= int64(g.Jobs)
				k.add(g, int64(g.Jobs))
			}
		}
		if s.Skip += looked; looked < window {
			k.add(store.JobGroup{}, left)
			return true, nil
		}
	}
	return true, nil
}

// countKinds counts by kind, of which an index has the numbers. It counts nothing where there are
// jobs of other kinds.
func (k *counter) countKinds(kinds []string) (counted bool, err error) {
	numbers, more, err := k.countEach(kinds, 0, func(kinds []string) store.CountSelector {
		return store.CountSelector{JobType: k.jobType.Name, By: store.ByKind, Values: kinds}
	})
	if err != nil {
		return false, err
	}
	sum := int64(0)
	for _, n := range numbers {
		sum += n
	}
	if len(more) == 0 && sum != k.total.Jobs() {
		return false, nil
	}
	for kind, n := range numbers {
		if n > 0 {
			k.add(store.JobGroup{Value: kind}, n).AtLeast = slices.Contains(more, kind)
		}
	}
	return true, nil
}

// countEach counts the jobs of each of some values that an index has: a few of all of them first,
// then more of each that has more, until maxMore values have more, there are as many as the limit,
// or it is enough. It returns the values that may have more than was counted.
func (k *counter) countEach(values []string, maxMore int,
	selector func(values []string) store.CountSelector) (counted map[string]int64, more []string,
	err error) {
	counted = map[string]int64{}
	count := func(upTo int, values ...string) error {
		groups, err := k.CountUpTo(selector(values), upTo+1)
		for _, g := range groups {
			if counted[g.Value] = int64(min(g.Jobs, upTo)); g.Jobs > upTo {
				more = append(more, g.Value)
			}
		}
		return err
	}
	upTo := min(firstCounted, k.query.Limit)
	if err := count(upTo, values...); err != nil {
		return nil, nil, err
	}
	for len(more) > maxMore && upTo < k.query.Limit && !k.shouldStop() {
		values, more = more, nil
		upTo = min(4*upTo, k.query.Limit)
		for _, value := range values {
			if k.shouldStop() {
				more = append(more, value)
			} else if err := count(upTo, value); err != nil {
				return nil, nil, err
			}
		}
	}
	return counted, more, nil
}

// add adds to the number of a group.
func (k *counter) add(g store.JobGroup, n int64) *JobCount {
	g.Jobs = 0
	c := k.found[g]
	if c == nil {
		c = &JobCount{JobType: k.jobType.Name, Value: g.Value, FailedDeps: g.FailedDeps}
		k.found[g] = c
	}
	c.Jobs += n
	return c
}

// inPhase returns how many jobs there are in a phase.
func (k *counter) inPhase(p job.Phase) int64 {
	return [...]int64{job.Waiting: k.total.Waiting + k.total.Delayed, job.Ready: k.total.Ready,
		job.Leased: k.total.Leased, job.Done: k.total.Done}[p]
}

// The sizes of windows of jobs that are counted, each twice the one before, and how many jobs of a
// phase are looked at for those of a job type and queue.
const (
	firstCounted = 2000
	lastCounted  = 16_000
	maxPassed    = 200_000
)

// groups counts the jobs of a phase one by one and adds those groups that are wanted. It returns
// them, and whether these are all jobs of the phase.
func (k *counter) groups(p job.Phase, isWanted func(store.JobGroup) bool) (added []*JobCount,
	complete bool, err error) {
	left := k.inPhase(p)
	if left == 0 {
		return nil, true, nil
	}
	selectors, err := k.selectors(p)
	if err != nil {
		return nil, false, err
	}
	passed, counted := 0, 0
	for i := range selectors {
		s := &selectors[i]
		window := firstCounted
		for ; left > 0 && s.Skip < s.jobs; window = min(2*window, k.lastWindow(p)) {
			window = min(window, k.query.Limit-counted, maxPassed-passed)
			if window <= 0 || k.shouldStop() {
				return added, false, nil
			}
			groups, err := k.CountUpTo(s.CountSelector, window)
			if err != nil {
				return nil, false, err
			}
			for _, g := range groups {
				counted += g.Jobs
				if left -= int64(g.Jobs); isWanted(g) {
					added = append(added, k.add(g, int64(g.Jobs)))
				}
			}
			s.Skip += window
			passed += window
		}
	}
	return added, left == 0, nil
}

// lastWindow is the size of the largest window of jobs of a phase. An index has all that is counted
// of jobs by worker that are done.
func (k *counter) lastWindow(p job.Phase) int {
	if k.query.By == store.ByWorker && k.query.Queue == "" && p == job.Done {
		return 4 * lastCounted
	}
	return lastCounted
}

// shouldStop reports whether to stop reading.
func (k *counter) shouldStop() bool { return k.query.ShouldStop != nil && k.query.ShouldStop() }

// countedJobs selects jobs that are counted in windows; jobs is how many it looks at in all.
type countedJobs struct {
	store.CountSelector
	jobs int
}

// selectors returns what selects the jobs of a phase. Those that are ready are found by queue: each
// queue with many alone, the others together.
func (k *counter) selectors(p job.Phase) (all []countedJobs, err error) {
	of := store.CountSelector{JobType: k.jobType.Name, Queue: k.query.Queue, By: k.query.By,
		Phase:      p,
		Searchable: k.query.Queue != "" && k.jobType.Searchable && p == job.Done}
	if p != job.Ready {
		return []countedJobs{{of, math.MaxInt}}, nil
	}
	queues, err := k.Counts(store.QueueSelector{JobType: k.jobType.Name, Queue: k.query.Queue})
	some := countedJobs{CountSelector: of}
	for _, q := range queues {
		hash := job.QueueHashOf(q.JobType, q.Queue)
		switch {
		case q.Ready <= 0:
		case q.Ready > firstCounted:
			one := of
			one.Ready = []job.QueueHash{hash}
			all = append(all, countedJobs{one, int(q.Ready)})
		default:
			if some.jobs+int(q.Ready) > firstCounted {
				all = append(all, some)
				some = countedJobs{CountSelector: of}
			}
			some.Ready = append(some.Ready, hash)
			some.jobs += int(q.Ready)
		}
	}
	return append(all, some), err
}

// countStates counts by state. A job whose state is ready has the phase Waiting until it is due, so
// the phase of a state may be in the tables of two.
func (k *counter) countStates() error {
	open := map[job.Phase]bool{} // the phases of states that are counted one by one
	totals := map[job.Phase]int64{job.Waiting: k.total.Waiting,
		job.Ready: k.total.Delayed + k.total.Ready, job.Leased: k.total.Leased,
		job.Done: k.total.Done}
	for _, p := range []job.Phase{job.Waiting, job.Ready, job.Leased, job.Done} {
		total, states := totals[p], k.statesIn(p)
		switch {
		case total == 0:
		case len(states) == 1:
			k.add(store.JobGroup{Value: string(states[0])}, total)
		case k.hasIndex(p, states):
			if err := k.countIn(p, states, total); err != nil {
				return err
			}
		default:
			open[p] = true
		}
	}
	for p := range job.Done + 1 {
		if !open[p] && (p != job.Waiting || !open[job.Ready]) {
			continue
		}
		added, complete, err := k.groups(p, func(g store.JobGroup) bool {
			return open[k.jobType.Machine.Phase(job.State(g.Value))]
		})
		if err != nil {
			return err
		}
		if complete {
			continue
		}
		for _, n := range append(added, k.unseen(p, open)...) {
			n.AtLeast = true
		}
	}
	return nil
}

// unseen adds the states that more jobs of a phase may have than were looked at.
func (k *counter) unseen(p job.Phase, open map[job.Phase]bool) (added []*JobCount) {
	for _, s := range k.jobType.Machine.States() {
		of := k.jobType.Machine.Phase(s)
		if open[of] && (of == p || (of == job.Ready && p == job.Waiting)) {
			added = append(added, k.add(store.JobGroup{Value: string(s)}, 0))
		}
	}
	return added
}

// statesIn returns the states that are of a phase.
func (k *counter) statesIn(p job.Phase) (states []job.State) {
	for _, s := range k.jobType.Machine.States() {
		if k.jobType.Machine.Phase(s) == p {
			states = append(states, s)
		}
	}
	return states
}

// hasIndex reports whether an index has the jobs of a phase by their states: of those that are
// over, unless it is one queue of several that is asked for, and of those that are searchable,
// unless what a state means depends on more than an index has.
func (k *counter) hasIndex(p job.Phase, states []job.State) bool {
	switch {
	case p == job.Done && (k.query.Queue == "" || !k.hasOthers):
		return true
	case !k.jobType.Searchable:
		return false
	}
	return p == job.Done || k.query.UsesFailedDeps == nil ||
		!slices.ContainsFunc(states, func(s job.State) bool {
			return k.query.UsesFailedDeps(k.jobType.Name, s)
		})
}

// countIn counts the jobs of a phase by their states, which an index has. When there is one state
// left that has more, it has what the others leave.
func (k *counter) countIn(p job.Phase, states []job.State, total int64) error {
	queue := k.query.Queue
	if !k.hasOthers {
		queue = "" // it has all of them
	}
	values := make([]string, len(states))
	for i, s := range states {
		values[i] = string(s)
	}
	counted, more, err := k.countEach(values, 1, func(values []string) store.CountSelector {
		return store.CountSelector{JobType: k.jobType.Name, Queue: queue, By: store.ByState,
			Values: values, Searchable: p != job.Done || queue != ""}
	})
	if err != nil {
		return err
	}
	left := total
	for _, n := range counted {
		left -= n
	}
	if len(more) == 1 {
		counted[more[0]] += left
	}
	for s, n := range counted {
		k.add(store.JobGroup{Value: s}, n).AtLeast = len(more) > 1 && slices.Contains(more, s)
	}
	return nil
}

// countUpTo counts jobs that are one group.
func countUpTo(r reader, s store.CountSelector, limit int) (int, error) {
	groups, err := r.CountUpTo(s, limit)
	if err != nil {
		return 0, err
	}
	return groups[0].Jobs, nil
}
