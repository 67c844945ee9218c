package job

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// EntryKind says what an entry of a timeline is about (AD-014).
type EntryKind string

// The kinds.
const (
	EntrySubmitted  EntryKind = "submitted"
	EntryState      EntryKind = "state"
	EntryAttempt    EntryKind = "attempt"
	EntryProgress   EntryKind = "progress"
	EntryLog        EntryKind = "log"
	EntryMessage    EntryKind = "message"
	EntryDelivery   EntryKind = "delivery"
	EntryDependency EntryKind = "dependency"
	EntryChild      EntryKind = "child"
	EntryOperator   EntryKind = "operator"
)

// Entry is one thing that happened to a job. Members without meaning for its kind are empty.
type Entry struct {
	At   time.Time
	Kind EntryKind
	Text string // a sentence for people
	// Until is when it ended: a state, an attempt, a relative, a delivery. Zero is not yet, or that
	// it has no length.
	Until time.Time

	State  string // the contract's word for what was entered; of a relative or delivery the present
	Cause  Cause  // of the state
	Worker string
	Run    RunID
	// Outcome is how an attempt ended: running, succeeded, failed, expired, released, requeued,
	// canceled, or the cause that took it away. Empty is not known.
	Outcome string
	Error   string // why an attempt failed
	Number  int64  // of a relative or delivery
	ID      string // its contract's id
	Actor   string // who did it, of an operator
	Action  string // what was done
}

// Lasted returns how long it lasted; ok is false where it has not ended or has no length.
func (e *Entry) Lasted() (d time.Duration, ok bool) {
	if e.Until.IsZero() {
		return 0, false
	}
	return max(0, e.Until.Sub(e.At)), true
}

// MaxEntries is how many entries a timeline has at most, and how many facts of one kind are read
// for it.
const MaxEntries = 2000

// TimelineInput are what a timeline is made of, all of one moment. Of each kind there may be one
// more than MaxEntries, which says that there are more.
type TimelineInput struct {
	Now time.Time
	Job *Job // with progress and failure
	// Events are the history, empty where the contract keeps none.
	Events       []Event
	Dependencies []*Job
	Children     []*Job
	Messages     []Message    // that wait to be published
	Letters      []DeadLetter // of the job
	// Attempts are those that the contract has recorded itself where it keeps no history.
	Attempts []Entry
	// More are further entries: what the contract and operators know.
	More []Entry
	// Word returns the contract's word for the state of a job; nil means the state itself.
	Word func(*Job) string
}

// Timeline returns what happened to a job, the oldest first. truncated says that there is more
// than MaxEntries.
func Timeline(f *TimelineInput) (entries []Entry, truncated bool) {
	entries = slices.Concat(f.states(), f.attempts(), f.progress(), f.messages(),
		f.relatives(EntryDependency, f.Job.CreatedAt, f.Dependencies),
		f.relatives(EntryChild, time.Time{}, f.Children), f.given(), f.More)
	slices.SortStableFunc(entries, func(a, b Entry) int { return a.At.Compare(b.At) })
	if len(entries) > MaxEntries {
		return entries[:MaxEntries], true
	}
	return entries, false
}

// states are the submission and the changes of the state. Without a history they are the submission
// and the present state.
func (f *TimelineInput) states() []Entry {
	j := f.Job
	first := Entry{At: j.CreatedAt, Kind: EntrySubmitted, Cause: Submitted,
		Text: fmt.Sprintf("submitted to queue %s/%s", j.ID.JobType, j.Queue)}
	if j.Owner != "" {
		first.Text += " for " + j.Owner
	}
	all := []Entry{first}
	for i := range f.Events {
		e := &f.Events[i]
		if e.Cause == Submitted {
			all[0].At, all[0].State = e.At, f.word(e.Next)
			continue
		}
		all[len(all)-1].Until = e.At
		all = append(all, Entry{At: e.At, Kind: EntryState, State: f.word(e.Next),
			Cause: e.Cause, Run: e.Run, Text: f.stateText(e)})
	}
	if len(f.Events) == 0 && j.State != StateNone && j.UpdatedAt.After(j.CreatedAt) {
		all = append(all, Entry{At: j.UpdatedAt, Kind: EntryState, State: f.word(j.State),
			Text: fmt.Sprintf("is %s; earlier changes are not kept", f.word(j.State))})
	}
	return all
}

// word returns the contract's word for a state of the job.
func (f *TimelineInput) word(s State) string {
	then := *f.Job
	then.State = s
	return f.wordOf(&then)
}

// wordOf returns the contract's word for the state of a job.
func (f *TimelineInput) wordOf(j *Job) string {
	if f.Word == nil {
		return string(j.State)
	}
	return f.Word(j)
}

// stateText says what a change of the state was.
func (f *TimelineInput) stateText(e *Event) string {
	text := fmt.Sprintf("%s → %s: %s", f.word(e.Prev), f.word(e.Next), e.Cause)
	if e.Reason == "" {
		return text
	}
	if e.Cause == Claimed {
		return text + " by " + e.Reason
	}
	return text + ", " + e.Reason
}

