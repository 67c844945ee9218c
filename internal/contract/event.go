package contract

import (
	"slices"

	"github.com/millrace/millrace/internal/job"
)

// EventType is one row of the table of events: which changes of a job are events of a type
// (WH-002). Empty members mean any.
type EventType struct {
	Name    string // such as relay.job.started
	Meaning string // a sentence
	Causes  []job.Cause
	Before  []job.State // the machine's states that the change leads from
	States  []job.State // and to
	Kind    string      // of the job
}

// The changes of jobs, in the same words for all contracts.
const (
	Submitted = "submitted"
	Started   = "started"
	Retrying  = "retrying"
	Completed = "completed"
	Failed    = "failed"
	Canceled  = "canceled"
	Blocked   = "blocked"
	Dead      = "dead"
	Deleted   = "deleted"
)

// meanings says what the changes mean.
var meanings = map[string]string{
	Submitted: "A job was stored, or replaced by a new one with its id.",
	Started:   "A run of a job began.",
	Retrying:  "A run failed, was lost or given back, or a job is retried: it runs again.",
	Completed: "A job ended with success.",
	Failed:    "A job failed, and no attempt is left.",
	Canceled:  "A job was canceled.",
	Blocked:   "A job will not run, as a job that it depends on has failed.",
	Dead:      "A job was given up; it is a dead letter now.",
	Deleted:   "A job was removed on request.",
}

// JobEvent returns the type of events for a change of the jobs of a contract.
func JobEvent(contract, change string) EventType {
	return EventType{Name: contract + ".job." + change, Meaning: meanings[change]}
}

// When returns the type for changes by these causes alone.
func (t EventType) When(causes ...job.Cause) EventType {
	t.Causes = causes
	return t
}

// From returns the type for changes that lead from these states alone.
func (t EventType) From(states ...job.State) EventType {
	t.Before = states
	return t
}

// To returns the type for changes that lead to these states alone.
func (t EventType) To(states ...job.State) EventType {
	t.States = states
	return t
}

// Is reports whether a change of a job is an event of the type.
func (t *EventType) Is(j *job.Job, ev job.Event) bool {
	return matches(t.Causes, ev.Cause) && matches(t.Before, ev.Prev) &&
		matches(t.States, ev.Next) && (t.Kind == "" || t.Kind == j.Kind)
}

func matches[T comparable](wanted []T, value T) bool {
	return len(wanted) == 0 || slices.Contains(wanted, value)
}
