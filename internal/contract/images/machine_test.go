package images_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/millrace/millrace/internal/contract/images"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/testkit"
)

// allowed are the transitions of the document, each with what may cause it.
var allowed = map[string][]job.Cause{
	"queued processing":           {job.Claimed},
	"processing completed":        {job.Succeeded},
	"processing failed_retryable": {job.Failed, job.Released},
	"processing failed":           {job.FailedForGood, job.ExpiredForGood},
	"failed_retryable processing": {job.Claimed},
	"failed_retryable failed":     {job.Canceled},
	// a lock that ran out and is taken over (G-IP-03)
	"processing processing":             {job.Expired, job.Claimed},
	"failed_retryable failed_retryable": {job.Due}, // the delay is over
}

// requirement of a pair; what is neither allowed nor forbidden by name does not happen either.
var requirement = map[string]string{
	"queued processing": "IP-015", "processing completed": "IP-016",
	"processing failed_retryable": "IP-017", "processing failed": "IP-018",
	"failed_retryable processing": "IP-019", "failed_retryable failed": "IP-020",
	"queued failed_retryable": "IP-023", "queued failed": "IP-024", "queued completed": "IP-025",
}

func idOfPair(from, to string) string {
	id := requirement[from+" "+to]
	switch {
	case id != "":
		return id
	case from == "completed":
		return "IP-021"
	case from == "failed":
		return "IP-022"
	}
	return "IP-026"
}

// TestMachine compares every pair of states and every cause with the document: what is not allowed
// does not happen, whatever the cause.
func TestMachine(t *testing.T) {
	t.Parallel()
	m := images.Machine
	of := map[string][]job.State{}
	for _, s := range m.States() {
		of[images.StatusOf(s)] = append(of[images.StatusOf(s)], s)
	}
	all := []string{"queued", "processing", "completed", "failed_retryable", "failed"}
	t.Run("IP-009 five states and no others, in lower case", func(t *testing.T) {
		assertEqual(t, "states", len(of), 5)
		for _, s := range all {
			if !slices.Contains(of[s], job.State(s)) {
				t.Errorf("there is no %s", s)
			}
		}
		first, _ := m.Next(job.StateNone, job.Submitted)
		assertEqual(t, "initial", first.To, queued)
	})
	for name, want := range map[string]job.Phase{"IP-010 queued": job.Ready,
		"IP-011 processing": job.Leased, "IP-012 completed": job.Done,
		"IP-013 failed_retryable": job.Waiting, "IP-014 failed": job.Done} {
		t.Run(name, func(t *testing.T) {
			assertEqual(t, "phase", m.Phase(job.State(name[7:])), want)
		})
	}
	for _, from := range all {
		for _, to := range all {
			t.Run(fmt.Sprintf("%s %s to %s", idOfPair(from, to), from, to), func(t *testing.T) {
				happens := 0
				for _, state := range of[from] {
					for _, on := range job.Causes() {
						tr, ok := m.Next(state, on)
						if !ok || images.StatusOf(tr.To) != to {
							continue
						}
						happens++
						if !slices.Contains(allowed[from+" "+to], on) {
							t.Errorf("%s leads there", on)
						}
					}
				}
				assertEqual(t, "happens", happens > 0, len(allowed[from+" "+to]) > 0)
			})
		}
	}
	t.Run("nothing is taken away", func(t *testing.T) {
		for _, s := range m.States() {
			for _, on := range job.Causes() {
				if tr, ok := m.Next(s, on); ok && tr.To == job.StateNone {
					t.Errorf("%s on %s", s, on)
				}
			}
		}
	})
}

// Whatever ends an attempt badly uses up one, so that attempts end (G-IP-21).
func TestMachineCounts(t *testing.T) {
	t.Parallel()
	for _, on := range []job.Cause{job.Failed, job.Expired, job.Released} {
		tr, ok := images.Machine.Next(processing, on)
		assertEqual(t, string(on)+" counts", ok && tr.CountsFailed, true)
	}
}

func TestErrorTable(t *testing.T) {
	t.Parallel()
	testkit.CheckErrorTable(t, images.ErrorTable)
}
