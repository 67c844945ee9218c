package forgerun

import (
	"cmp"
	"time"

	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/job"
)

// sendObject answers with one object. fill writes its members. The error is always nil; handlers
// return it.
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

// appendFailure writes why a job has FAILED, or null in any other state (FR-122).
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

// append writes the members of a failure.
func (f *failure) append(o *strictjson.Object) {
	o.Text("code", f.code)
	o.Text("message", f.message)
	o.Bool("retryable", f.retryable)
}

// encode returns the failure as it is stored with the job.
func (f *failure) encode() []byte {
	o := strictjson.NewObject(make([]byte, 0, 128))
	f.append(&o)
	return o.End()
}

// runnerLostFailure is the failure of an attempt whose lease expired; no worker has reported one
// (G-FR-35).
var runnerLostFailure = failure{
	code:      codeRunnerLost,
	message:   "the runner was lost while the job ran",
	retryable: true,
}

// decodeFailure reads a stored failure: one that encode wrote, or one that a remote worker has
// reported in its own form. It always returns one: what cannot be read becomes a failure without
// details, as the job has failed nevertheless.
func decodeFailure(raw []byte) failure {
	if len(raw) == 0 {
		return runnerLostFailure
	}
	f := failure{code: codeFailed, message: "the run failed"}
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

// appendReport writes the report of a final job (FR-125, FR-131). It has the times and the duration
// of the last run, and the events of all attempts (G-FR-09). A job that was not started since
// its last retry has no start and a duration of 0 (G-FR-31).
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

// pages are the pages of a list (G-X-19). Its cursors begin with a name, so that a cursor of
// another list is refused.
func pages[P any](list string, cursor httpapi.Cursor[P]) httpapi.Pages[P] {
	return httpapi.Pages[P]{DefaultLimit: 20, MaxLimit: 100,
		LimitText: "limit must be a whole number from 1 to %d",
		Cursor:    httpapi.Named(list, cursor)}
}
