package simulate

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/millrace/millrace/client"
)

var testStart = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// fixture is a made-up history without violations. Its jobs take a second for each event.
type fixture struct{ history }

func newFixture() *fixture {
	// pointers into it stay good
	m := &fixture{history{observed: make([]observedJob, 0, 100)}}
	for n := range 2 {
		m.receivers = append(m.receivers,
			&receiver{name: fmt.Sprintf("accepts/%d", n), client: n,
				webhookID: fmt.Sprintf("w-%d", n), receipts: map[string][]webhookReceipt{}},
			&receiver{name: fmt.Sprintf("callback/%d", n), client: n,
				url: fmt.Sprintf("http://callback/%d", n), receipts: map[string][]webhookReceipt{}})
	}
	return m
}

func kindNamed(name client.ForgeRunWorkKind) *workKind {
	return &catalogue[slices.IndexFunc(catalogue, func(k workKind) bool { return k.name == name })]
}

// addSubmission submits a job of client 0 that goes through the given states after CREATED.
func (m *fixture) addSubmission(name client.ForgeRunWorkKind,
	states ...client.ForgeRunState) (*submission, *observedJob) {
	kind, id := kindNamed(name), fmt.Sprintf("job-%d", len(m.observed))
	o := &submission{kind: kind, requests: []submitRequest{{key: "key-" + id, jobID: id}}}
	m.submissions = append(m.submissions, o)
	m.observed = append(m.observed, observedJob{job: client.ForgeRunJob{ID: id, Kind: kind.name,
		CreatedAt: testStart,
		Callback:  "http://callback/0",
		Definition: client.ForgeRunDefinition{Kind: kind.name, ShouldFail: kind.fails,
			PayloadSize: kind.payloadKB << 10}}})
	t := &m.observed[len(m.observed)-1]
	m.addHistory(o, t, states...)
	return o, t
}

// addHistory writes the history of a job and delivers it to all receivers.
func (m *fixture) addHistory(o *submission, t *observedJob,
	states ...client.ForgeRunState) {
	r := &client.ForgeRunReport{JobID: t.job.ID}
	prev := client.ForgeRunState("")
	for i, next := range append([]client.ForgeRunState{client.ForgeRunStateCreated}, states...) {
		e := client.ForgeRunEvent{ID: fmt.Sprintf("%s-%d", t.job.ID, i), JobID: t.job.ID,
			Name: transitions[[2]client.ForgeRunState{prev, next}],
			Prev: prev, Next: next, At: testStart.Add(time.Duration(i) * time.Second),
			Scenario: o.kind.name}
		if prev == client.ForgeRunStateFailed {
			t.job.Attempt++
			r.StartedAt = nil
		}
		if next == client.ForgeRunStateRunning {
			r.StartedAt = &e.At
		}
		r.Events = append(r.Events, e)
		prev, r.FinishedAt, t.job.UpdatedAt = next, e.At, e.At
	}
	t.job.State, t.job.Outcome = prev, outcomeOf[prev]
	r.Outcome = t.job.Outcome
	if r.StartedAt != nil {
		r.DurationMS = r.FinishedAt.Sub(*r.StartedAt).Milliseconds()
	}
	if prev == client.ForgeRunStateFailed {
		t.job.Failure = &client.ForgeRunFailure{Code: "failed", Retryable: true}
	}
	if prev.Final() {
		t.report = r
	}
	for _, h := range m.receivers {
		if h.client != 0 {
			continue
		}
		for _, e := range r.Events {
			h.receipts[t.job.ID] = append(h.receipts[t.job.ID],
				webhookReceipt{eventID: e.ID, at: e.At, accepted: true})
			if h.webhookID != "" {
				h.deliveries = append(h.deliveries,
					client.ForgeRunDelivery{EventID: e.ID,
						Status: client.ForgeRunDeliveryDelivered})
			}
		}
	}
}

func (t *observedJob) lastEvent() *client.ForgeRunEvent {
	return &t.report.Events[len(t.report.Events)-1]
}

