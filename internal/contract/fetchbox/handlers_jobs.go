package fetchbox

import (
	"context"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/httpapi/jsontext"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/serial"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/telemetry"
)

// POST /jobs
func (f *FetchBox) submit(c *httpapi.Call) error {
	watch := telemetry.StartWatch()
	r, size, err := f.accept(c)
	f.metrics.ingestSeconds.Observe(watch.Elapsed().Seconds())
	if err != nil {
		result := resultRejected
		if m, _ := judge(err); m.status >= http.StatusInternalServerError {
			result = resultFailed
		}
		f.metrics.ingested.WithLabelValues(result).Inc()
		return err
	}
	if r.repeated {
		f.metrics.ingested.WithLabelValues(resultRepeated).Inc()
	} else {
		f.metrics.ingested.WithLabelValues(resultAccepted).Inc()
		f.metrics.ingestBytes.Add(float64(size))
	}
	c.Note(slog.String(telemetry.JobID, r.jobID))
	c.Send(http.StatusAccepted, httpapi.JSON, r.encode())
	return nil
}

// accept judges a manifest and stores it, or finds what was stored under its key. Nothing is stored of what is refused
// (FB-026), and a key does not excuse a broken body (FB-051).
func (f *FetchBox) accept(c *httpapi.Call) (r *receipt, size int, err error) {
	h, err := f.readHeaders(c)
	if err != nil {
		return nil, 0, err
	}
	text, err := f.readBody(c, h.zipped)
	if err != nil {
		return nil, 0, err
	}
	m, err := readManifest(text, f.MaxResources)
	if err != nil {
		return nil, 0, err
	}
	ctx := c.Request.Context()
	if h.key != "" {
		r, err := f.earlier(ctx, keyAlias(h.tenant, h.jobType.name, h.key))
		if r != nil || err != nil {
			return r, 0, err
		}
	}
	in, err := f.ingest(ctx, &h, m, text)
	if err != nil {
		return nil, 0, err
	}
	r, err = in.store(ctx)
	return r, len(text), err
}

// GET /operators/jobs/{job_id}
func (f *FetchBox) get(c *httpapi.Call) error {
	j, err := f.jobOf(c.Request.Context(), c.Member("job_id"))
	if err != nil {
		return err
	}
	o := jsontext.NewObject(make([]byte, 0, 512))
	snapshot(&o, j)
	c.Send(http.StatusOK, httpapi.JSON, o.End())
	return nil
}

// The pages of lists (G-FB-37).
const (
	usualPage = 20
	mostPage  = 100
)

// GET /operators/jobs
func (f *FetchBox) list(c *httpapi.Call) error {
	limit, err := number(c, "limit", usualPage, 1, mostPage)
	if err != nil {
		return err
	}
	p := page{limit: limit + 1} // one more tells whether there is more
	if p.status, _, err = c.Query("status"); err != nil {
		return err
	}
	if _, known := statuses[p.status]; p.status != "" && !known {
		return invalid("status must be one of queued, in_progress, completed and failed")
	}
	if err := p.readCursor(c); err != nil {
		return err
	}
	jobs, err := f.newest(c.Request.Context(), &p)
	if err != nil {
		return err
	}
	next := ""
	if len(jobs) > limit {
		jobs = jobs[:limit]
		next = httpapi.Cursor(jobs[limit-1].CreatedAt, jobs[limit-1].ID.Key)
	}
	c.SendPage(len(jobs), next, func(i int, o *jsontext.Object) { snapshot(o, jobs[i]) })
	return nil
}

// page says which jobs are listed: those behind a time and key, the newest first.
type page struct {
	status string // "" is all
	limit  int
	at     time.Time
	key    string
}

// newest finds the jobs of a page. Of those that stand for two statuses the others are passed over.
func (f *FetchBox) newest(ctx context.Context, p *page) ([]*job.Job, error) {
	s := store.Search{Contract: Name, PriorityMin: usualPriority, PriorityMax: usualPriority, AfterTime: p.at, AfterKey: p.key, Limit: p.limit}
	return f.engine.SearchStates(ctx, s, statuses[p.status], func(j *job.Job) bool { return p.status == "" || statusOf(j) == p.status })
}

func (p *page) readCursor(c *httpapi.Call) error {
	text, _, err := c.Query("cursor")
	if err != nil || text == "" {
		return err
	}
	at, key, ok := httpapi.ReadCursor(text)
	if ok {
		key, ok = serial.Parse(key)
	}
	if !ok {
		return invalid("cursor is none that was given out")
	}
	p.at, p.key = at, key
	return nil
}

// number reads a parameter that is a whole number between two, usual where it is not there.
func number(c *httpapi.Call, name string, usual, least, most int) (int, error) {
	text, given, err := c.Query(name)
	if err != nil || !given {
		return usual, err
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < least || n > most {
		return 0, invalid("%s must be a whole number from %d to %d", name, least, most)
	}
	return n, nil
}
