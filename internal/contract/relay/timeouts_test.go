package relay_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/contract/relay"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
)

// TestTimeouts is section 5.10.
func TestTimeouts(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		t.Run("RL-085 returns_to_its_queue", func(t *testing.T) {
			w.put(t, jobBody("back", "1", `"timeout":10`))
			v := w.claim(t, "back")
			w.clock.Advance(10 * time.Second)
			w.runMaintenance(t)
			got := w.get(t, "back", "1")
			assertEqual(t, "run_id", got.RunID == nil, true)
			w.wantLost(t, v)
			if again := w.claim(t, "back"); *again.RunID == *v.RunID {
				t.Error("the same run id twice")
			}
		})
		t.Run("RL-086 retries_remaining_falls", func(t *testing.T) {
			w.put(t, jobBody("falls", "1", `"timeout":10,"max_retries":3`))
			for _, left := range []string{"3", "2", "1", "0"} {
				v := w.claim(t, "falls")
				assertEqual(t, "retries_remaining", number(v.RetriesRemaining), left)
				assertEqual(t, "max_retries", number(v.MaxRetries), "3")
				w.clock.Advance(10 * time.Second)
			}
			assertEqual(t, "RL-087 none left", len(w.next(t, "falls", 1)), 0)
			w.wantGone(t, "falls", "1")
		})
		t.Run("RL-087 runs_max_retries_plus_one_times", func(t *testing.T) {
			w.put(t, jobBody("over", "1", `"timeout":10,"max_retries":0,"payload":"what was lost"`))
			v := w.claim(t, "over")
			w.clock.Advance(10 * time.Second)
			w.runMaintenance(t)
			w.wantGone(t, "over", "1")
			w.wantLost(t, v)
			dead, err := w.engine.DeadLetters(context.Background(),
				store.DeadLetterSelector{JobType: "relay", Limit: 1000})
			if err != nil {
				t.Fatal(err)
			}
			found := 0
			for _, d := range dead[0] {
				if d.Job.Queue == "over" && d.Job.ID.Key == "1" &&
					string(d.Job.Payload) == `"what was lost"` && d.Cause == job.ExpiredForGood {
					found++
				}
			}
			assertEqual(t, "G-RL-04 dead letters", found, 1)
			assertEqual(t, "lines of its end", strings.Count(w.log.String(),
				`level=WARN msg="a job failed for good" job_id=1 queue=over attempt=`), 1)
			w.put(t, jobBody("over", "1"))
		})
		t.Run("RL-088 without_limit_it_returns_for_ever", func(t *testing.T) {
			w.put(t, jobBody("unlimited", "1", `"timeout":1`))
			for range 40 {
				assertEqual(t, "retries_remaining",
					number(w.claim(t, "unlimited").RetriesRemaining), "null")
				w.clock.Advance(time.Second)
				w.runMaintenance(t)
			}
			w.get(t, "unlimited", "1")
		})
		t.Run("RL-089 never_returned_early", func(t *testing.T) {
			w.put(t, jobBody("early", "1", `"timeout":2147483647`),
				jobBody("early-b", "1", `"timeout":3`))
			w.claim(t, "early")
			v := w.claim(t, "early-b")
			w.clock.Advance(3*time.Second - time.Microsecond)
			w.runMaintenance(t)
			assertEqual(t, "short", *w.get(t, "early-b", "1").RunID, *v.RunID)
			w.clock.Advance(time.Hour)
			w.runMaintenance(t)
			assertEqual(t, "long", len(w.next(t, "early", 1)), 0)
			assertEqual(t, "short", w.get(t, "early-b", "1").RunID == nil, true)
		})
		t.Run("RL-090 timeout_0_expires_at_the_next_check", func(t *testing.T) {
			w.put(t, jobBody("zero", "1", `"timeout":0,"max_retries":1`))
			v := w.claim(t, "zero")
			assertEqual(t, "in flight", *w.get(t, "zero", "1").RunID, *v.RunID)
			w.heartbeat(t, v, "").WantStatus(t, 202)
			w.runMaintenance(t)
			w.wantLost(t, v)
			assertEqual(t, "retries_remaining", number(w.claim(t, "zero").RetriesRemaining), "0")
			w.runMaintenance(t)
			w.wantGone(t, "zero", "1")
		})
		t.Run("RL-091 old_run_is_dead", func(t *testing.T) {
			w.put(t, jobBody("dead", "1", `"timeout":1,"max_retries":5`))
			old := w.claim(t, "dead")
			w.clock.Advance(time.Second)
			w.runMaintenance(t)
			w.wantLost(t, old)
			v := w.claim(t, "dead")
			w.wantLost(t, old)
			w.heartbeat(t, v, "").WantStatus(t, 202)
		})
		t.Run("RL-092 only_timeouts_use_up_retries", func(t *testing.T) {
			w.put(t, jobBody("only", "1", `"timeout":5,"max_retries":2`))
			v := w.claim(t, "only")
			for range 5 {
				w.heartbeat(t, v, "1").WantStatus(t, 202)
			}
			assertEqual(t, "after heartbeats", number(w.get(t, "only", "1").RetriesRemaining), "2")
			w.clock.Advance(5 * time.Second)
			w.runMaintenance(t)
			assertEqual(t, "after a timeout", number(w.get(t, "only", "1").RetriesRemaining), "1")
			w.enqueue(t, "replace", jobBody("only", "1",
				`"timeout":5,"max_retries":2`)).WantStatus(t, 202)
			assertEqual(t, "after replace", number(w.get(t, "only", "1").RetriesRemaining), "2")
			w.claim(t, "only")
			w.clock.Advance(5 * time.Second)
			v = w.claim(t, "only")
			assertEqual(t, "after a timeout", number(v.RetriesRemaining), "1")
			w.Do(t, "PUT", v.runPath(), "["+jobBody("only", "1", `"max_retries":2`)+
				"]").WantStatus(t, 202)
			assertEqual(t, "after requeue", number(w.get(t, "only", "1").RetriesRemaining), "2")
		})
		t.Run("RL-094 run_at_is_unchanged", func(t *testing.T) {
			run := w.clock.Now().Add(-time.Minute)
			w.put(t, jobBody("older", "old", `"timeout":1`, at(run)))
			w.claim(t, "older")
			w.put(t, jobBody("older", "young"))
			w.clock.Advance(time.Second)
			w.runMaintenance(t)
			assertEqual(t, "run_at", w.get(t, "older", "old").RunAt, run)
			assertEqual(t, "order", ids(w.next(t, "older", 2)), "old young")
		})
		t.Run("RL-093 several_servers_count_a_timeout_once", func(t *testing.T) {
			testSeveralServers(t, w)
		})
	})
}

