package images

import (
	"context"
	"log/slog"
	"net/http"
	"slices"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/telemetry"
	"github.com/millrace/millrace/internal/uuids"
)

// POST /images/v1/jobs creates a job of either type for a file. A new job is queued, whatever the
// request says (IP-027, IP-030).
func (m *Images) submitJob(c *httpapi.Call) error {
	q, err := readCreate(c)
	if err != nil {
		return err
	}
	callback, err := m.encodeCallback(q.callback)
	if err != nil {
		return err
	}
	ctx := c.Context()
	f, err := m.findFile(ctx, q.fileID)
	if err != nil {
		return err
	}
	var j *job.Job
	if q.jobType == deleteFile {
		j, err = m.delete(ctx, f)
	} else {
		j, err = m.reprocess(ctx, f, q.sizes, callback)
	}
	if err != nil {
		return err
	}
	return sendJob(c, http.StatusAccepted, j)
}

// reprocess creates a job that makes variants of a file; nil stands for the default sizes.
func (m *Images) reprocess(ctx context.Context, f *file, sizes []int,
	callback string) (*job.Job, error) {
	if f.status == fileDeleted {
		return nil, errDeleted
	}
	u := f.upload
	if u.Sizes = sizes; sizes == nil {
		u.Sizes = m.Sizes
	}
	j, _, err := m.store(ctx, engine.Idempotency{},
		m.submission(ctx, processFile, f.id, u, callback))
	return j, err
}

// rerun creates a new job with the type and sizes of another one.
func (m *Images) rerun(ctx context.Context, j *job.Job) (*job.Job, error) {
	f, err := m.findFile(ctx, j.Owner)
	if err != nil {
		return nil, err
	}
	if j.Queue == deleteFile {
		return m.delete(ctx, f)
	}
	return m.reprocess(ctx, f, uploadOf(j).Sizes, j.Callback)
}

// sendJob answers with a job, whose id also goes into the log line of the request.
func sendJob(c *httpapi.Call, status int, j *job.Job) error {
	c.AddAttrs(slog.String(telemetry.JobID, j.ID.Key))
	o := strictjson.NewObject(make([]byte, 0, 512))
	appendJob(&o, j)
	c.Send(status, httpapi.JSON, o.End())
	return nil
}

// findJob finds a job by the id in a request. Purges are of another job type and are not found.
func (m *Images) findJob(ctx context.Context, name string) (j *job.Job, err error) {
	key, ok := uuids.Parse(name)
	if !ok {
		return nil, notFound("job")
	}
	err = m.metrics.query(opSelect, func() (err error) {
		j, err = m.Engine.Get(ctx, engineJobID(key))
		return err
	})
	return j, err
}

// GET /images/v1/jobs/{job_id}
func (m *Images) getJob(c *httpapi.Call) error {
	j, err := m.findJob(c.Context(), c.PathValue("job_id"))
	if err != nil {
		return err
	}
	return sendJob(c, http.StatusOK, j)
}

// POST /images/v1/jobs/{job_id}/cancel fails a job that waits for another attempt (RT-003). The
// document has no other way to failed, so a job that is queued, processing or done is a conflict.
func (m *Images) cancelJob(c *httpapi.Call) error {
	j, err := m.findJob(c.Context(), c.PathValue("job_id"))
	if err != nil {
		return err
	}
	if j, err = m.Engine.Change(c.Context(), j.ID, job.Canceled, prepareCancel); err != nil {
		return err
	}
	return sendJob(c, http.StatusOK, j)
}

// GET /images/v1/jobs lists jobs by status and type, both optional. A status may have several
// states, each of which is searched.
func (m *Images) listJobs(c *httpapi.Call) error {
	p, err := readPage(c)
	if err != nil {
		return err
	}
	status, _, err := c.Query("status")
	if err != nil {
		return err
	}
	if p.states = statesByStatus[status]; status != "" && p.states == nil {
		return invalid("status must be one of queued, processing, completed, failed_retryable " +
			"and failed")
	}
	if p.search.Queue, _, err = c.Query("type"); err != nil {
		return err
	}
	if p.search.Queue != "" && !slices.Contains(jobTypes, p.search.Queue) {
		return invalid("type must be %s or %s", processFile, deleteFile)
	}
	jobs, err := m.selectPage(c, p)
	if err != nil {
		return err
	}
	return sendPage(c, p, jobs, appendJob)
}

// POST /images/v1/messages proposes a job once more. That is harmless for a job in any state: a
// message changes nothing by itself.
func (m *Images) resendMessages(c *httpapi.Call) error {
	name, err := readJobID(c)
	if err != nil {
		return err
	}
	ctx := c.Context()
	j, err := m.findJob(ctx, name)
	if err != nil {
		return err
	}
	if err := m.sendMessages(ctx, j); err != nil {
		return err
	}
	c.AddAttrs(slog.String(telemetry.JobID, j.ID.Key))
	o := strictjson.NewObject(nil)
	o.Text("job_id", j.ID.Key)
	o.Text("status", statusOf(j.State))
	c.Send(http.StatusAccepted, httpapi.JSON, o.End())
	return nil
}

// pages are the pages of lists, which begin with the newest job (G-IP-20).
var pages = httpapi.Pages[httpapi.Position]{DefaultLimit: 20, MaxLimit: 100,
	LimitText: "invalid limit: it must be a whole number from 1 to %d",
	Cursor:    httpapi.NewestFirst}

// page selects the jobs of one page of a list, and one more.
type page struct {
	limit  int
	search store.Search
	states []job.State         // nil is all
	filter func(*job.Job) bool // nil keeps all
}

// readPage reads the query parameters limit and cursor.
func readPage(c *httpapi.Call) (page, error) {
	limit, after, err := pages.Read(c)
	return page{limit: limit, search: store.Search{JobType: Name, AfterTime: after.At,
		AfterKey: after.ID, Limit: limit + 1}}, err
}

// selectPage reads the jobs of a page, and one more.
func (m *Images) selectPage(c *httpapi.Call, p page) (jobs []*job.Job, err error) {
	err = m.metrics.query(opSelect, func() (err error) {
		jobs, err = m.Engine.SearchStates(c.Context(), p.search, p.states, p.filter)
		return err
	})
	return jobs, err
}

// sendPage answers with a page.
func sendPage(c *httpapi.Call, p page, jobs []*job.Job,
	write func(*strictjson.Object, *job.Job)) error {
	return httpapi.SendPage(c, pages.Cursor, p.limit, jobs, func(j *job.Job) httpapi.Position {
		return httpapi.Position{At: j.CreatedAt, ID: j.ID.Key}
	}, write)
}
