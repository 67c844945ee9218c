package forgerun_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/millrace/millrace/internal/contract/forgerun"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/testkit"
)

// allowed are the transitions of the document's list, and the one of G-FR-01.
var allowed = map[string][]job.Cause{
	"CREATED QUEUED":    {job.Due},
	"CREATED CANCELED":  {job.Canceled},
	"QUEUED ASSIGNED":   {job.Claimed},
	"QUEUED CANCELED":   {job.Canceled},
	"ASSIGNED RUNNING":  {job.Started},
	"ASSIGNED CANCELED": {job.Canceled},
	"ASSIGNED QUEUED":   {job.Expired, job.Released},
	"RUNNING SUCCEEDED": {job.Succeeded},
	"RUNNING FAILED": {job.Failed, job.FailedForGood, job.Expired, job.ExpiredForGood,
		job.Released},
	"RUNNING CANCELED": {job.Canceled},
	"FAILED QUEUED":    {job.Retried},
}

// requirement of the state that a pair begins in.
var requirement = map[job.State]string{"CREATED": "FR-155", "QUEUED": "FR-156",
	"ASSIGNED": "FR-157", "RUNNING": "FR-158",
	"FAILED": "FR-159", "SUCCEEDED": "FR-160", "CANCELED": "FR-161"}

// TestMachine compares every pair of states and every cause with the list: what is not allowed does
// not happen, whatever the cause.
func TestMachine(t *testing.T) {
	t.Parallel()
	m := forgerun.Machine
	all := []job.State{"CREATED", "QUEUED", "ASSIGNED", "RUNNING", "SUCCEEDED", "FAILED",
		"CANCELED"}
	t.Run("FR-154 the seven states", func(t *testing.T) {
		want := slices.Sorted(slices.Values(all))
		if got := m.States(); !slices.Equal(got, want) {
			t.Fatalf("states %v", got)
		}
		first, _ := m.Next(job.StateNone, job.Submitted)
		assertEqual(t, "initial", first.To, job.State("CREATED"))
		for _, s := range all {
			final := s == "SUCCEEDED" || s == "FAILED" || s == "CANCELED"
			assertEqual(t, string(s)+" is final", m.Phase(s) == job.Done, final)
		}
	})
	pairs := 0
	for _, from := range all {
		for _, to := range all {
			pairs++
			t.Run(fmt.Sprintf("%s %s to %s", requirement[from], from, to), func(t *testing.T) {
				for _, on := range job.Causes() {
					tr, ok := m.Next(from, on)
					want := slices.Contains(allowed[string(from+" "+to)], on)
					if got := ok && tr.To == to; got != want {
						t.Errorf("%s leads there: %t, want %t", on, got, want)
					}
				}
			})
		}
	}
	assertEqual(t, "pairs", pairs, 49)
}

// TestMachineCounts: a run that ends without success uses up a retry, and one that was never
// started does not.
func TestMachineCounts(t *testing.T) {
	t.Parallel()
	for _, from := range []job.State{"ASSIGNED", "RUNNING"} {
		for _, on := range []job.Cause{job.Failed, job.Expired, job.Released} {
			tr, ok := forgerun.Machine.Next(from, on)
			assertEqual(t, fmt.Sprintf("%s on %s counts", from, on), ok && tr.CountsFailed,
				from == "RUNNING")
		}
	}
}

// TestRaces: of two changes at once one wins, and the other learns of it.
func TestRaces(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		c := w.customer(t)
		t.Run("FR-162 FR-204 many cancel at once", func(t *testing.T) {
			id := c.submit(t, submitBody("SUCCESS_FAST"))
			w.claimAndStart(t)
			answers := testkit.RunConcurrently(20, func(int) testkit.Reply {
				return c.Do(t, "POST", "/v1/jobs/"+id+"/cancel", "")
			})
			for _, r := range answers {
				assertEqual(t, "state", testkit.DecodeReply[jobView](t, r.WantStatus(t, 200)).State,
					"CANCELED")
			}
			assertEqual(t, "events", c.report(t, id).names(),
				"created queued assigned started canceled")
		})
		t.Run("FR-162 FR-204 many retry at once", func(t *testing.T) {
			id := c.submit(t, submitBody("SUCCESS_FAST"))
			w.fail(t)
			answers := testkit.RunConcurrently(20, func(int) testkit.Reply {
				return c.Do(t, "POST", "/v1/jobs/"+id+"/retry", "")
			})
			for _, r := range answers {
				v := testkit.DecodeReply[jobView](t, r.WantStatus(t, 200))
				assertEqual(t, "state and attempt", fmt.Sprint(v.State, v.Attempt), "QUEUED1")
			}
			c.cancel(t, id)
			assertEqual(t, "events", c.report(t, id).names(),
				"created queued assigned started failed queued canceled")
		})
		t.Run("FR-204 cancel and retry at once", func(t *testing.T) {
			for range 10 {
				id := c.submit(t, submitBody("SUCCESS_FAST"))
				w.fail(t)
				testkit.RunConcurrently(8, func(i int) testkit.Reply {
					return c.Do(t, "POST", "/v1/jobs/"+id+"/"+[]string{"cancel", "retry"}[i%2], "")
				})
				v := c.get(t, id)
				if v.State != "QUEUED" && v.State != "CANCELED" {
					t.Fatalf("the job is %s", v.State)
				}
				c.cancel(t, id)
				assertEqual(t, "events", c.report(t, id).names(),
					"created queued assigned started failed queued canceled")
			}
		})
	})
}