// attempts are the attempts with their workers and outcomes. An event other than a start ends the
// attempt before it.
func (f *TimelineInput) attempts() (all []Entry) {
	if f.Attempts != nil {
		return f.Attempts
	}
	if len(f.Events) == 0 {
		return f.lastAttempt()
	}
	running := -1
	for i := range f.Events {
		e := &f.Events[i]
		switch {
		case e.Cause == Claimed:
			running = len(all)
			all = append(all, Entry{At: e.At, Kind: EntryAttempt, Worker: e.Reason, Run: e.Run})
		case e.Cause != Started && running >= 0:
			all[running].end(e.At, e.Cause, e.Reason)
			running = -1
		}
	}
	if running >= 0 && all[running].Run == f.Job.Run {
		all[running].Outcome, all[running].Worker = OutcomeRunning, f.Job.Worker
	}
	for i := range all {
		all[i].Text = attemptText(&all[i], i+1)
	}
	f.fillError(all)
	return all
}

// OutcomeRunning is the outcome of an attempt that has not ended.
const OutcomeRunning = "running"

// outcomes are the words for the causes that end an attempt, where they differ from the cause.
var outcomes = map[Cause]string{FailedForGood: string(Failed), ExpiredForGood: string(Expired)}

// end ends an attempt.
func (e *Entry) end(at time.Time, on Cause, reason string) {
	e.Until, e.Outcome = at, cmp.Or(outcomes[on], string(on))
	switch Cause(e.Outcome) {
	case Failed:
		e.Error = reason
	case Expired:
		e.Error = cmp.Or(reason, "the worker was lost: its lease ended without a heartbeat")
	}
}

// lastAttempt is the attempt that the members of the job describe, where there is no history.
func (f *TimelineInput) lastAttempt() []Entry {
	j := f.Job
	if j.Attempts == 0 || j.StartedAt.IsZero() {
		return nil
	}
	e := Entry{At: j.StartedAt, Kind: EntryAttempt, Worker: j.Worker, Run: j.Run}
	switch {
	case j.Phase == Leased:
		e.Outcome = OutcomeRunning
	case len(f.Letters) > 0 && f.Letters[len(f.Letters)-1].Job.Attempts == j.Attempts:
		l := &f.Letters[len(f.Letters)-1]
		e.end(l.CreatedAt, l.Cause, "")
	default:
		e.Until = later(j.UpdatedAt, j.StartedAt)
	}
	e.Text = attemptText(&e, j.Attempts)
	if j.Attempts > 1 {
		e.Text += "; earlier attempts are not kept"
	}
	all := []Entry{e}
	f.fillError(all)
	return all
}

// fillError gives the last attempt that failed the text of the job's failure, where the history has
// no reason.
func (f *TimelineInput) fillError(all []Entry) {
	for i := len(all) - 1; i >= 0; i-- {
		if all[i].Outcome == string(Failed) && all[i].Error == "" && len(f.Job.Failure) > 0 {
			_, all[i].Error = FailureOf(f.Job.Failure)
			return
		}
	}
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// attemptText says which attempt it was and how it ended.
func attemptText(e *Entry, n int) string {
	text := fmt.Sprintf("attempt %d", n)
	if e.Worker != "" {
		text += " by " + e.Worker
	}
	switch e.Outcome {
	case "":
		return text
	case OutcomeRunning:
		return text + " is running"
	}
	return text + " " + e.Outcome
}

// maxProgressShown bounds how much of a progress is shown, in bytes.
const maxProgressShown = 1024

// progress is the latest progress. It was sent with the last heartbeat or before.
func (f *TimelineInput) progress() []Entry {
	if len(f.Job.Progress) == 0 {
		return nil
	}
	text := f.Job.Progress[:min(len(f.Job.Progress), maxProgressShown)]
	return []Entry{{At: f.Job.UpdatedAt, Kind: EntryProgress, Text: "progress: " + string(text)}}
}

// messages are those that wait to be published.
func (f *TimelineInput) messages() (all []Entry) {
	for i := range f.Messages {
		m := &f.Messages[i]
		all = append(all, Entry{At: m.At, Kind: EntryMessage, State: f.word(m.Next), Cause: m.Cause,
			Text: fmt.Sprintf("the message of this change has waited to be sent for %s",
				length(f.Now.Sub(m.At)))})
	}
	return all
}

// relatives are the dependencies from when the job began to wait for them, or the children from
// when they were made.
func (f *TimelineInput) relatives(kind EntryKind, since time.Time, jobs []*Job) (all []Entry) {
	for _, j := range jobs {
		e := Entry{At: since, Kind: kind, Number: j.Seq, ID: j.ID.Key, State: f.wordOf(j)}
		if e.At.IsZero() {
			e.At = j.CreatedAt
		}
		verb := "has"
		if kind == EntryDependency {
			verb = "depends on"
		}
		e.Text = fmt.Sprintf("%s job %d (%s), which is %s", verb, j.Seq, j.ID.Key, e.State)
		if j.Phase == Done {
			e.Until = later(j.FinishedAt, e.At)
		}
		all = append(all, e)
	}
	return all
}

// given are the dead letters of the job and their replays.
func (f *TimelineInput) given() (all []Entry) {
	for i := range f.Letters {
		l := &f.Letters[i]
		all = append(all, Entry{At: l.CreatedAt, Kind: EntryState, Cause: l.Cause,
			Until: l.ReplayedAt, Text: fmt.Sprintf("given up: dead letter %d", l.ID)})
		if !l.IsOpen() {
			all = append(all, Entry{At: l.ReplayedAt, Kind: EntryState, Number: l.ReplayedAs,
				Text: fmt.Sprintf("dead letter %d was replayed as job %d", l.ID, l.ReplayedAs)})
		}
	}
	return all
}
