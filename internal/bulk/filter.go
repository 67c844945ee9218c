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
	JobTypes []string    `json:"contracts,omitempty"` // those of the engine
	Queue    string      `json:"queue,omitempty"`
	States   []job.State `json:"states,omitempty"` // the words of the contracts
	Phases   []job.Phase `json:"phases,omitempty"`
	Dead     bool        `json:"dead,omitempty"` // with an open dead letter, or one of Phases
	Owner    string      `json:"owner,omitempty"`
	Kind     string      `json:"kind,omitempty"`
	ID       string      `json:"id,omitempty"`
	Numbers  []int64     `json:"numbers,omitempty"` // some jobs by their numbers
	Parent   int64       `json:"parent,omitempty"`
	Worker   string      `json:"worker,omitempty"`

	CreatedFrom    time.Time `json:"created_from,omitzero"`   // inclusive
	CreatedBefore  time.Time `json:"created_before,omitzero"` // exclusive
	FinishedFrom   time.Time `json:"settled_from,omitzero"`   // inclusive
	FinishedBefore time.Time `json:"settled_before,omitzero"` // exclusive
	MinAttempts    int       `json:"min_attempts,omitempty"`
	Error          string    `json:"error,omitempty"` // in the failure, without case
	Text           string    `json:"text,omitempty"`  // in definition, payload and result, without case
}

// matches reports whether a job is selected, apart from its bodies and dead letter.
func (f *JobFilter) matches(j *job.Job, o *contract.Operator) bool {
	return slices.Contains(f.JobTypes, j.ID.JobType) && (f.Queue == "" || j.Queue == f.Queue) &&
		(len(f.States) == 0 || slices.Contains(f.States, job.State(o.StateOf(j)))) &&
		(len(f.Phases) == 0 || f.Dead || slices.Contains(f.Phases, j.Phase)) &&
		(f.Owner == "" || j.Owner == f.Owner) && (f.Kind == "" || o.KindOf(j) == f.Kind) &&
		(f.ID == "" || j.ID.Key == f.ID) && (f.Parent == 0 || j.Parent == f.Parent) &&
		(len(f.Numbers) == 0 || slices.Contains(f.Numbers, j.Seq)) &&
		(f.Worker == "" || j.Worker == f.Worker) &&
		between(j.CreatedAt, f.CreatedFrom, f.CreatedBefore) &&
		between(j.FinishedAt, f.FinishedFrom, f.FinishedBefore) && j.Attempts >= f.MinAttempts
}

// isOfQueues reports whether job type, queue and phase of a job, and whether it is dead, decide
// whether it matches.
func (f *JobFilter) isOfQueues() bool {
	return len(f.States)+len(f.Numbers) == 0 && f.Owner+f.Kind+f.ID+f.Worker == "" && f.Parent == 0 &&
		f.CreatedFrom.IsZero() && f.CreatedBefore.IsZero() && f.FinishedFrom.IsZero() &&
		f.FinishedBefore.IsZero() && f.MinAttempts == 0 && !f.SearchesTexts()
}

// phases returns the phases that jobs which match may have.
func (f *JobFilter) phases() []job.Phase {
	switch {
	case f.Dead:
		return append(slices.Clone(f.Phases), job.Done)
	case len(f.Phases) == 0:
		return []job.Phase{job.Waiting, job.Ready, job.Leased, job.Done}
	}
	return f.Phases
}

// SearchesTexts reports whether the bodies of a job decide whether it matches.
func (f *JobFilter) SearchesTexts() bool { return f.Error != "" || f.Text != "" }

// contains reports whether the bodies of a job have the texts that are searched.
func (f *JobFilter) contains(j *job.Job) bool {
	return contains(f.Error, j.Failure) && contains(f.Text, j.Definition, j.Payload, j.Result)
}

// matchesDeleted reports whether a job that is deleted is selected, by its dead letter.
func (f *JobFilter) matchesDeleted(l *job.DeadLetter, o *contract.Operator) bool {
	seen := l.Job
	seen.Phase, seen.FinishedAt = job.Done, l.CreatedAt
	o.HideSecrets(&seen)
	kind, text := l.Failure()
	return !l.IsJobStored() && f.matches(&seen, o) &&
		contains(f.Error, []byte(kind), []byte(text)) &&
		contains(f.Text, seen.Definition, seen.Payload, seen.Result)
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
	JobTypes    []string  `json:"contracts,omitempty"` // those of the engine
	Queue       string    `json:"queue,omitempty"`
	Fingerprint string    `json:"fingerprint,omitempty"`
	JobID       string    `json:"job_id,omitempty"` // the contract's id, exactly
	Error       string    `json:"error,omitempty"`  // in type or text of the failure, without case
	From        time.Time `json:"from,omitzero"`    // inclusive
	To          time.Time `json:"to,omitzero"`      // exclusive
}

// matches reports whether a dead letter is selected (G-AD-05), apart from its error and the id of
// its job.
func (f *DeadLetterFilter) matches(l *job.DeadLetter) bool {
	return slices.Contains(f.JobTypes, l.Job.ID.JobType) &&
		(f.Queue == "" || l.Job.Queue == f.Queue) && between(l.CreatedAt, f.From, f.To) &&
		(f.Fingerprint == "" || l.Fingerprint() == f.Fingerprint)
}

// isOfQueues reports whether job type and queue of a dead letter decide whether it matches.
func (f *DeadLetterFilter) isOfQueues() bool {
	return f.Fingerprint == "" && f.From.IsZero() && f.To.IsZero() && !f.SearchesTexts()
}

// isOfGroup reports whether the fingerprint of a dead letter alone decides whether it matches.
func (f *DeadLetterFilter) isOfGroup() bool {
	others := *f
	others.Fingerprint = ""
	return f.Fingerprint != "" && f.Queue == "" && others.isOfQueues()
}

// SearchesTexts reports whether the job of a dead letter decides whether it matches.
func (f *DeadLetterFilter) SearchesTexts() bool { return f.Error != "" || f.JobID != "" }

// matchesJob reports whether the job of a dead letter has the id that is searched, and its failure
// the text.
func (f *DeadLetterFilter) matchesJob(l *job.DeadLetter) bool {
	if f.JobID != "" && f.JobID != l.Job.ID.Key {
		return false
	}
	if f.Error == "" {
		return true
	}
	kind, text := l.Failure()
	return contains(f.Error, []byte(kind), []byte(text))
}
