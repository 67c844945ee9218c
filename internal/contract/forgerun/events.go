package forgerun

import (
	"crypto/sha256"
	"slices"
	"strconv"
	"time"

	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/uuids"
)

// Events are not stored as clients see them. The engine keeps the history of a job: cause, states,
// time and reason of each transition, written in its transaction. This file computes the events
// from that:
//
//	history ─► eventsOf ─► the report
//	outbox  ─► newEvent ─► webhooks and callbacks, the log
//
// The same transition gives the same event everywhere, with the same id, so a receiver can drop
// what it has seen (FR-196). An event cannot change, since history is only appended to (FR-150).

// eventNames lists the events of a job that a webhook may subscribe to (FR-153).
var eventNames = []string{"job_created", "job_queued", "job_assigned", "job_started",
	"job_succeeded", "job_failed", "job_canceled", "job_requeued"}

// eventName returns the name of a transition's event. A job that returns to QUEUED because its
// worker did not start it was requeued (G-FR-01).
func eventName(prev, next job.State) string {
	switch next {
	case created:
		return "job_created"
	case queued:
		if prev == assigned {
			return "job_requeued"
		}
		return "job_queued"
	case assigned:
		return "job_assigned"
	case running:
		return "job_started"
	case succeeded:
		return "job_succeeded"
	case failed:
		return "job_failed"
	default:
		return "job_canceled"
	}
}

// eventID returns the id of an event: a digest of the job, the time and the name, which make it
// unique (FR-149). So the report and all deliveries and replays of an event have the same id.
func eventID(jobID string, at time.Time, name string) string {
	text := make([]byte, 0, 96)
	text = append(text, jobID...)
	text = append(text, ' ')
	text = strconv.AppendInt(text, at.UnixMicro(), 10)
	text = append(text, ' ')
	text = append(text, name...)
	sum := sha256.Sum256(text)
	return uuids.New(8, [16]byte(sum[:16])).String()
}

// Codes of failures, which are the reasons of their events (G-FR-35).
const (
	codeRunnerLost   = "runner_lost"        // the lease of a running job expired
	codeRunTimeout   = "RFA_EXEC_TIMEOUT"   // the run took longer than jobs may run
	codeRunnerBroken = "runner_broken"      // the runner panicked while the job ran
	codeNoDefinition = "definition_missing" // the job's definition is missing or cannot be read
	codeOutput       = "output_invalid"     // the output of the run is invalid or incomplete
	codeSimulated    = "simulated_failure"  // the work kind fails by design
	codeFailed       = "failed"             // a worker reported a failure without a code
)

// Reasons of events by which a job is queued again.
const (
	leaseExpired = "lease_expired" // the worker did not start the job before the lease expired
	released     = "released"      // the worker released the job before it started it
)

// event is one transition of a job as clients see it.
type event struct {
	id, name   string
	prev, next job.State
	at         time.Time
	reason     string
	final      bool // a failure with no retries left (G-FR-08)
}

// newEvent translates an event of the history or the outbox. reason comes from the worker or the
// outcome; without one the cause has a reason of its own. An event does not say which worker has
// claimed the job.
func newEvent(jobID string, cause job.Cause, prev, next job.State, at time.Time,
	reason string) event {
	e := event{name: eventName(prev, next), prev: prev, next: next, at: at, reason: reason}
	e.id = eventID(jobID, at, e.name)
	switch {
	case cause == job.Claimed:
		e.reason = ""
	case reason == "":
		e.reason = defaultReason(cause, prev)
	}
	e.final = next == failed && (cause == job.FailedForGood || cause == job.ExpiredForGood)
	return e
}

// defaultReason returns the reason of a transition by which a job left its worker unfinished, or ""
// for any other. A running job that its worker gives back is lost, as its work cannot be continued
// (G-X-18).
func defaultReason(cause job.Cause, prev job.State) string {
	switch {
	case prev == assigned && cause == job.Expired:
		return leaseExpired
	case prev == assigned && cause == job.Released:
		return released
	case prev == running && (cause == job.Expired || cause == job.ExpiredForGood ||
		cause == job.Released):
		return codeRunnerLost
	}
	return ""
}

// append writes the members that reports and webhooks have in common. timeName is the name of the
// time, which differs between the two. The first event has the prev_state null (G-FR-62).
func (e *event) append(o *strictjson.Object, jobID, scenario, timeName string) {
	o.Text("event_id", e.id)
	o.Text("job_id", jobID)
	o.Text("event_name", e.name)
	o.Optional("prev_state", string(e.prev))
	o.Text("next_state", string(e.next))
	o.Time(timeName, e.at)
	o.Text("scenario", scenario)
	if e.reason != "" {
		o.Text("reason", e.reason)
	}
	if e.next == failed {
		o.Bool("final", e.final)
	}
}

// eventsOf translates a job's history, in the order in which it happened (FR-127).
func eventsOf(jobID string, history []job.Event) []event {
	events := make([]event, len(history))
	for i, h := range history {
		events[i] = newEvent(jobID, h.Cause, h.Prev, h.Next, h.At, h.Reason)
	}
	return events
}

// startOfLastRun returns when the attempt that led to the final state was started, or zero if none
// was started since the last retry (G-FR-31).
func startOfLastRun(events []event) time.Time {
	for _, e := range slices.Backward(events) {
		switch {
		case e.next == running:
			return e.at
		case e.prev == failed:
			return time.Time{}
		}
	}
	return time.Time{}
}
