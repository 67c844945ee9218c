package relay_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/contract/relay"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/testkit"
)

// endRequest returns path and body of a request that completes runs and takes up to n jobs.
func endRequest(n int, runs ...jobView) (path, body string) {
	var entries []string
	for _, v := range runs {
		entries = append(entries, runEntry(v))
	}
	return fmt.Sprintf("%s?next=%d", completions, n), "[" + strings.Join(entries, ",") + "]"
}

// endAndTake completes runs of one queue and takes up to n of its jobs.
func (w *world) endAndTake(t testing.TB, n int, runs ...jobView) []jobView {
	t.Helper()
	path, body := endRequest(n, runs...)
	return claimedJobs(t, w.Do(t, "POST", path, body), n)
}

// TestEndsWithNext is G-RL-35.
func TestEndsWithNext(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		t.Run("what", func(t *testing.T) { testEndsWithNextWhat(t, w) })
		t.Run("whom", func(t *testing.T) { testEndsWithNextWhom(t, w) })
		t.Run("refused", func(t *testing.T) { testEndsWithNextRefused(t, w) })
		t.Run("crowd", func(t *testing.T) { testEndsWithNextCrowd(t, w) })
	})
}

func testEndsWithNextWhat(t *testing.T, w *world) {
	t.Run("the_answer_is_that_of_next", func(t *testing.T) {
		w.put(t, jobBody("taken / ü", "1"), jobBody("taken / ü", "2",
			`"timeout":9,"max_retries":3,"payload":{"p":1.0},"state":["s"]`),
			jobBody("taken / ü", "3"), jobBody("another", "4"))
		first := w.claim(t, "taken / ü")
		w.clock.Advance(time.Second)
		path, body := endRequest(1, first)
		r := w.Do(t, "POST", path, body).WantStatus(t, 200)
		w.wantGone(t, "taken / ü", "1")
		shown := w.Do(t, "GET", jobPath("taken / ü", "2"), "").Body
		assertEqual(t, "job", r.Body, "["+strings.TrimSpace(shown)+"]")
		var second []jobView
		if err := json.Unmarshal([]byte(r.Body), &second); err != nil || second[0].RunID == nil {
			t.Fatalf("%s, %v", r.Body, err)
		}
		assertEqual(t, "retries", number(second[0].RetriesRemaining), "3")
		w.heartbeat(t, second[0], "").WantStatus(t, 202)
		third := w.endAndTake(t, 9, second...)
		assertEqual(t, "third", ids(third), "3")
		r = w.Do(t, "POST", completions+"?next=9", "["+runEntry(third[0])+"]").WantStatus(t, 204).
			WantEmpty(t)
		assertEqual(t, "drain", r.Header.Get("Millrace-Drain"), "")
		w.wantGone(t, "taken / ü", "3")
	})
	t.Run("several_ends_and_several_jobs_in_order", func(t *testing.T) {
		now := w.clock.Now()
		w.put(t, jobBody("many", "a"), jobBody("many", "b"), jobBody("many", "c"))
		runs := w.next(t, "many", 3)
		w.put(t, jobBody("many", "4"), jobBody("many", "1", at(now.Add(-2*time.Hour))),
			jobBody("many", "5"), jobBody("many", "2", at(now.Add(-time.Hour))),
			jobBody("many", "later", at(now.Add(time.Minute))),
			jobBody("many", "3", at(now.Add(-time.Minute))))
		taken := w.endAndTake(t, 4, runs[1], runs[0])
		assertEqual(t, "first", ids(taken), "1 2 3 4")
		w.wantGone(t, "many", "a")
		w.wantGone(t, "many", "b")
		assertEqual(t, "in flight", *w.get(t, "many", "c").RunID, *runs[2].RunID)
		assertEqual(t, "rest", ids(w.endAndTake(t, 4, runs[2])), "5")
	})
	t.Run("each_claim_is_an_attempt", func(t *testing.T) {
		w.put(t, jobBody("attempts", "0"), jobBody("attempts", "1", `"timeout":1,"max_retries":1`))
		before := w.claim(t, "attempts")
		taken := w.endAndTake(t, 1, before)
		for want := range 2 {
			assertEqual(t, "taken", ids(taken), "1")
			assertEqual(t, "retries", number(taken[0].RetriesRemaining), fmt.Sprint(1-want))
			w.clock.Advance(time.Second)
			w.runMaintenance(t)
			w.wantLost(t, taken[0])
			taken = w.endAndTake(t, 1, before) // the run is lost, which the header tells
		}
		assertEqual(t, "out of retries", ids(taken), "")
		w.wantGone(t, "attempts", "1")
	})
	t.Run("no_more_than_the_setting", func(t *testing.T) {
		var specs []string
		for i := range 60 {
			specs = append(specs, jobBody("cap", fmt.Sprint(i)))
		}
		w.put(t, specs...)
		_, body := endRequest(1, w.claim(t, "cap"))
		r := w.Do(t, "POST", completions+"?next=99999999999999999999", body, beyondDocument, "1")
		assertEqual(t, "jobs", len(claimedJobs(t, r, 50)), 50)
	})
}

