package bulk

import (
	"bytes"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/contract"
	"github.com/millrace/millrace/internal/job"
)

// JobFilter selects jobs by the members of AD-010, which combine with and. Empty members select
// all.
type JobFilter struct {
	Contracts []string    `json:"contracts,omitempty"` // those of the engine
	Queue     string      `json:"queue,omitempty"`
	States    []job.State `json:"states,omitempty"` // the words of the contracts
	Phases    []job.Phase `json:"phases,omitempty"`
	Dead      bool        `json:"dead,omitempty"` // with an open dead letter, or one of Phases
	Owner     string      `json:"owner,omitempty"`
	Kind      string      `json:"kind,omitempty"`
	ID        string      `json:"id,omitempty"`
	Parent    int64       `json:"parent,omitempty"`
	Worker    string      `json:"worker,omitempty"`

	CreatedFrom   time.Time `json:"created_from,omitzero"`   // inclusive
	CreatedBefore time.Time `json:"created_before,omitzero"` // exclusive
	SettledFrom   time.Time `json:"settled_from,omitzero"`   // inclusive
	SettledBefore time.Time `json:"settled_before,omitzero"` // exclusive
	MinAttempts   int       `json:"min_attempts,omitempty"`
	Error         string    `json:"error,omitempty"` // in the failure, without case
	Text          string    `json:"text,omitempty"`  // in definition, payload and result, without case
}

// matches reports whether a job is selected, apart from its bodies and dead letter.
func (f *JobFilter) matches(j *job.Job, o *contract.Operator) bool {
	return slices.Contains(f.Contracts, j.ID.Contract) && (f.Queue == "" || j.Queue == f.Queue) &&
		(len(f.States) == 0 || slices.Contains(f.States, job.State(o.StateOf(j)))) &&
		(len(f.Phases) == 0 || f.Dead || slices.Contains(f.Phases, j.Phase)) &&
		(f.Owner == "" || j.Owner == f.Owner) && (f.Kind == "" || o.KindOf(j) == f.Kind) &&
		(f.ID == "" || j.ID.Key == f.ID) && (f.Parent == 0 || j.Parent == f.Parent) &&
		(f.Worker == "" || j.Worker == f.Worker) &&
		between(j.CreatedAt, f.CreatedFrom, f.CreatedBefore) &&
		between(j.FinishedAt, f.SettledFrom, f.SettledBefore) && j.Attempts >= f.MinAttempts
}

// contains reports whether the bodies of a job have the texts that are searched.
func (f *JobFilter) contains(j *job.Job) bool {
	return contains(f.Error, j.Failure) && contains(f.Text, j.Definition, j.Payload, j.Result)
}

// between reports whether a time is in a range. A time that is not set is in none.
func between(at, from, before time.Time) bool {
	if from.IsZero() && before.IsZero() {
		return true
	}
	return !at.IsZero() && !at.Before(from) && (before.IsZero() || at.Before(before))
}

// contains reports whether one of the bodies has a text, without case.
func contains(text string, bodies ...[]byte) bool {
	text = strings.ToLower(text)
	return text == "" || slices.ContainsFunc(bodies, func(body []byte) bool {
		return bytes.Contains(bytes.ToLower(body), []byte(text))
	})
}

// changedAt is when a job came into its state, or its run began.
func changedAt(j *job.Job) time.Time {
	switch j.Phase {
	case job.Leased:
		return j.StartedAt
	case job.Done:
		return j.FinishedAt
	}
	return j.UpdatedAt
}

// DeadLetterFilter selects dead letters by the members of AD-050. Empty members select all.
type DeadLetterFilter struct {
	Contracts   []string  `json:"contracts,omitempty"` // those of the engine
	Queue       string    `json:"queue,omitempty"`
	Fingerprint string    `json:"fingerprint,omitempty"`
	From        time.Time `json:"from,omitzero"` // inclusive
	To          time.Time `json:"to,omitzero"`   // exclusive
}

// Matches reports whether a dead letter is selected (G-AD-05).
func (f *DeadLetterFilter) Matches(l *job.DeadLetter) bool {
	return slices.Contains(f.Contracts, l.Job.ID.Contract) &&
		(f.Queue == "" || l.Job.Queue == f.Queue) && between(l.CreatedAt, f.From, f.To) &&
		(f.Fingerprint == "" || l.Fingerprint() == f.Fingerprint)
}
