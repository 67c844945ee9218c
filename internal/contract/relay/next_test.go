package relay_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/testkit"
)

// TestNext is section 5.4.
func TestNext(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		t.Run("what", func(t *testing.T) { testNextWhat(t, w) })
		t.Run("when", func(t *testing.T) { testNextWhen(t, w) })
		t.Run("num_jobs", func(t *testing.T) { testNumJobs(t, w) })
		t.Run("a name of a worker that is none", func(t *testing.T) {
			for _, version := range []string{"/v1", "/v2"} {
				for _, name := range []string{strings.Repeat("x", 256), "\xff"} {
					w.Do(t, "GET", version+"/queues/q/jobs", "", "Millrace-Worker",
						name).WantStatus(t, 422).WantErrorText(t, "Millrace-Worker")
				}
			}
		})
		t.Run("RL-042 concurrent_callers_share_nothing", func(t *testing.T) {
			testConcurrentNext(t, w)
		})
	})
}

func testNextWhat(t *testing.T, w *world) {
	t.Run("RL-036 jobs_with_all_members", func(t *testing.T) {
		run := w.clock.Now().Add(-time.Minute)
		w.put(t, jobBody("all", "1", `"timeout":9,"max_retries":3,"payload":{"p":1},"state":["s"]`,
			at(run)), jobBody("all", "2"))
		w.clock.Advance(time.Second)
		jobs := w.next(t, "all", 5)
		if len(jobs) != 2 {
			t.Fatalf("got %d jobs", len(jobs))
		}
		v := jobs[0]
		got := fmt.Sprint(v.Queue, v.ID, v.Timeout, number(v.MaxRetries),
			number(v.RetriesRemaining), string(v.Payload), string(v.State),
			v.RunAt, v.UpdatedAt, v.CreatedAt)
		want := fmt.Sprint("all", "1", 9, "3", "3", `{"p":1}`, `["s"]`, run, w.clock.Now(),
			w.clock.Now().Add(-time.Second))
		assertEqual(t, "job", got, want)
		if v.RunID == nil || jobs[1].RunID == nil || *v.RunID == *jobs[1].RunID {
			t.Error("the run ids are not fresh")
		}
	})
	t.Run("RL-036 answer_is_json_and_not_to_be_kept", func(t *testing.T) {
		w.put(t, jobBody("kept", "1"))
		r := w.Do(t, "GET", "/v2/queues/kept/jobs", "").WantStatus(t, 200)
		assertEqual(t, "content type", r.Header.Get("Content-Type"), "application/json")
		assertEqual(t, "cache", r.Header.Get("Cache-Control"), "no-store")
		assertEqual(t, "preference", r.Header.Get("Preference-Applied"), "")
	})
	t.Run("RL-038 nothing_available", func(t *testing.T) {
		w.put(t, jobBody("future", "1", at(w.clock.Now().Add(time.Hour))), jobBody("flying", "1"),
			jobBody("done", "1"))
		w.claim(t, "flying")
		w.Do(t, "DELETE", w.claim(t, "done").runPath(), "").WantStatus(t, 200)
		for _, queue := range []string{"unknown", "future", "flying", "done"} {
			r := w.Do(t, "GET", "/v2/queues/"+queue+"/jobs", "").WantStatus(t, 204).WantEmpty(t)
			assertEqual(t, "G-RL-19 cache", r.Header.Get("Cache-Control"), "no-store")
		}
	})
	t.Run("RL-043 only_the_named_queue", func(t *testing.T) {
		w.put(t, jobBody("named", "1"), jobBody("Named", "2"), jobBody("named ", "3"),
			jobBody("name", "4"))
		assertEqual(t, "jobs", ids(w.next(t, "named", 9)), "1")
	})
	t.Run("RL-044 in_flight_is_not_returned_again", func(t *testing.T) {
		w.put(t, jobBody("again", "timeout", `"timeout":10`), jobBody("again", "replace"),
			jobBody("again", "requeue"))
		jobs := w.next(t, "again", 9)
		assertEqual(t, "first", ids(jobs), "timeout replace requeue")
		assertEqual(t, "in flight", len(w.next(t, "again", 9)), 0)
		w.enqueue(t, "replace", jobBody("again", "replace")).WantStatus(t, 202)
		assertEqual(t, "replaced", ids(w.next(t, "again", 9)), "replace")
		w.Do(t, "PUT", jobs[2].runPath(), "["+jobBody("again", "requeue")+"]").WantStatus(t, 202)
		assertEqual(t, "requeued", ids(w.next(t, "again", 9)), "requeue")
		w.clock.Advance(10 * time.Second)
		assertEqual(t, "timed out", ids(w.next(t, "again", 9)), "timeout")
	})
	t.Run("RL-045 every_hand_out_has_another_run_id", func(t *testing.T) {
		w.put(t, jobBody("runs", "1", `"timeout":1`))
		seen := map[string]bool{}
		for range 5 {
			seen[*w.claim(t, "runs").RunID] = true
			w.clock.Advance(time.Second)
		}
		assertEqual(t, "run ids", len(seen), 5)
	})
	t.Run("RL-049 head_hands_out_nothing", func(t *testing.T) {
		w.put(t, jobBody("head", "1"))
		r := w.Do(t, "HEAD", "/v2/queues/head/jobs", "").WantStatus(t, 405).WantEmpty(t)
		assertEqual(t, "allow", r.Header.Get("Allow"), "GET")
		w.claim(t, "head")
	})
}

