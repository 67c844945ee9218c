package bulk

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"time"

	"github.com/millrace/millrace/internal/contract"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
)

// The jobs that match a filter are found in two steps. First the store reads a window, which is a
// part of the list by number, without bodies, and compares some members of the filter. Then
// matching compares all members; bodies and dead letters are read last. Windows follow each other
// until there are enough jobs or a bound of the request is reached.
//
//	newSearch ─▶ next: a window by number ─▶ chunks ─▶ matching ─▶ FoundJobs
//	               ▲     one of: byID, the list of a parent,          │
//	               │     byOwner, listNarrow, all jobs                │ not enough, and no bound
//	               └────────────────── grow ◀─────────────────────────┘
//
// If several lists are merged, a page ends at the first number up to which all of them were read.
// Behind it, one of the lists may have jobs that were not read yet.

// The sizes of windows, in jobs. If all jobs match, the first window is enough for a page. Each
// window is larger than the one before, if there is time for it. A search of texts checks the time
// within a window as well, so it begins with a larger one.
const (
	minWindow    = 50
	textWindow   = 500
	maxWindow    = 8000
	windowGrowth = 4
)

// The bounds of one request that searches texts, which needs the bodies of all jobs that are looked
// at (AD-012).
const (
	MaxSearchTime = 500 * time.Millisecond
	MaxSearchJobs = 200_000
)

// maxLarge bounds how many jobs with large bodies, which are stored out of line, are loaded at
// once. If the time is bounded, the first such load has firstLarge of them, and each later one as
// many as there is time for.
const (
	firstLarge = 2
	maxLarge   = 8
)

// JobPage asks for a page of the jobs that match a filter, or of the dead letters, whose numbers
// are their IDs and which always come by these ascending.
type JobPage struct {
	After   int64 // the number behind which it begins; 0 is the beginning
	Oldest  bool  // by number ascending, not descending
	Limit   int
	MaxJobs int           // how many are read at most; 0 is no bound
	MaxTime time.Duration // how long reading goes on; 0 is no bound
	// WithoutBodies leaves out the bodies of jobs, and the jobs of dead letters, for callers that
	// only count them. The filter must not search texts then.
	WithoutBodies bool
}

// FoundJobs are the jobs of a page.
type FoundJobs struct {
	Jobs []*job.Job // with no body but the definition and the failure; see JobPage.WithoutBodies
	Next int64      // the After of the next page, 0 at the end
	Read int        // how many jobs were looked at
	// SearchedTo is when the last job that was looked at was created, if a bound has ended the
	// page.
	SearchedTo time.Time
}

// FindJobs returns a page of the jobs that match a filter.
func (b *Bulk) FindJobs(ctx context.Context, f *JobFilter, p JobPage) (found FoundJobs, err error) {
	s, err := b.newSearch(ctx, f, &p)
	if err != nil || s == nil {
		return found, err
	}
	for {
		window, err := s.next(ctx)
		if err != nil {
			return FoundJobs{}, err
		}
		for chunk := range s.chunks(window.Jobs) {
			jobs, err := s.matching(ctx, chunk)
			if err != nil {
				return FoundJobs{}, err
			}
			s.endStep()
			found.Read += len(chunk)
			found.Jobs = append(found.Jobs, jobs...)
			if len(found.Jobs) > p.Limit {
				found.Jobs = found.Jobs[:p.Limit]
				found.Next = found.Jobs[p.Limit-1].Seq
				isLast := func(j *job.Job) bool { return j.Seq == found.Next }
				found.Read -= countAfter(chunk, isLast)
				return found, nil
			}
			if s.isExhausted(found.Read) {
				last := chunk[len(chunk)-1]
				found.Next, found.SearchedTo = last.Seq, last.CreatedAt
				return found, nil
			}
		}
		s.endStep()
		switch s.after = window.Next; {
		case s.after == 0:
			return found, nil
		case s.isExhausted(found.Read):
			found.Next = s.after
			found.SearchedTo, err = s.createdAt(ctx, s.after)
			return found, err
		}
		s.grow()
	}
}

// countAfter returns how many items stand behind the last one of a page, which is all of them if
// that one is not among them.
func countAfter[T any](items []T, isLast func(T) bool) int {
	return len(items) - 1 - slices.IndexFunc(items, isLast)
}