// Paths of jobs through the state machine.
var (
	pathSucceeds = []client.ForgeRunState{client.ForgeRunStateQueued, client.ForgeRunStateAssigned,
		client.ForgeRunStateRunning, client.ForgeRunStateSucceeded}
	pathFails = []client.ForgeRunState{client.ForgeRunStateQueued, client.ForgeRunStateAssigned,
		client.ForgeRunStateRunning, client.ForgeRunStateFailed}
	pathRetried    = append(slices.Clone(pathFails), pathSucceeds...)
	pathFailsTwice = append(slices.Clone(pathFails), pathFails...)
	pathRequeued   = append([]client.ForgeRunState{client.ForgeRunStateQueued,
		client.ForgeRunStateAssigned},
		pathSucceeds...)
	pathCanceledEarly = []client.ForgeRunState{client.ForgeRunStateQueued,
		client.ForgeRunStateCanceled}
	pathCanceledRunning = []client.ForgeRunState{client.ForgeRunStateQueued,
		client.ForgeRunStateAssigned,
		client.ForgeRunStateRunning, client.ForgeRunStateCanceled}
)

// A correct history balances, for every kind, and also with the effects of a server that was
// killed.
func TestAuditCorrect(t *testing.T) {
	t.Parallel()
	m := newFixture()
	for i := range catalogue {
		kind := &catalogue[i]
		switch {
		case kind.action == actionExpectRefusal:
			m.submissions = append(m.submissions,
				&submission{kind: kind,
					requests: []submitRequest{{key: "r",
						code: client.ForgeRunCodeValidationFailed}}})
		case kind.action == actionRetryOnce:
			o, _ := m.addSubmission(kind.name, pathRetried...)
			o.attempt = 1
		case kind.action == actionRetryUntilRefused:
			o, there := m.addSubmission(kind.name, pathFailsTwice...)
			o.attempt, o.refused, there.lastEvent().Final = 1, true, true
		case kind.action == actionCancelAtOnce:
			o, _ := m.addSubmission(kind.name, pathCanceledEarly...)
			o.canceled = client.ForgeRunStateCanceled
			o, _ = m.addSubmission(kind.name, pathSucceeds...) // the job was faster
			o.canceled = client.ForgeRunStateSucceeded
		case kind.action == actionCancelRunning:
			o, _ := m.addSubmission(kind.name, pathCanceledRunning...)
			o.canceled = client.ForgeRunStateCanceled
		case kind.action == actionSameKey:
			o, _ := m.addSubmission(kind.name, pathSucceeds...)
			o.requests = append(o.requests, o.requests[0], o.requests[0])
		case kind.name == client.ForgeRunWorkRunsOverTimeout:
			_, there := m.addSubmission(kind.name, pathFails...)
			there.job.Failure.Code, there.lastEvent().Reason = client.ForgeRunCodeTimeout, "timeout"
		case kind.outcome == outcomeFailed:
			m.addSubmission(kind.name, pathFails...)
		default:
			m.addSubmission(kind.name, pathSucceeds...)
		}
	}
	m.addSubmission(client.ForgeRunWorkSuccessFast, pathRequeued...)
	_, lost := m.addSubmission(client.ForgeRunWorkSuccessFast, pathFails...)
	lost.job.Failure.Code, lost.lastEvent().Reason = runnerLost, runnerLost
	m.outages = []outage{{lost.lastEvent().At.Add(-3 * time.Second),
		lost.lastEvent().At.Add(-time.Second)}}
	m.submissions = append(m.submissions,
		&submission{kind: kindNamed(client.ForgeRunWorkScheduledOnTime), due: testStart,
			requests: []submitRequest{{key: "l", code: client.ForgeRunCodeValidationFailed,
				late: true}}})
	h := m.receivers[0]
	// at least once
	h.receipts["job-0"] = slices.Insert(h.receipts["job-0"], 1, h.receipts["job-0"][0])
	// and not at the first try
	h.receipts["job-0"][0].accepted = false

	v := m.audit()
	for _, o := range v.violations {
		t.Errorf("%+v", o)
	}
	want := auditResult{lost: 1, requeued: 1, late: 1}
	if v.violations = nil; fmt.Sprint(*v) != fmt.Sprint(want) {
		t.Errorf("result %+v, want %+v", *v, want)
	}
}

