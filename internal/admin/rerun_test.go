package admin_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/admin"
	"github.com/millrace/millrace/internal/testkit"
)

// AD-016, AD-051, G-AD-14: a job of Relay that was given up is gone; a rerun makes it once more and
// is the replay of its dead letter, which says so. Both can be done once.
func TestRerunOfRelay(t *testing.T) {
	withJobs(t, func(t *testing.T, w *jobsWorld) {
		w.lose(t, "a", "1")
		deadLetter := w.deadLetters(t, "", 1).Items[0]
		number := deadLetter.Number
		w.wantOnly(t, number, "gone", "rerun")
		if d := w.detailOf(t, number); d.DeadLetter == nil || *d.DeadLetter != deadLetter.ID ||
			d.ReplayedAs != nil || d.Phase != "dead" {
			t.Errorf("AD-013 a job that is gone is %+v", d)
		}
		w.do(t, readToken, "POST", fmt.Sprintf("/admin/v1/jobs/%d/rerun", number), "").
			WantError(t, 403, "READ_ONLY")
		w.wantDead(t, "relay", "a", 1)

		made := w.acted(t, number, "rerun")
		w.wantState(t, made, "queued", "delete")
		if made.Number == number || made.ID != "1" || made.MadeFrom == nil ||
			*made.MadeFrom != number {
			t.Errorf("AD-016 a rerun answered %+v", made)
		}
		w.wantReplayed(t, "relay", made.Number)
		w.wantOnly(t, number, "gone")
		if d := w.detailOf(t, number); d.ReplayedAs == nil || *d.ReplayedAs != made.Number {
			t.Errorf("AD-013 after the rerun the job that is gone is %+v", d)
		}
		w.replay(t, deadLetter.ID, "").WantError(t, 409, "CONFLICT", "again")
		target := fmt.Sprintf("job:%d", number)
		if got := w.audit(t, "?action=job.rerun&target="+target).Items; len(got) != 2 ||
			string(got[0].Refused) != "null" || string(got[1].Refused) == "null" {
			t.Errorf("AD-006 the audit has %+v", got)
		}

		w.acted(t, made.Number, "delete")
		w.lose(t, "b", "2")
		second := w.deadLetters(t, "?queue=b", 1).Items[0]
		w.submitJob(t, "relay", `{"queue":"b","id":"2","timeout":60,"max_retries":0,"payload":1}`, "")
		w.act(t, second.Number, "rerun").WantError(t, 409, "CONFLICT")
		w.wantDead(t, "relay", "b", 1)
		w.do(t, w.api.Token(), "DELETE", fmt.Sprintf("/admin/v1/dead-letters/%d", second.ID), "").
			WantStatus(t, 204)
		w.act(t, second.Number, "rerun").WantError(t, 404, "NOT_FOUND")
		w.act(t, 1_000_000, "rerun").WantError(t, 404, "NOT_FOUND")
	})
}

// AD-051: a rerun of a job that stays is a replay of its dead letter as well, so that a replay of
// all that is open does not do it once more. It may be repeated, but for one of TaskFlow (RT-001).
func TestRerunIsAReplay(t *testing.T) {
	withJobs(t, func(t *testing.T, w *jobsWorld) {
		task, run := w.failTask(t, "q", `{"error":"x"}`), w.failRun(t)
		for _, j := range []jobState{task, run} {
			reruns := 0
			for again := range 2 {
				if again > 0 && j.Contract == "taskflow" {
					w.act(t, j.Number, "rerun").WantError(t, 409, "CONFLICT")
					continue
				}
				made := w.acted(t, j.Number, "rerun")
				reruns++
				w.wantReplayed(t, j.Contract, made.Number)
				d := w.detailOf(t, j.Number)
				if made.Number == j.Number || d.ReplayedAs == nil ||
					*d.ReplayedAs != made.Number || d.Phase != "done" {
					t.Errorf("AD-051 after a rerun as %d: %+v", made.Number, d)
				}
			}
			if n := len(w.audit(t, fmt.Sprintf("?action=job.rerun&target=job:%d",
				j.Number)).Items); n != reruns {
				t.Errorf("AD-006 there are %d entries for %d reruns", n, reruns)
			}
		}
	})
}

