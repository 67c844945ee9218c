package bulk

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/millrace/millrace/internal/contract"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
)

// The jobs that match a filter are found in two steps. The store reads a window, which is a part of
// the list by number, without bodies, and compares what it can. Then matching compares all that the
// filter has; bodies and dead letters are read last. Windows follow each other until there are
// enough jobs or a bound of the request is reached.

// The sizes of windows, in jobs: each is larger than the one before.
const (
	firstWindow = 500
	lastWindow  = 8000
)

// JobPage asks for a page of the jobs that match a filter.
type JobPage struct {
	After   int64 // the number behind which it begins; 0 is the beginning
	Oldest  bool  // by number ascending, not descending
	Limit   int
	MaxJobs int           // how many jobs are read at most; 0 is no bound
	MaxTime time.Duration // how long reading goes on; 0 is no bound
}

// FoundJobs are the jobs of a page.
type FoundJobs struct {
	Jobs []*job.Job // with definition and failure at least
	Next int64      // the After of the next page, 0 at the end
	// SearchedTo is when the last job was created that was looked at, where a bound has ended the
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
		for chunk := range slices.Chunk(window.Jobs, PageSize) {
			jobs, err := s.matching(ctx, chunk)
			if err != nil {
				return FoundJobs{}, err
			}
			found.Jobs = append(found.Jobs, jobs...)
			if len(found.Jobs) > p.Limit {
				found.Jobs = found.Jobs[:p.Limit]
				found.Next = found.Jobs[p.Limit-1].Seq
				return found, nil
			}
			if s.read += len(chunk); s.isSpent() {
				last := chunk[len(chunk)-1]
				found.Next, found.SearchedTo = last.Seq, last.CreatedAt
				return found, nil
			}
		}
		switch s.after = window.Next; {
		case s.after == 0:
			return found, nil
		case s.isSpent():
			found.Next = s.after
			found.SearchedTo, err = b.createdAt(ctx, s.after)
			return found, err
		}
	}
}

// createdAt returns when a job was created, the zero time if it is gone.
func (b *Bulk) createdAt(ctx context.Context, number int64) (at time.Time, err error) {
	jobs, err := b.Engine.GetWithoutBodies(ctx, []int64{number})
	for _, j := range jobs {
		at = j.CreatedAt
	}
	return at, err
}

// search is how a page is found.
type search struct {
	*Bulk
	filter    *JobFilter
	page      *JobPage
	contracts []string     // of jobs that may match, as the engine has them
	stored    store.Filter // what the store compares
	after     int64
	window    int
	read      int
	begun     time.Duration
}

// newSearch begins a search; nil where no job can match.
func (b *Bulk) newSearch(ctx context.Context, f *JobFilter, p *JobPage) (*search, error) {
	s := &search{Bulk: b, filter: f, page: p, after: p.After, window: firstWindow,
		begun: b.Elapsed(), stored: store.Filter{Queue: f.Queue, Owner: f.Owner, Kind: f.Kind,
			Worker: f.Worker, Parent: f.Parent, CreatedFrom: f.CreatedFrom,
			CreatedBefore: f.CreatedBefore, FinishedFrom: f.SettledFrom,
			FinishedBefore: f.SettledBefore, MinAttempts: f.MinAttempts,
			Phases: slices.Clone(f.Phases), Dead: f.Dead && len(f.Phases) == 0,
			NewestFirst: !p.Oldest, WithoutBodies: true}}
	if f.Dead {
		s.stored.Phases = append(s.stored.Phases, job.Done)
	}
	phases := map[job.Phase]bool{}
	for _, c := range b.Contracts {
		for i := range c.Jobs {
			jobs := &c.Jobs[i]
			o := b.operatorOf(jobs.Name)
			states := o.StatesOf(f.States, jobs.Machine)
			if !slices.Contains(f.Contracts, jobs.Name) || (len(f.States) > 0 && len(states) == 0) ||
				(f.Kind != "" && o.Kind != "" && f.Kind != o.Kind) {
				continue
			}
			s.contracts = append(s.contracts, jobs.Name)
			s.stored.States = append(s.stored.States, states...)
			for _, state := range states {
				phase := jobs.Machine.Phase(state)
				phases[phase] = true
				if phase == job.Ready {
					phases[job.Waiting] = true // until the job is due
				}
			}
			if o.Kind != "" {
				s.stored.Kind = "" // it is that of all jobs of the contract
			}
		}
	}
	switch {
	case len(s.contracts) == 0:
		return nil, nil
	case len(s.contracts) == 1:
		s.stored.Contract = s.contracts[0]
	}
	if len(s.stored.Phases) == 0 {
		for phase := range phases {
			s.stored.Phases = append(s.stored.Phases, phase)
		}
	}
	return s, nil
}

