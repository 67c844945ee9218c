package engine

import (
	"context"
	"fmt"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
)

// Search returns the jobs of a Searchable contract that match, with their bodies,
// newest first and those created at the same time by key: at most s.Limit, from
// the job after s.AfterTime and s.AfterKey on.
//
// Errors: NotFound and Invalid for a contract that has no search, Invalid for a
// text that cannot be kept, and those of the store.
func (e *Engine) Search(ctx context.Context, s store.Search) (jobs []*job.Job, err error) {
	c, err := e.contract(s.Contract)
	if err != nil {
		return nil, err
	}
	if !c.Searchable {
		return nil, &job.Error{Kind: job.Invalid, Op: "engine.search", Msg: fmt.Sprintf("the jobs of %s are not listed", c.Name)}
	}
	err = e.view(ctx, func(r reader) error { jobs, err = r.Search(s); return err })
	return jobs, err
}

// lists reports whether a job of the priority can be found where it must be.
func (c *Contract) lists(priority int) bool {
	return !c.Searchable || priority >= store.MinListed && priority <= store.MaxListed
}

func unlisted(id job.ID) error {
	return &job.Error{Kind: job.Invalid, Op: "engine", ID: id,
		Msg: fmt.Sprintf("a job that is listed has a priority from %d to %d", store.MinListed, store.MaxListed)}
}
