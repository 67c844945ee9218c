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
		t.Run("RL-042 concurrent_callers_share_nothing", func(t *testing.T) { testConcurrentNext(t, w) })
	})
}

func testNextWhat(t *testing.T, w *world) {
	t.Run("RL-036 jobs_with_all_members", func(t *testing.T) {
		run := w.clock.Now().Add(-time.Minute)
		w.put(t, spec("all", "1", `"timeout":9,"max_retries":3,"payload":{"p":1},"state":["s"]`, at(run)), spec("all", "2"))
		w.clock.Advance(time.Second)
		jobs := w.next(t, "all", 5)
		if len(jobs) != 2 {
			t.Fatalf("got %d jobs", len(jobs))
		}
		v := jobs[0]
		got := fmt.Sprint(v.Queue, v.ID, v.Timeout, number(v.MaxRetries), number(v.RetriesRemaining), string(v.Payload), string(v.State),
			v.RunAt, v.UpdatedAt, v.CreatedAt)
		want := fmt.Sprint("all", "1", 9, "3", "3", `{"p":1}`, `["s"]`, run, w.clock.Now(), w.clock.Now().Add(-time.Second))
		equal(t, "job", got, want)
		if v.RunID == nil || jobs[1].RunID == nil || *v.RunID == *jobs[1].RunID {
			t.Error("the run ids are not fresh")
		}
	})
	t.Run("RL-036 answer_is_json_and_not_to_be_kept", func(t *testing.T) {
		w.put(t, spec("kept", "1"))
		r := w.Do(t, "GET", "/v2/queues/kept/jobs", "").Want(t, 200)
		equal(t, "content type", r.Header.Get("Content-Type"), "application/json")
		equal(t, "cache", r.Header.Get("Cache-Control"), "no-store")
		equal(t, "preference", r.Header.Get("Preference-Applied"), "")
	})
	t.Run("RL-038 nothing_available", func(t *testing.T) {
		w.put(t, spec("future", "1", at(w.clock.Now().Add(time.Hour))), spec("flying", "1"), spec("done", "1"))
		w.claim(t, "flying")
		w.Do(t, "DELETE", w.claim(t, "done").runPath(), "").Want(t, 200)
		for _, queue := range []string{"unknown", "future", "flying", "done"} {
			r := w.Do(t, "GET", "/v2/queues/"+queue+"/jobs", "").Want(t, 204).Empty(t)
			equal(t, "G-RL-19 cache", r.Header.Get("Cache-Control"), "no-store")
		}
	})
	t.Run("RL-043 only_the_named_queue", func(t *testing.T) {
		w.put(t, spec("named", "1"), spec("Named", "2"), spec("named ", "3"), spec("name", "4"))
		equal(t, "jobs", ids(w.next(t, "named", 9)), "1")
	})
	t.Run("RL-044 in_flight_is_not_returned_again", func(t *testing.T) {
		w.put(t, spec("again", "timeout", `"timeout":10`), spec("again", "replace"), spec("again", "requeue"))
		jobs := w.next(t, "again", 9)
		equal(t, "first", ids(jobs), "timeout replace requeue")
		equal(t, "in flight", len(w.next(t, "again", 9)), 0)
		w.enqueue(t, "replace", spec("again", "replace")).Want(t, 202)
		equal(t, "replaced", ids(w.next(t, "again", 9)), "replace")
		w.Do(t, "PUT", jobs[2].runPath(), "["+spec("again", "requeue")+"]").Want(t, 202)
		equal(t, "requeued", ids(w.next(t, "again", 9)), "requeue")
		w.clock.Advance(10 * time.Second)
		equal(t, "timed out", ids(w.next(t, "again", 9)), "timeout")
	})
	t.Run("RL-045 every_hand_out_has_another_run_id", func(t *testing.T) {
		w.put(t, spec("runs", "1", `"timeout":1`))
		seen := map[string]bool{}
		for range 5 {
			seen[*w.claim(t, "runs").RunID] = true
			w.clock.Advance(time.Second)
		}
		equal(t, "run ids", len(seen), 5)
	})
	t.Run("RL-049 head_hands_out_nothing", func(t *testing.T) {
		w.put(t, spec("head", "1"))
		r := w.Do(t, "HEAD", "/v2/queues/head/jobs", "").Want(t, 405).Empty(t)
		equal(t, "allow", r.Header.Get("Allow"), "GET")
		w.claim(t, "head")
	})
}