// corruption is a fault in the history of one submission; wantKind is the kind of its violation.
type corruption struct {
	wantKind string
	kind     client.ForgeRunWorkKind
	path     []client.ForgeRunState
	corrupt  func(m *fixture, o *submission, x *observedJob)
}

func (c corruption) test(t *testing.T) {
	t.Parallel()
	m := newFixture()
	o, x := m.addSubmission(c.kind, c.path...)
	if c.corrupt != nil {
		c.corrupt(m, o, x)
	}
	v := m.audit()
	if !slices.ContainsFunc(v.violations, func(o Violation) bool {
		return o.What == c.wantKind && o.Detail != ""
	}) {
		t.Errorf("want a violation of the kind %q, got %+v", c.wantKind, v.violations)
	}
}

const fastKind = client.ForgeRunWorkSuccessFast

// Every fault in the answers to submissions is found, under its sort.
func TestAuditFaultsSubmits(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]corruption{
		"FR-177 an acknowledged job is gone": {"lost", fastKind, pathSucceeds,
			func(m *fixture, _ *submission, _ *observedJob) {
				m.observed = nil
			}},
		"a submit without an answer": {"unanswered", fastKind, pathSucceeds,
			func(_ *fixture, o *submission, _ *observedJob) {
				o.requests[0].failure = "reset"
			}},
		"a valid submit is refused": {"refused", fastKind, pathSucceeds,
			func(_ *fixture, o *submission, _ *observedJob) {
				o.requests[0].code = "400"
			}},
		"FR-030 a refused submit left a job": {"unexpected", fastKind, pathSucceeds,
			func(_ *fixture, o *submission, _ *observedJob) {
				o.requests[0].jobID, o.requests[0].code = "", "503"
			}},
		"G-FR-12 a late one left a job": {"unexpected", fastKind, pathSucceeds,
			func(_ *fixture, o *submission, _ *observedJob) {
				o.requests[0].jobID, o.requests[0].late = "", true
			}},
		"FR-113 PAYLOAD_INVALID is accepted": {"accepted", client.ForgeRunWorkPayloadInvalid,
			pathSucceeds,
			nil},
		"FR-113 or refused with another code": {"accepted", client.ForgeRunWorkPayloadInvalid,
			pathSucceeds, func(m *fixture, o *submission, _ *observedJob) {
				m.observed, o.requests[0].jobID, o.requests[0].code = nil, "",
					client.ForgeRunCodeMalformed
			}},
		"a scenario ended early": {"stuck", fastKind, pathSucceeds,
			func(_ *fixture, o *submission, _ *observedJob) {
				o.abortReason = "it did not end"
			}},
		"FR-067 one key, two jobs": {"duplicate", client.ForgeRunWorkDuplicateSameKey, pathSucceeds,
			func(m *fixture, o *submission, _ *observedJob) {
				_, second := m.addSubmission(client.ForgeRunWorkDuplicateSameKey, pathSucceeds...)
				o.requests = append(o.requests,
					submitRequest{key: o.requests[0].key, jobID: second.job.ID})
				m.submissions = m.submissions[:1]
			}},
		"FR-073 two keys, one job": {"duplicate", client.ForgeRunWorkDuplicateOtherKey,
			pathSucceeds,
			func(_ *fixture, o *submission, _ *observedJob) {
				o.requests = append(o.requests,
					submitRequest{key: "other", jobID: o.requests[0].jobID})
			}},
		"FR-079 one id for two submissions": {"duplicate", fastKind, pathSucceeds,
			func(m *fixture, o *submission, _ *observedJob) {
				m.submissions = append(m.submissions,
					&submission{kind: o.kind,
						requests: []submitRequest{{key: "x", jobID: o.requests[0].jobID}}})
			}},
		"a job is listed twice": {"duplicate", fastKind, pathSucceeds,
			func(m *fixture, _ *submission, x *observedJob) {
				m.observed = append(m.observed, *x)
			}},
		"a job that nobody submitted": {"unexpected", fastKind, pathSucceeds,
			func(m *fixture, _ *submission, _ *observedJob) {
				m.submissions = nil
			}},
		"FR-033 another client has it": {"unexpected", fastKind, pathSucceeds,
			func(_ *fixture, _ *submission, x *observedJob) {
				x.client = 1
			}},
		"FR-114 another definition": {"definition", fastKind, pathSucceeds,
			func(_ *fixture, _ *submission, x *observedJob) {
				x.job.Definition.ShouldFail = true
			}},
		"FR-085 another payload": {"definition", fastKind, pathSucceeds,
			func(_ *fixture, _ *submission, x *observedJob) {
				x.job.Definition.PayloadSize = 1
			}},
		"FR-064 a time of its own": {"definition", fastKind, pathSucceeds,
			func(_ *fixture, _ *submission, x *observedJob) {
				x.job.ExecutionAt = new(time.Time)
			}},
		"FR-166 another time": {"definition", client.ForgeRunWorkScheduledOnTime, pathSucceeds,
			func(_ *fixture, o *submission, x *observedJob) {
				o.due, x.job.ExecutionAt = testStart, new(time.Time)
			}},
	} {
		t.Run(name, c.test)
	}
}

