package taskflow_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/millrace/millrace/internal/contract/taskflow"
	"github.com/millrace/millrace/internal/job"
)

// allowed is the table of 2.4.1, with what makes each of them happen.
var allowed = map[string][]job.Cause{
	"PENDING READY":     {job.Satisfied},
	"PENDING BLOCKED":   {job.Unsatisfiable},
	"READY RUNNING":     {job.Claimed},
	"RUNNING COMPLETED": {job.Succeeded},
	"RUNNING READY":     {job.Failed, job.Expired, job.Released},
	"RUNNING FAILED":    {job.FailedForGood, job.ExpiredForGood, job.Canceled},
}

// requirement of a pair that is allowed.
var requirement = map[string]string{"PENDING READY": "TF-023", "PENDING BLOCKED": "TF-024",
	"READY RUNNING":     "TF-025",
	"RUNNING COMPLETED": "TF-026", "RUNNING READY": "TF-027", "RUNNING FAILED": "TF-028"}

// updates are the transitions of an update and a delete, which change no status.
func update(from, to job.State, on job.Cause) bool {
	return on == job.Replaced && from == to &&
		slices.Contains([]job.State{"PENDING", "READY", "RUNNING"}, from)
}

// TestMachine compares all pairs of statuses and all causes with the table.
func TestMachine(t *testing.T) {
	t.Parallel()
	m := taskflow.Machine
	all := []job.State{"PENDING", "READY", "RUNNING", "COMPLETED", "FAILED", "BLOCKED"}
	t.Run("TF-022 the six statuses", func(t *testing.T) {
		if got := m.States(); !slices.Equal(got, slices.Sorted(slices.Values(all))) {
			t.Fatalf("states %v", got)
		}
		first, _ := m.Next(job.StateNone, job.Submitted)
		assertEqual(t, "initial", first.To, job.State("PENDING"))
	})
	pairs, valid := 0, 0
	for _, from := range all {
		for _, to := range all {
			pairs++
			pair := string(from + " " + to)
			id := requirement[pair]
			if id == "" {
				id = "TF-029"
			} else {
				valid++
			}
			t.Run(fmt.Sprintf("%s %s to %s", id, from, to), func(t *testing.T) {
				for _, on := range job.Causes() {
					tr, ok := m.Next(from, on)
					want := slices.Contains(allowed[pair], on) || update(from, to, on)
					if got := ok && tr.To == to; got != want {
						t.Errorf("%s leads there: %t, want %t", on, got, want)
					}
				}
			})
			t.Run(fmt.Sprintf("TF-030 %s to %s", from, to), func(t *testing.T) {
				assertEqual(t, "valid", taskflow.ValidTransition(from, to), allowed[pair] != nil)
			})
		}
	}
	assertEqual(t, "pairs", pairs, 36)
	assertEqual(t, "valid pairs", valid, 6)
	t.Run("TF-031 what is done stays", func(t *testing.T) {
		for _, s := range all {
			done := s == "COMPLETED" || s == "FAILED" || s == "BLOCKED"
			assertEqual(t, string(s)+" is done", m.Phase(s) == job.Done && taskflow.Terminal(s),
				done)
			for _, on := range job.Causes() {
				if tr, ok := m.Next(s, on); done && ok && tr.To != job.StateNone {
					t.Errorf("%s leads from %s to %s", on, s, tr.To)
				}
			}
		}
	})
	t.Run("TF-030 unknown words are in no table", func(t *testing.T) {
		for _, pair := range [][2]job.State{{"", "PENDING"}, {"PENDING", ""}, {"ready", "RUNNING"},
			{"READY", "DONE"}, {"", ""}} {
			assertEqual(t, fmt.Sprint(pair), taskflow.ValidTransition(pair[0], pair[1]), false)
		}
	})
}

// TestMachineCounts: a failure and a lost run use up an attempt, a run that is given back does not.
func TestMachineCounts(t *testing.T) {
	t.Parallel()
	for on, want := range map[job.Cause]bool{job.Failed: true, job.Expired: true,
		job.Released: false} {
		tr, ok := taskflow.Machine.Next("RUNNING", on)
		assertEqual(t, string(on)+" counts", ok && tr.CountsFailed, want)
	}
}
