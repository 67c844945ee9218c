package forgerun

import (
	"cmp"
	"encoding/base64"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/uuids"
)

// sendObject answers with one object.
func sendObject(c *httpapi.Call, status int, fill func(*strictjson.Object)) error {
	o := strictjson.NewObject(make([]byte, 0, 512))
	fill(&o)
	c.Send(status, httpapi.JSON, o.End())
	return nil
}

// updatedAt returns when the job last changed its state (FR-123). Heartbeats change the row's
// UpdatedAt, so for a leased job it is the time of the claim or start.
func updatedAt(j *job.Job) time.Time {
	switch {
	case !j.FinishedAt.IsZero():
		return j.FinishedAt
	case j.Phase == job.Leased:
		return j.StartedAt
	}
	return j.UpdatedAt
}

// appendJob writes a job with the members of the document and those of G-FR-38.
func appendJob(o *strictjson.Object, j *job.Job) {
	t := decodeJobSpec(j.Payload)
	o.Text("job_id", j.ID.Key)
	o.Text("type", t.typ)
	o.Text("state", string(j.State))
	o.Optional("outcome", outcome(j.State))
	o.Time("created_at", j.CreatedAt)
	o.Time("execution_at", t.executionAt)
	o.Time("updated_at", updatedAt(j))
	o.Int("attempt", int64(attempt(j)))
	o.Optional("callback", t.callback)
	o.Text("work_kind", j.Kind)
	d, err := decodeDefinition(j.Definition)
	if err != nil {
		o.Null("definition")
	} else {
		o.Object("definition", d.append)
	}
	appendFailure(o, j)
}

func appendFailure(o *strictjson.Object, j *job.Job) {
	if j.State != failed {
		o.Null("failure")
		return
	}
	f := decodeFailure(j.Failure)
	o.Object("failure", f.append)
}

// failure is why a job failed (G-FR-62).
type failure struct {
	code, message string
	retryable     bool
}

func (f *failure) append(o *strictjson.Object) {
	o.Text("code", f.code)
	o.Text("message", f.message)
	o.Bool("retryable", f.retryable)
}

func (f *failure) encode() []byte {
	o := strictjson.NewObject(make([]byte, 0, 128))
	f.append(&o)
	return o.End()
}

// runnerLostFailure is the failure of an attempt whose lease expired; no worker has reported one
// (G-FR-35).
var runnerLostFailure = failure{
	code:      runnerLost,
	message:   "the runner was lost while the job ran",
	retryable: true,
}

// decodeFailure reads a stored failure: one that encode wrote, or one that a remote worker has
// reported in its own form.
func decodeFailure(raw []byte) failure {
	if len(raw) == 0 {
		return runnerLostFailure
	}
	f := failure{code: "failed", message: "the run failed"}
	if strictjson.Check(raw) != nil {
		return f
	}
	if strictjson.KindOf(raw) == strictjson.KindString {
		f.message = cmp.Or(textOf(raw), f.message)
		return f
	}
	for name, value := range strictjson.Members(raw) {
		text := textOf(value)
		switch string(name) {
		case "retryable":
			f.retryable, _ = strictjson.Bool(value)
		case "code", "error_type":
			f.code = cmp.Or(text, f.code)
		case "message", "error":
			f.message = cmp.Or(text, f.message)
		}
	}
	return f
}

// textOf returns a JSON string's text, or "" for anything else.
func textOf(raw []byte) string {
	text, err := strictjson.String(raw)
	if err != nil {
		return ""
	}
	return text
}

// appendReport writes the report of a final job (FR-125, FR-131).
func appendReport(o *strictjson.Object, j *job.Job, events []event) {
	started := startOfLastRun(events)
	duration := int64(0)
	if !started.IsZero() {
		duration = j.FinishedAt.Sub(started).Round(time.Millisecond).Milliseconds()
	}
	o.Text("job_id", j.ID.Key)
	o.Text("outcome", outcome(j.State))
	o.Objects("events", len(events), func(i int, o *strictjson.Object) {
		events[i].append(o, j.ID.Key, j.Kind, "timestamp")
	})
	o.Time("started_at", started)
	o.Time("finished_at", j.FinishedAt)
	o.Int("duration_ms", duration)
	o.Int("attempt", int64(attempt(j)))
	o.Text("work_kind", j.Kind)
	appendFailure(o, j)
}

// page holds the limit and cursor of a request for a list.
type page struct {
	list   string // marks the list's cursors, so that a cursor of another list is refused
	limit  int
	cursor string // the position in the cursor; empty: the first page
}

// Limits of lists (G-X-19).
const (
	defaultLimit = 20
	maxLimit     = 100
)

// readPage reads limit and cursor of a list.
func readPage(c *httpapi.Call, list string) (p page, err error) {
	p.list, p.limit = list, defaultLimit
	text, given, err := c.Query("limit")
	if err != nil {
		return p, err
	}
	if given {
		n, ok := httpapi.ParseDigits(text)
		if !ok || n < 1 || n > maxLimit {
			return p, invalid("limit must be a whole number from 1 to " + strconv.Itoa(maxLimit))
		}
		p.limit = n
	}
	text, given, err = c.Query("cursor")
	if err != nil || !given {
		return p, err
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil {
		return p, errCursor
	}
	position, ok := strings.CutPrefix(string(raw), list+":")
	if !ok || position == "" || len(position) > maxCursor {
		return p, errCursor
	}
	p.cursor = position
	return p, nil
}

const maxCursor = 256

var errCursor = invalid("invalid cursor")

// number returns a cursor's position as a number above 0, or 0 for the first page.
func (p page) number() (int64, error) {
	if p.cursor == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(p.cursor, 10, 64)
	if err != nil || n < 1 || strconv.FormatInt(n, 10) != p.cursor {
		return 0, errCursor
	}
	return n, nil
}

// id returns a cursor's position as a UUID, or "" for the first page.
func (p page) id() (string, error) {
	if p.cursor == "" {
		return "", nil
	}
	id, ok := uuids.Parse(p.cursor)
	if !ok {
		return "", errCursor
	}
	return id, nil
}

// nextCursor returns the cursor of the page after a position.
func (p page) nextCursor(position string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(p.list + ":" + position))
}

// sendPage answers with a page of the items that were read. One item more than the limit was asked
// for: if it is there, the list goes on.
func sendPage[T any](c *httpapi.Call, p page, all []T, position func(T) string,
	write func(*strictjson.Object, T)) error {
	next := ""
	if len(all) > p.limit {
		all = all[:p.limit]
		next = p.nextCursor(position(all[p.limit-1]))
	}
	c.SendPage(len(all), next, func(i int, o *strictjson.Object) { write(o, all[i]) })
	return nil
}
