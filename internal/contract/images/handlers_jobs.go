package images

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/httpapi/jsontext"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/serial"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/telemetry"
)

// deletionOf is the name of the job that marks a file as deleted.
func deletionOf(fileID string) job.Ident { return job.AliasOf(Name, "delete", fileID) }

// DELETE /images/v1/files/{file_id}
func (m *Images) deleteFile(c *httpapi.Call) error {
	f, err := m.fileOf(c)
	if err != nil {
		return err
	}
	j, err := m.delete(c.Request.Context(), f)
	if err != nil {
		return err
	}
	c.Note(slog.String(telemetry.JobID, j.ID.Key))
	o := jsontext.NewObject(nil)
	o.Text("job_id", j.ID.Key)
	c.Send(http.StatusAccepted, httpapi.JSON, o.End())
	return nil
}

// delete creates the job that deletes a file (IP-029). A second one is only made where the first has failed; the mark of
// the first stays.
func (m *Images) delete(ctx context.Context, f *file) (*job.Job, error) {
	if f.deletion != nil && f.deletion.State != failed {
		return f.deletion, nil
	}
	u := f.upload
	u.Sizes = nil
	s := m.submission(ctx, deleteFile, f.id, u)
	if f.deletion == nil {
		s.Job.Alias = deletionOf(f.id)
	}
	j, err := m.store(ctx, s)
	if job.IsKind(err, job.Conflict) { // another request was first
		err = m.api.query(opSelect, func() (err error) { j, err = m.engine.GetAlias(ctx, deletionOf(f.id)); return err })
	}
	return j, err
}

// POST /images/v1/jobs
func (m *Images) createJob(c *httpapi.Call) error {
	q, err := readCreate(c)
	if err != nil {
		return err
	}
	ctx := c.Request.Context()
	f, err := m.find(ctx, q.fileID)
	if err != nil {
		return err
	}
	var j *job.Job
	if q.jobType == deleteFile {
		j, err = m.delete(ctx, f)
	} else {
		j, err = m.processAgain(ctx, f, q.sizes)
	}
	if err != nil {
		return err
	}
	return sendJob(c, http.StatusAccepted, j)
}

// processAgain creates a job that makes variants of a file; without sizes the usual ones.
func (m *Images) processAgain(ctx context.Context, f *file, sizes []int) (*job.Job, error) {
	if f.status == fileDeleted {
		return nil, errDeleted
	}
	u := f.upload
	if u.Sizes = sizes; sizes == nil {
		u.Sizes = m.Sizes
	}
	return m.store(ctx, m.submission(ctx, processFile, f.id, u))
}

func sendJob(c *httpapi.Call, status int, j *job.Job) error {
	c.Note(slog.String(telemetry.JobID, j.ID.Key))
	o := jsontext.NewObject(make([]byte, 0, 512))
	appendJob(&o, j)
	c.Send(status, httpapi.JSON, o.End())
	return nil
}

// jobOf finds a job by what a caller calls it.
func (m *Images) jobOf(ctx context.Context, name string) (j *job.Job, err error) {
	key, ok := serial.Parse(name)
	if !ok {
		return nil, errNoJob
	}
	err = m.api.query(opSelect, func() (err error) { j, err = m.engine.Get(ctx, idOf(key)); return err })
	if job.IsKind(err, job.NotFound) {
		err = errNoJob
	}
	return j, err
}

// GET /images/v1/jobs/{job_id}
func (m *Images) getJob(c *httpapi.Call) error {
	j, err := m.jobOf(c.Request.Context(), c.Member("job_id"))
	if err != nil {
		return err
	}
	return sendJob(c, http.StatusOK, j)
}

// GET /images/v1/jobs
func (m *Images) listJobs(c *httpapi.Call) error {
	p, err := readPage(c)
	if err != nil {
		return err
	}
	status, _, err := c.Query("status")
	if err != nil {
		return err
	}
	if p.states = shown[job.State(status)]; status != "" && p.states == nil {
		return invalid("status must be one of queued, processing, completed, failed_retryable and failed")
	}
	if p.jobType, _, err = c.Query("type"); err != nil {
		return err
	}
	if p.jobType != "" && !slices.Contains(jobTypes, p.jobType) {
		return invalid("type must be %s or %s", processFile, deleteFile)
	}
	return m.sendPage(c, p, appendJob)
}