func testNextWhen(t *testing.T, w *world) {
	t.Run("RL-040 not_before_run_at", func(t *testing.T) {
		w.put(t, spec("due", "1", at(w.clock.Now().Add(time.Minute))))
		w.clock.Advance(time.Minute - time.Microsecond)
		w.sweep(t)
		equal(t, "before", len(w.next(t, "due", 1)), 0)
		w.clock.Advance(time.Microsecond)
		w.claim(t, "due")
	})
	t.Run("RL-041 by_run_at_then_insertion", func(t *testing.T) {
		now := w.clock.Now()
		w.put(t, spec("order", "c"), spec("order", "a", at(now.Add(-time.Hour))), spec("order", "d"),
			spec("order", "b", at(now.Add(-time.Minute))), spec("order", "later", at(now.Add(time.Minute))))
		w.put(t, spec("order", "e"))
		w.clock.Advance(time.Second)
		w.put(t, spec("order", "f"), spec("order", "0", at(now.Add(-2*time.Hour))))
		equal(t, "first", ids(w.next(t, "order", 3)), "0 a b")
		equal(t, "rest", ids(w.next(t, "order", 9)), "c d e f")
		w.clock.Advance(time.Minute)
		equal(t, "due since, and timed out", ids(w.next(t, "order", 9)), "0 a b c d e f later")
	})
	t.Run("RL-041 what_has_lapsed_comes_before_younger_ones", func(t *testing.T) {
		w.put(t, spec("mixed", "old", `"timeout":1`))
		w.claim(t, "mixed")
		w.clock.Advance(time.Second)
		w.put(t, spec("mixed", "young"))
		equal(t, "order", ids(w.next(t, "mixed", 2)), "old young")
	})
	t.Run("RL-041 ties_in_the_order_of_insertion", func(t *testing.T) {
		run := at(w.clock.Now().Add(time.Minute))
		var specs, want []string
		for i := range 30 {
			id := fmt.Sprint((i * 7) % 30)
			specs, want = append(specs, spec("ties", id, run)), append(want, id)
		}
		w.put(t, specs...)
		w.clock.Advance(time.Minute)
		w.sweep(t)
		equal(t, "order", ids(w.next(t, "ties", 30)), strings.Join(want, " "))
	})
	t.Run("RL-050 lease_is_timeout_after_hand_out_or_heartbeat", func(t *testing.T) {
		w.put(t, spec("lease", "1", `"timeout":10`))
		v := w.claim(t, "lease")
		w.clock.Advance(10*time.Second - time.Microsecond)
		w.sweep(t)
		equal(t, "held", len(w.next(t, "lease", 1)), 0)
		w.beat(t, v, "").Want(t, 202)
		w.clock.Advance(10*time.Second - time.Microsecond)
		w.sweep(t)
		equal(t, "still held", *w.get(t, "lease", "1").RunID, *v.RunID)
		w.clock.Advance(time.Microsecond)
		w.sweep(t)
		equal(t, "free", w.get(t, "lease", "1").RunID == nil, true)
		w.claim(t, "lease")
	})
	t.Run("G-RL-17_next_takes_what_has_lapsed", func(t *testing.T) {
		w.put(t, spec("lapsed", "1", `"timeout":5,"max_retries":2`))
		old := w.claim(t, "lapsed")
		w.clock.Advance(5 * time.Second)
		v := w.claim(t, "lapsed")
		equal(t, "retries_remaining", number(v.RetriesRemaining), "1")
		w.lost(t, old)
	})
}