// Every fault in the state, the report and the events of a job is found.
func TestAuditFaultsHistory(t *testing.T) {
	t.Parallel()
	canceled := func(_ *fixture, o *submission, _ *observedJob) {
		o.canceled = client.ForgeRunStateCanceled
	}
	for name, c := range map[string]corruption{
		"FR-182 it never ends": {"unfinished", fastKind, pathSucceeds[:3], nil},
		"FR-129 no report": {"report", fastKind, pathSucceeds,
			func(_ *fixture, _ *submission, x *observedJob) {
				x.report = nil
			}},
		"a report of another outcome": {"report", fastKind, pathSucceeds,
			func(_ *fixture, _ *submission, x *observedJob) {
				x.report.Outcome = outcomeFailed
			}},
		"a report of another job": {"report", fastKind, pathSucceeds,
			func(_ *fixture, _ *submission, x *observedJob) {
				x.report.JobID = "other"
			}},
		"FR-128 a wrong duration": {"report", fastKind, pathSucceeds,
			func(_ *fixture, _ *submission, x *observedJob) {
				x.report.DurationMS++
			}},
		"FR-128 a wrong start": {"report", fastKind, pathSucceeds,
			func(_ *fixture, _ *submission, x *observedJob) {
				x.report.StartedAt = &testStart
			}},
		"a wrong end": {"report", fastKind, pathSucceeds,
			func(_ *fixture, _ *submission, x *observedJob) {
				x.report.FinishedAt = testStart
			}},
		"FR-131 a start without a run": {"report", client.ForgeRunWorkCancelBeforeStart,
			pathCanceledEarly,
			func(_ *fixture, _ *submission, x *observedJob) {
				x.report.StartedAt = &testStart
			}},
		"G-FR-09 the start of an earlier run": {"report", client.ForgeRunWorkRetryOnFail,
			pathRetried,
			func(_ *fixture, _ *submission, x *observedJob) {
				x.report.StartedAt = &x.report.Events[3].At
			}},
		"FR-125 no events": {"path", fastKind, pathSucceeds,
			func(_ *fixture, _ *submission, x *observedJob) {
				x.report.Events = nil
			}},
		"FR-151 it does not begin with CREATED": {"path", fastKind, pathSucceeds,
			func(_ *fixture, _ *submission, x *observedJob) {
				x.report.Events = x.report.Events[1:]
			}},
		"FR-148 an event is missing": {"path", fastKind, pathSucceeds,
			func(_ *fixture, _ *submission, x *observedJob) {
				x.report.Events = slices.Delete(x.report.Events, 2, 3)
			}},
		"FR-156 QUEUED to RUNNING": {"path", fastKind,
			[]client.ForgeRunState{client.ForgeRunStateQueued, client.ForgeRunStateRunning,
				client.ForgeRunStateSucceeded},
			nil},
		"FR-158 RUNNING to QUEUED": {"path", fastKind,
			append(pathSucceeds[:3:3], pathSucceeds...), nil},
		"FR-160 SUCCEEDED and once more": {"path", fastKind,
			append(slices.Clone(pathSucceeds), pathSucceeds[1:]...), nil},
		"FR-161 CANCELED twice": {"path", client.ForgeRunWorkCancelBeforeStart,
			append(slices.Clone(pathCanceledEarly), client.ForgeRunStateCanceled), canceled},
		"FR-135 succeeded after a cancel": {"path", client.ForgeRunWorkCancelDuringRun,
			append(slices.Clone(pathCanceledRunning), client.ForgeRunStateSucceeded), canceled},
		"FR-153 a wrong name": {"path", fastKind, pathSucceeds,
			func(_ *fixture, _ *submission, x *observedJob) {
				x.lastEvent().Name = client.ForgeRunEventJobFailed
			}},
		"FR-119 another scenario": {"path", fastKind, pathSucceeds,
			func(_ *fixture, _ *submission, x *observedJob) {
				x.lastEvent().Scenario = ""
			}},
		"an event of another job": {"path", fastKind, pathSucceeds,
			func(_ *fixture, _ *submission, x *observedJob) {
				x.lastEvent().JobID = "other"
			}},
		"the job is elsewhere than its events": {"path", fastKind, pathSucceeds,
			func(_ *fixture, _ *submission, x *observedJob) {
				x.job.State = client.ForgeRunStateCanceled
			}},
		"G-FR-01 requeued under another name": {"path", fastKind, pathRequeued,
			func(_ *fixture, _ *submission, x *observedJob) {
				x.report.Events[3].Name = client.ForgeRunEventJobQueued
			}},
		"FR-149 two events at one time": {"path", fastKind, pathSucceeds,
			func(_ *fixture, _ *submission, x *observedJob) {
				x.report.Events[2].At = x.report.Events[1].At
			}},
		"FR-149 one id, two events": {"path", fastKind, pathSucceeds,
			func(_ *fixture, _ *submission, x *observedJob) {
				x.report.Events[2].ID = x.report.Events[1].ID
			}},
		"FR-140 attempt and retries differ": {"attempt", client.ForgeRunWorkRetryOnFail,
			pathRetried,
			func(_ *fixture, _ *submission, x *observedJob) {
				x.job.Attempt++
			}},
		"an acknowledged retry is gone": {"attempt", client.ForgeRunWorkRetryOnFail, pathRetried,
			func(_ *fixture, o *submission, _ *observedJob) {
				o.attempt = 2
			}},
		"FR-164 it ran before its time": {"early", client.ForgeRunWorkScheduledOnTime, pathSucceeds,
			func(_ *fixture, o *submission, x *observedJob) {
				o.due = testStart.Add(time.Minute)
				x.job.ExecutionAt = &o.due
			}},
	} {
		t.Run(name, c.test)
	}
}