// letterAge is how long dead letters are listed (G-IP-08).
const letterAge = 90 * 24 * time.Hour

// GET /images/v1/dead-letters
func (m *Images) listLetters(c *httpapi.Call) error {
	p, err := readPage(c)
	if err != nil {
		return err
	}
	p.states, p.keep = shown[failed], m.isLetter
	return m.sendPage(c, p, appendLetter)
}

// isLetter reports whether a job is a dead letter.
func (m *Images) isLetter(j *job.Job) bool {
	return j.State == failed && m.Now().Sub(j.SettledAt) < letterAge
}

// POST /images/v1/dead-letters/{job_id}/replay
func (m *Images) replay(c *httpapi.Call) error {
	ctx := c.Request.Context()
	j, err := m.jobOf(ctx, c.Member("job_id"))
	if err != nil {
		return err
	}
	if !m.isLetter(j) {
		return &problem{codeNotReplayable, "the job is " + statusOf(j.State) + " and no dead letter"}
	}
	f, err := m.find(ctx, j.Owner)
	if err != nil {
		return err
	}
	var again *job.Job
	if j.Queue == deleteFile {
		again, err = m.delete(ctx, f)
	} else {
		again, err = m.processAgain(ctx, f, uploadOf(j).Sizes)
	}
	if err != nil {
		return err
	}
	return sendJob(c, http.StatusAccepted, again)
}

// POST /images/v1/messages
func (m *Images) sendAgain(c *httpapi.Call) error {
	name, err := readJobID(c)
	if err != nil {
		return err
	}
	ctx := c.Request.Context()
	j, err := m.jobOf(ctx, name)
	if err != nil {
		return err
	}
	if err := m.sendMessages(ctx, j); err != nil {
		return err
	}
	c.Note(slog.String(telemetry.JobID, j.ID.Key))
	o := jsontext.NewObject(nil)
	o.Text("job_id", j.ID.Key)
	o.Text("status", statusOf(j.State))
	c.Send(http.StatusAccepted, httpapi.JSON, o.End())
	return nil
}

// page says which jobs are listed: those behind a time and key, the newest first.
type page struct {
	states  []job.State         // none is all
	jobType string              // "" is all
	keep    func(*job.Job) bool // nil keeps all
	limit   int
	at      time.Time
	key     string
}

// The pages of lists (G-IP-20).
const (
	usualPage = 20
	mostPage  = 100
)

func readPage(c *httpapi.Call) (p page, err error) {
	text, given, err := c.Query("limit")
	p.limit = usualPage
	if err == nil && given {
		var ok bool
		if p.limit, ok = httpapi.Digits(text); !ok || p.limit < 1 || p.limit > mostPage {
			err = invalid("limit must be a whole number from 1 to %d", mostPage)
		}
	}
	if err != nil {
		return p, err
	}
	cursor, given, err := c.Query("cursor")
	if err == nil && given {
		err = p.goOn(cursor)
	}
	return p, err
}

// goOn makes a page begin behind a cursor.
func (p *page) goOn(cursor string) error {
	at, key, ok := httpapi.ReadCursor(cursor)
	if ok {
		key, ok = serial.Parse(key)
	}
	if !ok {
		return invalid("cursor is none that a page has given")
	}
	p.at, p.key = at, key
	return nil
}

// sendPage answers with a page; one job more than asked for tells whether there is more.
func (m *Images) sendPage(c *httpapi.Call, p page, write func(*jsontext.Object, *job.Job)) error {
	limit := p.limit
	p.limit++
	var jobs []*job.Job
	err := m.api.query(opSelect, func() (err error) { jobs, err = m.newest(c.Request.Context(), &p); return err })
	if err != nil {
		return err
	}
	next := ""
	if len(jobs) > limit {
		jobs = jobs[:limit]
		next = httpapi.Cursor(jobs[limit-1].CreatedAt, jobs[limit-1].ID.Key)
	}
	c.SendPage(len(jobs), next, func(i int, o *jsontext.Object) { write(o, jobs[i]) })
	return nil
}

// newest finds the jobs of a page.
func (m *Images) newest(ctx context.Context, p *page) ([]*job.Job, error) {
	s := store.Search{Contract: Name, Queue: p.jobType, PriorityMin: usualPriority, PriorityMax: usualPriority,
		AfterTime: p.at, AfterKey: p.key, Limit: p.limit}
	return m.engine.SearchStates(ctx, s, p.states, p.keep)
}
