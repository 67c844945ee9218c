package forgerun

import (
	"encoding/base64"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/uuids"
)

// answer answers with one object.
func (v *request) sendObject(status int, fill func(*strictjson.Object)) error {
	o := strictjson.NewObject(make([]byte, 0, 512))
	fill(&o)
	v.call.Send(status, httpapi.JSON, o.End())
	return nil
}

// updatedAt is when the job last changed its state. Heartbeats move the time the
// row was written, so while a worker has it the hand-out counts (FR-123).
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
	if d, err := decodeDefinition(j.Definition); err == nil {
		o.Object("definition", d.append)
	} else {
		o.Null("definition")
	}
	if j.State == failed {
		f := decodeFailure(j.Failure)
		o.Object("failure", f.append)
	} else {
		o.Null("failure")
	}
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

// runnerLostFailure is the failure of a run that fell silent and so left none (G-FR-35).
var runnerLostFailure = failure{code: runnerLost, message: "the runner was lost while the job ran",
	retryable: true}

// decodeFailure reads what a run left: what encode wrote, or whatever a worker
// outside said of it.
func decodeFailure(raw []byte) failure {
	if len(raw) == 0 {
		return runnerLostFailure
	}
	f := failure{code: "failed", message: "the run failed"}
	if strictjson.Check(raw) != nil {
		return f
	}
	if s, err := strictjson.String(raw); err == nil {
		f.message = s
	}
	for name, value := range strictjson.Members(raw) {
		switch s, err := strictjson.String(value); {
		case string(name) == "retryable":
			f.retryable, _ = strictjson.Bool(value)
		case err != nil || s == "":
		case string(name) == "code" || string(name) == "error_type":
			f.code = s
		case string(name) == "message" || string(name) == "error":
			f.message = s
		}
	}
	return f
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
	if j.State == failed {
		f := decodeFailure(j.Failure)
		o.Object("failure", f.append)
	} else {
		o.Null("failure")
	}
}

// page is what a list was asked for.
type page struct {
	list   string // the list's own letter, so that a cursor of another list is refused
	limit  int
	cursor string // what after was given; empty begins
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
	position, ok := strings.CutPrefix(string(raw), list+":")
	if err != nil || !ok || position == "" || len(position) > maxCursor {
		return p, errCursor
	}
	p.cursor = position
	return p, nil
}

const maxCursor = 256

var errCursor = invalid("cursor is not one that this list has given")

// number reads a cursor that is a number of more than 0; 0 for none.
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

// id reads a cursor that is a UUID.
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

// nextCursor is the cursor from which the list goes on behind a place.
func (p page) nextCursor(position string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(p.list + ":" + position))
}

// sendPage answers with a page of what was read, which is one item more than
// fits where the list goes on.
func sendPage[T any](v *request, p page, all []T, position func(T) string,
	write func(*strictjson.Object, T)) error {
	next := ""
	if len(all) > p.limit {
		all = all[:p.limit]
		next = p.nextCursor(position(all[p.limit-1]))
	}
	v.call.SendPage(len(all), next, func(i int, o *strictjson.Object) { write(o, all[i]) })
	return nil
}
