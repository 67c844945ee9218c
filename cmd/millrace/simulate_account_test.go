package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/millrace/millrace/client"
)

var simStart = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// simMade is a made-up world in which everything is as it should be. Its jobs live a second for each event.
type simMade struct{ simWorld }

func newMade() *simMade {
	m := &simMade{simWorld{there: make([]simThere, 0, 100)}} // pointers into it stay good
	for n := range 2 {
		m.hooks = append(m.hooks, &simHook{name: fmt.Sprintf("sound/%d", n), client: n, webhookID: fmt.Sprintf("w-%d", n), receipts: map[string][]simReceipt{}},
			&simHook{name: fmt.Sprintf("callback/%d", n), client: n, url: fmt.Sprintf("http://callback/%d", n), receipts: map[string][]simReceipt{}})
	}
	return m
}

func simKindOf(name client.ForgeRunKind) *simKind {
	return &simKinds[slices.IndexFunc(simKinds, func(k simKind) bool { return k.name == name })]
}

// order submits a job of client 0 that goes through the given states after CREATED.
func (m *simMade) order(name client.ForgeRunKind, states ...client.ForgeRunState) (*simOrder, *simThere) {
	kind, id := simKindOf(name), fmt.Sprintf("job-%d", len(m.there))
	o := &simOrder{kind: kind, submits: []simSubmit{{key: "key-" + id, jobID: id}}}
	m.orders = append(m.orders, o)
	m.there = append(m.there, simThere{job: client.ForgeRunJob{ID: id, Kind: kind.name, CreatedAt: simStart,
		Callback:   "http://callback/0",
		Definition: client.ForgeRunDefinition{Kind: kind.name, ShouldFail: kind.fails, PayloadSize: kind.kb << 10}}})
	t := &m.there[len(m.there)-1]
	m.tell(o, t, states...)
	return o, t
}

// tell writes the job's history and lets all listeners hear of it.
func (m *simMade) tell(o *simOrder, t *simThere, states ...client.ForgeRunState) {
	r := &client.ForgeRunReport{JobID: t.job.ID}
	prev := client.ForgeRunState("")
	for i, next := range append([]client.ForgeRunState{client.ForgeCreated}, states...) {
		e := client.ForgeRunEvent{ID: fmt.Sprintf("%s-%d", t.job.ID, i), JobID: t.job.ID, Name: simMoves[[2]client.ForgeRunState{prev, next}],
			Prev: prev, Next: next, At: simStart.Add(time.Duration(i) * time.Second), Scenario: o.kind.name}
		if prev == client.ForgeFailed {
			t.job.Attempt++
			r.StartedAt = nil
		}
		if next == client.ForgeRunning {
			r.StartedAt = &e.At
		}
		r.Events = append(r.Events, e)
		prev, r.FinishedAt, t.job.UpdatedAt = next, e.At, e.At
	}
	t.job.State, t.job.Outcome = prev, simOutcomes[prev]
	r.Outcome = t.job.Outcome
	if r.StartedAt != nil {
		r.DurationMS = r.FinishedAt.Sub(*r.StartedAt).Milliseconds()
	}
	if prev == client.ForgeFailed {
		t.job.Failure = &client.ForgeRunFailure{Code: "failed", Retryable: true}
	}
	if prev.Final() {
		t.report = r
	}
	for _, h := range m.hooks {
		if h.client != 0 {
			continue
		}
		for _, e := range r.Events {
			h.receipts[t.job.ID] = append(h.receipts[t.job.ID], simReceipt{eventID: e.ID, at: e.At, accepted: true})
			if h.webhookID != "" {
				h.deliveries = append(h.deliveries, client.ForgeRunDelivery{EventID: e.ID, Status: client.ForgeDelivered})
			}
		}
	}
}

func (t *simThere) last() *client.ForgeRunEvent { return &t.report.Events[len(t.report.Events)-1] }

