package simulate

import (
	"fmt"
	"slices"
	"time"

	"github.com/millrace/millrace/client"
)

// The audit compares what was requested, answered and received with the final state of the server.
// It makes no requests and reads no clock, so that tests can audit made-up histories.
//
//	checkRequests    every submission: answered as its kind expects, one job for each key
//	checkJob         every job that the server lists: definition, path, report, outcome
//	checkReceiver    every receiver: genuine requests, of its own jobs, in order, all of them

// history is the input of the audit.
type history struct {
	submissions []*submission
	receivers   []*receiver
	// observed are the jobs that the server lists, of all clients.
	observed []observedJob
	outages  []outage
	// lostRuns says that runs may be lost although no outage was seen.
	lostRuns bool

	// interrupted says that the history holds only the scenarios that had ended.
	interrupted bool
	// unfinished counts scenarios that had not ended.
	unfinished int
}

// submission is one scenario: the requests that submit a job of a kind, and the answers to what the
// scenario did with the job.
type submission struct {
	kind *workKind
	// client is the number of its client.
	client int
	// due is the time of the job; zero for at once.
	due      time.Time
	requests []submitRequest

	// canceled is the state in the answer to cancel; empty without one.
	canceled client.ForgeRunState
	// attempt is the attempt in the last answer to retry.
	attempt int
	// refused says that the server refused another retry.
	refused bool
	// abortReason is why the scenario ended early; empty if it did not.
	abortReason string
}

// submitRequest is one submission of a job under a key, with its answer. It counts once, however
// often the request was repeated.
type submitRequest struct {
	key string
	// jobID is empty unless the request was acknowledged.
	jobID string
	// code is the code of the refusal; empty without one.
	code string
	// late says that it was refused because its time had passed: the server was unavailable before.
	late bool
	// failure is why there was no answer; empty if there was one.
	failure string
}

// observedJob is a job in its final state at the server.
type observedJob struct {
	// client is the number of the client that lists it.
	client int
	job    client.ForgeRunJob
	// report is nil if there is none.
	report *client.ForgeRunReport
	// noReportReason is why there is none.
	noReportReason string
}

// outage is a time in which the server could not be reached.
type outage struct{ from, to time.Time }

// Violation is a broken promise of the server.
type Violation struct {
	// What is the kind of the violation, such as lost, duplicate or order.
	What string `json:"what"`
	// Kind is the work kind of the job.
	Kind string `json:"kind,omitempty"`
	// Job is the id of the job; empty where there is none.
	Job    string `json:"job,omitempty"`
	Detail string `json:"detail"`
}

// String returns the violation as one line.
func (v Violation) String() string {
	return fmt.Sprintf("%s: %s %s: %s", v.What, v.Kind, v.Job, v.Detail)
}

// auditResult is the outcome of an audit: the violations, and counts of other things that worth
// knowing.
type auditResult struct {
	violations []Violation
	// lost counts runs that were lost in an outage.
	lost int
	// requeued counts claimed jobs that were released or expired before they started.
	requeued int
	// pending counts deliveries that the simulator's own receivers keep from ending.
	pending int
	// givenUp counts deliveries given up, as expected.
	givenUp int
	// repeated counts events that came again after the receiver had accepted them.
	repeated int
	// late counts scheduled submissions that came too late because the server was unavailable.
	late int
}

