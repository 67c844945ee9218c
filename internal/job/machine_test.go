package job_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/job"
)

// examplePhases is a machine with a state of each phase, a move that counts, one that makes a dead
// letter, one that removes and one that leaves a done state.
var examplePhases = map[job.State]job.Phase{"scheduled": job.Waiting, "queued": job.Ready,
	"running": job.Leased, "done": job.Done, "failed": job.Done}

var exampleMoves = []job.Move{
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
	m, err := job.NewMachine(examplePhases, exampleMoves)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// Every state and StateNone × every cause: the table holds what was put in and
// nothing else.
func TestMachineHoldsItsTableOnly(t *testing.T) {
	t.Parallel()
	m := example(t)
	allowed := 0
	for _, from := range append(m.States(), job.StateNone, "unheard of") {
		for _, on := range job.Causes() {
			mv, ok := m.Next(from, on)
			i := slices.IndexFunc(exampleMoves, func(mv job.Move) bool {
				return mv.From == from && mv.On == on
			})
			if ok != (i >= 0) || (ok && mv != exampleMoves[i]) {
				t.Errorf("%q on %s: got %+v, %t", from, on, mv, ok)
			}
			if ok {
				allowed++
			}
		}
	}
	if allowed != len(exampleMoves) {
		t.Errorf("%d moves are allowed, want %d", allowed, len(exampleMoves))
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
	m := job.MustMachine(phases, exampleMoves)
	phases["queued"] = job.Done
	delete(phases, "running")
	if m.Phase("queued") != job.Ready || !m.Has("running") {
		t.Error("the machine changed")
	}
}

func TestMachineIsRefused(t *testing.T) {
	t.Parallel()
	without := func(from job.State, on job.Cause) []job.Move {
		return slices.DeleteFunc(slices.Clone(exampleMoves), func(mv job.Move) bool {
			return mv.From == from && mv.On == on
		})
	}
	with := func(moves ...job.Move) []job.Move {
		return append(slices.Clone(exampleMoves), moves...)
	}
	for what, c := range map[string]struct {
		moves []job.Move
		state job.State
		phase job.Phase
		want  string
	}{
		"nothing begins": {moves: without(job.StateNone, job.Submitted),
			want: "no move for submitted"},
		"begins nowhere": {moves: append(without(job.StateNone, job.Submitted),
			job.Move{On: job.Submitted}), want: "no move for submitted"},
		"unknown target": {moves: with(job.Move{From: "queued", On: job.Canceled,
			To: "canceled"}), want: "has no phase"},
		"unknown source": {moves: with(job.Move{From: "canceled", On: job.Retried,
			To: "queued"}), want: "has no phase"},
		"decided twice": {moves: with(job.Move{From: "failed", On: job.Retried,
			To: "done"}), want: "has two moves"},
		"counts without a last failure": {moves: without("running", job.FailedForGood),
			want: "no move for the last attempt"},
		"counts without a last expiry": {moves: without("running", job.ExpiredForGood),
			want: "no move for the last attempt"},
		"a cause that cannot count": {moves: with(job.Move{From: "running", On: job.Requeued,
			To: "queued", CountsFailed: true}), want: "no move for the last attempt"},
		"a last time that counts": {moves: append(without("running", job.FailedForGood),
			job.Move{From: "running", On: job.FailedForGood, To: "failed", CountsFailed: true}),
			want: "no move for the last attempt"},
		"claimed while not ready": {moves: with(job.Move{From: "scheduled", On: job.Claimed,
			To: "running"}), want: "from a ready to a leased"},
		"claimed into no lease": {moves: append(without("queued", job.Claimed),
			job.Move{From: "queued", On: job.Claimed, To: "done"}),
			want: "from a ready to a leased"},
		"claimed into nowhere": {moves: append(without("queued", job.Claimed),
			job.Move{From: "queued", On: job.Claimed}), want: "from a ready to a leased"},
		"leased without a claim": {moves: with(job.Move{From: "failed", On: job.Canceled,
			To: "running"}), want: "without a claim"},
		"begins leased": {moves: append(without(job.StateNone, job.Submitted),
			job.Move{On: job.Submitted, To: "running"}), want: "without a claim"},
		"ready and never claimed": {moves: exampleMoves, state: "stuck", phase: job.Ready,
			want: "stuck"},
		"leased and never lost": {moves: exampleMoves, state: "stuck", phase: job.Leased,
			want: "stuck"},
		"waiting for nothing": {moves: exampleMoves, state: "stuck", phase: job.Waiting,
			want: "stuck"},
		"happens to what is not there": {moves: with(job.Move{On: job.Retried, To: "queued"}),
			want: "not stored"},
	} {
		phases := map[job.State]job.Phase{}
		for s, p := range examplePhases {
			phases[s] = p
		}
		if c.state != "" {
			phases[c.state] = c.phase
		}
		m, err := job.NewMachine(phases, c.moves)
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
