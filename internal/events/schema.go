package events

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/contract"
	"github.com/millrace/millrace/internal/job"
)

// Each type of event has a schema and an example, which documents and clients show. The schemas are
// composed here of the few shapes that data has: that of a job, of which events of jobs have more
// or less, and those of a queue and of a schedule.

// bodySchema is the schema of a body, of a type and the schema of its data.
const bodySchema = `{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object",` +
	`"required":["type","timestamp","data"],"properties":{"type":{"const":%q},` +
	`"timestamp":{"type":"string","format":"date-time"},"data":%s}}`

// object returns the schema of an object with these members, all of which are there.
func object(members ...string) string {
	names := make([]string, len(members))
	for i, m := range members {
		names[i], _, _ = strings.Cut(m, ":")
	}
	return `{"type":"object","required":[` + strings.Join(names, ",") + `],"properties":{` +
		strings.Join(members, ",") + `}}`
}

// of returns the schema of members with these names.
func of(schema string, names ...string) (members []string) {
	for _, name := range names {
		members = append(members, fmt.Sprintf("%q:%s", name, schema))
	}
	return members
}

const (
	textSchema     = `{"type":"string"}`
	textOrNull     = `{"type":["string","null"]}`
	numberSchema   = `{"type":"integer"}`
	numberOrNull   = `{"type":["integer","null"]}`
	timeSchema     = `{"type":"string","format":"date-time"}`
	timeOrNull     = `{"type":["string","null"],"format":"date-time"}`
	boolSchema     = `{"type":"boolean"}`
	anything       = `{}`
	withoutPayload = `"payload":{"description":"Only with include_payload."},` +
		`"payload_truncated":{"type":"boolean"}`
)

// The schemas of data.
var (
	jobSchema = strings.TrimSuffix(object(slices.Concat(
		of(textSchema, "contract", "queue", "id", "state", "phase"),
		of(numberSchema, "number", "attempts", "failures", "attempt"),
		of(numberOrNull, "priority", "run_limit", "parent", "children", "open_dependencies", "size"),
		of(timeSchema, "created_at", "updated_at", "due_at"),
		of(timeOrNull, "started_at", "settled_at", "lease_until"),
		of(textOrNull, "kind", "worker", "owner", "error", "previous_state", "run_id"),
		of(anything, "result"), of(boolSchema, "result_truncated"))...), "}}") +
		"," + withoutPayload + "}}"
	queueSchema = object(slices.Concat(of(textSchema, "contract", "queue"), of(boolSchema, "paused"))...)

	scheduleSchema = object(slices.Concat(of(textSchema, "schedule", "contract", "error"),
		of(timeSchema, "time"), of(numberSchema, "passed"))...)
)

// The examples of data that is of no job.
const (
	pausedExample  = `{"contract":"relay","queue":"mail","paused":true}`
	resumedExample = `{"contract":"relay","queue":"mail","paused":false}`
	missedExample  = `{"schedule":"nightly","contract":"taskflow","time":"2026-03-01T02:00:00Z",` +
		`"passed":0,"error":"the contract has its limit of jobs"}`
)

// exampleTime is the time of all examples.
var exampleTime = time.Date(2026, time.March, 1, 12, 0, 0, 123456000, time.UTC)

// typeOfEvent returns a type of events that are of no job.
func typeOfEvent(name, meaning, schema, example string) Type {
	return Type{name, meaning, fmt.Appendf(nil, bodySchema, name, schema),
		exampleBody(name, []byte(example))}
}

// exampleBody returns the body of an example.
func exampleBody(name string, data []byte) []byte {
	return fmt.Appendf(nil, `{"type":%q,"timestamp":%q,"data":%s}`, name,
		exampleTime.Format(time.RFC3339Nano), data)
}

// typeOf returns the type of a row. Its example is written as events are.
func (c *Catalog) typeOf(s *jobType, t *contract.EventType) Type {
	j, ev := s.example(t)
	data, _ := c.Data(j, ev)
	return Type{t.Name, t.Meaning, fmt.Appendf(nil, bodySchema, t.Name, jobSchema),
		exampleBody(t.Name, data)}
}

// example returns a job after a change that is an event of a type.
func (s *jobType) example(t *contract.EventType) (*job.Job, job.Event) {
	j := &job.Job{ID: job.ID{JobType: s.operator.JobType, Key: "example"}, Seq: 4711,
		Queue: "default", Kind: t.Kind, Attempts: 1, MaxAttempts: 3,
		CreatedAt: exampleTime.Add(-2 * time.Second), UpdatedAt: exampleTime,
		DueAt: exampleTime.Add(-2 * time.Second), StartedAt: exampleTime.Add(-time.Second),
		Worker: "worker-1"}
	ev := job.Event{Job: j.Seq, At: exampleTime}
	for _, from := range append([]job.State{job.StateNone}, s.machine.States()...) {
		for _, on := range job.Causes() {
			tr, ok := s.machine.Next(from, on)
			ev.Prev, ev.Cause, ev.Next = from, on, tr.To
			if ok && t.Is(j, ev) {
				s.applyChange(j, &ev)
				return j, ev
			}
		}
	}
	return j, ev
}

// applyChange gives the job of an example what its change decides.
func (s *jobType) applyChange(j *job.Job, ev *job.Event) {
	j.State, j.Phase = ev.Next, s.machine.Phase(ev.Next)
	if ev.Cause == job.Submitted {
		j.Attempts, j.StartedAt, j.Worker = 0, time.Time{}, ""
		return
	}
	ev.Run = job.NewRunID(j.Seq, [16]byte{1})
	switch {
	case j.Phase == job.Leased:
		j.LeaseUntil = exampleTime.Add(30 * time.Second)
	case j.State == job.StateNone || j.Phase == job.Done:
		j.FinishedAt = exampleTime
	}
	switch ev.Cause {
	case job.Succeeded:
		j.Result = []byte(`{"rows":7}`)
	case job.Failed, job.FailedForGood, job.Expired, job.ExpiredForGood:
		j.FailedAttempts, j.Failure = 1, []byte(`{"error":"the worker was lost"}`)
	}
}