// TestLostRunsHeader is G-RL-36: answers whose body does not tell which runs were lost have a
// header that does.
func TestLostRunsHeader(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		const header = "Millrace-Lost-Runs"
		lost := lostRuns(t, w, "lost")
		w.put(t, jobBody("lost", "a"), jobBody("lost", "b"), jobBody("lost", "c"))
		current := w.next(t, "lost", 9)
		for i, v := range lost {
			r := w.Do(t, "DELETE", v.runPath(), "").WantStatus(t, 200)
			assertEqual(t, fmt.Sprint("completion ", i), r.Header.Get(header), "0")
			r = w.Do(t, "PUT", v.runPath(), "[]").WantStatus(t, 202)
			assertEqual(t, fmt.Sprint("requeue ", i), r.Header.Get(header), "0")
		}
		last := current[len(current)-1]
		path, body := endRequest(1, append(append(lost[:2:2], current[:2]...), lost[2:]...)...)
		r := w.Do(t, "POST", path, body).WantStatus(t, 204)
		assertEqual(t, "lost", r.Header.Get(header), "0,1,4,5,6,7,8,9")
		path, body = endRequest(1, current[2])
		r = w.Do(t, "POST", path, body).WantStatus(t, 204)
		assertEqual(t, "none lost", len(r.Header.Values(header)), 0)
		for _, v := range current[3 : len(current)-1] {
			r = w.Do(t, "PUT", v.runPath(), "[]").WantStatus(t, 202)
			assertEqual(t, "requeued", len(r.Header.Values(header)), 0)
		}
		r = w.Do(t, "DELETE", last.runPath(), "").WantStatus(t, 200)
		assertEqual(t, "completed", len(r.Header.Values(header)), 0)

		path, body = endRequest(1, slices.Repeat([]jobView{last}, 1001)...)
		r = w.Do(t, "POST", path, body).WantStatus(t, 204)
		assertEqual(t, "named", len(strings.Split(r.Header.Get(header), ",")), 1000)
	})
}

