package job_test

import (
	"slices"
	"testing"

	"github.com/millrace/millrace/internal/job"
)

// fuzzStates are the states of FuzzMachine, after the one of no job.
var fuzzStates = []job.State{job.StateNone, "a", "b", "c", "d", "e"}

// readMachine reads phases and transitions: one byte for each state, and four for each transition.
func readMachine(text []byte) (phases map[job.State]job.Phase, transitions []job.Transition) {
	phases = map[job.State]job.Phase{}
	for i, s := range fuzzStates[1:] {
		if i < len(text) {
			phases[s] = job.Phase(text[i] % 4)
		}
	}
	causes := job.Causes()
	for text = text[min(len(text), len(fuzzStates)-1):]; len(text) >= 4; text = text[4:] {
		transitions = append(transitions, job.Transition{From: fuzzStates[int(text[0])%len(fuzzStates)],
			On: causes[int(text[1])%len(causes)], To: fuzzStates[int(text[2])%len(fuzzStates)],
			CountsFailed: text[3]&1 != 0, CountsLost: text[3]&2 != 0, DeadLetter: text[3]&4 != 0})
	}
	return phases, transitions
}

// FuzzMachine: a machine that is accepted leads from no job to its states alone, has a way out of
// each that is not done, leases by claims alone, and has the last transition of each that counts.
func FuzzMachine(f *testing.F) {
	index := func(on job.Cause) byte { return byte(slices.Index(job.Causes(), on)) }
	phases := []byte{byte(job.Waiting), byte(job.Ready), byte(job.Leased), byte(job.Done),
		byte(job.Done)}
	f.Add(append(phases, 0, index(job.Submitted), 1, 0, 1, index(job.Due), 2, 0,
		2, index(job.Claimed), 3, 0, 3, index(job.Succeeded), 4, 0, 3, index(job.Expired), 2, 1,
		3, index(job.ExpiredForGood), 5, 4, 5, index(job.Retried), 2, 0))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := job.NewMachine(readMachine(text))
		if err != nil {
			return
		}
		if tr, ok := m.Next(job.StateNone, job.Submitted); !ok || !m.Has(tr.To) {
			t.Fatalf("a new job has %+v", tr)
		}
		exits := map[job.Phase][]job.Cause{job.Waiting: {job.Due, job.Satisfied},
			job.Ready: {job.Claimed}, job.Leased: {job.Expired}}
		for _, s := range m.States() {
			hasExit := m.Phase(s) == job.Done
			for _, on := range job.Causes() {
				tr, ok := m.Next(s, on)
				if !ok {
					continue
				}
				hasExit = hasExit || slices.Contains(exits[m.Phase(s)], on)
				isLeased := tr.To != job.StateNone && m.Phase(tr.To) == job.Leased
				_, hasLast := m.Next(s, on.ForGood())
				switch {
				case tr.From != s || tr.On != on || (tr.To != job.StateNone && !m.Has(tr.To)):
					t.Fatalf("%s on %s is %+v", s, on, tr)
				case isLeased && on != job.Claimed && m.Phase(s) != job.Leased:
					t.Fatalf("%+v leases without a claim", tr)
				case (tr.CountsFailed || tr.CountsLost) && !hasLast:
					t.Fatalf("%+v has no transition for the last attempt", tr)
				}
			}
			if !hasExit {
				t.Fatalf("a job is stuck in %s, which is %s", s, m.Phase(s))
			}
		}
	})
}
