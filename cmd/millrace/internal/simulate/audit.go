package simulate

import (
	"fmt"
	"slices"
	"time"

	"github.com/millrace/millrace/client"
)

// The simulator's account: what was asked for, answered and heard, held against what the server
// says in the end. It asks nobody and knows no clock, so that it can be tried on made-up histories.

// history is all there is to account for.
type history struct {
	submissions []*submission
	receivers   []*receiver
	observed    []observedJob // the jobs that the server lists, of all clients
	outages     []outage
	// lostRuns accepts runs that were lost while nothing was seen to be away.
	lostRuns bool

	interrupted bool // what follows is not all there was
	unfinished  int  // plays that had not ended
}

// submission is one play: the submits of a kind, and what else was asked for.
type submission struct {
	kind     *workKind
	client   int
	due      time.Time // zero for at once
	requests []submitRequest

	canceled    client.ForgeRunState // what the answer to cancel said
	attempt     int                  // what the last answer to retry said
	refused     bool                 // a further retry was refused
	abortReason string               // why the play broke off; empty when it did not
}

// submitRequest is one submit until it was answered, however often it was sent.
type submitRequest struct {
	key     string
	jobID   string // empty unless acknowledged
	code    string // of the refusal, else empty
	late    bool   // refused when its time was over already: the server was away
	failure string // it went without an answer
}

// observedJob is a job as the server has it in the end.
type observedJob struct {
	client         int
	job            client.ForgeRunJob
	report         *client.ForgeRunReport // nil for none
	noReportReason string                 // why there is none
}

// outage is when the server could not be reached.
type outage struct{ from, to time.Time }

// Violation is one thing that must not be.
type Violation struct {
	What   string `json:"what"`
	Kind   string `json:"kind,omitempty"`
	Job    string `json:"job,omitempty"`
	Detail string `json:"detail"`
}

// String is the line about a violation.
func (v Violation) String() string {
	return fmt.Sprintf("%s: %s %s: %s", v.What, v.Kind, v.Job, v.Detail)
}

// auditResult is the outcome of an audit.
type auditResult struct {
	violations []Violation
	lost       int // runs lost in an outage
	requeued   int // leases that ended before the run began, and jobs given back
	pending    int // deliveries that our own receivers keep from ending
	givenUp    int // deliveries given up, as they should be
	repeated   int // events that a receiver had accepted before
	late       int // scheduled submits that came too late because the server was away
}

// audit holds everything against everything.
func (w *history) audit() *auditResult {
	a := &auditor{history: w, result: &auditResult{}, byID: map[string]*observedJob{},
		submissionOf: map[string]*submission{}, events: map[string]string{}}
	for i := range w.observed {
		t := &w.observed[i]
		if a.byID[t.job.ID] != nil {
			a.addViolation("doubled", nil, t.job.ID, "it is in the lists twice")
		}
		a.byID[t.job.ID] = t
	}
	for _, o := range w.submissions {
		a.checkRequests(o)
	}
	for i := range w.observed {
		t := &w.observed[i]
		o := a.submissionOf[t.job.ID]
		if o == nil {
			a.addViolation("strange", nil, t.job.ID,
				"nobody has submitted it, or its submit was refused or never answered: %s %s",
				t.job.Kind, t.job.State)
			continue
		}
		a.checkJob(o, t)
	}
	for _, h := range w.receivers {
		a.checkReceiver(h)
	}
	return a.result
}

// auditor is an audit under way.
type auditor struct {
	*history
	result       *auditResult
	byID         map[string]*observedJob
	submissionOf map[string]*submission
	events       map[string]string // id to job
}

func (a *auditor) addViolation(sort string, o *submission, jobID, format string, args ...any) {
	violation := Violation{What: sort, Job: jobID, Detail: fmt.Sprintf(format, args...)}
	if o != nil {
		violation.Kind = string(o.kind.name)
	} else if t := a.byID[jobID]; t != nil {
		violation.Kind = string(t.job.Kind)
	}
	a.result.violations = append(a.result.violations, violation)
}

