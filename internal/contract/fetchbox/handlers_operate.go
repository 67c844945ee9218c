package fetchbox

import (
	"context"
	"errors"
	"net/http"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/job"
)

// Operators end a job, or give all that has failed of it another try (RT-003). Both change its
// tasks, and the job follows them as it does when they end by themselves: it is finalized, and has
// dead letters, a log, a status and webhooks like any other job.

// errCanceled is why a canceled task failed.
var errCanceled = &taskError{code: codeCanceled, message: "an operator canceled the job"}

// POST /operators/jobs/{job_id}/cancel ends the open tasks of a job as failed. A download that runs
// is stopped when its worker sends its next heartbeat, and its outcome is refused.
func (f *FetchBox) cancelJob(c *httpapi.Call) error { return f.operate(c, f.cancelTasks) }

// POST /operators/jobs/{job_id}/retry makes all resources that have failed ready again, with the
// attempts of new ones (G-FB-37).
func (f *FetchBox) retryJob(c *httpapi.Call) error { return f.operate(c, f.retryTasks) }

// operate changes the tasks of the job in the path and answers the job.
func (f *FetchBox) operate(c *httpapi.Call,
	change func(context.Context, *job.Job) (*job.Job, error)) error {
	found, err := f.findJob(c.Context(), c.PathValue("job_id"))
	if err != nil {
		return err
	}
	j, err := change(c.Context(), found) // NotFound if it was pruned meanwhile
	if err != nil {
		return err
	}
	full, err := f.Engine.Get(c.Context(), j.ID)
	if err != nil {
		return err
	}
	o := strictjson.NewObject(make([]byte, 0, 512))
	appendJob(&o, full)
	c.Send(http.StatusAccepted, httpapi.JSON, o.End())
	return nil
}

// cancelTasks ends the open tasks of a job.
func (f *FetchBox) cancelTasks(ctx context.Context, j *job.Job) (*job.Job, error) {
	return f.changeTasks(ctx, "no resource of the job is open", engine.ChildrenChange{Parent: j.ID,
		States: []job.State{waiting, downloading}, On: job.Canceled,
		Failure: errCanceled.encode(), Reason: codeCanceled})
}

// retryTasks makes the dead tasks of a job ready again.
func (f *FetchBox) retryTasks(ctx context.Context, j *job.Job) (*job.Job, error) {
	return f.changeTasks(ctx, "no resource of the job has failed", engine.ChildrenChange{
		Parent: j.ID, States: []job.State{dead}, On: job.Retried,
		Edit: f.prepareRetry})
}

// changeTasks changes tasks of a job. It explains why there were none.
func (f *FetchBox) changeTasks(ctx context.Context, none string,
	c engine.ChildrenChange) (*job.Job, error) {
	after, err := f.Engine.ChangeChildren(ctx, c)
	if e, ok := errors.AsType[*engine.StateError](err); ok {
		return nil, &job.Error{Kind: job.Conflict, Op: Name, ID: c.Parent,
			Msg: none + ": it is " + statusOf(&e.Job), Err: e}
	}
	return after, err
}