// testSeveralServers lets two servers on one store sweep and poll at once.
func testSeveralServers(t *testing.T, w *world) {
	s := w.store
	if w.reopenStore != nil {
		s = w.reopenStore(t)
	}
	other := newWorld(t, w.clock, s, config())
	var specs []string
	for _, id := range []string{"1", "2", "3", "4", "5", "6", "7", "8"} {
		specs = append(specs, jobBody("servers", id, `"timeout":5,"max_retries":6`))
	}
	w.put(t, specs...)
	for _, left := range []string{"6", "5", "4", "3"} {
		var mu sync.Mutex
		got := map[string]string{}
		var wg sync.WaitGroup
		for _, server := range []*world{w, other} {
			for range 3 {
				wg.Go(func() { _, _ = server.engine.Expire(context.Background()) })
			}
			for range 2 {
				wg.Go(func() {
					for _, v := range server.next(t, "servers", 3) {
						mu.Lock()
						if got[v.ID] != "" {
							t.Errorf("job %s was claimed twice", v.ID)
						}
						got[v.ID] = number(v.RetriesRemaining)
						mu.Unlock()
					}
				})
			}
		}
		wg.Wait()
		// what a poll passed over because another held it
		for _, v := range w.next(t, "servers", 8) {
			got[v.ID] = number(v.RetriesRemaining)
		}
		assertEqual(t, "jobs", len(got), 8)
		for id, retries := range got {
			assertEqual(t, "retries_remaining of "+id, retries, left)
		}
		w.clock.Advance(5 * time.Second)
	}
}

// TestMachine compares the whole table with what the requirements say. An attempt fails where its
// worker has recorded that in the database alone (TX-006).
func TestMachine(t *testing.T) {
	t.Parallel()
	want := map[[2]string]string{
		{"", "submitted"}:               "queued",
		{"queued", "replaced"}:          "queued",
		{"queued", "claimed"}:           "running",
		{"queued", "removed"}:           "",
		{"running", "succeeded"}:        "",
		{"running", "requeued"}:         "",
		{"running", "removed"}:          "",
		{"running", "replaced"}:         "queued",
		{"running", "released"}:         "queued",
		{"running", "expired"}:          "queued",
		{"running", "expired_for_good"}: "",
		{"running", "failed"}:           "queued",
		{"running", "failed_for_good"}:  "",
	}
	counts := map[job.Cause]bool{job.Expired: true, job.Failed: true}
	buries := map[job.Cause]bool{job.ExpiredForGood: true, job.FailedForGood: true}
	for _, from := range append(relay.Machine.States(), job.StateNone) {
		for _, on := range job.Causes() {
			tr, ok := relay.Machine.Next(from, on)
			to, wanted := want[[2]string{string(from), string(on)}]
			if ok != wanted || (ok && string(tr.To) != to) {
				t.Errorf("%q on %s leads to %q (%v), want %q (%v)", from, on, tr.To, ok, to, wanted)
			}
			assertEqual(t, "counts", tr.CountsFailed, ok && counts[on])
			assertEqual(t, "buries", tr.DeadLetter, ok && buries[on])
		}
	}
}