// submits accounts for what was answered to an order's submits: each acknowledged one has its job,
// one key has one job, and two keys have two (FR-067, FR-073, FR-113).
func (a *auditor) checkRequests(o *submission) {
	byKey := map[string]string{}
	for _, s := range o.requests {
		switch {
		case s.failure != "":
			a.addViolation("unanswered", o, "", "the submit under key %s was not answered: %s",
				s.key, s.failure)
		case o.kind.action == actionExpectRefusal && s.code == client.ForgeValidationFailed:
		case o.kind.action == actionExpectRefusal:
			a.addViolation("accepted", o, s.jobID, "it is to be refused with %s; got %q",
				client.ForgeValidationFailed, s.code)
		case s.late:
			a.result.late++
		case s.code != "":
			a.addViolation("refused", o, "", "the submit under key %s was refused: %s", s.key,
				s.code)
		}
		if s.jobID == "" {
			continue
		}
		if first, repeated := byKey[s.key]; repeated {
			if first != s.jobID {
				a.addViolation("doubled", o, s.jobID, "key %s has also made job %s", s.key, first)
			}
		} else if a.submissionOf[s.jobID] != nil {
			a.addViolation("doubled", o, s.jobID, "two keys were given this one job")
		}
		byKey[s.key] = s.jobID
		a.submissionOf[s.jobID] = o
		if a.byID[s.jobID] == nil {
			a.addViolation("lost", o, s.jobID,
				"it was acknowledged under key %s and the server does not list it", s.key)
		}
	}
	if o.abortReason != "" {
		a.addViolation("stuck", o, o.anyJob(), "%s", o.abortReason)
	}
}

func (o *submission) anyJob() string {
	for _, s := range o.requests {
		if s.jobID != "" {
			return s.jobID
		}
	}
	return ""
}

// checkJob accounts for one job.
func (a *auditor) checkJob(o *submission, t *observedJob) {
	j := &t.job
	if t.client != o.client {
		a.addViolation("strange", o, j.ID, "client %d submitted it and client %d has it", o.client,
			t.client)
	}
	a.checkDefinition(o, j)
	if !j.State.Final() {
		a.addViolation("unfinished", o, j.ID, "it is %s, attempt %d, since %s", j.State, j.Attempt,
			j.UpdatedAt.Format(time.RFC3339))
		return
	}
	if t.report == nil {
		// FR-129
		a.addViolation("report", o, j.ID, "it is %s and has none: %s", j.State, t.noReportReason)
		return
	}
	if len(t.report.Events) == 0 {
		a.addViolation("path", o, j.ID, "its report has no events")
		return
	}
	a.checkPath(o, t)
	a.checkReport(o, t)
	a.checkOutcome(o, t)
}

// checkDefinition: the server simulates what the catalogue says (FR-075, FR-114).
func (a *auditor) checkDefinition(o *submission, j *client.ForgeRunJob) {
	d := j.Definition
	if j.Kind != o.kind.name || d.Kind != o.kind.name || d.ShouldFail != o.kind.fails ||
		d.PayloadSize != o.kind.payloadKB<<10 {
		a.addViolation("definition", o, j.ID, "the server has %s: %+v", j.Kind, d)
	}
	switch at := j.ExecutionAt; {
	case o.due.IsZero() && at != nil, !o.due.IsZero() && (at == nil || !at.Equal(o.due)):
		a.addViolation("definition", o, j.ID, "its time is %v, submitted was %v", at, o.due)
	}
}