func testNextWhen(t *testing.T, w *world) {
	t.Run("RL-040 not_before_run_at", func(t *testing.T) {
		w.put(t, jobBody("due", "1", at(w.clock.Now().Add(time.Minute))))
		w.clock.Advance(time.Minute - time.Microsecond)
		w.runMaintenance(t)
		assertEqual(t, "before", len(w.next(t, "due", 1)), 0)
		w.clock.Advance(time.Microsecond)
		w.claim(t, "due")
	})
	t.Run("RL-041 by_run_at_then_insertion", func(t *testing.T) {
		now := w.clock.Now()
		w.put(t, jobBody("order", "c"), jobBody("order", "a", at(now.Add(-time.Hour))),
			jobBody("order", "d"),
			jobBody("order", "b", at(now.Add(-time.Minute))),
			jobBody("order", "later", at(now.Add(time.Minute))))
		w.put(t, jobBody("order", "e"))
		w.clock.Advance(time.Second)
		w.put(t, jobBody("order", "f"), jobBody("order", "0", at(now.Add(-2*time.Hour))))
		assertEqual(t, "first", ids(w.next(t, "order", 3)), "0 a b")
		assertEqual(t, "rest", ids(w.next(t, "order", 9)), "c d e f")
		w.clock.Advance(time.Minute)
		assertEqual(t, "due since, and timed out", ids(w.next(t, "order", 9)),
			"0 a b c d e f later")
	})
	t.Run("RL-041 what_has_lapsed_comes_before_younger_ones", func(t *testing.T) {
		w.put(t, jobBody("mixed", "old", `"timeout":1`))
		w.claim(t, "mixed")
		w.clock.Advance(time.Second)
		w.put(t, jobBody("mixed", "young"))
		assertEqual(t, "order", ids(w.next(t, "mixed", 2)), "old young")
	})
	t.Run("RL-041 ties_in_the_order_of_insertion", func(t *testing.T) {
		run := at(w.clock.Now().Add(time.Minute))
		var specs, want []string
		for i := range 30 {
			id := fmt.Sprint((i * 7) % 30)
			specs, want = append(specs, jobBody("ties", id, run)), append(want, id)
		}
		w.put(t, specs...)
		w.clock.Advance(time.Minute)
		w.runMaintenance(t)
		assertEqual(t, "order", ids(w.next(t, "ties", 30)), strings.Join(want, " "))
	})
	t.Run("RL-050 lease_is_timeout_after_hand_out_or_heartbeat", func(t *testing.T) {
		w.put(t, jobBody("lease", "1", `"timeout":10`))
		v := w.claim(t, "lease")
		w.clock.Advance(10*time.Second - time.Microsecond)
		w.runMaintenance(t)
		assertEqual(t, "held", len(w.next(t, "lease", 1)), 0)
		w.heartbeat(t, v, "").WantStatus(t, 202)
		w.clock.Advance(10*time.Second - time.Microsecond)
		w.runMaintenance(t)
		assertEqual(t, "still held", *w.get(t, "lease", "1").RunID, *v.RunID)
		w.clock.Advance(time.Microsecond)
		w.runMaintenance(t)
		assertEqual(t, "free", w.get(t, "lease", "1").RunID == nil, true)
		w.claim(t, "lease")
	})
	t.Run("G-RL-17_next_takes_what_has_lapsed", func(t *testing.T) {
		w.put(t, jobBody("lapsed", "1", `"timeout":5,"max_retries":2`))
		old := w.claim(t, "lapsed")
		w.clock.Advance(5 * time.Second)
		v := w.claim(t, "lapsed")
		assertEqual(t, "retries_remaining", number(v.RetriesRemaining), "1")
		w.wantLost(t, old)
	})
}