// The ways that jobs take.
var (
	wayWell      = []client.ForgeRunState{client.ForgeQueued, client.ForgeAssigned, client.ForgeRunning, client.ForgeSucceeded}
	wayBadly     = []client.ForgeRunState{client.ForgeQueued, client.ForgeAssigned, client.ForgeRunning, client.ForgeFailed}
	wayRetried   = append(slices.Clone(wayBadly), wayWell...)
	wayFailed2   = append(slices.Clone(wayBadly), wayBadly...)
	wayRequeued  = append([]client.ForgeRunState{client.ForgeQueued, client.ForgeAssigned}, wayWell...)
	wayEarlyStop = []client.ForgeRunState{client.ForgeQueued, client.ForgeCanceled}
	wayStopped   = []client.ForgeRunState{client.ForgeQueued, client.ForgeAssigned, client.ForgeRunning, client.ForgeCanceled}
)

// An honest world balances: whatever a kind is for, and whatever a server that dies may do.
func TestSimAuditHonest(t *testing.T) {
	t.Parallel()
	m := newMade()
	for i := range simKinds {
		kind := &simKinds[i]
		switch {
		case kind.play == simRefused:
			m.orders = append(m.orders, &simOrder{kind: kind, submits: []simSubmit{{key: "r", code: client.ForgeValidationFailed}}})
		case kind.play == simRetryOnce:
			o, _ := m.order(kind.name, wayRetried...)
			o.attempt = 1
		case kind.play == simRetryOn:
			o, there := m.order(kind.name, wayFailed2...)
			o.attempt, o.refused, there.last().Last = 1, true, true
		case kind.play == simCancelSoon:
			o, _ := m.order(kind.name, wayEarlyStop...)
			o.canceled = client.ForgeCanceled
			o, _ = m.order(kind.name, wayWell...) // the job was faster
			o.canceled = client.ForgeSucceeded
		case kind.play == simCancelLate:
			o, _ := m.order(kind.name, wayStopped...)
			o.canceled = client.ForgeCanceled
		case kind.play == simSameKey:
			o, _ := m.order(kind.name, wayWell...)
			o.submits = append(o.submits, o.submits[0], o.submits[0])
		case kind.name == client.ForgeRunsOverTimeout:
			_, there := m.order(kind.name, wayBadly...)
			there.job.Failure.Code, there.last().Reason = client.ForgeTimeout, "timeout"
		case kind.ends == badly:
			m.order(kind.name, wayBadly...)
		default:
			m.order(kind.name, wayWell...)
		}
	}
	m.order(client.ForgeSuccessFast, wayRequeued...)
	_, lost := m.order(client.ForgeSuccessFast, wayBadly...)
	lost.job.Failure.Code, lost.last().Reason = runnerLost, runnerLost
	m.outages = []simOutage{{lost.last().At.Add(-3 * time.Second), lost.last().At.Add(-time.Second)}}
	m.orders = append(m.orders, &simOrder{kind: simKindOf(client.ForgeScheduledOnTime), due: simStart,
		submits: []simSubmit{{key: "l", code: client.ForgeValidationFailed, late: true}}})
	h := m.hooks[0]
	h.receipts["job-0"] = slices.Insert(h.receipts["job-0"], 1, h.receipts["job-0"][0]) // at least once
	h.receipts["job-0"][0].accepted = false                                             // and not at the first try

	v := m.audit()
	for _, o := range v.offences {
		t.Errorf("%+v", o)
	}
	want := simVerdict{lost: 1, requeued: 1, late: 1}
	if v.offences = nil; fmt.Sprint(*v) != fmt.Sprint(want) {
		t.Errorf("verdict %+v, want %+v", *v, want)
	}
}

// simCheat is one order whose world is then spoiled; want is the sort of the offence.
type simCheat struct {
	want  string
	kind  client.ForgeRunKind
	way   []client.ForgeRunState
	spoil func(m *simMade, o *simOrder, x *simThere)
}

func (c simCheat) test(t *testing.T) {
	t.Parallel()
	m := newMade()
	o, x := m.order(c.kind, c.way...)
	if c.spoil != nil {
		c.spoil(m, o, x)
	}
	v := m.audit()
	if !slices.ContainsFunc(v.offences, func(o simOffence) bool { return o.What == c.want && o.Detail != "" }) {
		t.Errorf("want an offence of the sort %q, got %+v", c.want, v.offences)
	}
}

const simFast = client.ForgeSuccessFast