// createdAt returns when the job with a number was created. If the job was deleted, createdAt
// returns the time of the nearest job before it in the order of the page, or else of the next one.
// If there is no job at all, it is the zero time.
func (s *search) createdAt(ctx context.Context, number int64) (time.Time, error) {
	for _, newest := range []bool{s.page.Oldest, !s.page.Oldest} {
		f := store.Filter{NewestFirst: newest, WithoutBodies: true, Limit: 1}
		if newest {
			f.Before = number + 1
		} else {
			f.After = number - 1
		}
		jobs, err := s.Engine.List(ctx, f)
		if err != nil || len(jobs) > 0 {
			return createdAtOf(jobs), err
		}
	}
	return time.Time{}, nil
}

// createdAtOf returns when the first of some jobs was created, or the zero time if there are none.
func createdAtOf(jobs []*job.Job) time.Time {
	if len(jobs) == 0 {
		return time.Time{}
	}
	return jobs[0].CreatedAt
}

// search is how a page is found.
type search struct {
	*Bulk
	budget
	filter     *JobFilter
	candidates []candidate  // the job types that are read as lists
	jobTypes   []string     // the names of all job types that may match
	direct     []*job.Job   // the jobs with the id, or the numbers, of the filter
	stored     store.Filter // what the store compares
	after      int64
	window     int // the size of the next window
	searched   int // the sum of the sizes of all windows before
	large      int // how many jobs with large bodies are loaded next
}

// newSearch begins a search. It returns nil if no job can match.
func (b *Bulk) newSearch(ctx context.Context, f *JobFilter, p *JobPage) (*search, error) {
	s := &search{Bulk: b, budget: b.newPageBudget(p, f.SearchesTexts()), filter: f, after: p.After,
		window: max(p.Limit+1, minWindow), large: p.firstLarge(),
		stored: store.Filter{Queue: f.Queue, Owner: f.Owner, Kind: f.Kind,
			Worker: f.Worker, Parent: f.Parent, CreatedFrom: f.CreatedFrom,
			CreatedBefore: f.CreatedBefore, FinishedFrom: f.FinishedFrom,
			FinishedBefore: f.FinishedBefore, MinAttempts: f.MinAttempts,
			Phases: slices.Clone(f.Phases), Dead: f.Dead && len(f.Phases) == 0,
			NewestFirst: !p.Oldest, WithoutBodies: true}}
	if f.Dead {
		s.stored.Phases = append(s.stored.Phases, job.Done)
	}
	if f.SearchesTexts() {
		s.window = textWindow
	}
	phases := map[job.Phase]bool{}
	for _, c := range b.Contracts {
		for i := range c.JobTypes {
			jobs := &c.JobTypes[i]
			o := b.operatorOf(jobs.Name)
			states := o.StatesOf(f.States, jobs.Machine)
			if !slices.Contains(f.JobTypes, jobs.Name) || (len(f.States) > 0 && len(states) == 0) ||
				(f.Kind != "" && (o.HasNoKinds || (o.Kind != "" && f.Kind != o.Kind))) {
				continue
			}
			s.jobTypes = append(s.jobTypes, jobs.Name)
			of := candidate{JobType: jobs, states: states}
			if len(f.States) == 0 {
				of.states = jobs.Machine.States()
			}
			if o.Kind == "" {
				of.kind = f.Kind
			}
			s.candidates = append(s.candidates, of)
			s.stored.States = append(s.stored.States, states...)
			for _, state := range states {
				phase := jobs.Machine.Phase(state)
				phases[phase] = true
				if phase == job.Ready {
					phases[job.Waiting] = true // until the job is due
				}
			}
			if o.Kind != "" {
				s.stored.Kind = "" // all jobs of the job type have it
			}
		}
	}
	switch {
	case len(s.jobTypes) == 0:
		return nil, nil
	case len(s.jobTypes) == 1:
		s.stored.JobType = s.jobTypes[0]
	}
	if len(s.stored.Phases) == 0 {
		for phase := range phases {
			s.stored.Phases = append(s.stored.Phases, phase)
		}
	}
	switch {
	case len(f.Numbers) > 0:
		found, err := b.Engine.GetBySeqs(ctx, f.Numbers, store.DefinitionOnly)
		s.direct, s.candidates = found, nil
		return s, err
	case f.ID != "":
		return s, s.findDirect(ctx)
	}
	return s, nil
}

