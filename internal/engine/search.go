package engine

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
)

// Search returns the jobs of a Searchable job type that match, with their bodies, newest first and
// those created at the same time by key: at most s.Limit, from the job after s.AfterTime and
// s.AfterKey on.
//
// Errors: NotFound for an unknown job type, Invalid for one that is not Searchable and for a text
// that cannot be stored, and those of the store.
func (e *Engine) Search(ctx context.Context, s store.Search) (jobs []*job.Job, err error) {
	t, err := e.jobType(s.JobType)
	if err != nil {
		return nil, err
	}
	if !t.Searchable {
		return nil, &job.Error{Kind: job.Invalid, Op: "engine.search",
			Msg: fmt.Sprintf("the jobs of %s are not searchable", t.Name)}
	}
	err = e.view(ctx, func(r reader) error { jobs, err = r.Search(s); return err })
	return jobs, err
}

// SearchStates is Search in several states, with one search for each, or in all states where none
// is given. Jobs for which keep, unless it is nil, returns false are left out.
func (e *Engine) SearchStates(ctx context.Context, s store.Search, states []job.State,
	keep func(*job.Job) bool) ([]*job.Job, error) {
	if len(states) == 0 {
		states = []job.State{""}
	}
	var all []*job.Job
	for _, state := range states {
		in := s
		in.State = state
		for found := 0; found < s.Limit; {
			part, err := e.Search(ctx, in)
			if err != nil {
				return nil, err
			}
			for _, j := range part {
				if keep == nil || keep(j) {
					all = append(all, j)
					found++
				}
			}
			if len(part) < s.Limit {
				break
			}
			last := part[len(part)-1]
			in.AfterTime, in.AfterKey = last.CreatedAt, last.ID.Key
		}
	}
	slices.SortFunc(all, func(a, b *job.Job) int {
		return cmp.Or(b.CreatedAt.Compare(a.CreatedAt), strings.Compare(a.ID.Key, b.ID.Key))
	})
	return all[:min(s.Limit, len(all))], nil
}

// acceptsPriority reports whether a job may have the priority. Jobs of a Searchable job type have
// one that searches find.
func (t *JobType) acceptsPriority(priority int) bool {
	return !t.Searchable || priority == job.NoPriority ||
		(priority >= store.MinPriority && priority <= store.MaxPriority)
}

func errPriorityOutOfRange(id job.ID) error {
	return &job.Error{Kind: job.Invalid, Op: "engine", ID: id,
		Msg: fmt.Sprintf("a job that is searchable has no priority or one from %d to %d", store.MinPriority,
			store.MaxPriority)}
}
