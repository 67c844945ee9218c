package fetchbox_test

import (
	"slices"
	"testing"

	"github.com/millrace/millrace/internal/contract/fetchbox"
	"github.com/millrace/millrace/internal/job"
)

// jobMoves and taskMoves are all that may happen, as FROM CAUSE to TO.
var (
	jobMoves = map[[2]string]job.State{
		{"", "submitted"}:                 "queued",
		{"queued", "started"}:             "in_progress",
		{"queued", "satisfied"}:           "ended",
		{"in_progress", "satisfied"}:      "ended",
		{"ended", "claimed"}:              "listing",
		{"ended", "retried"}:              "in_progress",
		{"listing", "started"}:            "finalizing",
		{"listing", "expired"}:            "ended",
		{"listing", "released"}:           "ended",
		{"listing", "retried"}:            "in_progress",
		{"finalizing", "succeeded"}:       "completed",
		{"finalizing", "failed_for_good"}: "failed",
		{"finalizing", "expired"}:         "ended",
		{"finalizing", "released"}:        "ended",
		{"finalizing", "retried"}:         "replaying",
		{"completed", "retried"}:          "replaying",
		{"failed", "retried"}:             "replaying",
		{"replaying", "satisfied"}:        "replayed",
		{"replayed", "claimed"}:           "closing",
		{"replayed", "retried"}:           "replaying",
		{"closing", "succeeded"}:          "completed",
		{"closing", "failed_for_good"}:    "failed",
		{"closing", "expired"}:            "replayed",
		{"closing", "released"}:           "replayed",
		{"closing", "retried"}:            "replaying",
	}
	taskMoves = map[[2]string]job.State{
		{"", "submitted"}:                   "queued",
		{"queued", "claimed"}:               "downloading",
		{"downloading", "succeeded"}:        "done",
		{"downloading", "failed"}:           "queued",
		{"downloading", "failed_for_good"}:  "dead",
		{"downloading", "expired"}:          "queued",
		{"downloading", "expired_for_good"}: "dead",
		{"downloading", "released"}:         "queued",
		{"dead", "retried"}:                 "queued",
		{"queued", "canceled"}:              "dead",
		{"downloading", "canceled"}:         "dead",
	}
)

// TestMachines compares every state and every cause with the lists: what they do not name does not
// happen.
func TestMachines(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		machine     *job.Machine
		transitions map[[2]string]job.State
		counts      []job.Cause
		lost        []job.Cause
	}{
		"FB-055 jobs": {fetchbox.JobMachine, jobMoves, nil, nil},
		"FB-083 FB-087 G-FB-43 tasks": {fetchbox.TaskMachine, taskMoves, []job.Cause{job.Failed},
			[]job.Cause{job.Expired}},
	} {
		t.Run(name, func(t *testing.T) {
			seen := 0
			for _, from := range append(c.machine.States(), job.StateNone) {
				for _, on := range job.Causes() {
					tr, ok := c.machine.Next(from, on)
					want, allowed := c.transitions[[2]string{string(from), string(on)}]
					if ok != allowed || (ok && tr.To != want) {
						t.Errorf("%q on %s leads to %q (%t), want %q (%t)", from, on, tr.To, ok,
							want, allowed)
					}
					if ok {
						seen++
						assertEqual(t, string(from+" on "+job.State(on))+" counts", tr.CountsFailed,
							slices.Contains(c.counts, on))
						assertEqual(t, string(from+" on "+job.State(on))+" counts as lost",
							tr.CountsLost, slices.Contains(c.lost, on))
					}
				}
			}
			assertEqual(t, "moves", seen, len(c.transitions))
		})
	}
}

// TestStatuses: every state is shown as one of the four, and is found under it.
func TestStatuses(t *testing.T) {
	t.Parallel()
	t.Run("FB-054 four statuses", func(t *testing.T) {
		assertEqual(t, "statuses", len(fetchbox.Statuses), 4)
		for _, s := range fetchbox.JobMachine.States() {
			for _, failed := range []int{0, 1} {
				shown := fetchbox.StatusOf(&job.Job{State: s, FailedDeps: failed})
				if !slices.Contains(fetchbox.Statuses[shown], s) {
					t.Errorf("%s with %d failed tasks is shown as %s and not found there", s,
						failed, shown)
				}
			}
		}
	})
}
