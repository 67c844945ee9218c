package engine

import (
	"context"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
)

type reader = store.Reader

// view runs fn on a consistent snapshot of the store.
func (e *Engine) view(ctx context.Context, fn func(reader) error) error {
	return e.store.View(ctx, fn)
}

// Get returns a job with its bodies, NotFound if there is none.
func (e *Engine) Get(ctx context.Context, id job.ID) (found *job.Job, err error) {
	err = e.view(ctx, func(r reader) error {
		found, err = getOne(r, id, store.AllBodies)
		return err
	})
	return found, err
}

// getOne returns a job, NotFound if there is none.
func getOne(r reader, id job.ID, bodies store.Bodies) (*job.Job, error) {
	jobs, err := r.Load(store.Selector{IDs: []job.ID{id}, Bodies: bodies})
	if err != nil {
		return nil, err
	}
	if len(jobs) == 0 {
		return nil, errJobNotFound(id)
	}
	return jobs[0], nil
}

// GetByAlias returns the job with an alias, NotFound if there is none.
func (e *Engine) GetByAlias(ctx context.Context, alias job.IdentityHash) (*job.Job, error) {
	jobs, err := e.load(ctx, store.Selector{
		Aliases: []job.IdentityHash{alias},
		Bodies:  store.AllBodies,
	})
	if err != nil {
		return nil, err
	}
	if len(jobs) == 0 {
		return nil, &job.Error{Kind: job.NotFound, Op: "engine",
			Msg: "there is no job of this alias"}
	}
	return jobs[0], nil
}

// GetByAliases returns those of the jobs with the aliases that exist, with no body but the
// definition, in no order.
func (e *Engine) GetByAliases(ctx context.Context, aliases []job.IdentityHash) ([]*job.Job, error) {
	return e.load(ctx, store.Selector{Aliases: aliases, Bodies: store.DefinitionOnly})
}

// load returns those of the selected jobs that exist.
func (e *Engine) load(ctx context.Context, s store.Selector) (jobs []*job.Job, err error) {
	err = e.view(ctx, func(r reader) error { jobs, err = r.Load(s); return err })
	return jobs, err
}

// GetByIDs returns those of the jobs that exist, with the bodies asked for, in no order.
func (e *Engine) GetByIDs(ctx context.Context, ids []job.ID, bodies store.Bodies) ([]*job.Job,
	error) {
	return e.load(ctx, store.Selector{IDs: ids, Bodies: bodies})
}

// GetBySeqs returns those of the jobs with the numbers that exist, with the bodies asked for, in no
// order.
func (e *Engine) GetBySeqs(ctx context.Context, seqs []int64, bodies store.Bodies) ([]*job.Job,
	error) {
	return e.load(ctx, store.Selector{Seqs: seqs, Bodies: bodies})
}

// HasSucceeded reports whether a job is in a state that success leads to.
func (e *Engine) HasSucceeded(j *job.Job) bool {
	t := e.jobTypes[j.ID.JobType]
	return t != nil && t.Machine.IsSuccess(j.State)
}

// HasDependencies reports whether jobs of a job type may depend on others.
func (e *Engine) HasDependencies(jobType string) bool {
	t := e.jobTypes[jobType]
	return t != nil && t.Graph
}

// Exists reports whether a job is stored.
func (e *Engine) Exists(ctx context.Context, id job.ID) (is bool, err error) {
	err = e.view(ctx, func(r reader) error { is, err = r.Exists(id); return err })
	return is, err
}

// List returns the jobs that match, by the order of their insertion or the other way round.
func (e *Engine) List(ctx context.Context, f store.Filter) (jobs []*job.Job, err error) {
	page, err := e.ListPage(ctx, f)
	return page.Jobs, err
}

// ListPage is List with where the next page begins. It is for a filter with a Scan.
func (e *Engine) ListPage(ctx context.Context, f store.Filter) (page store.Page, err error) {
	err = e.view(ctx, func(r reader) error { page, err = r.List(f); return err })
	return page, err
}

// ListEach is List of each of some filters, as it was at one moment.
func (e *Engine) ListEach(ctx context.Context, of ...store.Filter) (lists [][]*job.Job, err error) {
	err = e.view(ctx, func(r reader) error {
		lists = nil
		for _, f := range of {
			page, err := r.List(f)
			if err != nil {
				return err
			}
			lists = append(lists, page.Jobs)
		}
		return nil
	})
	return lists, err
}

// ListCounts counts in the view of a list.
type ListCounts struct {
	// Jobs counts the jobs that are one group, limit at most.
	Jobs func(s store.CountSelector, limit int) (int, error)
	// Queues returns the counts of the selected queues, with those of jobs that are done.
	Queues func(s store.QueueSelector) ([]job.QueueCount, error)
}

// ListPlanned is ListPage of the filter that choose makes of the counts at the moment of the
// list. Without ok nothing can match.
func (e *Engine) ListPlanned(ctx context.Context, choose func(ListCounts) (f store.Filter, ok bool,
	err error)) (page store.Page, err error) {
	err = e.view(ctx, func(r reader) error {
		page = store.Page{}
		f, ok, err := choose(ListCounts{
			Jobs: func(s store.CountSelector, limit int) (int, error) {
				return countUpTo(r, s, limit)
			},
			Queues: func(s store.QueueSelector) ([]job.QueueCount, error) {
				s.WithDone = true
				return r.Counts(s)
			}})
		if err != nil || !ok {
			return err
		}
		page, err = r.List(f)
		return err
	})
	return page, err
}

// CountOwned returns how many jobs of a job type each of the owners has, limit at most.
func (e *Engine) CountOwned(ctx context.Context, jobType string, owners []string,
	limit int) (counts []int, err error) {
	counts = make([]int, len(owners))
	if len(owners) == 0 {
		return counts, nil
	}
	err = e.view(ctx, func(r reader) error {
		groups, err := r.CountUpTo(store.CountSelector{JobType: jobType, Owners: owners}, limit)
		of := map[string]int{}
		for _, g := range groups {
			of[g.Value] = g.Jobs
		}
		for i, owner := range owners {
			counts[i] = of[owner]
		}
		return err
	})
	return counts, err
}

// History returns the events of a job in the order they happened.
func (e *Engine) History(ctx context.Context, id job.ID) (events []job.Event, err error) {
	err = e.view(ctx, func(r reader) error {
		j, err := getOne(r, id, store.NoBodies)
		if err != nil {
			return err
		}
		events, err = r.Events(j.Seq, 0)
		return err
	})
	return events, err
}
