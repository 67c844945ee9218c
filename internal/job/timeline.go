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
	// Until is when the state, the attempt, the relative or the delivery ended. It is zero if that
	// has not ended, or if the entry is a moment.
	Until time.Time

	// State is the contract's word for the state that was entered. For a relative or a delivery it
	// is the present state.
	State  string
	Cause  Cause // of the state
	Worker string
	Run    RunID
	// Outcome is how an attempt ended: running, succeeded, failed, expired, released, requeued,
	// canceled, or another cause that ended it. It is empty if that is not known.
	Outcome string
	Error   string // why an attempt failed
	Number  int64  // of a relative or delivery
	ID      string // its contract's id
	Actor   string // the operator who did something
	Action  string // what the operator did
}

// Lasted returns how long it lasted. ok is false if it has not ended, or if the entry is a moment.
func (e *Entry) Lasted() (d time.Duration, ok bool) {
	if e.Until.IsZero() {
		return 0, false
	}
	return max(0, e.Until.Sub(e.At)), true
}

// MaxEntries bounds the entries of a timeline, and the facts of each kind that are read for it.
const MaxEntries = 2000

// TimelineInput is what a timeline is made from, all read at one moment. Each list may have one
// item more than MaxEntries, so that the timeline knows that there are more.
type TimelineInput struct {
	Now time.Time
	Job *Job // with progress and failure
	// Events are the history, empty where the contract keeps none.
	Events       []Event
	Dependencies []*Job
	Children     []*Job
	Messages     []Message    // that wait to be published
	DeadLetters  []DeadLetter // of the job
	// Attempts are those that the contract has recorded itself where it keeps no history.
	Attempts []Entry
	// More are entries of the contract, and those of what operators did.
	More []Entry
	// Word returns the contract's word for the state of a job; nil means the state itself.
	Word func(*Job) string
}

// Timeline returns what happened to a job, the oldest first. truncated says that there are more
// than MaxEntries entries.
func Timeline(f *TimelineInput) (entries []Entry, truncated bool) {
	entries = slices.Concat(f.states(), f.attempts(), f.progress(), f.messages(),
		f.relatives(EntryDependency, f.Job.CreatedAt, f.Dependencies),
		f.relatives(EntryChild, time.Time{}, f.Children), f.deadLetters(), f.More)
	slices.SortStableFunc(entries, func(a, b Entry) int { return a.At.Compare(b.At) })
	if len(entries) > MaxEntries {
		return entries[:MaxEntries], true
	}
	return entries, false
}

// states returns an entry for the submission and one for each change of the state. Without a
// history it returns one for the submission and one for the present state.
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

// stateText returns a sentence about a change of the state.
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

// attempts returns the attempts with their workers and outcomes. Each event that is not a start
// ends the attempt before it.
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

// lastAttempt returns the attempt that the members of the job describe. It is used if there is no
// history.
func (f *TimelineInput) lastAttempt() []Entry {
	j := f.Job
	if j.Attempts == 0 || j.StartedAt.IsZero() {
		return nil
	}
	e := Entry{At: j.StartedAt, Kind: EntryAttempt, Worker: j.Worker, Run: j.Run}
	switch {
	case j.Phase == Leased && j.ReportedFailure() == "":
		e.Outcome = OutcomeRunning
	case len(f.DeadLetters) > 0 &&
		f.DeadLetters[len(f.DeadLetters)-1].Job.Attempts == j.Attempts:
		d := &f.DeadLetters[len(f.DeadLetters)-1]
		e.end(d.CreatedAt, d.endCause(), d.Job.ReportedFailure())
	default:
		e.Until = later(j.UpdatedAt, j.StartedAt)
		if failure := j.ReportedFailure(); failure != "" {
			e.end(e.Until, Failed, failure)
		}
	}
	e.Text = attemptText(&e, j.Attempts)
	if j.Attempts > 1 {
		e.Text += "; earlier attempts are not kept"
	}
	all := []Entry{e}
	f.fillError(all)
	return all
}

// fillError sets the error of the last attempt that failed to the text of the job's failure, if the
// history has no reason for it.
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

// progress returns an entry for the latest progress. Its time is that of the last heartbeat, which
// may be later than the progress.
func (f *TimelineInput) progress() []Entry {
	if len(f.Job.Progress) == 0 {
		return nil
	}
	text := f.Job.Progress[:min(len(f.Job.Progress), maxProgressShown)]
	return []Entry{{At: f.Job.UpdatedAt, Kind: EntryProgress, Text: "progress: " + string(text)}}
}

// messages returns an entry for each message that waits to be published.
func (f *TimelineInput) messages() (all []Entry) {
	for i := range f.Messages {
		m := &f.Messages[i]
		all = append(all, Entry{At: m.At, Kind: EntryMessage, State: f.word(m.Next), Cause: m.Cause,
			Text: fmt.Sprintf("the message of this change has waited to be sent for %s",
				length(f.Now.Sub(m.At)))})
	}
	return all
}

// relatives returns an entry for each dependency, whose time is when the job began to wait for it,
// or for each child, whose time is when it was submitted.
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

// deadLetters returns an entry for each dead letter of the job, and one for each replay.
func (f *TimelineInput) deadLetters() (all []Entry) {
	for i := range f.DeadLetters {
		d := &f.DeadLetters[i]
		all = append(all, Entry{At: d.CreatedAt, Kind: EntryState, Cause: d.Cause,
			Until: d.ReplayedAt, Text: fmt.Sprintf("given up: dead letter %d", d.ID)})
		if !d.IsOpen() {
			all = append(all, Entry{At: d.ReplayedAt, Kind: EntryState, Number: d.ReplayedAs,
				Text: fmt.Sprintf("dead letter %d was replayed as job %d", d.ID, d.ReplayedAs)})
		}
	}
	return all
}
