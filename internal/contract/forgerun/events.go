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

// eventNames are all that happens to a job and may be listened for (FR-153).
var eventNames = []string{"job_created", "job_queued", "job_assigned", "job_started",
	"job_succeeded", "job_failed", "job_canceled", "job_requeued"}

// eventName says what a change is called. A job that comes back from a worker
// that did not start it was requeued (G-FR-01).
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

// eventID names an event for ever: it is made of what makes it unique (FR-149),
// so that the report, every delivery and every repeat agree.
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

// Reasons of events and codes of failures that no run can report by itself.
const (
	leaseExpired = "lease_expired" // a worker had the job and never started it
	released     = "released"      // a worker gave it back before it started
	runnerLost   = "runner_lost"   // a run fell silent (G-FR-35)
)

// event is one change of a job as clients see it.
type event struct {
	id, name   string
	prev, next job.State
	at         time.Time
	reason     string
	final      bool // the last failure there can be (G-FR-08)
}

// newEvent reads an event of the history or the outbox.
func newEvent(jobID string, cause job.Cause, prev, next job.State, at time.Time,
	reason string) event {
	e := event{name: eventName(prev, next), prev: prev, next: next, at: at, reason: reason}
	e.id = eventID(jobID, at, e.name)
	if reason == "" {
		e.reason = defaultReason(cause, prev)
	}
	e.final = next == failed && (cause == job.FailedForGood || cause == job.ExpiredForGood)
	return e
}

func defaultReason(cause job.Cause, prev job.State) string {
	switch {
	case prev == assigned && cause == job.Expired:
		return leaseExpired
	case prev == assigned && cause == job.Released:
		return released
	case prev == running && (cause == job.Expired || cause == job.ExpiredForGood ||
		cause == job.Released):
		return runnerLost
	}
	return ""
}

// append writes the members that reports and webhooks have in common, the time
// under the name each of them has for it.
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

// eventsOf is a job's history as clients see it.
func eventsOf(jobID string, history []job.Event) []event {
	events := make([]event, len(history))
	for i, h := range history {
		events[i] = newEvent(jobID, h.Cause, h.Prev, h.Next, h.At, h.Reason)
	}
	return events
}

// startOfLastRun is when the run that led to the final state began to work; zero
// when none did since the last retry (G-FR-31).
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
