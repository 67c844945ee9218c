package bulk_test

import (
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/bulk"
	"github.com/millrace/millrace/internal/contract"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/testkit"
)

// jobsOfTest is how many jobs TestKills retries; MILLRACE_TEST_BULK_JOBS is for the full size.
func jobsOfTest(t *testing.T) int {
	if text := os.Getenv("MILLRACE_TEST_BULK_JOBS"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	return 600
}

// AD-021: of an operation whose node is killed five times, each job is retried once, and rerun
// once, and each is counted.
func TestKills(t *testing.T) {
	testkit.OnEveryStore(t, func(t *testing.T, p testkit.Database) {
		healthy := newNode(t, p.Store, p.Clock)
		total := jobsOfTest(t)
		healthy.submit(t, "a", total)
		rerun := healthy.start(t, bulk.Request{Action: contract.ActionRerun}, "a")
		kills := 0
		for round := 0; ; round++ {
			s := &mortal{Store: p.Store, commits: round%2 == 1}
			s.left.Store(int64(total/6 + 7*round))
			if round >= 5 {
				s.left.Store(1 << 40)
			}
			n := newNode(t, s, p.Clock)
			o, _, claimed := n.runUnfinished(t)
			if claimed && o.On == job.Released { // its end is not written either
				kills++
			}
			if round >= 5 {
				break
			}
			healthy.wait(t, time.Minute)
		}
		if kills < 5 {
			t.Errorf("the node was killed %d times", kills)
		}
		healthy.want(t, rerun, bulk.Done, int64(total), 0, 0)
		of := map[string]int{}
		for _, j := range healthy.list(t, "made") {
			of[j.Owner]++
		}
		for _, j := range healthy.list(t, "a") {
			if of[j.ID.Key] != 1 {
				t.Fatalf("AD-021 job %s was rerun %d times", j.ID.Key, of[j.ID.Key])
			}
		}

		retry := healthy.start(t, bulk.Request{Action: contract.ActionRetry}, "a")
		for range 5 {
			s := &mortal{Store: p.Store, commits: true}
			s.left.Store(int64(total / 7))
			newNode(t, s, p.Clock).runUnfinished(t)
			healthy.wait(t, time.Minute)
		}
		healthy.runOnce(t)
		healthy.want(t, retry, bulk.Done, int64(total), 0, 0)
		for _, j := range healthy.list(t, "a")[:50] {
			history, err := healthy.engine.History(t.Context(), j.ID)
			if err != nil || len(history) != 2 || history[1].Cause != job.Retried {
				t.Fatalf("AD-021 the history of %s is %+v, %v", j.ID.Key, history, err)
			}
		}
		if n := len(healthy.list(t, "a", "queued")); n != total {
			t.Errorf("AD-021 %d jobs are queued, want %d", n, total)
		}
	})
}

// AD-022: the canaries go first; the others follow when these have ended well, and the operation
// stays paused when one has failed.
func TestCanary(t *testing.T) {
	testkit.OnEveryStore(t, func(t *testing.T, p testkit.Database) {
		n := newNode(t, p.Store, p.Clock)
		end := func(on job.Cause, count int) {
			t.Helper()
			jobs, err := n.engine.Claim(t.Context(), engine.ClaimRequest{JobType: made, Max: count,
				Worker: "w"})
			if err != nil || len(jobs) != count {
				t.Fatalf("claimed %d: %v", len(jobs), err)
			}
			for _, j := range jobs {
				if _, err := n.engine.Finish(t.Context(), engine.Run{ID: j.ID, Run: j.Run},
					engine.Outcome{On: on}); err != nil {
					t.Fatal(err)
				}
			}
		}
		again := func() { t.Helper(); n.wait(t, 2*time.Second); n.runOnce(t) }
		r := bulk.Request{Action: contract.ActionRetry, Canary: 3}
		n.submit(t, "good", 20)
		id := n.start(t, r, "good")
		n.runOnce(t)
		o := n.want(t, id, bulk.Paused, 3, 0, 0)
		if o.Reason != bulk.ReasonCanary {
			t.Errorf("AD-022 the reason is %q", o.Reason)
		}
		end(job.Succeeded, 2)
		again()
		n.want(t, id, bulk.Paused, 3, 0, 0)
		end(job.Succeeded, 1)
		again()
		n.want(t, id, bulk.Done, 20, 0, 0)
		end(job.Succeeded, 17)

		n.submit(t, "bad", 20)
		id = n.start(t, r, "bad")
		n.runOnce(t)
		end(job.Succeeded, 2)
		end(job.FailedForGood, 1)
		again()
		o = n.want(t, id, bulk.Paused, 3, 0, 0)
		if !strings.HasPrefix(o.Reason, "canary failed: job ") {
			t.Errorf("AD-022 the reason is %q", o.Reason)
		}
		again()
		n.want(t, id, bulk.Paused, 3, 0, 0)
		if err := n.change(t, id, bulk.Resume); err != nil {
			t.Fatal(err)
		}
		n.runOnce(t)
		n.want(t, id, bulk.Done, 20, 0, 0)
	})
}

// AD-021, AD-022: an action that fails for a canary pauses the operation too, before the rest is
// done, and is shown with its error; the first 20 errors are kept.
func TestCanaryWhoseActionFails(t *testing.T) {
	testkit.OnEveryStore(t, func(t *testing.T, p testkit.Database) {
		n := newNode(t, p.Store, p.Clock)
		n.submit(t, "broken", 30)
		id := n.start(t, bulk.Request{Action: contract.ActionRerun, Canary: 3}, "broken")
		for range 3 {
			n.runOnce(t)
			n.wait(t, 2*time.Second)
		}
		o := n.want(t, id, bulk.Paused, 0, 0, 3)
		if !strings.HasPrefix(o.Reason, "canary failed: job ") || len(o.Errors) != 3 ||
			!strings.Contains(o.Errors[0].Error, "it is broken") {
			t.Errorf("AD-022 the reason is %q, the errors are %v", o.Reason, o.Errors)
		}
		if err := n.change(t, id, bulk.Resume); err != nil {
			t.Fatal(err)
		}
		n.runOnce(t)
		if o = n.want(t, id, bulk.Done, 0, 0, 30); len(o.Errors) != 20 {
			t.Errorf("AD-021 %d errors are kept", len(o.Errors))
		}
	})
}

// AD-020, AD-022: the filter means what matched at the beginning. What was created later stays, and
// what has changed is skipped.
func TestMatchedAtTheBeginning(t *testing.T) {
	testkit.OnEveryStore(t, func(t *testing.T, p testkit.Database) {
		n := newNode(t, p.Store, p.Clock)
		n.submit(t, "a", 10)
		n.submit(t, "b", 5)
		filter := bulk.Request{Action: contract.ActionRetry,
			Jobs: &bulk.JobFilter{JobTypes: []string{made}, Queue: "a"}}
		seen, err := n.ops.Preview(t.Context(), filter, bulk.MaxSearchTime)
		if err != nil || seen.Matching != 10 || seen.Refused != 0 || seen.More ||
			len(seen.Jobs) != 10 {
			t.Errorf("AD-020 a dry run saw %+v, %v", seen, err)
		}
		id := n.start(t, filter, "a")
		p.Clock.Advance(time.Second)
		n.submit(t, "later", 1)
		changed := n.list(t, "a")[3]
		if _, err := n.engine.Change(t.Context(), changed.ID, job.Retried, nil); err != nil {
			t.Fatal(err)
		}
		n.runOnce(t)
		o := n.want(t, id, bulk.Done, 9, 1, 0)
		if o.Total != 10 || n.ended != 1 || o.EndedAt.IsZero() {
			t.Errorf("AD-021 the operation is %+v, and ended %d times", o, n.ended)
		}
		if got := len(n.list(t, "b", "failed")) + len(n.list(t, "later", "failed")); got != 6 {
			t.Errorf("AD-022 %d jobs of other queues are as they were, want 6", got)
		}
		seen, err = n.ops.Preview(t.Context(), filter, bulk.MaxSearchTime)
		if err != nil || seen.Refused != 10 {
			t.Errorf("AD-020 a dry run saw %+v, %v", seen, err)
		}
	})
}

// AD-020: a dry run that names job types, phases and a queue has its numbers from the counts that
// the store keeps, and they agree with the jobs and dead letters that are there.
func TestPreviewOfQueues(t *testing.T) {
	testkit.OnEveryStore(t, func(t *testing.T, p testkit.Database) {
		n := newNode(t, p.Store, p.Clock)
		n.submit(t, "a", 13) // failed, without dead letters
		n.submit(t, "b", 12)
		n.start(t, bulk.Request{Action: contract.ActionRetry}, "b")
		n.runOnce(t)
		jobs, err := n.engine.Claim(t.Context(), engine.ClaimRequest{JobType: made, Max: 11,
			Worker: "w"})
		if err != nil {
			t.Fatal(err)
		}
		for i, j := range jobs[:6] { // of which one succeeds
			on := job.FailedForGood
			if i == 5 {
				on = job.Succeeded
			}
			if _, err := n.engine.Finish(t.Context(), engine.Run{ID: j.ID, Run: j.Run},
				engine.Outcome{On: on, Failure: []byte("x")}); err != nil {
				t.Fatal(err)
			}
		}
		p.Clock.Advance(time.Second)
		type phases = []job.Phase
		for _, tt := range []struct {
			action            string
			f                 bulk.JobFilter
			matching, refused int
		}{
			{contract.ActionDelete, bulk.JobFilter{Queue: "b", Phases: phases{job.Waiting, job.Ready}}, 1, 0},
			{contract.ActionDelete, bulk.JobFilter{Phases: phases{job.Leased}}, 5, 5},
			{contract.ActionDelete, bulk.JobFilter{Queue: "b"}, 12, 6},
			{contract.ActionCancel, bulk.JobFilter{}, 25, 25},
			{contract.ActionCancel, bulk.JobFilter{Dead: true}, 5, 5},
			{contract.ActionCancel, bulk.JobFilter{Phases: phases{job.Done}}, 14, 14},
			{contract.ActionCancel, bulk.JobFilter{Phases: phases{job.Done}, Dead: true}, 19, 19},
			{contract.ActionDelete, bulk.JobFilter{Queue: "none"}, 0, 0},
		} {
			tt.f.JobTypes = []string{made}
			seen, err := n.ops.Preview(t.Context(), bulk.Request{Action: tt.action, Jobs: &tt.f},
				bulk.MaxSearchTime)
			if err != nil || seen.Matching != tt.matching || seen.Refused != tt.refused ||
				seen.More || len(seen.Jobs) != min(10, tt.matching) || seen.AsOf.IsZero() {
				t.Errorf("AD-020 %s of %+v: %d match, %d are refused, %d shown, %v", tt.action, tt.f,
					seen.Matching, seen.Refused, len(seen.Jobs), err)
			}
			sameAsRead(t, n, tt.action, tt.f, &seen)
		}
		for queue, want := range map[string]int{"": 5, "b": 5, "a": 0} {
			seen, err := n.ops.Preview(t.Context(), bulk.Request{Action: bulk.Replay,
				DeadLetters: &bulk.DeadLetterFilter{JobTypes: []string{made}, Queue: queue}},
				bulk.MaxSearchTime)
			if err != nil || seen.Matching != want || seen.Refused != 0 ||
				len(seen.DeadLetters) != want {
				t.Errorf("AD-020 replay of queue %q: %+v, %v", queue, seen, err)
			}
		}
	})
}

// sameAsRead compares a dry run by counts with one that has to look at all jobs.
func sameAsRead(t *testing.T, n *node, action string, f bulk.JobFilter, seen *bulk.Preview) {
	t.Helper()
	f.CreatedBefore = n.clock.Now().Add(time.Hour)
	read, err := n.ops.Preview(t.Context(), bulk.Request{Action: action, Jobs: &f},
		bulk.MaxSearchTime)
	if err != nil || read.Matching != seen.Matching || read.Refused != seen.Refused ||
		len(read.Jobs) != len(seen.Jobs) {
		t.Errorf("AD-020 %s of %+v: counts say %d and %d, the jobs %d and %d, %v", action, f,
			seen.Matching, seen.Refused, read.Matching, read.Refused, err)
	}
}

// AD-021: what was deleted, or has come to match no longer, after the operation has counted it is
// skipped: at the end all that matched is accounted for.
func TestUnseenIsSkipped(t *testing.T) {
	testkit.OnEveryStore(t, func(t *testing.T, p testkit.Database) {
		n := newNode(t, p.Store, p.Clock)
		n.submit(t, "a", 10)
		r := bulk.Request{Action: contract.ActionRetry, Rate: 8, Jobs: &bulk.JobFilter{
			JobTypes: []string{made}, Queue: "a", States: []job.State{"failed"}}}
		o, err := n.ops.Start(t.Context(), n.clock.Now(), r, nil)
		if err != nil {
			t.Fatal(err)
		}
		n.runOnce(t)
		n.want(t, o.ID, bulk.Running, 2, 0, 0)
		left := n.list(t, "a", "failed")
		for i, on := range []job.Cause{job.Removed, job.Retried, job.Removed} {
			if _, err := n.engine.Change(t.Context(), left[2*i].ID, on, nil); err != nil {
				t.Fatal(err)
			}
		}
		for range 5 {
			n.wait(t, time.Second)
			n.runOnce(t)
		}
		if o = n.want(t, o.ID, bulk.Done, 7, 3, 0); o.Total != 10 {
			t.Errorf("AD-021 the operation is %+v", o)
		}
	})
}

// AD-021: rate, limit, pause, resume and cancel.
func TestPaces(t *testing.T) {
	t.Parallel()
	p := testkit.InMemory(t)
	n := newNode(t, p.Store, p.Clock)
	n.submit(t, "a", 100)
	id := n.start(t, bulk.Request{Action: contract.ActionRetry, Rate: 20, Limit: 30}, "a")
	if o, _ := n.runOnce(t); o.On != job.Released || o.Delay != 250*time.Millisecond {
		t.Errorf("AD-021 after 5 of 20 a second the run ended with %+v", o)
	}
	n.want(t, id, bulk.Running, 5, 0, 0)
	if _, claimed := n.runOnce(t); claimed {
		t.Error("AD-021 it goes on before its time")
	}
	n.wait(t, 250*time.Millisecond)
	n.runOnce(t)
	if o := n.want(t, id, bulk.Running, 10, 0, 0); !o.ETA(p.Clock.Now()).After(p.Clock.Now()) {
		t.Errorf("AD-021 the end of %+v is expected at %v", o, o.ETA(p.Clock.Now()))
	}
	must := func(what bulk.Change, kind job.Kind) {
		t.Helper()
		if err := n.change(t, id, what); (err != nil) != (kind != job.Internal) ||
			(err != nil && !job.IsKind(err, kind)) {
			t.Fatalf("%s: %v", what, err)
		}
	}
	must(bulk.Pause, job.Internal)
	must(bulk.Pause, job.Conflict)
	n.wait(t, time.Minute)
	if _, claimed := n.runOnce(t); claimed {
		t.Error("AD-021 it goes on while it is paused")
	}
	must(bulk.Resume, job.Internal)
	for range 4 {
		n.runOnce(t)
		n.wait(t, time.Second)
	}
	n.runOnce(t)
	n.want(t, id, bulk.Done, 30, 0, 0)
	must(bulk.Cancel, job.Conflict)

	id = n.start(t, bulk.Request{Action: contract.ActionDelete, Rate: 4}, "a")
	n.runOnce(t)
	must(bulk.Cancel, job.Internal)
	n.wait(t, time.Minute)
	if _, claimed := n.runOnce(t); claimed {
		t.Error("AD-021 it goes on after its end")
	}
	n.want(t, id, bulk.Canceled, 1, 0, 0)
	if left := len(n.list(t, "a")); left != 99 {
		t.Errorf("AD-021 %d jobs are left, want 99", left)
	}
	id = "none"
	must(bulk.Pause, job.NotFound)
	all, err := n.ops.List(t.Context(), "", 9)
	if err != nil || len(all) != 2 || all[0].Action != contract.ActionDelete {
		t.Errorf("AD-021 the list is %+v, %v", all, err)
	}
}

// AD-051: a bulk replay replays the open dead letters that match, each once.
func TestReplayDeadLetters(t *testing.T) {
	testkit.OnEveryStore(t, func(t *testing.T, p testkit.Database) {
		n := newNode(t, p.Store, p.Clock)
		n.submit(t, "a", 6)
		n.start(t, bulk.Request{Action: contract.ActionRetry}, "a")
		n.runOnce(t)
		jobs, err := n.engine.Claim(t.Context(), engine.ClaimRequest{JobType: made, Max: 6,
			Worker: "w"})
		if err != nil {
			t.Fatal(err)
		}
		for _, j := range jobs {
			if _, err := n.engine.Finish(t.Context(), engine.Run{ID: j.ID, Run: j.Run},
				engine.Outcome{On: job.FailedForGood, Failure: []byte("x")}); err != nil {
				t.Fatal(err)
			}
		}
		lists, err := n.engine.DeadLetters(t.Context(), store.DeadLetterSelector{JobType: made,
			Limit: 9})
		if err != nil || len(lists[0]) != 6 {
			t.Fatalf("dead letters %+v, %v", lists, err)
		}
		all := lists[0]
		if _, err := n.engine.Change(t.Context(), all[0].Job.ID, job.Retried, nil); err != nil {
			t.Fatal(err)
		}
		p.Clock.Advance(time.Second)
		r := bulk.Request{Action: bulk.Replay, DeadLetters: &bulk.DeadLetterFilter{
			JobTypes: []string{made}, Fingerprint: all[0].Fingerprint()}}
		seen, err := n.ops.Preview(t.Context(), r, bulk.MaxSearchTime)
		if err != nil || seen.Matching != 5 || len(seen.DeadLetters) != 5 {
			t.Errorf("AD-020 a dry run saw %+v, %v", seen, err)
		}
		id := n.start(t, r, "")
		n.runOnce(t)
		n.want(t, id, bulk.Done, 5, 0, 0)
		if got := len(n.list(t, "a", "queued")); got != 6 {
			t.Errorf("AD-051 %d jobs are queued, want 6", got)
		}
	})
}

// AD-021: the answer to a cancel counts what the batch has done that was not completed.
func TestCancelInBatch(t *testing.T) {
	testkit.OnEveryStore(t, func(t *testing.T, p testkit.Database) {
		n := newNode(t, p.Store, p.Clock)
		n.submit(t, "a", 100)
		id := n.start(t, bulk.Request{Action: contract.ActionDelete}, "a")
		s := &mortal{Store: p.Store}
		s.left.Store(20)
		newNode(t, s, p.Clock).runUnfinished(t)
		o, err := n.ops.Change(t.Context(), id, bulk.Cancel, nil)
		if err != nil {
			t.Fatal(err)
		}
		gone := 100 - int64(len(n.list(t, "a")))
		if gone == 0 || gone == 100 || o.Done != gone || o.State != bulk.Canceled {
			t.Errorf("AD-021 the canceled operation is %+v, and %d jobs are gone", o, gone)
		}
		n.want(t, id, bulk.Canceled, gone, 0, 0)
	})
}

// AD-021: what an operation has failed to do of its last batch, and what it has skipped of it, is
// counted when it is canceled in the middle of the batch, as is what it has done.
func TestCancelCountsFailures(t *testing.T) {
	testkit.OnEveryStore(t, func(t *testing.T, p testkit.Database) {
		n := newNode(t, p.Store, p.Clock)
		n.submit(t, "mixed", 40)
		id := n.start(t, bulk.Request{Action: contract.ActionRerun}, "mixed")
		p.Clock.Advance(time.Second)
		for _, changed := range n.list(t, "mixed")[:2] {
			if _, err := n.engine.Change(t.Context(), changed.ID, job.Retried, nil); err != nil {
				t.Fatal(err)
			}
		}
		n.onRerun = func(j *job.Job) {
			if strings.HasSuffix(j.ID.Key, "13") {
				if err := n.change(t, id, bulk.Cancel); err != nil {
					t.Error(err)
				}
			}
		}
		n.runOnce(t)
		done := int64(len(n.list(t, "made")))
		o := n.want(t, id, bulk.Canceled, done, 2, 4)
		if len(o.Errors) != 4 || o.EndedAt.IsZero() || done > 34 {
			t.Errorf("AD-021 the canceled operation is %+v", o)
		}
		n.wait(t, time.Minute)
		if _, claimed := n.runOnce(t); claimed {
			t.Error("AD-021 it goes on after its end")
		}
		n.want(t, id, bulk.Canceled, done, 2, 4)
	})
}

// AD-021: a node that does not serve the job type of an operation, and so would find none of its
// jobs, leaves it to one that does. Until then the operation says why it waits.
func TestNodeWithoutTheJobType(t *testing.T) {
	testkit.OnEveryStore(t, func(t *testing.T, p testkit.Database) {
		n, other := newNode(t, p.Store, p.Clock), newNode(t, p.Store, p.Clock)
		other.ops.Contracts = nil
		n.submit(t, "a", 3)
		for _, r := range []bulk.Request{{Action: contract.ActionRetry},
			{Action: bulk.Replay, DeadLetters: &bulk.DeadLetterFilter{JobTypes: []string{made}}}} {
			id := n.start(t, r, "a")
			if o, claimed := other.runOnce(t); !claimed || o.On != job.Released || o.Delay == 0 {
				t.Fatalf("%s: the other node has %+v, %v", r.Action, o, claimed)
			}
			if o := n.want(t, id, bulk.Running, 0, 0, 0); o.Counted ||
				o.Reason != "waits for a node that serves made" {
				t.Errorf("%s: the other node has left %+v", r.Action, o)
			}
			n.wait(t, 2*time.Second)
			other.runOnce(t)
			n.wait(t, 2*time.Second)
			n.runOnce(t)
			done := map[string]int64{contract.ActionRetry: 3, bulk.Replay: 0}[r.Action]
			if o := n.want(t, id, bulk.Done, done, 0, 0); o.Reason != "" {
				t.Errorf("AD-021 %s: at its end the operation still says %q", r.Action, o.Reason)
			}
		}
	})
}