// How a job ended.
func TestAuditFaultsOutcome(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]corruption{
		"FR-083 it fails": {"outcome", fastKind, pathFails, nil},
		"FR-086 it succeeds": {"outcome", client.ForgeRunWorkFailImmediate, pathSucceeds,
			nil},
		"FR-090 it does not name the time-out": {"outcome", client.ForgeRunWorkRunsOverTimeout,
			pathFails,
			nil},
		"FR-098 it succeeds at once": {"outcome", client.ForgeRunWorkRetryOnFail, pathSucceeds,
			nil},
		"it was canceled and nobody asked": {"outcome", fastKind, pathCanceledRunning, nil},
		"FR-088 it is not retryable": {"outcome", client.ForgeRunWorkFailAfterRetryable, pathFails,
			func(_ *fixture, _ *submission, x *observedJob) {
				x.job.Failure.Retryable = false
			}},
		"a failure without a reason": {"outcome", client.ForgeRunWorkFailImmediate, pathFails,
			func(_ *fixture, _ *submission, x *observedJob) {
				x.job.Failure = nil
			}},
		"FR-138 the answer to cancel lied": {"outcome", client.ForgeRunWorkCancelDuringRun,
			pathSucceeds,
			func(_ *fixture, o *submission, _ *observedJob) {
				o.canceled = client.ForgeRunStateCanceled
			}},
		"FR-134 cancel did nothing": {"outcome", client.ForgeRunWorkCancelDuringRun, pathSucceeds,
			func(_ *fixture, o *submission, _ *observedJob) {
				o.canceled = client.ForgeRunStateRunning
			}},
		"FR-099 its retries do not end": {"outcome", client.ForgeRunWorkRetryLimitReached,
			pathFailsTwice,
			func(_ *fixture, _ *submission, x *observedJob) {
				x.lastEvent().Final = true
			}},
		"FR-143 its last failure is not final": {"outcome", client.ForgeRunWorkRetryLimitReached,
			pathFailsTwice, func(_ *fixture, o *submission, _ *observedJob) {
				o.refused = true
			}},
		"FR-121 the outcome is not the state's": {"outcome", fastKind, pathSucceeds,
			func(_ *fixture, _ *submission, x *observedJob) {
				x.job.Outcome, x.report.Outcome = outcomeFailed, outcomeFailed
			}},
		"G-FR-35 a run was lost for nothing": {"lost run", fastKind, pathFails,
			func(m *fixture, _ *submission, x *observedJob) {
				x.lastEvent().Reason = runnerLost
				m.outages = []outage{{testStart.Add(time.Hour), testStart.Add(2 * time.Hour)}}
			}},
	} {
		t.Run(name, c.test)
	}
}

