package job_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/job"
)

// examplePhases is a machine with a state of each phase, a transition that counts, one that makes a
// dead letter, one that removes and one that leaves a done state.
var examplePhases = map[job.State]job.Phase{"scheduled": job.Waiting, "queued": job.Ready,
	"running": job.Leased, "done": job.Done, "failed": job.Done}

var exampleTransitions = []job.Transition{
	{From: job.StateNone, On: job.Submitted, To: "scheduled"},
	{From: "scheduled", On: job.Due, To: "queued"},
	{From: "queued", On: job.Claimed, To: "running"},
	{From: "running", On: job.Succeeded, To: "done"},
	{From: "running", On: job.Failed, To: "queued", CountsFailed: true},
	{From: "running", On: job.FailedForGood, To: "failed", DeadLetter: true},
	{From: "running", On: job.Expired, To: "queued", CountsFailed: true},
	{From: "running", On: job.ExpiredForGood, To: "failed", DeadLetter: true},
	{From: "failed", On: job.Retried, To: "queued"},
	{From: "done", On: job.Removed, To: job.StateNone},
}

func example(t testing.TB) *job.Machine {
	t.Helper()
	m, err := job.NewMachine(examplePhases, exampleTransitions)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// Every state and StateNone × every cause: the table holds what was put in and nothing else.
func TestMachineHoldsItsTableOnly(t *testing.T) {
	t.Parallel()
	m := example(t)
	allowed := 0
	for _, from := range append(m.States(), job.StateNone, "unheard of") {
		for _, on := range job.Causes() {
			tr, ok := m.Next(from, on)
			i := slices.IndexFunc(exampleTransitions, func(t job.Transition) bool {
				return t.From == from && t.On == on
			})
			if ok != (i >= 0) || (ok && tr != exampleTransitions[i]) {
				t.Errorf("%q on %s: got %+v, %t", from, on, tr, ok)
			}
			if ok {
				allowed++
			}
		}
	}
	if allowed != len(exampleTransitions) {
		t.Errorf("%d transitions are allowed, want %d", allowed, len(exampleTransitions))
	}
	if got := m.States(); !slices.Equal(got,
		[]job.State{"done", "failed", "queued", "running", "scheduled"}) {
		t.Errorf("states %v", got)
	}
}

func TestMachinePhasesAndGood(t *testing.T) {
	t.Parallel()
	m := example(t)
	for s, want := range examplePhases {
		if got := m.Phase(s); got != want || !m.Has(s) {
			t.Errorf("phase of %s: %s", s, got)
		}
		if got := m.IsSuccess(s); got != (s == "done") {
			t.Errorf("%s is good: %t", s, got)
		}
	}
	if m.Phase(job.StateNone) != job.Done || m.Has(job.StateNone) || m.Has("unheard of") ||
		m.IsSuccess("unheard of") {
		t.Error("StateNone has the phase Done and is no state")
	}
	for p, want := range []string{"waiting", "ready", "leased", "done"} {
		if got := job.Phase(p).String(); got != want {
			t.Errorf("phase %d is %q", p, got)
		}
	}
}

// What a machine was made of may change afterwards without changing it.
func TestMachineKeepsItsOwnTable(t *testing.T) {
	t.Parallel()
	phases := map[job.State]job.Phase{}
	for s, p := range examplePhases {
		phases[s] = p
	}
	m := job.MustMachine(phases, exampleTransitions)
	phases["queued"] = job.Done
	delete(phases, "running")
	if m.Phase("queued") != job.Ready || !m.Has("running") {
		t.Error("the machine changed")
	}
}

func TestMachineIsRefused(t *testing.T) {
	t.Parallel()
	without := func(from job.State, on job.Cause) []job.Transition {
		return slices.DeleteFunc(slices.Clone(exampleTransitions), func(t job.Transition) bool {
			return t.From == from && t.On == on
		})
	}
	with := func(transitions ...job.Transition) []job.Transition {
		return append(slices.Clone(exampleTransitions), transitions...)
	}
	for what, c := range map[string]struct {
		transitions []job.Transition
		state       job.State
		phase       job.Phase
		want        string
	}{
		"nothing begins": {transitions: without(job.StateNone, job.Submitted),
			want: "no transition for submitted"},
		"begins nowhere": {transitions: append(without(job.StateNone, job.Submitted),
			job.Transition{On: job.Submitted}), want: "no transition for submitted"},
		"unknown target": {transitions: with(job.Transition{From: "queued", On: job.Canceled,
			To: "canceled"}), want: "has no phase"},
		"unknown source": {transitions: with(job.Transition{From: "canceled", On: job.Retried,
			To: "queued"}), want: "has no phase"},
		"decided twice": {transitions: with(job.Transition{From: "failed", On: job.Retried,
			To: "done"}), want: "has two transitions"},
		"counts without a last failure": {transitions: without("running", job.FailedForGood),
			want: "no transition for the last attempt"},
		"counts without a last expiry": {transitions: without("running", job.ExpiredForGood),
			want: "no transition for the last attempt"},
		"a cause that cannot count": {transitions: with(job.Transition{From: "running", On: job.Requeued,
			To: "queued", CountsFailed: true}), want: "no transition for the last attempt"},
		"a last time that counts": {transitions: append(without("running", job.FailedForGood),
			job.Transition{From: "running", On: job.FailedForGood, To: "failed", CountsFailed: true}),
			want: "no transition for the last attempt"},
		"claimed while not ready": {transitions: with(job.Transition{From: "scheduled", On: job.Claimed,
			To: "running"}), want: "from a ready to a leased"},
		"claimed into no lease": {transitions: append(without("queued", job.Claimed),
			job.Transition{From: "queued", On: job.Claimed, To: "done"}),
			want: "from a ready to a leased"},
		"claimed into nowhere": {transitions: append(without("queued", job.Claimed),
			job.Transition{From: "queued", On: job.Claimed}), want: "from a ready to a leased"},
		"leased without a claim": {transitions: with(job.Transition{From: "failed", On: job.Canceled,
			To: "running"}), want: "without a claim"},
		"begins leased": {transitions: append(without(job.StateNone, job.Submitted),
			job.Transition{On: job.Submitted, To: "running"}), want: "without a claim"},
		"ready and never claimed": {transitions: exampleTransitions, state: "stuck", phase: job.Ready,
			want: "stuck"},
		"leased and never lost": {transitions: exampleTransitions, state: "stuck", phase: job.Leased,
			want: "stuck"},
		"waiting for nothing": {transitions: exampleTransitions, state: "stuck", phase: job.Waiting,
			want: "stuck"},
		"happens to what is not there": {transitions: with(job.Transition{On: job.Retried, To: "queued"}),
			want: "not stored"},
	} {
		phases := map[job.State]job.Phase{}
		for s, p := range examplePhases {
			phases[s] = p
		}
		if c.state != "" {
			phases[c.state] = c.phase
		}
		m, err := job.NewMachine(phases, c.transitions)
		if err == nil || m != nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want an error with %q", what, err, c.want)
		}
	}
	if _, err := job.NewMachine(map[job.State]job.Phase{job.StateNone: job.Done}, nil); err == nil {
		t.Error("a phase for the empty state was accepted")
	}
	defer func() {
		if recover() == nil {
			t.Error("MustMachine took a wrong table")
		}
	}()
	job.MustMachine(nil, nil)
}

func TestForGood(t *testing.T) {
	t.Parallel()
	for _, c := range job.Causes() {
		want := map[job.Cause]job.Cause{job.Failed: job.FailedForGood,
			job.Expired: job.ExpiredForGood, job.Released: job.ExpiredForGood}[c]
		if want == "" {
			want = c
		}
		if got := c.ForGood(); got != want || got.ForGood() != got {
			t.Errorf("%s for good is %s", c, got)
		}
	}
	if all := job.Causes(); len(all) != 17 ||
		len(slices.Compact(slices.Sorted(slices.Values(all)))) != 17 {
		t.Errorf("causes %v", all)
	}
}