// Each way to cheat is caught, under its name: what became of the submits.
func TestSimAuditCheatsSubmits(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]simCheat{
		"FR-177 an acknowledged job is gone": {"lost", simFast, wayWell, func(m *simMade, _ *simOrder, _ *simThere) { m.there = nil }},
		"a submit without an answer":         {"unanswered", simFast, wayWell, func(_ *simMade, o *simOrder, _ *simThere) { o.submits[0].why = "reset" }},
		"a valid submit is refused":          {"refused", simFast, wayWell, func(_ *simMade, o *simOrder, _ *simThere) { o.submits[0].code = "400" }},
		"FR-030 a refused submit left a job": {"strange", simFast, wayWell, func(_ *simMade, o *simOrder, _ *simThere) {
			o.submits[0].jobID, o.submits[0].code = "", "503"
		}},
		"G-FR-12 a late one left a job": {"strange", simFast, wayWell, func(_ *simMade, o *simOrder, _ *simThere) {
			o.submits[0].jobID, o.submits[0].late = "", true
		}},
		"FR-113 PAYLOAD_INVALID is accepted": {"accepted", client.ForgePayloadInvalid, wayWell, nil},
		"FR-113 or refused with another code": {"accepted", client.ForgePayloadInvalid, wayWell, func(m *simMade, o *simOrder, _ *simThere) {
			m.there, o.submits[0].jobID, o.submits[0].code = nil, "", client.ForgeMalformed
		}},
		"a play broke off": {"stuck", simFast, wayWell, func(_ *simMade, o *simOrder, _ *simThere) { o.stuck = "it did not end" }},
		"FR-067 one key, two jobs": {"doubled", client.ForgeDuplicateSameKey, wayWell, func(m *simMade, o *simOrder, _ *simThere) {
			_, second := m.order(client.ForgeDuplicateSameKey, wayWell...)
			o.submits = append(o.submits, simSubmit{key: o.submits[0].key, jobID: second.job.ID})
			m.orders = m.orders[:1]
		}},
		"FR-073 two keys, one job": {"doubled", client.ForgeDuplicateOtherKey, wayWell, func(_ *simMade, o *simOrder, _ *simThere) {
			o.submits = append(o.submits, simSubmit{key: "other", jobID: o.submits[0].jobID})
		}},
		"FR-079 one id for two orders": {"doubled", simFast, wayWell, func(m *simMade, o *simOrder, _ *simThere) {
			m.orders = append(m.orders, &simOrder{kind: o.kind, submits: []simSubmit{{key: "x", jobID: o.submits[0].jobID}}})
		}},
		"a job is listed twice":        {"doubled", simFast, wayWell, func(m *simMade, _ *simOrder, x *simThere) { m.there = append(m.there, *x) }},
		"a job that nobody submitted":  {"strange", simFast, wayWell, func(m *simMade, _ *simOrder, _ *simThere) { m.orders = nil }},
		"FR-033 another client has it": {"strange", simFast, wayWell, func(_ *simMade, _ *simOrder, x *simThere) { x.client = 1 }},
		"FR-114 another definition":    {"definition", simFast, wayWell, func(_ *simMade, _ *simOrder, x *simThere) { x.job.Definition.ShouldFail = true }},
		"FR-085 another payload":       {"definition", simFast, wayWell, func(_ *simMade, _ *simOrder, x *simThere) { x.job.Definition.PayloadSize = 1 }},
		"FR-064 a time of its own":     {"definition", simFast, wayWell, func(_ *simMade, _ *simOrder, x *simThere) { x.job.ExecutionAt = new(time.Time) }},
		"FR-166 another time": {"definition", client.ForgeScheduledOnTime, wayWell, func(_ *simMade, o *simOrder, x *simThere) {
			o.due, x.job.ExecutionAt = simStart, new(time.Time)
		}},
	} {
		t.Run(name, c.test)
	}
}