// Every fault in the deliveries and their records is found.
func TestAuditFaultsWebhooks(t *testing.T) {
	t.Parallel()
	const id = "job-0"
	type faultFunc func(m *fixture, x *observedJob, h, callback *receiver)
	deliverNothing := func(status client.ForgeRunDeliveryStatus, more func(h *receiver)) faultFunc {
		return func(_ *fixture, _ *observedJob, h, _ *receiver) {
			h.behavior = behaviorNeverAccepts
			for i := range h.deliveries {
				h.receipts[id][i].accepted, h.deliveries[i].Status = false, status
			}
			if more != nil {
				more(h)
			}
		}
	}
	for name, tt := range map[string]struct {
		want  string // "" for none
		fault faultFunc
	}{
		"all is well": {"", func(*fixture, *observedJob, *receiver, *receiver) {}},
		"FR-191 an event is not delivered": {"undelivered",
			func(_ *fixture, _ *observedJob, h, _ *receiver) {
				h.receipts[id], h.deliveries[4].Status = h.receipts[id][:4],
					client.ForgeRunDeliveryPending
			}},
		"FR-189 nor by a callback": {"undelivered",
			func(_ *fixture, _ *observedJob, _, c *receiver) {
				delete(c.receipts, id)
			}},
		"an accepting receiver is given up": {"undelivered",
			func(_ *fixture, _ *observedJob, h, _ *receiver) {
				h.receipts[id][4].accepted, h.deliveries[4].Status = false,
					client.ForgeRunDeliveryExhausted
			}},
		"it is said to be delivered": {"delivery",
			func(_ *fixture, _ *observedJob, h, _ *receiver) {
				h.receipts[id][2].accepted = false
			}},
		"it is said to be given up": {"delivery",
			func(_ *fixture, _ *observedJob, h, _ *receiver) {
				h.deliveries[2].Status = client.ForgeRunDeliveryExhausted
			}},
		"a record is missing": {"delivery",
			func(_ *fixture, _ *observedJob, h, _ *receiver) {
				h.deliveries = h.deliveries[1:]
			}},
		"G-FR-47 a record too many": {"delivery",
			func(_ *fixture, _ *observedJob, h, _ *receiver) {
				h.deliveries = append(h.deliveries, h.deliveries[0])
			}},
		"a record of nothing": {"delivery",
			func(_ *fixture, _ *observedJob, h, _ *receiver) {
				h.deliveries = append(h.deliveries, client.ForgeRunDelivery{EventID: "x"})
			}},
		"G-FR-48 out of order": {"order",
			func(_ *fixture, _ *observedJob, h, _ *receiver) {
				h.receipts[id][2], h.receipts[id][3] = h.receipts[id][3], h.receipts[id][2]
			}},
		"an earlier event is attempted later": {"order",
			func(_ *fixture, _ *observedJob, h, _ *receiver) {
				h.receipts[id] = append(h.receipts[id], h.receipts[id][0])
			}},
		"G-FR-48 a bad signature": {"forged",
			func(_ *fixture, _ *observedJob, h, _ *receiver) {
				h.receipts[id][0].forgeryReason = "no signature"
			}},
		"one that names no job": {"forged",
			func(_ *fixture, _ *observedJob, h, _ *receiver) {
				h.receipts[""] = []webhookReceipt{{forgeryReason: "no signature"}}
			}},
		"FR-034 another client hears": {"misdelivered",
			func(m *fixture, _ *observedJob, h, _ *receiver) {
				m.receivers[2].receipts[id] = h.receipts[id]
			}},
		"a callback that it has not": {"misdelivered",
			func(_ *fixture, x *observedJob, _, _ *receiver) {
				x.job.Callback = ""
			}},
		"an event that is not there": {"misdelivered",
			func(_ *fixture, _ *observedJob, h, _ *receiver) {
				h.receipts[id] = append(h.receipts[id], webhookReceipt{eventID: "x"})
			}},
		"a job that is not there": {"misdelivered",
			func(_ *fixture, _ *observedJob, h, _ *receiver) {
				h.receipts["job-9"] = []webhookReceipt{{eventID: "x"}}
			}},
		"FR-192 never accepted, given up": {"", deliverNothing(client.ForgeRunDeliveryExhausted,
			nil)},
		"never accepted, on its way": {"", deliverNothing(client.ForgeRunDeliveryPending,
			nil)},
		"never accepted, said to be": {"delivery",
			deliverNothing(client.ForgeRunDeliveryDelivered, nil)},
		"never accepted, not recorded": {"delivery",
			deliverNothing(client.ForgeRunDeliveryPending, func(h *receiver) {
				h.deliveries = nil
			})},
		"never attempted": {"undelivered", deliverNothing(client.ForgeRunDeliveryPending,
			func(h *receiver) {
				clear(h.receipts)
			})},
		"given up without an attempt": {"undelivered",
			deliverNothing(client.ForgeRunDeliveryExhausted, func(h *receiver) {
				clear(h.receipts)
			})},
		"it fails first and is left": {"undelivered",
			deliverNothing(client.ForgeRunDeliveryPending, func(h *receiver) {
				h.behavior = behaviorFails
			})},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newFixture()
			_, x := m.addSubmission(client.ForgeRunWorkWebhookSuccess, pathSucceeds...)
			tt.fault(m, x, m.receivers[0], m.receivers[1])
			v := m.audit()
			if (tt.want == "" && len(v.violations) > 0) ||
				(tt.want != "" && !slices.ContainsFunc(v.violations, func(o Violation) bool {
					return o.What == tt.want
				})) {
				t.Errorf("want %q, got %+v", tt.want, v.violations)
			}
		})
	}
}