// operatorOf returns what operators may do with jobs of a job type.
func (b *Bulk) operatorOf(name string) *contract.Operator {
	return contract.OperatorOf(b.Contracts, name)
}

// grow sets the size of the next window, which is bounded by the jobs that may be read and by what
// can be read in the time that is left.
func (s *search) grow() {
	s.searched += s.window
	s.window = min(windowGrowth*s.window, maxWindow)
	if s.page.MaxJobs > 0 {
		s.window = min(s.window, max(s.page.MaxJobs-s.searched, 1))
	}
	s.window = s.fit(s.window, s.searched, minWindow)
}

// firstLarge returns how many jobs with large bodies are loaded at first.
func (p *JobPage) firstLarge() int {
	if p.MaxTime > 0 {
		return firstLarge
	}
	return maxLarge
}

// growLarge sets how many jobs with large bodies are loaded next, by how long it took to search the
// last ones.
func (s *search) growLarge(searched int, took time.Duration) {
	if searched == 0 || s.page.MaxTime == 0 {
		return
	}
	s.large = min(2*s.large, maxLarge)
	if took > 0 {
		left := s.page.MaxTime - s.spent
		s.large = min(s.large, max(1, int(float64(searched)*float64(left)/float64(took))))
	}
}

// next reads the next window.
func (s *search) next(ctx context.Context) (store.Page, error) {
	f := s.stored
	f.Scan, f.Limit = s.window, s.window
	if f.NewestFirst {
		f.Before = s.after
	} else {
		f.After = s.after
	}
	switch {
	case s.filter.ID != "" || len(s.filter.Numbers) > 0:
		return s.byID(ctx, f)
	case f.Parent != 0: // parents and owners have indexes; matching compares the states
		f.States = nil
		return s.Engine.ListPage(ctx, f)
	case f.Owner != "":
		f.States = nil
		return s.byOwner(ctx, f)
	case s.isNarrow():
		return s.listNarrow(ctx, f)
	}
	return s.Engine.ListPage(ctx, f)
}

// byOwner merges the lists of an owner, which each job type has.
func (s *search) byOwner(ctx context.Context, f store.Filter) (all store.Page, err error) {
	for _, f.JobType = range s.jobTypes {
		page, err := s.Engine.ListPage(ctx, f)
		if err != nil {
			return page, err
		}
		all.Jobs = append(all.Jobs, page.Jobs...)
		if page.Next != 0 && (all.Next == 0 || s.isBefore(page.Next, all.Next)) {
			all.Next = page.Next
		}
	}
	all.Jobs = slices.DeleteFunc(all.Jobs, func(j *job.Job) bool {
		return all.Next != 0 && s.isBefore(all.Next, j.Seq) // not all lists were read beyond it
	})
	s.order(all.Jobs)
	return all, nil
}

// maxScopes bounds in how many queues an id is looked up.
const maxScopes = 2000

// findDirect reads the jobs with the id of the filter: one of each job type or, if ids are unique
// within a queue only, of each queue. Job types with too many queues stay candidates, which are
// read as lists.
func (s *search) findDirect(ctx context.Context) error {
	var ids []job.ID
	var left []candidate
	for _, c := range s.candidates {
		scopes := []string{""}
		if s.operatorOf(c.Name).IDsOfQueues {
			var err error
			if scopes, err = s.queuesOf(ctx, c.Name); err != nil {
				return err
			}
		}
		if len(scopes) > maxScopes {
			left = append(left, c)
			continue
		}
		for _, scope := range scopes {
			ids = append(ids, job.ID{JobType: c.Name, Scope: scope, Key: s.filter.ID})
		}
	}
	s.candidates = left
	if len(ids) == 0 {
		return nil
	}
	found, err := s.Engine.GetByIDs(ctx, ids, store.NoBodies)
	s.direct = found
	return err
}