// What the server tells of a job's life.
func TestSimAuditCheatsHistory(t *testing.T) {
	t.Parallel()
	canceled := func(_ *simMade, o *simOrder, _ *simThere) { o.canceled = client.ForgeCanceled }
	for name, c := range map[string]simCheat{
		"FR-182 it never ends":         {"unfinished", simFast, wayWell[:3], nil},
		"FR-129 no report":             {"report", simFast, wayWell, func(_ *simMade, _ *simOrder, x *simThere) { x.report = nil }},
		"a report of another outcome":  {"report", simFast, wayWell, func(_ *simMade, _ *simOrder, x *simThere) { x.report.Outcome = badly }},
		"a report of another job":      {"report", simFast, wayWell, func(_ *simMade, _ *simOrder, x *simThere) { x.report.JobID = "other" }},
		"FR-128 a wrong duration":      {"report", simFast, wayWell, func(_ *simMade, _ *simOrder, x *simThere) { x.report.DurationMS++ }},
		"FR-128 a wrong start":         {"report", simFast, wayWell, func(_ *simMade, _ *simOrder, x *simThere) { x.report.StartedAt = &simStart }},
		"a wrong end":                  {"report", simFast, wayWell, func(_ *simMade, _ *simOrder, x *simThere) { x.report.FinishedAt = simStart }},
		"FR-131 a start without a run": {"report", client.ForgeCancelBeforeStart, wayEarlyStop, func(_ *simMade, _ *simOrder, x *simThere) { x.report.StartedAt = &simStart }},
		"G-FR-09 the start of an earlier run": {"report", client.ForgeRetryOnFail, wayRetried, func(_ *simMade, _ *simOrder, x *simThere) {
			x.report.StartedAt = &x.report.Events[3].At
		}},
		"FR-125 no events":                      {"path", simFast, wayWell, func(_ *simMade, _ *simOrder, x *simThere) { x.report.Events = nil }},
		"FR-151 it does not begin with CREATED": {"path", simFast, wayWell, func(_ *simMade, _ *simOrder, x *simThere) { x.report.Events = x.report.Events[1:] }},
		"FR-148 an event is missing": {"path", simFast, wayWell, func(_ *simMade, _ *simOrder, x *simThere) {
			x.report.Events = slices.Delete(x.report.Events, 2, 3)
		}},
		"FR-156 QUEUED to RUNNING":             {"path", simFast, []client.ForgeRunState{client.ForgeQueued, client.ForgeRunning, client.ForgeSucceeded}, nil},
		"FR-158 RUNNING to QUEUED":             {"path", simFast, append(wayWell[:3:3], wayWell...), nil},
		"FR-160 SUCCEEDED and once more":       {"path", simFast, append(slices.Clone(wayWell), wayWell[1:]...), nil},
		"FR-161 CANCELED twice":                {"path", client.ForgeCancelBeforeStart, append(slices.Clone(wayEarlyStop), client.ForgeCanceled), canceled},
		"FR-135 succeeded after a cancel":      {"path", client.ForgeCancelDuringRun, append(slices.Clone(wayStopped), client.ForgeSucceeded), canceled},
		"FR-153 a wrong name":                  {"path", simFast, wayWell, func(_ *simMade, _ *simOrder, x *simThere) { x.last().Name = client.ForgeJobFailed }},
		"FR-119 another scenario":              {"path", simFast, wayWell, func(_ *simMade, _ *simOrder, x *simThere) { x.last().Scenario = "" }},
		"an event of another job":              {"path", simFast, wayWell, func(_ *simMade, _ *simOrder, x *simThere) { x.last().JobID = "other" }},
		"the job is elsewhere than its events": {"path", simFast, wayWell, func(_ *simMade, _ *simOrder, x *simThere) { x.job.State = client.ForgeCanceled }},
		"G-FR-01 requeued under another name": {"path", simFast, wayRequeued, func(_ *simMade, _ *simOrder, x *simThere) {
			x.report.Events[3].Name = client.ForgeJobQueued
		}},
		"FR-149 two events at one time": {"path", simFast, wayWell, func(_ *simMade, _ *simOrder, x *simThere) {
			x.report.Events[2].At = x.report.Events[1].At
		}},
		"FR-149 one id, two events": {"path", simFast, wayWell, func(_ *simMade, _ *simOrder, x *simThere) {
			x.report.Events[2].ID = x.report.Events[1].ID
		}},
		"FR-140 attempt and retries differ": {"attempt", client.ForgeRetryOnFail, wayRetried, func(_ *simMade, _ *simOrder, x *simThere) { x.job.Attempt++ }},
		"an acknowledged retry is gone":     {"attempt", client.ForgeRetryOnFail, wayRetried, func(_ *simMade, o *simOrder, _ *simThere) { o.attempt = 2 }},
		"FR-164 it ran before its time": {"early", client.ForgeScheduledOnTime, wayWell, func(_ *simMade, o *simOrder, x *simThere) {
			o.due = simStart.Add(time.Minute)
			x.job.ExecutionAt = &o.due
		}},
	} {
		t.Run(name, c.test)
	}
}