// audit checks the requests, then the jobs, then the webhooks: each step uses what the one before
// has found, which submission a job belongs to and which events exist. It changes nothing in the
// history.
func (w *history) audit() *auditResult {
	a := &auditor{history: w, result: &auditResult{}, byID: map[string]*observedJob{},
		submissionOf: map[string]*submission{}, events: map[string]string{}}
	for i := range w.observed {
		t := &w.observed[i]
		if a.byID[t.job.ID] != nil {
			a.addViolation("duplicate", nil, t.job.ID, "the server lists it twice")
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
			a.addViolation("unexpected", nil, t.job.ID,
				"it was not submitted, or its submission was refused or not answered: %s %s",
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

// auditor is the state of an audit.
type auditor struct {
	*history
	result *auditResult
	byID   map[string]*observedJob
	// submissionOf is the submission of each job, by the job's id.
	submissionOf map[string]*submission
	// events has the job of each event, by the event's id.
	events map[string]string
}

// addViolation records a violation. It has the kind of the submission, else of the job.
func (a *auditor) addViolation(sort string, o *submission, jobID, format string, args ...any) {
	violation := Violation{What: sort, Job: jobID, Detail: fmt.Sprintf(format, args...)}
	if o != nil {
		violation.Kind = string(o.kind.name)
	} else if t := a.byID[jobID]; t != nil {
		violation.Kind = string(t.job.Kind)
	}
	a.result.violations = append(a.result.violations, violation)
}

// checkRequests checks the answers to a submission: each acknowledged request has its job, one key
// has one job, and two keys have two (FR-067, FR-073, FR-113).
func (a *auditor) checkRequests(o *submission) {
	byKey := map[string]string{}
	for _, s := range o.requests {
		switch {
		case s.failure != "":
			a.addViolation("unanswered", o, "", "the submission under key %s was not answered: %s",
				s.key, s.failure)
		case o.kind.action == actionExpectRefusal && s.code == client.ForgeRunCodeValidationFailed:
		case o.kind.action == actionExpectRefusal:
			a.addViolation("accepted", o, s.jobID, "it must be refused with %s; got %q",
				client.ForgeRunCodeValidationFailed, s.code)
		case s.late:
			a.result.late++
		case s.code != "":
			a.addViolation("refused", o, "", "the submission under key %s was refused: %s", s.key,
				s.code)
		}
		if s.jobID == "" {
			continue
		}
		if first, repeated := byKey[s.key]; repeated {
			if first != s.jobID {
				a.addViolation("duplicate", o, s.jobID, "key %s has also made job %s", s.key, first)
			}
		} else if a.submissionOf[s.jobID] != nil {
			a.addViolation("duplicate", o, s.jobID, "two keys were answered with this one job")
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

// anyJob returns the first acknowledged job, empty if there is none.
func (o *submission) anyJob() string {
	for _, s := range o.requests {
		if s.jobID != "" {
			return s.jobID
		}
	}
	return ""
}

// checkJob checks one job: its owner, its definition, and that it has ended as it should. A job
// that has not ended, or has no report or events, is not checked further.
func (a *auditor) checkJob(o *submission, t *observedJob) {
	j := &t.job
	if t.client != o.client {
		a.addViolation("unexpected", o, j.ID, "client %d submitted it and client %d has it",
			o.client,
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

// checkDefinition checks that the server simulates what the catalogue says (FR-075, FR-114), at the
// time that was submitted.
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

// transitions are the transitions of the state machine (FR-155 to FR-161) with the names of their
// events. Only the server makes the one from ASSIGNED back to QUEUED (G-FR-01).
var transitions = map[[2]client.ForgeRunState]client.ForgeRunEventName{
	{"", client.ForgeRunStateCreated}:                            client.ForgeRunEventJobCreated,
	{client.ForgeRunStateCreated, client.ForgeRunStateQueued}:    client.ForgeRunEventJobQueued,
	{client.ForgeRunStateCreated, client.ForgeRunStateCanceled}:  client.ForgeRunEventJobCanceled,
	{client.ForgeRunStateQueued, client.ForgeRunStateAssigned}:   client.ForgeRunEventJobAssigned,
	{client.ForgeRunStateQueued, client.ForgeRunStateCanceled}:   client.ForgeRunEventJobCanceled,
	{client.ForgeRunStateAssigned, client.ForgeRunStateRunning}:  client.ForgeRunEventJobStarted,
	{client.ForgeRunStateAssigned, client.ForgeRunStateCanceled}: client.ForgeRunEventJobCanceled,
	{client.ForgeRunStateAssigned, client.ForgeRunStateQueued}:   client.ForgeRunEventJobRequeued,
	{client.ForgeRunStateRunning, client.ForgeRunStateSucceeded}: client.ForgeRunEventJobSucceeded,
	{client.ForgeRunStateRunning, client.ForgeRunStateFailed}:    client.ForgeRunEventJobFailed,
	{client.ForgeRunStateRunning, client.ForgeRunStateCanceled}:  client.ForgeRunEventJobCanceled,
	{client.ForgeRunStateFailed, client.ForgeRunStateQueued}:     client.ForgeRunEventJobQueued,
}

// checkPath checks that the events of a job are a path of the state machine that ends in the state
// of the job, each later than the one before and with an id of its own (FR-148 to FR-151).
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
		case e.Prev == client.ForgeRunStateFailed:
			retries++
		case e.Name == client.ForgeRunEventJobRequeued:
			a.result.requeued++
		case e.Next == client.ForgeRunStateRunning:
			started = e.At
		case e.Next == client.ForgeRunStateFailed && e.Reason == runnerLost:
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

// checkLostRun checks that a run was lost only in an outage: a runner that lives keeps its runs.
func (a *auditor) checkLostRun(o *submission, jobID string, from, to time.Time) {
	const slack = 2 * time.Second // between the clocks, and until the outage was noticed
	if a.lostRuns || slices.ContainsFunc(a.outages, func(x outage) bool {
		return x.from.Before(to.Add(slack)) && x.to.After(from.Add(-slack))
	}) {
		a.result.lost++
		return
	}
	a.addViolation("lost run", o, jobID,
		"its runner was lost between %s and %s, and the server was available then",
		from.Format(time.RFC3339), to.Format(time.RFC3339))
}

// checkNotEarly checks that no job starts before its time, with a tolerance of a second (FR-164).
// The first event that is too early is the only violation: those after it follow from it.
func (a *auditor) checkNotEarly(o *submission, t *observedJob) {
	for _, e := range t.report.Events {
		if !o.due.IsZero() && e.Next != client.ForgeRunStateCreated &&
			e.Next != client.ForgeRunStateCanceled &&
			e.At.Before(o.due.Add(-time.Second)) {
			a.addViolation("early", o, t.job.ID, "%s at %s, due at %s", e.Name,
				e.At.Format(time.RFC3339Nano), o.due.Format(time.RFC3339Nano))
			return
		}
	}
}

// checkReport checks that the report of a job agrees with the job and with its own events (FR-128
// to FR-131). Start and duration are of the last attempt: a retry begins them again.
func (a *auditor) checkReport(o *submission, t *observedJob) {
	j, r := &t.job, t.report
	last := r.Events[len(r.Events)-1]
	var started *time.Time
	for _, e := range r.Events {
		switch {
		case e.Next == client.ForgeRunStateRunning:
			started = &e.At
		case e.Prev == client.ForgeRunStateFailed:
			started = nil
		}
	}
	took := time.Duration(0)
	if started != nil {
		took = last.At.Sub(*started)
	}
	off := time.Duration(r.DurationMS)*time.Millisecond - took // rounded up or down
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

// outcomeOf is the outcome of a job in each final state.
var outcomeOf = map[client.ForgeRunState]client.ForgeRunOutcome{
	client.ForgeRunStateSucceeded: client.ForgeRunOutcomeSuccess,
	client.ForgeRunStateFailed:    client.ForgeRunOutcomeFailed,
	client.ForgeRunStateCanceled:  client.ForgeRunOutcomeCanceled,
}

// checkOutcome checks that a job ended as its kind and the actions of its scenario imply. The first
// case that applies is the only violation. A run that was lost may end any job as failed.
func (a *auditor) checkOutcome(o *submission, t *observedJob) {
	j := &t.job
	last := t.report.Events[len(t.report.Events)-1]
	failure := client.ForgeRunFailure{}
	if j.Failure != nil {
		failure = *j.Failure
	}
	want := o.kind.outcome
	if o.canceled != "" {
		want = outcomeOf[o.canceled] // cancel answered with the state that won the race (FR-138)
	}
	switch {
	case j.Outcome != outcomeOf[j.State]:
		a.addViolation("outcome", o, j.ID, "it is %s with the outcome %q", j.State, j.Outcome)
	case o.canceled != "" && !o.canceled.Final():
		a.addViolation("outcome", o, j.ID, "its cancel was answered with %s", o.canceled)
	case last.Next == client.ForgeRunStateFailed && (j.Failure == nil || failure.Code == ""):
		a.addViolation("outcome", o, j.ID, "it failed and does not say why")
	case last.Reason == runnerLost && o.canceled == "":
		// checkPath has checked the event.
	case j.Outcome != want:
		a.addViolation("outcome", o, j.ID, "%s (%s), the catalogue says %s", j.Outcome,
			failure.Code, want)
	case o.kind.name == client.ForgeRunWorkRunsOverTimeout &&
		(failure.Code != client.ForgeRunCodeTimeout || last.Reason == ""):
		a.addViolation("outcome", o, j.ID,
			"it failed with %s, its event with %q: both must name the timeout", failure.Code,
			last.Reason)
	case o.kind.name == client.ForgeRunWorkFailAfterRetryable && !failure.Retryable:
		a.addViolation("outcome", o, j.ID, "its failure is not marked retryable")
	case o.kind.action == actionRetryOnce && j.Attempt == 0:
		a.addViolation("outcome", o, j.ID, "it succeeded without having failed")
	case o.kind.action == actionRetryUntilRefused && (!o.refused || !last.Final):
		a.addViolation("outcome", o, j.ID,
			"its retries are used up (%v) and its last event says so (%v): both must be", o.refused,
			last.Final)
	}
}
