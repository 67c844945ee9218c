package admin

import (
	"context"

	"github.com/millrace/millrace/internal/contract"
	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/job"
)

// JobItem is a job as operators see it (AD-011).
type JobItem = contract.Item

// JobItems returns the items of jobs, in their order. The jobs need their failure.
func (a *API) JobItems(ctx context.Context, jobs []*job.Job) ([]JobItem, error) {
	dead, err := a.Engine.WithOpenDeadLetters(ctx, jobs)
	if err != nil {
		return nil, err
	}
	items := make([]JobItem, len(jobs))
	for i, j := range jobs {
		items[i] = a.operatorOf(j.ID.JobType).Item(j, a.Engine.HasDependencies(j.ID.JobType))
		if dead[j.Seq] {
			items[i].Phase = phaseDead
		}
		// One that is gone was given up: there is a dead letter of it.
		isGone := j.State == job.StateNone
		if !isGone && a.Engine.HasSucceeded(j) { // an earlier attempt has failed
			items[i].Error = ""
		}
	}
	return items, nil
}

// writePositive writes a member that is a whole number, or null for 0.
func writePositive(o *strictjson.Object, name string, value int64) {
	if value == 0 {
		o.Null(name)
		return
	}
	o.Int(name, value)
}