// How a job ended.
func TestSimAuditCheatsOutcome(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]simCheat{
		"FR-083 it fails":                      {"outcome", simFast, wayBadly, nil},
		"FR-086 it succeeds":                   {"outcome", client.ForgeFailImmediate, wayWell, nil},
		"FR-090 it does not name the time-out": {"outcome", client.ForgeRunsOverTimeout, wayBadly, nil},
		"FR-098 it succeeds at once":           {"outcome", client.ForgeRetryOnFail, wayWell, nil},
		"it was canceled and nobody asked":     {"outcome", simFast, wayStopped, nil},
		"FR-088 it is not retryable": {"outcome", client.ForgeFailAfterRetryable, wayBadly, func(_ *simMade, _ *simOrder, x *simThere) {
			x.job.Failure.Retryable = false
		}},
		"a failure without a reason":           {"outcome", client.ForgeFailImmediate, wayBadly, func(_ *simMade, _ *simOrder, x *simThere) { x.job.Failure = nil }},
		"FR-138 the answer to cancel lied":     {"outcome", client.ForgeCancelDuringRun, wayWell, func(_ *simMade, o *simOrder, _ *simThere) { o.canceled = client.ForgeCanceled }},
		"FR-134 cancel did nothing":            {"outcome", client.ForgeCancelDuringRun, wayWell, func(_ *simMade, o *simOrder, _ *simThere) { o.canceled = client.ForgeRunning }},
		"FR-099 its retries do not end":        {"outcome", client.ForgeRetryLimitReached, wayFailed2, func(_ *simMade, _ *simOrder, x *simThere) { x.last().Last = true }},
		"FR-143 its last failure is not final": {"outcome", client.ForgeRetryLimitReached, wayFailed2, func(_ *simMade, o *simOrder, _ *simThere) { o.refused = true }},
		"FR-121 the outcome is not the state's": {"outcome", simFast, wayWell, func(_ *simMade, _ *simOrder, x *simThere) {
			x.job.Outcome, x.report.Outcome = badly, badly
		}},
		"G-FR-35 a run was lost for nothing": {"lost run", simFast, wayBadly, func(m *simMade, _ *simOrder, x *simThere) {
			x.last().Reason = runnerLost
			m.outages = []simOutage{{simStart.Add(time.Hour), simStart.Add(2 * time.Hour)}}
		}},
	} {
		t.Run(name, c.test)
	}
}

