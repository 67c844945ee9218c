package admin

import (
	"cmp"
	"context"
	"slices"

	"github.com/millrace/millrace/internal/job"
)

// maxGraph is how many jobs of a graph operators see (CO-005).
const maxGraph = 2000

// JobGraph is the jobs that are connected by dependencies.
type JobGraph struct {
	Jobs []GraphJob // by number
	// Edges are those between the jobs, by the numbers of dependent and dependency.
	Edges []job.Edge
	// IsTruncated says that there are more jobs than these, which are the nearest.
	IsTruncated bool
}

// GraphJob is a job of a graph.
type GraphJob struct {
	JobItem
	Name string // its definition gives it; "" for none
}

// JobGraph returns the graph of a job, which has no other jobs where it has no dependencies.
func (a *API) JobGraph(ctx context.Context, j *job.Job) (*JobGraph, error) {
	jobs, edges, isTruncated, err := a.Engine.Graph(ctx, j.ID, maxGraph)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(jobs, func(x, y *job.Job) int { return cmp.Compare(x.Seq, y.Seq) })
	items, err := a.JobItems(ctx, jobs)
	if err != nil {
		return nil, err
	}
	g := &JobGraph{Edges: edges, IsTruncated: isTruncated}
	for i, item := range items {
		g.Jobs = append(g.Jobs, GraphJob{item, a.operatorOf(jobs[i].ID.JobType).NameOf(jobs[i])})
	}
	return g, nil
}