func testEndsWithNextWhom(t *testing.T, w *world) {
	set := func(t *testing.T, s job.QueueSettings) {
		t.Helper()
		s.JobType = relay.Name
		if err := w.engine.SetQueue(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("a_lost_run_changes_nothing_and_takes", func(t *testing.T) {
		for i, v := range lostRuns(t, w, "fenced") {
			before := w.Do(t, "GET", jobPath(v.Queue, v.ID), "")
			w.put(t, jobBody("fenced", fmt.Sprint("next ", i), at(w.clock.Now().Add(-time.Hour))))
			taken := w.endAndTake(t, 1, v)
			assertEqual(t, "taken", ids(taken), fmt.Sprint("next ", i))
			after := w.Do(t, "GET", jobPath(v.Queue, v.ID), "")
			assertEqual(t, v.ID, after.Body, before.Body)
			w.Do(t, "DELETE", taken[0].runPath(), "").WantStatus(t, 200)
		}
	})
	t.Run("a_wrong_run_leaves_the_current_one", func(t *testing.T) {
		w.put(t, jobBody("stale", "1"), jobBody("stale", "2"))
		current := w.claim(t, "stale")
		wrong := current
		wrong.RunID = new(string)
		*wrong.RunID = "12345678-1234-8123-8123-123456789abc"
		assertEqual(t, "taken", ids(w.endAndTake(t, 5, wrong)), "2")
		assertEqual(t, "run", *w.get(t, "stale", "1").RunID, *current.RunID)
	})
	t.Run("a_paused_queue_gives_none", func(t *testing.T) {
		w.put(t, jobBody("paused", "1"), jobBody("paused", "2"))
		v := w.claim(t, "paused")
		set(t, job.QueueSettings{Queue: "paused", Paused: true})
		assertEqual(t, "paused", ids(w.endAndTake(t, 1, v)), "")
		w.wantGone(t, "paused", "1")
		set(t, job.QueueSettings{Queue: "paused"})
		assertEqual(t, "resumed", ids(w.endAndTake(t, 1, v)), "2")
	})
	t.Run("the_slot_of_the_end_is_free", func(t *testing.T) {
		set(t, job.QueueSettings{Queue: "limited", MaxRunning: 1})
		w.put(t, jobBody("limited", "1"), jobBody("limited", "2"), jobBody("limited", "3"))
		v := w.claim(t, "limited")
		taken := w.endAndTake(t, 3, v)
		assertEqual(t, "taken", ids(taken), "2")
		assertEqual(t, "of a lost run", ids(w.endAndTake(t, 3, v)), "")
	})
	t.Run("a_drained_worker_ends_and_gets_none", func(t *testing.T) {
		w.put(t, jobBody("drained", "1"), jobBody("drained", "2"))
		path, body := endRequest(1, w.claim(t, "drained"))
		for _, draining := range []bool{true, false} {
			if err := w.engine.SetDrain(t.Context(), engine.DrainWorker, "tired", draining,
				func(engine.RecordWriter, bool) error { return nil }); err != nil {
				t.Fatal(err)
			}
			r := w.Do(t, "POST", path, body, "Millrace-Worker", "tired")
			if draining {
				r.WantStatus(t, 204).WantEmpty(t)
				assertEqual(t, "drain", r.Header.Get("Millrace-Drain"), "true")
				w.wantGone(t, "drained", "1")
				continue
			}
			assertEqual(t, "resumed", ids(claimedJobs(t, r, 1)), "2")
		}
	})
}

// What cannot be done is refused as a whole: the run goes on, and no job is taken.
func testEndsWithNextRefused(t *testing.T, w *world) {
	w.put(t, jobBody("kept", "1"), jobBody("kept", "2"), jobBody("kept too", "3"))
	v, other := w.claim(t, "kept"), w.claim(t, "kept too")
	w.put(t, jobBody("kept too", "4"))
	good := "[" + runEntry(v) + "]"
	for _, tt := range []struct {
		query, body string
		status      int
		text        string
	}{
		{"next=0", good, 400, "next must be a whole number"},
		{"next=-1", good, 400, "next must be a whole number"},
		{"next=", good, 400, "next must be a whole number"},
		{"next=1.0", good, 400, "next must be a whole number"},
		{"next=one", good, 400, "next must be a whole number"},
		{"next=1&next=1", good, 400, "next is given twice"},
		{"next=1&num_jobs=1", good, 400, `unknown query parameter "num_jobs"`},
		{"Next=1", good, 400, `unknown query parameter "Next"`},
		{"next=1", "[]", 400, "with next there must be a run"},
		{"next=1", "[" + runEntry(v) + "," + runEntry(v) + "," + runEntry(other) + "]", 400,
			"run 2: its queue is another"},
		{"next=1", "[" + runEntry(v) + ",{}]", 400, "run 1: queue is missing"},
		{"next=1", good[:9], 400, "JSON"},
		{"next=1", `{"runs":` + good + `}`, 400, "array of runs"},
	} {
		w.Do(t, "POST", completions+"?"+tt.query, tt.body).WantStatus(t, tt.status).
			WantErrorText(t, tt.text)
	}
	for _, name := range []string{strings.Repeat("x", 256), "\xff"} {
		w.Do(t, "POST", completions+"?next=1", good, "Millrace-Worker", name).WantStatus(t, 422).
			WantErrorText(t, "Millrace-Worker")
	}
	w.Do(t, "POST", heartbeats+"?next=1", good).WantStatus(t, 400)
	w.Do(t, "DELETE", v.runPath()+"?next=1", "").WantStatus(t, 400)
	w.heartbeat(t, v, "").WantStatus(t, 202)
	w.heartbeat(t, other, "").WantStatus(t, 202)
	assertEqual(t, "kept", ids(w.next(t, "kept", 5)), "2")
	assertEqual(t, "kept too", ids(w.next(t, "kept too", 5)), "4")
}

// Workers that go from job to job by such ends get each job once, and end it once.
func testEndsWithNextCrowd(t *testing.T, w *world) {
	const jobs, workers = 200, 12
	var specs []string
	for i := range jobs {
		specs = append(specs, jobBody("crowd / next", fmt.Sprint(i)))
	}
	w.put(t, specs...)
	var mu sync.Mutex
	var wg sync.WaitGroup
	got := map[string]int{}
	for i := range workers {
		wg.Go(func() {
			for {
				claimed := w.next(t, "crowd / next", 1+i%3)
				if len(claimed) == 0 {
					return
				}
				for len(claimed) > 0 {
					mu.Lock()
					for _, v := range claimed {
						got[v.ID]++
					}
					mu.Unlock()
					claimed = w.endAndTake(t, 1+i%3, claimed...)
				}
			}
		})
	}
	wg.Wait()
	for _, v := range w.next(t, "crowd / next", 50) { // what other transactions held
		got[v.ID]++
	}
	for i := range jobs {
		assertEqual(t, fmt.Sprint("runs of ", i), got[fmt.Sprint(i)], 1)
	}
}

// TestEndsWithNextLostAnswer: when the commit's answer was lost the request is retryable, the run
// has ended, and the job that was taken returns when its lease ends.
func TestEndsWithNextLostAnswer(t *testing.T) {
	t.Parallel()
	clock := testkit.NewClock()
	f := &lostAnswer{Store: testkit.MemoryStore(t, clock.Now)}
	w := newWorld(t, clock, f, config())
	w.put(t, jobBody("lost", "1"), jobBody("lost", "2", `"timeout":5`))
	path, body := endRequest(1, w.claim(t, "lost"))
	f.next.Store(true)
	w.Do(t, "POST", path, body).WantStatus(t, 429)
	w.wantGone(t, "lost", "1")
	assertEqual(t, "leased", w.get(t, "lost", "2").RunID != nil, true)
	w.Do(t, "POST", path, body).WantStatus(t, 204)
	w.clock.Advance(5 * time.Second)
	w.runMaintenance(t)
	assertEqual(t, "returned", ids(claimedJobs(t, w.Do(t, "POST", path, body), 1)), "2")
}

// TestEndsWithNextMetrics: ends and claims count as those of single requests do.
func TestEndsWithNextMetrics(t *testing.T) {
	t.Parallel()
	w := inMemory(t, config())
	w.put(t, jobBody("m", "1"), jobBody("m", "2"), jobBody("m", "3"))
	first := w.claim(t, "m")
	w.clock.Advance(2 * time.Second)
	w.endAndTake(t, 5, first)
	w.endAndTake(t, 5, first)
	for name, want := range map[string]float64{"relay_completed_total": 1, "relay_fetched_total": 3,
		"relay_latency_seconds": 3, "relay_duration_seconds": 1} {
		got, _ := w.metric(t, name, map[string]string{"queue": "m"})
		assertEqual(t, name, got, want)
	}
}