func testNumJobs(t *testing.T, w *world) {
	var specs []string
	for i := range 60 {
		specs = append(specs, jobBody("many", fmt.Sprint(i)))
	}
	w.put(t, specs...)
	for _, bad := range []string{"0", "-1", "x", "1.0", "", "1e3", "%2B1", "0x1", "1&num_jobs=1",
		"00"} {
		t.Run("RL-046 num_jobs_"+bad, func(t *testing.T) {
			w.Do(t, "GET", "/v2/queues/many/jobs?num_jobs="+bad, "").WantStatus(t,
				400).WantErrorText(t, "num_jobs")
		})
	}
	t.Run("RL-037 default_is_one", func(t *testing.T) {
		r := w.Do(t, "GET", "/v2/queues/many/jobs", "").WantStatus(t, 200)
		assertEqual(t, "jobs", strings.Count(r.Body, `"run_id"`), 1)
	})
	t.Run("RL-047 huge_values_are_capped", func(t *testing.T) {
		r := w.Do(t, "GET", "/v2/queues/many/jobs?num_jobs=99999999999999999999999999", "",
			beyondDocument, "1").WantStatus(t, 200)
		assertEqual(t, "jobs", strings.Count(r.Body, `"run_id"`), 50)
	})
	t.Run("RL-039 fewer_than_asked_for", func(t *testing.T) {
		assertEqual(t, "jobs", len(w.next(t, "many", 50)), 9)
	})
}

func testConcurrentNext(t *testing.T, w *world) {
	const jobs, callers = 300, 16
	var specs []string
	for i := range jobs {
		specs = append(specs, jobBody("crowd", fmt.Sprint(i)))
	}
	w.put(t, specs...)
	var mu sync.Mutex
	var wg sync.WaitGroup
	got := map[string]int{}
	for range callers {
		wg.Go(func() {
			for {
				batch := w.next(t, "crowd", 7)
				if len(batch) == 0 {
					return
				}
				mu.Lock()
				for _, v := range batch {
					got[v.ID]++
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	for range 3 { // a poll passes over rows that another transaction holds
		for _, v := range w.next(t, "crowd", 50) {
			got[v.ID]++
		}
	}
	assertEqual(t, "distinct jobs", len(got), jobs)
	for id, n := range got {
		assertEqual(t, "runs of "+id, n, 1)
	}
}

// TestLongPoll is G-RL-30.
func TestLongPoll(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		poll := func(t *testing.T, queue, prefer string) <-chan testkit.Reply {
			done := make(chan testkit.Reply, 1)
			go func() {
				done <- w.Do(t, "GET", "/v2/queues/"+queue+"/jobs?num_jobs=5", "", "Prefer", prefer)
			}()
			return done
		}
		t.Run("G-RL-30_answers_with_the_first_job", func(t *testing.T) {
			waiting := poll(t, "wait", "wait=20")
			w.put(t, jobBody("wait", "1"))
			r := (<-waiting).WantStatus(t, 200)
			assertEqual(t, "applied", r.Header.Get("Preference-Applied"), "wait=20")
			assertEqual(t, "jobs", strings.Count(r.Body, `"run_id"`), 1)
		})
		t.Run("G-RL-30_job_that_is_there_needs_no_wait", func(t *testing.T) {
			w.put(t, jobBody("there", "1"))
			r := w.Do(t, "GET", "/v2/queues/there/jobs", "", "Prefer", "wait=9999").WantStatus(t,
				200)
			assertEqual(t, "at most", r.Header.Get("Preference-Applied"), "wait=30")
		})
		t.Run("G-RL-30_zero_and_nonsense_do_not_wait", func(t *testing.T) {
			assertEqual(t, "zero", w.Do(t, "GET", "/v2/queues/none/jobs", "", "Prefer",
				"wait=0").WantStatus(t, 204).Header.Get("Preference-Applied"), "wait=0")
			assertEqual(t, "nonsense", w.Do(t, "GET", "/v2/queues/none/jobs", "", "Prefer",
				"wait=soon").WantStatus(t, 204).Header.Get("Preference-Applied"), "")
		})
		t.Run("G-RL-30_a_stopping_server_answers", func(t *testing.T) {
			waiting := poll(t, "stop", "wait=30")
			w.put(t, jobBody("running", "1")) // the poll need not have started: Close is final
			w.engine.Close()
			r := (<-waiting).WantStatus(t, 204).WantEmpty(t)
			assertEqual(t, "applied", r.Header.Get("Preference-Applied"), "wait=30")
		})
	})
}