func TestParseMix(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"all":                            "31 kinds, 31",
		"SUCCESS_FAST":                   "1 kinds, 1",
		"all=0,WEBHOOK_*=2":              "5 kinds, 10",
		"all=2, SUCCESS_*=0":             "28 kinds, 56",
		"RETRY_ON_FAIL=3,SUCCESS_FAST=1": "2 kinds, 4",
		"":                               "error",
		"SUCCESS_FAST=0":                 "error",
		"SUCCESS":                        "error",
		"SUCCESS_FAST=x":                 "error",
		"SUCCESS_FAST=-1":                "error",
	} {
		m, err := parseMix(text)
		got := "error"
		if err == nil {
			got = fmt.Sprintf("%d kinds, %d", len(m.kinds), m.cumulative[len(m.cumulative)-1])
		}
		if got != want {
			t.Errorf("%q: %s (%v), want %s", text, got, err, want)
		}
	}
	m, _ := parseMix("SUCCESS_FAST=1,RETRY_ON_FAIL=3,CPU_BURST=0")
	draw, count := m.newDraw(rand.New(rand.NewPCG(1, 1))), map[client.ForgeRunWorkKind]int{}
	for i := range 1002 {
		if count[draw().name]++; i == 1 && len(count) != 2 {
			t.Errorf("the first two draws are %v", count)
		}
	}
	if n := count[client.ForgeRunWorkSuccessFast]; len(count) != 2 || n < 200 || n > 300 {
		t.Errorf("drawn: %v", count)
	}
	if len(catalogue) != 31 {
		t.Errorf("%d kinds", len(catalogue))
	}
}