func testNumJobs(t *testing.T, w *world) {
	var specs []string
	for i := range 60 {
		specs = append(specs, spec("many", fmt.Sprint(i)))
	}
	w.put(t, specs...)
	for _, bad := range []string{"0", "-1", "x", "1.0", "", "1e3", "%2B1", "0x1", "1&num_jobs=1", "00"} {
		t.Run("RL-046 num_jobs_"+bad, func(t *testing.T) {
			w.Do(t, "GET", "/v2/queues/many/jobs?num_jobs="+bad, "").Want(t, 400).Explains(t, "num_jobs")
		})
	}
	t.Run("RL-037 default_is_one", func(t *testing.T) {
		r := w.Do(t, "GET", "/v2/queues/many/jobs", "").Want(t, 200)
		equal(t, "jobs", strings.Count(r.Body, `"run_id"`), 1)
	})
	t.Run("RL-047 huge_values_are_capped", func(t *testing.T) {
		r := w.Do(t, "GET", "/v2/queues/many/jobs?num_jobs=99999999999999999999999999", "", beyondDocument, "1").Want(t, 200)
		equal(t, "jobs", strings.Count(r.Body, `"run_id"`), 50)
	})
	t.Run("RL-039 fewer_than_asked_for", func(t *testing.T) {
		equal(t, "jobs", len(w.next(t, "many", 50)), 9)
	})
}

func testConcurrentNext(t *testing.T, w *world) {
	const jobs, callers = 300, 16
	var specs []string
	for i := range jobs {
		specs = append(specs, spec("crowd", fmt.Sprint(i)))
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
	equal(t, "distinct jobs", len(got), jobs)
	for id, n := range got {
		equal(t, "runs of "+id, n, 1)
	}
}

// TestLongPoll is G-RL-30.
func TestLongPoll(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		poll := func(t *testing.T, queue, prefer string) <-chan testkit.Reply {
			done := make(chan testkit.Reply, 1)
			go func() { done <- w.Do(t, "GET", "/v2/queues/"+queue+"/jobs?num_jobs=5", "", "Prefer", prefer) }()
			return done
		}
		t.Run("G-RL-30_answers_with_the_first_job", func(t *testing.T) {
			waiting := poll(t, "wait", "wait=20")
			w.put(t, spec("wait", "1"))
			r := (<-waiting).Want(t, 200)
			equal(t, "applied", r.Header.Get("Preference-Applied"), "wait=20")
			equal(t, "jobs", strings.Count(r.Body, `"run_id"`), 1)
		})
		t.Run("G-RL-30_job_that_is_there_needs_no_wait", func(t *testing.T) {
			w.put(t, spec("there", "1"))
			r := w.Do(t, "GET", "/v2/queues/there/jobs", "", "Prefer", "wait=9999").Want(t, 200)
			equal(t, "at most", r.Header.Get("Preference-Applied"), "wait=30")
		})
		t.Run("G-RL-30_zero_and_nonsense_do_not_wait", func(t *testing.T) {
			equal(t, "zero", w.Do(t, "GET", "/v2/queues/none/jobs", "", "Prefer", "wait=0").Want(t, 204).Header.Get("Preference-Applied"), "wait=0")
			equal(t, "nonsense", w.Do(t, "GET", "/v2/queues/none/jobs", "", "Prefer", "wait=soon").Want(t, 204).Header.Get("Preference-Applied"), "")
		})
		t.Run("G-RL-30_a_stopping_server_answers", func(t *testing.T) {
			waiting := poll(t, "stop", "wait=30")
			w.put(t, spec("running", "1")) // the poll need not have begun: Close is final
			w.engine.Close()
			r := (<-waiting).Want(t, 204).Empty(t)
			equal(t, "applied", r.Header.Get("Preference-Applied"), "wait=30")
		})
	})
}
