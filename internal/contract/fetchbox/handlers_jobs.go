package fetchbox

import (
	"context"
	"errors"
	"log/slog"
	"net/http"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/telemetry"
)

// POST /jobs: answers 202 when the job is stored with all its tasks, or was stored by an earlier
// submit with the same idempotency key (FB-027, FB-034, FB-046). Only a new job counts its bytes.
func (f *FetchBox) submitJob(c *httpapi.Call) error {
	r, err := f.countAccepted(func() (*receipt, int, error) { return f.acceptManifest(c) })
	if err != nil {
		return err
	}
	c.AddAttrs(slog.String(telemetry.JobID, r.jobID))
	c.Send(http.StatusAccepted, httpapi.JSON, r.encode())
	return nil
}

// countAccepted calls what accepts a manifest, and counts what came of it.
func (f *FetchBox) countAccepted(accept func() (*receipt, int, error)) (*receipt, error) {
	watch := telemetry.StartStopwatch()
	r, size, err := accept()
	f.metrics.ingestSeconds.Observe(watch.Elapsed().Seconds())
	if err != nil {
		result := resultRejected
		if errorTable.Answer(err).Status >= http.StatusInternalServerError {
			result = resultFailed
		}
		f.metrics.ingested.WithLabelValues(result).Inc()
		return nil, err
	}
	if r.repeated {
		f.metrics.ingested.WithLabelValues(resultRepeated).Inc()
	} else {
		f.metrics.ingested.WithLabelValues(resultAccepted).Inc()
		f.metrics.ingestBytes.Add(float64(size))
	}
	return r, nil
}

// acceptManifest validates a manifest and stores its job, or finds the job that was submitted under
// the same idempotency key. A refused manifest leaves nothing behind (FB-026), and an invalid body
// is refused also with a known key (FB-051). The look for an earlier job saves a repeated submit
// the manifest and the entry of the log; of submits that come at the same time ingest.commit
// decides which one makes the job. size is the length of a stored manifest in bytes, after
// decompression.
func (f *FetchBox) acceptManifest(c *httpapi.Call) (r *receipt, size int, err error) {
	h, err := f.readHeaders(c)
	if err != nil {
		return nil, 0, err
	}
	text, err := f.readBody(c, h.gzipped)
	if err != nil {
		return nil, 0, err
	}
	return f.acceptText(c.Context(), &h, text)
}

// acceptText is acceptManifest for a body that was read, by its headers.
func (f *FetchBox) acceptText(ctx context.Context, h *submitHeaders, text []byte) (r *receipt,
	size int, err error) {
	m, err := readManifest(text, f.MaxResources)
	if err != nil {
		return nil, 0, err
	}
	earlier, err := f.Engine.FindSubmitted(ctx, f.once(h))
	if err != nil {
		return nil, 0, err
	}
	if earlier != nil {
		return newReceipt(earlier), 0, nil
	}
	in, err := f.ingest(ctx, h, m, text)
	if err != nil {
		return nil, 0, err
	}
	r, err = in.store(ctx)
	return r, len(text), err
}

// GET /operators/jobs/{job_id}: the job as the ledger has it now (FB-052).
func (f *FetchBox) getJob(c *httpapi.Call) error {
	j, err := f.findJob(c.Context(), c.PathValue("job_id"))
	if err != nil {
		return err
	}
	o := strictjson.NewObject(make([]byte, 0, 512))
	appendJob(&o, j)
	c.Send(http.StatusOK, httpapi.JSON, o.End())
	return nil
}

// The pages of lists (G-FB-37).
const (
	defaultPage = 20
	maxPage     = 100

	limitText = "invalid limit: it must be a whole number from 1 to %d"
)

// jobPages are the pages of jobs. An empty cursor is the first page.
var jobPages = httpapi.Pages[httpapi.Position]{DefaultLimit: defaultPage, MaxLimit: maxPage,
	LimitText: limitText, Cursor: httpapi.Cursor[httpapi.Position]{
		Format: httpapi.NewestFirst.Format,
		Parse: func(text string) (httpapi.Position, bool) {
			if text == "" {
				return httpapi.Position{}, true
			}
			return httpapi.NewestFirst.Parse(text)
		},
	}}

// GET /operators/jobs: the jobs with a status, or all of them, the newest first (G-FB-37).
func (f *FetchBox) listJobs(c *httpapi.Call) error {
	limit, after, err := jobPages.Read(c)
	if err != nil {
		return err
	}
	status, _, err := c.Query("status")
	if err != nil {
		return err
	}
	if _, known := statuses[status]; status != "" && !known {
		return invalid("status must be one of queued, in_progress, completed and failed")
	}
	jobs, err := f.newestJobs(c.Context(), status, after, limit+1)
	if err != nil {
		return err
	}
	return httpapi.SendPage(c, jobPages.Cursor, limit, jobs, positionOf, appendJob)
}

// positionOf is the position of a job in a list that begins with the newest.
func positionOf(j *job.Job) httpapi.Position {
	return httpapi.Position{At: j.CreatedAt, ID: j.ID.Key}
}

// newestJobs finds the first limit jobs with a status, "" for all, after a position. Some states
// stand for two statuses, so a status selects the jobs of its states once more.
func (f *FetchBox) newestJobs(ctx context.Context, status string, after httpapi.Position,
	limit int) ([]*job.Job, error) {
	s := store.Search{JobType: Name, AfterTime: after.At, AfterKey: after.ID, Limit: limit}
	return f.Engine.SearchStates(ctx, s, statuses[status], func(j *job.Job) bool {
		return status == "" || statusOf(j) == status
	})
}

// Operators end a job, or give all that has failed of it another attempt (RT-003). Both change its
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