// transitions are the moves of the state machine (FR-155 to FR-161) with the name of their
// event. That from ASSIGNED back to QUEUED is the system's alone (G-FR-01).
var transitions = map[[2]client.ForgeRunState]client.ForgeRunEventName{
	{"", client.ForgeCreated}:                    client.ForgeJobCreated,
	{client.ForgeCreated, client.ForgeQueued}:    client.ForgeJobQueued,
	{client.ForgeCreated, client.ForgeCanceled}:  client.ForgeJobCanceled,
	{client.ForgeQueued, client.ForgeAssigned}:   client.ForgeJobAssigned,
	{client.ForgeQueued, client.ForgeCanceled}:   client.ForgeJobCanceled,
	{client.ForgeAssigned, client.ForgeRunning}:  client.ForgeJobStarted,
	{client.ForgeAssigned, client.ForgeCanceled}: client.ForgeJobCanceled,
	{client.ForgeAssigned, client.ForgeQueued}:   client.ForgeJobRequeued,
	{client.ForgeRunning, client.ForgeSucceeded}: client.ForgeJobSucceeded,
	{client.ForgeRunning, client.ForgeFailed}:    client.ForgeJobFailed,
	{client.ForgeRunning, client.ForgeCanceled}:  client.ForgeJobCanceled,
	{client.ForgeFailed, client.ForgeQueued}:     client.ForgeJobQueued,
}

// checkPath: the events are a path of the machine that ends where the job is (FR-148 to FR-151).
func (a *auditor) checkPath(o *submission, t *observedJob) {
	j, at, prev := &t.job, time.Time{}, client.ForgeRunState("")
	retries, started := 0, time.Time{}
	for i, e := range t.report.Events {
		name, legal := transitions[[2]client.ForgeRunState{e.Prev, e.Next}]
		switch {
		case e.Prev != prev:
			a.addViolation("path", o, j.ID, "event %d leaves %q while the job was %q", i, e.Prev,
				prev)
		case !legal:
			a.addViolation("path", o, j.ID, "event %d goes from %q to %q", i, e.Prev, e.Next)
		case e.Name != name:
			a.addViolation("path", o, j.ID, "event %d from %q to %q is called %s", i, e.Prev,
				e.Next, e.Name)
		case !e.At.After(at):
			a.addViolation("path", o, j.ID, "event %d is not later than the one before", i)
		case e.JobID != j.ID || e.Scenario != o.kind.name:
			a.addViolation("path", o, j.ID, "event %d is of job %s, %s", i, e.JobID, e.Scenario)
		}
		if other, known := a.events[e.ID]; known || e.ID == "" {
			a.addViolation("path", o, j.ID, "event %d has the id %q, as one of job %s", i, e.ID,
				other)
		}
		a.events[e.ID] = j.ID
		switch {
		case e.Prev == client.ForgeFailed:
			retries++
		case e.Name == client.ForgeJobRequeued:
			a.result.requeued++
		case e.Next == client.ForgeRunning:
			started = e.At
		case e.Next == client.ForgeFailed && e.Reason == runnerLost:
			a.checkLostRun(o, j.ID, started, e.At)
		}
		prev, at = e.Next, e.At
	}
	if prev != j.State {
		a.addViolation("path", o, j.ID, "its events end in %s, it is %s", prev, j.State)
	}
	if retries != j.Attempt || j.Attempt < o.attempt {
		a.addViolation("attempt", o, j.ID, "attempt %d, %d retries in its events, %d acknowledged",
			j.Attempt, retries, o.attempt)
	}
	a.checkNotEarly(o, t)
}

// runnerLost is the reason of a run whose heartbeats stopped (G-FR-35).
const runnerLost = "runner_lost"

// checkLostRun: a run is lost only where somebody died.
func (a *auditor) checkLostRun(o *submission, jobID string, from, to time.Time) {
	const slack = 2 * time.Second // of the clocks, and of noticing
	if a.lostRuns || slices.ContainsFunc(a.outages, func(x outage) bool {
		return x.from.Before(to.Add(slack)) && x.to.After(from.Add(-slack))
	}) {
		a.result.lost++
		return
	}
	a.addViolation("lost run", o, jobID,
		"its runner was lost between %s and %s, and the server was not away then",
		from.Format(time.RFC3339), to.Format(time.RFC3339))
}

// checkNotEarly: no job starts before its time, with a tolerance of a second (FR-164).
func (a *auditor) checkNotEarly(o *submission, t *observedJob) {
	for _, e := range t.report.Events {
		if !o.due.IsZero() && e.Next != client.ForgeCreated && e.Next != client.ForgeCanceled &&
			e.At.Before(o.due.Add(-time.Second)) {
			a.addViolation("early", o, t.job.ID, "%s at %s, due at %s", e.Name,
				e.At.Format(time.RFC3339Nano), o.due.Format(time.RFC3339Nano))
			return
		}
	}
}