// What listeners heard, and what is recorded of it.
func TestSimAuditCheatsWebhooks(t *testing.T) {
	t.Parallel()
	const id = "job-0"
	type spoil func(m *simMade, x *simThere, h, callback *simHook)
	tellNobody := func(status client.ForgeRunDeliveryStatus, more func(h *simHook)) spoil {
		return func(_ *simMade, _ *simThere, h, _ *simHook) {
			h.manner = simNever
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
		cheat spoil
	}{
		"all is well": {"", func(*simMade, *simThere, *simHook, *simHook) {}},
		"FR-191 an event is not heard of": {"undelivered", func(_ *simMade, _ *simThere, h, _ *simHook) {
			h.receipts[id], h.deliveries[4].Status = h.receipts[id][:4], client.ForgePending
		}},
		"FR-189 nor by a callback": {"undelivered", func(_ *simMade, _ *simThere, _, c *simHook) { delete(c.receipts, id) }},
		"a sound receiver is given up": {"undelivered", func(_ *simMade, _ *simThere, h, _ *simHook) {
			h.receipts[id][4].accepted, h.deliveries[4].Status = false, client.ForgeExhausted
		}},
		"it is said to be delivered": {"delivery", func(_ *simMade, _ *simThere, h, _ *simHook) { h.receipts[id][2].accepted = false }},
		"it is said to be given up":  {"delivery", func(_ *simMade, _ *simThere, h, _ *simHook) { h.deliveries[2].Status = client.ForgeExhausted }},
		"a record is missing":        {"delivery", func(_ *simMade, _ *simThere, h, _ *simHook) { h.deliveries = h.deliveries[1:] }},
		"G-FR-47 a record too many": {"delivery", func(_ *simMade, _ *simThere, h, _ *simHook) {
			h.deliveries = append(h.deliveries, h.deliveries[0])
		}},
		"a record of nothing": {"delivery", func(_ *simMade, _ *simThere, h, _ *simHook) {
			h.deliveries = append(h.deliveries, client.ForgeRunDelivery{EventID: "x"})
		}},
		"G-FR-48 out of order": {"order", func(_ *simMade, _ *simThere, h, _ *simHook) {
			h.receipts[id][2], h.receipts[id][3] = h.receipts[id][3], h.receipts[id][2]
		}},
		"an earlier event is tried later": {"order", func(_ *simMade, _ *simThere, h, _ *simHook) {
			h.receipts[id] = append(h.receipts[id], h.receipts[id][0])
		}},
		"G-FR-48 a bad signature":     {"forged", func(_ *simMade, _ *simThere, h, _ *simHook) { h.receipts[id][0].forged = "no signature" }},
		"one that names no job":       {"forged", func(_ *simMade, _ *simThere, h, _ *simHook) { h.receipts[""] = []simReceipt{{forged: "no signature"}} }},
		"FR-034 another client hears": {"foreign", func(m *simMade, _ *simThere, h, _ *simHook) { m.hooks[2].receipts[id] = h.receipts[id] }},
		"a callback that it has not":  {"foreign", func(_ *simMade, x *simThere, _, _ *simHook) { x.job.Callback = "" }},
		"an event that is not there": {"foreign", func(_ *simMade, _ *simThere, h, _ *simHook) {
			h.receipts[id] = append(h.receipts[id], simReceipt{eventID: "x"})
		}},
		"a job that is not there":         {"foreign", func(_ *simMade, _ *simThere, h, _ *simHook) { h.receipts["job-9"] = []simReceipt{{eventID: "x"}} }},
		"FR-192 never accepted, given up": {"", tellNobody(client.ForgeExhausted, nil)},
		"never accepted, on its way":      {"", tellNobody(client.ForgePending, nil)},
		"never accepted, said to be":      {"delivery", tellNobody(client.ForgeDelivered, nil)},
		"never accepted, not recorded":    {"delivery", tellNobody(client.ForgePending, func(h *simHook) { h.deliveries = nil })},
		"never tried":                     {"undelivered", tellNobody(client.ForgePending, func(h *simHook) { clear(h.receipts) })},
		"given up untried":                {"undelivered", tellNobody(client.ForgeExhausted, func(h *simHook) { clear(h.receipts) })},
		"it fails first and is left":      {"undelivered", tellNobody(client.ForgePending, func(h *simHook) { h.manner = simFails })},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMade()
			_, x := m.order(client.ForgeWebhookSuccess, wayWell...)
			tt.cheat(m, x, m.hooks[0], m.hooks[1])
			v := m.audit()
			if tt.want == "" && len(v.offences) > 0 || tt.want != "" && !slices.ContainsFunc(v.offences, func(o simOffence) bool { return o.What == tt.want }) {
				t.Errorf("want %q, got %+v", tt.want, v.offences)
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
			got = fmt.Sprintf("%d kinds, %d", len(m.kinds), m.upTo[len(m.upTo)-1])
		}
		if got != want {
			t.Errorf("%q: %s (%v), want %s", text, got, err, want)
		}
	}
	m, _ := parseMix("SUCCESS_FAST=1,RETRY_ON_FAIL=3,CPU_BURST=0")
	draw, count := m.draws(rand.New(rand.NewPCG(1, 1))), map[client.ForgeRunKind]int{}
	for i := range 1002 {
		if count[draw().name]++; i == 1 && len(count) != 2 {
			t.Errorf("the first two draws are %v", count)
		}
	}
	if n := count[client.ForgeSuccessFast]; len(count) != 2 || n < 200 || n > 300 {
		t.Errorf("drawn: %v", count)
	}
	if len(simKinds) != 31 {
		t.Errorf("%d kinds", len(simKinds))
	}
}
