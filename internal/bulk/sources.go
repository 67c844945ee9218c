package bulk

import (
	"context"
	"slices"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
)

// If a filter names job types, states or a queue, most jobs of a store may not match it. A list of
// all jobs would pass over those. So the list is read from indexes (store.Index) that hold few
// other jobs, and from the tables of phases in which the job type has jobs (decision 0074):
//
//	jobs                 are read from                       if
//	done                 the index by job type and state
//	of a queue           the indexes of the queue            the job type is searchable
//	of a kind            the index by kind                   they are few
//	in a state not done  the index by state                  it is searchable, and they are few
//	ready                the indexes of the ready of queues  they are few
//	all others           the tables of the phases
//
// If the ready jobs of a job type are many, many of the jobs in the table of ready jobs match.

const (
	// maxIndexJobs bounds the jobs of an index that is read for a page: their numbers are sorted.
	maxIndexJobs = 5000
	// maxIndexQueues bounds the queues whose indexes of ready jobs are read for a page.
	maxIndexQueues = 50
)

// candidate is a job type that has jobs which may match, with the states in which they match.
type candidate struct {
	*engine.JobType
	states []job.State
	// kind is the kind of the filter. It is empty if the filter has none, or if all jobs of the job
	// type are of this kind.
	kind string
}

// isNarrow reports whether the filter leaves out jobs that an index separates from the others.
func (s *search) isNarrow() bool {
	f := s.filter
	if f.Parent != 0 || f.Owner != "" || s.stored.Dead {
		return false // these have indexes of their own
	}
	jobTypes := 0
	for _, c := range s.Contracts {
		jobTypes += len(c.JobTypes)
	}
	return f.Queue+f.Kind != "" || len(f.States) > 0 || len(s.candidates) < jobTypes
}

// listNarrow reads the window of a filter that isNarrow.
func (s *search) listNarrow(ctx context.Context, f store.Filter) (store.Page, error) {
	return s.Engine.ListPlanned(ctx, func(counts engine.ListCounts) (store.Filter, bool, error) {
		c := chooser{ListCounts: counts, filter: s.filter, allowed: f.Phases}
		if len(c.allowed) == 0 {
			c.allowed = []job.Phase{job.Waiting, job.Ready, job.Leased, job.Done}
		}
		if s.filter.Queue == "" {
			var err error
			if c.sums, err = c.Queues(store.QueueSelector{JobType: s.stored.JobType,
				Sums: true}); err != nil {
				return f, false, err
			}
		}
		for i := range s.candidates {
			if err := c.add(&s.candidates[i]); err != nil {
				return f, false, err
			}
		}
		f.Indexes, f.Phases = c.indexes, c.phases
		return f, len(f.Indexes)+len(f.Phases) > 0, nil
	})
}

// chooser chooses what a list is read from.
type chooser struct {
	engine.ListCounts
	filter  *JobFilter
	allowed []job.Phase
	sums    []job.QueueCount // by job type, if the filter names no queue

	indexes []store.Index
	phases  []job.Phase
}

// totalOf returns how many jobs a job type has in each phase, of the queue of the filter if it
// names one.
func (c *chooser) totalOf(jobType string) (total job.QueueCount, err error) {
	found := c.sums
	if c.filter.Queue != "" {
		if found, err = c.Queues(store.QueueSelector{JobType: jobType,
			Queue: c.filter.Queue}); err != nil {
			return total, err
		}
	}
	for _, n := range found {
		if n.JobType == jobType {
			total = n
		}
	}
	return total, nil
}

// add adds what the jobs of one job type are read from.
func (c *chooser) add(s *candidate) error {
	if s.kind != "" {
		if chosen, err := c.addKind(s); chosen || err != nil {
			return err
		}
	}
	total, err := c.totalOf(s.Name)
	if err != nil {
		return err
	}
	if c.filter.Queue != "" && s.Searchable {
		if chosen, err := c.addQueue(s); chosen || err != nil {
			return err
		}
	}
	states, err := c.addFewOf(s)
	if err != nil {
		return err
	}
	for _, state := range states {
		switch s.Machine.Phase(state) {
		case job.Waiting:
			c.addPhase(job.Waiting, total.Waiting)
		case job.Ready: // it has the phase Waiting until it is due
			c.addPhase(job.Waiting, total.Delayed)
			if err := c.addReady(s.Name, total.Ready); err != nil {
				return err
			}
		case job.Leased:
			c.addPhase(job.Leased, total.Leased)
		case job.Done:
			if total.Done > 0 && slices.Contains(c.allowed, job.Done) {
				c.indexes = append(c.indexes, store.Index{JobType: s.Name, State: state})
			}
		}
	}
	return nil
}