// checkReport: it agrees with the job and with its own events (FR-128 to FR-131).
func (a *auditor) checkReport(o *submission, t *observedJob) {
	j, r := &t.job, t.report
	last := r.Events[len(r.Events)-1]
	var started *time.Time
	for _, e := range r.Events {
		switch {
		case e.Next == client.ForgeRunning:
			started = &e.At
		case e.Prev == client.ForgeFailed:
			started = nil
		}
	}
	took := time.Duration(0)
	if started != nil {
		took = last.At.Sub(*started)
	}
	off := time.Duration(r.DurationMS)*time.Millisecond - took // however it was rounded
	switch {
	case r.JobID != j.ID || r.Outcome != j.Outcome:
		a.addViolation("report", o, j.ID, "it is of job %s and says %s, the job %s", r.JobID,
			r.Outcome, j.Outcome)
	case !r.FinishedAt.Equal(last.At):
		a.addViolation("report", o, j.ID, "finished at %v, its last event is of %v", r.FinishedAt,
			last.At)
	case (started == nil) != (r.StartedAt == nil) ||
		(started != nil && !started.Equal(*r.StartedAt)):
		a.addViolation("report", o, j.ID, "started at %v, by its events at %v", r.StartedAt,
			started)
	case off.Abs() >= time.Millisecond:
		a.addViolation("report", o, j.ID, "it took %d ms, by its events %s", r.DurationMS, took)
	}
}

var outcomeOf = map[client.ForgeRunState]client.ForgeRunOutcome{
	client.ForgeSucceeded: client.ForgeOutcomeSuccess,
	client.ForgeFailed:    client.ForgeOutcomeFailed,
	client.ForgeCanceled:  client.ForgeOutcomeCanceled,
}

// checkOutcome: the job ended as its kind does, after what was asked for.
func (a *auditor) checkOutcome(o *submission, t *observedJob) {
	j := &t.job
	last := t.report.Events[len(t.report.Events)-1]
	failure := client.ForgeRunFailure{}
	if j.Failure != nil {
		failure = *j.Failure
	}
	want := o.kind.outcome
	if o.canceled != "" {
		want = outcomeOf[o.canceled] // whoever won the race said so (FR-138)
	}
	switch {
	case j.Outcome != outcomeOf[j.State]:
		a.addViolation("outcome", o, j.ID, "it is %s with the outcome %q", j.State, j.Outcome)
	case o.canceled != "" && !o.canceled.Final():
		a.addViolation("outcome", o, j.ID, "its cancel was answered with %s", o.canceled)
	case last.Next == client.ForgeFailed && (j.Failure == nil || failure.Code == ""):
		a.addViolation("outcome", o, j.ID, "it failed and does not say why")
	case last.Reason == runnerLost && o.canceled == "":
		// Accounted for with its event.
	case j.Outcome != want:
		a.addViolation("outcome", o, j.ID, "%s (%s), the catalogue says %s", j.Outcome,
			failure.Code, want)
	case o.kind.name == client.ForgeRunsOverTimeout &&
		(failure.Code != client.ForgeTimeout || last.Reason == ""):
		a.addViolation("outcome", o, j.ID,
			"it failed with %s, its event with %q: neither may hide the time-out", failure.Code,
			last.Reason)
	case o.kind.name == client.ForgeFailAfterRetryable && !failure.Retryable:
		a.addViolation("outcome", o, j.ID, "its failure is not marked retryable")
	case o.kind.action == actionRetryOnce && j.Attempt == 0:
		a.addViolation("outcome", o, j.ID, "it succeeded without having failed")
	case o.kind.action == actionRetryUntilRefused && (!o.refused || !last.Last):
		a.addViolation("outcome", o, j.ID,
			"its retries are used up (%v) and its last event says so (%v): both must be", o.refused,
			last.Last)
	}
}
