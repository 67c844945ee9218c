package fetchbox

import (
	"context"
	"encoding/base64"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
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
	more := len(jobs) > limit
	jobs = jobs[:min(limit, len(jobs))]
	o := jsontext.NewObject(make([]byte, 0, 64+512*len(jobs)))
	o.Objects("items", len(jobs), func(i int, o *jsontext.Object) { snapshot(o, jobs[i]) })
	if more {
		last := jobs[len(jobs)-1]
		o.Text("next_cursor", cursorAt(last.CreatedAt, last.ID.Key))
	} else {
		o.Null("next_cursor")
	}
	o.Flag("has_more", more)
	c.Send(http.StatusOK, httpapi.JSON, o.End())
	return nil
}

// page says which jobs are listed: those behind a time and key, the newest first.
type page struct {
	status string // "" is all
	limit  int
	at     time.Time
	key    string
}

// newest finds the jobs of a page. Each state of the status is asked by itself; of those that stand for two statuses the
// others are passed over.
func (f *FetchBox) newest(ctx context.Context, p *page) ([]*job.Job, error) {
	states := statuses[p.status]
	if p.status == "" {
		states = []job.State{""}
	}
	var all []*job.Job
	for _, state := range states {
		s := store.Search{Contract: Name, State: state, PriorityMin: usualPriority, PriorityMax: usualPriority,
			AfterTime: p.at, AfterKey: p.key, Limit: p.limit}
		for found := 0; found < p.limit; {
			part, err := f.engine.Search(ctx, s)
			if err != nil {
				return nil, err
			}
			for _, j := range part {
				if p.status == "" || statusOf(j) == p.status {
					all = append(all, j)
					found++
				}
			}
			if len(part) < p.limit {
				break
			}
			last := part[len(part)-1]
			s.AfterTime, s.AfterKey = last.CreatedAt, last.ID.Key
		}
	}
	slices.SortFunc(all, func(a, b *job.Job) int {
		if n := b.CreatedAt.Compare(a.CreatedAt); n != 0 {
			return n
		}
		return strings.Compare(a.ID.Key, b.ID.Key)
	})
	return all[:min(p.limit, len(all))], nil
}

// cursorAt names the last job of a page.
func cursorAt(at time.Time, key string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(strconv.FormatInt(at.UnixMicro(), 10) + "." + key))
}

func (p *page) readCursor(c *httpapi.Call) error {
	text, _, err := c.Query("cursor")
	if err != nil || text == "" {
		return err
	}
	wrong := invalid("cursor is none that was given out")
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return wrong
	}
	micros, key, _ := strings.Cut(string(raw), ".")
	n, err := strconv.ParseInt(micros, 10, 64)
	key, ok := serial.Parse(key)
	if err != nil || !ok || n < 1 || n > 1<<53 {
		return wrong
	}
	p.at, p.key = time.UnixMicro(n).UTC(), key
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