// AD-020, AD-021: a bulk rerun makes the jobs of Relay once more that are gone, where the filter
// asks for what is dead or names their numbers; what is stored is as ever.
func TestBulkRerunOfRelay(t *testing.T) {
	withJobs(t, func(t *testing.T, w *jobsWorld) {
		w.run(t)
		const path = "/admin/v1/bulk"
		for i := range 3 {
			w.lose(t, "a", fmt.Sprint(i))
		}
		w.lose(t, "b", "3")
		task := w.failTask(t, "q", `{"error":"x"}`)
		w.submitJob(t, "relay", `{"queue":"a","id":"4","timeout":60,"max_retries":0,"payload":1}`, "")
		w.clock.Advance(time.Second)
		type preview struct {
			Matching, Refused int
			Sample            []jobState
		}
		dryRun := func(filter string, matching, refused int) []jobState {
			t.Helper()
			p := testkit.DecodeReply[preview](t, w.post(t, path,
				`{"action":"rerun","dry_run":true,"filter":`+filter+`}`).WantStatus(t, 200))
			if p.Matching != matching || p.Refused != refused {
				t.Errorf("AD-020 a dry run with %s answered %+v", filter, p)
			}
			return p.Sample
		}
		all := w.deadLetters(t, "?contract=relay", 4).Items
		dryRun(`{"contract":"relay"}`, 1, 1) // the stored one, which does not fit
		dryRun(`{"phase":"dead"}`, 5, 0)
		dryRun(`{"phase":"dead","owner":"nobody"}`, 0, 0)
		dryRun(`{"phase":"dead","error":"no heartbeat","contract":"relay"}`, 4, 0)
		dryRun(fmt.Sprintf(`{"number":[%d,%d]}`, all[3].Number, task.Number), 2, 0)
		sample := dryRun(`{"phase":"dead","contract":"relay","queue":"a"}`, 3, 0)
		if sample[2].Number != all[2].Number || sample[2].State != "gone" ||
			sample[2].Phase != "dead" {
			t.Errorf("AD-020 the sample is %+v", sample)
		}

		id := w.startBulk(t, path,
			`{"action":"rerun","filter":{"phase":"dead","contract":"relay","queue":"a"}}`)
		if b := w.await(t, id, "done"); b.Done != 3 || b.Failed+b.Skipped != 0 || *b.Total != 3 {
			t.Errorf("AD-021 the operation is %+v", b)
		}
		w.wantDead(t, "relay", "a", 0)
		w.wantDead(t, "relay", "b", 1)
		for _, l := range w.deadLetters(t, "?contract=relay&queue=a", 3).Items {
			if l.ReplayedAs == nil || w.detailOf(t, *l.ReplayedAs).ID != l.JobID {
				t.Errorf("AD-051 the dead letter is %+v", l)
			}
		}
		dryRun(`{"phase":"dead","contract":"relay","queue":"a"}`, 0, 0)

		// Stored jobs come first, then those that are gone.
		id = w.startBulk(t, path, `{"action":"rerun","limit":2,"filter":{"phase":"dead"}}`)
		if b := w.await(t, id, "done"); b.Done != 2 || b.Failed+b.Skipped != 0 {
			t.Errorf("AD-021 the operation is %+v", b)
		}
		w.wantDead(t, "relay", "b", 0)
		w.wantDead(t, "taskflow", "q", 0)

		// A job that its producer has sent again meanwhile is there already.
		w.await(t, w.startBulk(t, path, `{"action":"delete","filter":{"contract":"relay"}}`), "done")
		w.lose(t, "c", "5")
		last := w.deadLetters(t, "?queue=c", 1).Items[0]
		w.submitJob(t, "relay", `{"queue":"c","id":"5","timeout":60,"max_retries":0,"payload":1}`, "")
		w.clock.Advance(time.Second)
		id = w.startBulk(t, path, fmt.Sprintf(`{"action":"rerun","filter":{"number":%d}}`, last.Number))
		if b := w.await(t, id, "done"); b.Done+b.Failed != 0 || b.Skipped != 1 {
			t.Errorf("AD-021 the operation is %+v", b)
		}
		w.wantDead(t, "relay", "c", 1)
	})
}

// AD-021: an operation about a contract that no node serves says what it waits for.
func TestBulkThatNoNodeServes(t *testing.T) {
	testkit.OnEveryStore(t, func(t *testing.T, p testkit.Database) {
		w := &jobsWorld{}
		w.world = newWorld(t, p.Store, p.Clock, func(c *admin.Config) {
			c.Shared = p.Reopen != nil
			w.addContracts(t, c)
		})
		id := w.startBulk(t, "/admin/v1/bulk", `{"action":"rerun","filter":{"contract":"taskflow"}}`)
		other := newWorld(t, p.Store, p.Clock, func(c *admin.Config) { c.Shared = p.Reopen != nil })
		other.run(t) // without a contract
		reason := ""
		testkit.WaitUntil(t, "a reason", func() bool {
			b := get[bulkView](t, w.world, "/admin/v1/bulk/"+id)
			if b.State != "running" || b.Total != nil {
				t.Fatalf("AD-021 the operation is %+v", b)
			}
			if b.Reason != nil {
				reason = *b.Reason
			}
			return reason != ""
		})
		if reason != "waits for a node that serves taskflow" {
			t.Errorf("AD-021 the reason is %q", reason)
		}
	})
}
