package fetchbox

import (
	"context"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/telemetry"
	"github.com/millrace/millrace/internal/uuids"
)

// POST /jobs
func (f *FetchBox) submit(c *httpapi.Call) error {
	watch := telemetry.StartStopwatch()
	r, size, err := f.acceptManifest(c)
	f.metrics.ingestSeconds.Observe(watch.Elapsed().Seconds())
	if err != nil {
		result := resultRejected
		if errorTable.Answer(err).Status >= http.StatusInternalServerError {
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
	c.AddAttrs(slog.String(telemetry.JobID, r.jobID))
	c.Send(http.StatusAccepted, httpapi.JSON, r.encode())
	return nil
}

// acceptManifest validates a manifest and stores its job, or finds the job that was submitted under
// the same idempotency key. A refused manifest leaves nothing behind (FB-026), and an invalid body
// is refused also with a known key (FB-051).
func (f *FetchBox) acceptManifest(c *httpapi.Call) (r *receipt, size int, err error) {
	h, err := f.readHeaders(c)
	if err != nil {
		return nil, 0, err
	}
	text, err := f.readBody(c, h.gzipped)
	if err != nil {
		return nil, 0, err
	}
	m, err := readManifest(text, f.MaxResources)
	if err != nil {
		return nil, 0, err
	}
	ctx := c.Request.Context()
	earlier, err := f.engine.FindSubmitted(ctx, f.once(&h))
	if err != nil {
		return nil, 0, err
	}
	if earlier != nil {
		return newReceipt(earlier), 0, nil
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
	j, err := f.findJob(c.Request.Context(), c.PathValue("job_id"))
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
)

// GET /operators/jobs
func (f *FetchBox) list(c *httpapi.Call) error {
	limit, err := readNumber(c, "limit", defaultPage, 1, maxPage)
	if err != nil {
		return err
	}
	p := page{limit: limit + 1} // one more job shows that there is another page
	if p.status, _, err = c.Query("status"); err != nil {
		return err
	}
	if _, known := statuses[p.status]; p.status != "" && !known {
		return invalid("status must be one of queued, in_progress, completed and failed")
	}
	if err := p.readCursor(c); err != nil {
		return err
	}
	jobs, err := f.newestJobs(c.Request.Context(), &p)
	if err != nil {
		return err
	}
	next := ""
	if len(jobs) > limit {
		jobs = jobs[:limit]
		next = httpapi.FormatCursor(jobs[limit-1].CreatedAt, jobs[limit-1].ID.Key)
	}
	c.SendPage(len(jobs), next, func(i int, o *strictjson.Object) { appendJob(o, jobs[i]) })
	return nil
}

// page selects the jobs of one page of a list, which begins with the newest.
type page struct {
	status    string // "" is all
	limit     int
	afterTime time.Time // the cursor: creation time and key of the last job before
	afterKey  string
}

// newestJobs finds the jobs of a page. Some states stand for two statuses, so a status selects the
// jobs of its states once more.
func (f *FetchBox) newestJobs(ctx context.Context, p *page) ([]*job.Job, error) {
	s := store.Search{Contract: Name, AfterTime: p.afterTime, AfterKey: p.afterKey,
		Limit: p.limit}
	return f.engine.SearchStates(ctx, s, statuses[p.status], func(j *job.Job) bool {
		return p.status == "" || statusOf(j) == p.status
	})
}

// errCursor refuses a cursor that no page has returned.
var errCursor = invalid("invalid cursor")

func (p *page) readCursor(c *httpapi.Call) error {
	text, _, err := c.Query("cursor")
	if err != nil || text == "" {
		return err
	}
	at, key, ok := httpapi.ParseCursor(text)
	if ok {
		key, ok = uuids.Parse(key)
	}
	if !ok {
		return errCursor
	}
	p.afterTime, p.afterKey = at, key
	return nil
}

// readNumber reads a query parameter that must be a whole number from minValue to maxValue.
func readNumber(c *httpapi.Call, name string, defaultValue, minValue, maxValue int) (int, error) {
	text, given, err := c.Query(name)
	if err != nil || !given {
		return defaultValue, err
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < minValue || n > maxValue {
		return 0, invalid("invalid %s: it must be a whole number from %d to %d", name, minValue,
			maxValue)
	}
	return n, nil
}