// operatorOf returns what operators may do with jobs of the engine's contract.
func (b *Bulk) operatorOf(name string) *contract.Operator {
	return cmp.Or(contract.OperatorOf(b.Contracts, name), &contract.Operator{Jobs: name})
}

// isSpent reports whether a bound of the page is reached.
func (s *search) isSpent() bool {
	return (s.page.MaxJobs > 0 && s.read >= s.page.MaxJobs) ||
		(s.page.MaxTime > 0 && s.Elapsed()-s.begun >= s.page.MaxTime)
}

// next reads the next window.
func (s *search) next(ctx context.Context) (store.Page, error) {
	if s.filter.ID != "" {
		return s.byID(ctx)
	}
	f := s.stored
	f.Scan, f.Limit = s.window, s.window
	if s.window = min(2*s.window, lastWindow); f.NewestFirst {
		f.Before = s.after
	} else {
		f.After = s.after
	}
	switch {
	case f.Parent != 0: // these two have indexes, and matching has the states
		f.States = nil
		return s.Engine.ListPage(ctx, f)
	case f.Owner != "":
		f.States = nil
		return s.byOwner(ctx, f)
	}
	return s.Engine.ListPage(ctx, f)
}

// byOwner merges the lists of an owner, which each contract has.
func (s *search) byOwner(ctx context.Context, f store.Filter) (all store.Page, err error) {
	for _, f.Contract = range s.contracts {
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

// byID reads the jobs with the id of the filter: one of each contract or, where ids are unique
// within a queue, of each queue.
func (s *search) byID(ctx context.Context) (page store.Page, err error) {
	var ids []job.ID
	for _, name := range s.contracts {
		scopes := []string{""}
		if s.operatorOf(name).IDsOfQueues {
			if scopes, err = s.queuesOf(ctx, name); err != nil {
				return page, err
			}
		}
		for _, scope := range scopes {
			ids = append(ids, job.ID{Contract: name, Scope: scope, Key: s.filter.ID})
		}
	}
	if len(ids) == 0 {
		return page, nil
	}
	page.Jobs, err = s.Engine.GetAll(ctx, ids)
	page.Jobs = slices.DeleteFunc(page.Jobs, func(j *job.Job) bool {
		return s.after != 0 && !s.isBefore(s.after, j.Seq)
	})
	s.order(page.Jobs)
	return page, err
}

// queuesOf returns the queues of a contract that the filter selects.
func (s *search) queuesOf(ctx context.Context, name string) (names []string, err error) {
	if s.filter.Queue != "" {
		return []string{s.filter.Queue}, nil
	}
	counts, err := s.Engine.Queues(ctx, name)
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

// matching returns those of some jobs that match, with the bodies that they need, in their order.
func (s *search) matching(ctx context.Context, jobs []*job.Job) ([]*job.Job, error) {
	var numbers []int64
	for _, j := range jobs {
		if s.filter.matches(j, s.operatorOf(j.ID.Contract)) {
			numbers = append(numbers, j.Seq)
		}
	}
	if len(numbers) == 0 {
		return nil, nil
	}
	load := s.Engine.GetListed
	if s.filter.Text != "" {
		load = s.Engine.GetFull
	}
	found, err := load(ctx, numbers)
	if err != nil {
		return nil, err
	}
	found = slices.DeleteFunc(found, func(j *job.Job) bool {
		o := s.operatorOf(j.ID.Contract)
		seen := *j
		o.HideSecrets(&seen)
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
	dead, err := s.Engine.DeadOf(ctx, jobs)
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