// addPhase adds the table of a phase, in which n jobs may match.
func (c *chooser) addPhase(p job.Phase, n int64) {
	if n > 0 && slices.Contains(c.allowed, p) && !slices.Contains(c.phases, p) {
		c.phases = append(c.phases, p)
	}
}

// addReady adds the n ready jobs of a job type or, if the filter names one, of its queue.
func (c *chooser) addReady(jobType string, n int64) error {
	if n == 0 || n > maxIndexJobs {
		c.addPhase(job.Ready, n)
		return nil
	}
	queues := []job.QueueCount{{Queue: c.filter.Queue, Ready: n}}
	if c.filter.Queue == "" {
		all, err := c.Queues(store.QueueSelector{JobType: jobType})
		if err != nil {
			return err
		}
		queues = slices.DeleteFunc(all, func(q job.QueueCount) bool { return q.Ready == 0 })
	}
	if len(queues) > maxIndexQueues {
		c.addPhase(job.Ready, n)
		return nil
	}
	for _, q := range queues {
		index := store.Index{JobType: jobType, Queue: q.Queue, Ready: true}
		if slices.Contains(c.allowed, job.Ready) && !slices.Contains(c.indexes, index) {
			c.indexes = append(c.indexes, index)
		}
	}
	return nil
}

// addKind adds the jobs of a job type that have the kind of the filter, where they are few.
func (c *chooser) addKind(s *candidate) (chosen bool, err error) {
	n, err := c.Jobs(store.CountSelector{JobType: s.Name, By: store.ByKind,
		Values: []string{s.kind}}, maxIndexJobs+1)
	if err != nil || n > maxIndexJobs {
		return false, err
	}
	if n > 0 {
		c.indexes = append(c.indexes, store.Index{JobType: s.Name, Kind: s.kind})
	}
	return true, nil
}

// addFewOf adds the jobs of a searchable job type that are in a state of the filter, for each state
// that is not of the phase done and has few jobs. It returns the other states.
func (c *chooser) addFewOf(s *candidate) (left []job.State, err error) {
	if !s.Searchable || len(c.filter.States) == 0 || c.filter.Queue != "" {
		return s.states, nil
	}
	for _, state := range s.states {
		if s.Machine.Phase(state) == job.Done {
			left = append(left, state)
			continue
		}
		n, err := c.Jobs(store.CountSelector{JobType: s.Name, By: store.ByState,
			Values: []string{string(state)}, Searchable: true}, maxIndexJobs+1)
		switch {
		case err != nil:
			return nil, err
		case n > maxIndexJobs:
			left = append(left, state)
		case n > 0:
			c.indexes = append(c.indexes,
				store.Index{JobType: s.Name, State: state, Searchable: true})
		}
	}
	return left, nil
}

// addQueue adds the jobs of a queue of a searchable job type: those in the states that the filter
// allows if they are few, or else all jobs of the queue. It adds nothing if many jobs match and
// none of them is done, because then the tables of their phases hold no old jobs to pass over.
func (c *chooser) addQueue(s *candidate) (chosen bool, err error) {
	all := store.Index{JobType: s.Name, Queue: c.filter.Queue}
	if len(c.filter.States)+len(c.filter.Phases) == 0 {
		c.indexes = append(c.indexes, all)
		return true, nil
	}
	states := c.allowedStates(s)
	byState, left := []store.Index(nil), maxIndexJobs
	for _, state := range states {
		n, err := c.Jobs(store.CountSelector{JobType: s.Name, Queue: c.filter.Queue,
			By: store.ByState, Values: []string{string(state)}}, left+1)
		if err != nil {
			return false, err
		}
		if left -= n; left < 0 {
			break
		}
		index := all
		index.State = state
		byState = append(byState, index)
	}
	isDone := func(state job.State) bool { return s.Machine.Phase(state) == job.Done }
	switch {
	case left >= 0:
		c.indexes = append(c.indexes, byState...)
	case slices.ContainsFunc(states, isDone):
		c.indexes = append(c.indexes, all)
	default:
		return false, nil
	}
	return true, nil
}

// allowedStates returns the states of the job type that a job of an allowed phase may have.
func (c *chooser) allowedStates(s *candidate) (states []job.State) {
	for _, state := range s.states {
		phase := s.Machine.Phase(state)
		isDelayed := phase == job.Ready && slices.Contains(c.allowed, job.Waiting)
		if isDelayed || slices.Contains(c.allowed, phase) {
			states = append(states, state)
		}
	}
	return states
}