// byID returns the jobs with the id or the numbers of the filter: those of a window of the
// candidates, and those of direct that belong to this window.
func (s *search) byID(ctx context.Context, f store.Filter) (page store.Page, err error) {
	if len(s.candidates) > 0 {
		if page, err = s.listNarrow(ctx, f); err != nil {
			return page, err
		}
	}
	for _, j := range s.direct {
		isDone := s.after != 0 && !s.isBefore(s.after, j.Seq)
		isBeyond := page.Next != 0 && s.isBefore(page.Next, j.Seq)
		if !isDone && !isBeyond {
			page.Jobs = append(page.Jobs, j)
		}
	}
	s.order(page.Jobs)
	page.Jobs = slices.CompactFunc(page.Jobs, func(a, b *job.Job) bool { return a.Seq == b.Seq })
	return page, nil
}

// queuesOf returns the queues of a job type that the filter selects.
func (s *search) queuesOf(ctx context.Context, name string) (names []string, err error) {
	if s.filter.Queue != "" {
		return []string{s.filter.Queue}, nil
	}
	counts, err := s.Engine.CountQueues(ctx, store.QueueSelector{JobType: name})
	for _, c := range counts {
		names = append(names, c.Queue)
	}
	return names, err
}

// isBefore reports whether a number stands before another in the order of the page.
func (s *search) isBefore(a, b int64) bool {
	if s.page.Oldest {
		return a < b
	}
	return a > b
}

// order sorts jobs as the page has them.
func (s *search) order(jobs []*job.Job) {
	slices.SortFunc(jobs, func(a, b *job.Job) int {
		if s.page.Oldest {
			return cmp.Compare(a.Seq, b.Seq)
		}
		return cmp.Compare(b.Seq, a.Seq)
	})
}

// chunks cuts the jobs of a window into chunks, whose bodies are loaded together. A chunk has at
// most a page of jobs and, if texts are searched, at most s.large jobs with large bodies.
func (s *search) chunks(jobs []*job.Job) iter.Seq[[]*job.Job] {
	size := PageSize
	if s.page.WithoutBodies {
		size = pageSizeWithoutBodies
	}
	return func(yield func([]*job.Job) bool) {
		for len(jobs) > 0 {
			n, large := 0, 0
			for n < len(jobs) && n < size && large < s.large {
				if s.filter.Text != "" && jobs[n].OutOfLine != 0 {
					large++
				}
				n++
			}
			before := s.spent
			if !yield(jobs[:n]) {
				return
			}
			jobs = jobs[n:]
			s.growLarge(large, s.spent-before)
		}
	}
}

// matching returns those of some jobs that match the filter, with definition and failure, in the
// order of the page.
func (s *search) matching(ctx context.Context, jobs []*job.Job) ([]*job.Job, error) {
	var numbers []int64
	var bare []*job.Job
	for _, j := range jobs {
		if s.filter.matches(j, s.operatorOf(j.ID.JobType)) {
			numbers, bare = append(numbers, j.Seq), append(bare, j)
		}
	}
	switch {
	case len(numbers) == 0:
		return nil, nil
	case s.page.WithoutBodies:
		return s.inPhase(ctx, bare)
	}
	bodies := store.FailureOnly
	if s.filter.Text != "" {
		bodies = store.AllBodies
	}
	found, err := s.Engine.GetBySeqs(ctx, numbers, bodies)
	if err != nil {
		return nil, err
	}
	found = slices.DeleteFunc(found, func(j *job.Job) bool {
		o := s.operatorOf(j.ID.JobType)
		seen := *j
		o.HideSecrets(&seen)
		j.Payload, j.Progress, j.Result = nil, nil, nil // they were looked at
		return !s.filter.matches(j, o) || !s.filter.contains(&seen)
	})
	s.order(found)
	return s.inPhase(ctx, found)
}

// inPhase returns those of some jobs that are in a phase of the filter. A job with an open dead
// letter is in none but dead (G-AD-06).
func (s *search) inPhase(ctx context.Context, jobs []*job.Job) ([]*job.Job, error) {
	if !s.filter.Dead && !slices.Contains(s.filter.Phases, job.Done) {
		return jobs, nil
	}
	dead, err := s.Engine.WithOpenDeadLetters(ctx, jobs)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(jobs, func(j *job.Job) bool {
		if dead[j.Seq] {
			return !s.filter.Dead
		}
		return !slices.Contains(s.filter.Phases, j.Phase)
	}), nil
}
