package job

import (
	"encoding/json"
	"fmt"
	"strings"
)

// maxFailureText bounds how much of a failure is shown and compared, in bytes.
const maxFailureText = 4096

// AttemptFailure is why an attempt has failed, as its worker reports it with a last heartbeat where
// the contract has no failures: the attempt ends with its lease. It is kept as the failure of the
// job.
type AttemptFailure struct {
	Error   string `json:"error"`
	Type    string `json:"type,omitempty"`
	Attempt int    `json:"attempt"`
}

// Encode returns the failure as a job keeps it.
func (f AttemptFailure) Encode() []byte {
	raw, err := json.Marshal(f)
	if err != nil {
		panic(err) // it has texts and a number
	}
	return raw
}

// failedAttempt returns the number of the attempt that a failure is of; 0 for one that was not
// reported by a heartbeat.
func failedAttempt(raw []byte) int {
	var f AttemptFailure
	if len(raw) == 0 || json.Unmarshal(raw, &f) != nil {
		return 0
	}
	return f.Attempt
}

// ReportedFailure returns what the worker of the latest attempt has reported of it, without a type;
// "" if it has reported nothing.
func (j *Job) ReportedFailure() string {
	if at := failedAttempt(j.Failure); at == 0 || at != j.Attempts {
		return ""
	}
	_, text := FailureOf(j.Failure)
	return text
}

// FailureOf returns the type and the text of a failure. Contracts keep a failure as an object with
// a code, type or error_type, and an error or message; one that has none of them is its own text.
func FailureOf(raw []byte) (kind, text string) { return failureOf(raw, maxFailureText) }

// WholeFailureOf is FailureOf without a bound.
func WholeFailureOf(raw []byte) (kind, text string) { return failureOf(raw, len(raw)) }

// failureOf is FailureOf, of type and text up to limit bytes.
func failureOf(raw []byte, limit int) (kind, text string) {
	if len(raw) == 0 {
		return "", ""
	}
	text = string(raw[:min(len(raw), limit)])
	var members map[string]json.RawMessage
	if err := json.Unmarshal(raw, &members); err != nil {
		return kind, text
	}
	for _, member := range []struct {
		name string
		to   *string
	}{{"code", &kind}, {"type", &kind}, {"error_type", &kind}, {"message", &text}, {"error", &text}} {
		var value string
		if err := json.Unmarshal(members[member.name], &value); err != nil || value == "" {
			continue
		}
		*member.to = value[:min(len(value), limit)]
	}
	return kind, text
}

// isLastAttempt reports whether a failure of the current attempt gives the job up.
func (j *Job) isLastAttempt() bool { return j.MaxAttempts > 0 && j.FailedAttempts+1 >= j.MaxAttempts }

// running is the reason of a job that a worker has. An attempt of which the worker has reported a
// failure does not run any more: the job waits for the end of the lease.
func (f *ExplainInput) running() Reason {
	j := f.Job
	if j.ReportedFailure() != "" {
		return f.failedRun()
	}
	text := fmt.Sprintf("The job runs: worker %s has had it for %s, attempt %d.", j.Worker,
		length(f.Now.Sub(j.StartedAt)), j.Attempts)
	if j.LeaseUntil.After(f.Now) {
		text += fmt.Sprintf(" Without a heartbeat its lease ends in %s.",
			length(j.LeaseUntil.Sub(f.Now)))
	} else {
		text += " Its lease has ended without a heartbeat, so it will be taken back."
	}
	return Reason{Code: ReasonRunning, Text: text, until: j.LeaseUntil, Facts: f.runFacts()}
}

// failedRun is the reason of a job whose attempt has failed and whose lease has not ended. What is
// said next is what the end of the lease does.
func (f *ExplainInput) failedRun() Reason {
	j := f.Job
	text := fmt.Sprintf("Attempt %d has failed on worker %s", j.Attempts, j.Worker)
	facts := append(f.runFacts(), Fact{"attempts", j.Attempts},
		Fact{"failures", j.FailedAttempts + 1})
	if !f.HidesFailure {
		failure := firstLine(j.ReportedFailure())
		text += ": " + strings.TrimSuffix(failure, ".")
		facts = append(facts, Fact{"error", failure})
	}
	end := "now that its lease has ended"
	if j.LeaseUntil.After(f.Now) {
		end = "when its lease ends in " + length(j.LeaseUntil.Sub(f.Now))
	}
	next := "The job is tried again " + end
	if j.isLastAttempt() {
		next = "No attempt is left: the job is given up " + end
	}
	return Reason{Code: ReasonBackingOff, Text: text + ". " + next + ".", until: j.LeaseUntil,
		Facts: facts}
}

// givenUp is the reason of a job that has a dead letter, with what became of that.
func (f *ExplainInput) givenUp(l *DeadLetter) Reason {
	became, where := "given up", fmt.Sprintf("stands in the dead letters as %d", l.ID)
	if l.Cause == Canceled {
		became = "canceled"
	}
	r := Reason{Code: ReasonDead, Facts: []Fact{{"dead_letter", int(l.ID)}, {"at", l.CreatedAt},
		{"cause", string(l.endCause())}, {"attempts", l.Job.Attempts}}}
	if !l.IsOpen() {
		r.Code = ReasonDone
		r.Facts = append(r.Facts, Fact{"replayed_at", l.ReplayedAt},
			Fact{"replayed_as", int(l.ReplayedAs)})
		where = fmt.Sprintf("its dead letter %d was replayed %s as job %d", l.ID,
			since(f.Now, l.ReplayedAt), l.ReplayedAs)
	}
	r.Text = fmt.Sprintf("The job was %s %s after %s, and %s.", became, since(f.Now, l.CreatedAt),
		count(l.Job.Attempts, "attempt"), where)
	kind, text := l.Failure()
	if f.HidesFailure || text == "" {
		return r
	}
	text = firstLine(text)
	shown := strings.TrimSuffix(text, ".")
	if kind == string(l.endCause()) {
		r.Text += fmt.Sprintf(" Its error: %s.", shown)
	} else {
		r.Text += fmt.Sprintf(" Its error is %s: %s.", kind, shown)
	}
	r.Facts = append(r.Facts, Fact{"error_type", kind}, Fact{"error", text})
	return r
}

// runFacts are what is known about the run of a job that a worker has.
func (f *ExplainInput) runFacts() []Fact {
	j := f.Job
	return []Fact{{"worker", j.Worker}, {"started_at", j.StartedAt},
		{"lease_until", j.LeaseUntil}, {"attempt", j.Attempts}}
}
