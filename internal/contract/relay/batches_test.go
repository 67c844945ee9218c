package relay_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/contract/relay"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/testkit"
)

const (
	completions = "/v2/queues/completions"
	heartbeats  = "/v2/queues/heartbeats"
)

// runEntry writes a run for the routes about several; extra are further members as JSON.
func runEntry(v jobView, extra ...string) string {
	members := append([]string{`"queue":` + quote(v.Queue), `"id":` + quote(v.ID),
		`"run_id":"` + *v.RunID + `"`}, extra...)
	return "{" + strings.Join(members, ",") + "}"
}

// runs sends entries and returns which of them were known. The answer must name them in their
// order.
func (w *world) runs(t testing.TB, path string, entries ...string) (known []bool) {
	t.Helper()
	type run struct {
		ID    string `json:"id"`
		RunID string `json:"run_id"`
		Known *bool  `json:"known"`
	}
	body := "[" + strings.Join(entries, ",") + "]"
	r := w.Do(t, "POST", path, body).WantStatus(t, 200)
	var sent, got []run
	if err := json.Unmarshal([]byte(body), &sent); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(r.Body), &got); err != nil || len(got) != len(sent) {
		t.Fatalf("%d entries were sent, the answer is %s", len(sent), r.Body)
	}
	for i := range got {
		if got[i].ID != sent[i].ID || got[i].RunID != sent[i].RunID || got[i].Known == nil {
			t.Fatalf("entry %d was %s, the answer is %s", i, entries[i], r.Body)
		}
		known = append(known, *got[i].Known)
	}
	return known
}

func wantKnown(t testing.TB, got []bool, want ...bool) {
	t.Helper()
	assertEqual(t, "known", fmt.Sprint(got), fmt.Sprint(want))
}

// lostRuns is one run for each way in which a run can be lost, with its job as it stays.
func lostRuns(t *testing.T, w *world, queue string) (all []jobView) {
	w.put(t, jobBody(queue, "completed"), jobBody(queue, "deleted"), jobBody(queue, "replaced"),
		jobBody(queue, "requeued"), jobBody(queue, "timed out", `"timeout":1`))
	all = w.next(t, queue, 5)
	w.Do(t, "DELETE", all[0].runPath(), "").WantStatus(t, 200)
	w.Do(t, "DELETE", jobPath(queue, "deleted"), "").WantStatus(t, 200)
	w.enqueue(t, "replace", jobBody(queue, "replaced")).WantStatus(t, 202)
	w.Do(t, "PUT", all[3].runPath(), "["+jobBody(queue, "requeued")+"]").WantStatus(t, 202)
	w.clock.Advance(time.Second)
	w.runMaintenance(t)
	made := all[2]
	made.RunID = new(string)
	*made.RunID = "12345678-1234-8123-8123-123456789abc"
	unknown := made
	unknown.ID = "unknown"
	zero := made
	zero.RunID = new(string)
	*zero.RunID = "00000000-0000-0000-0000-000000000000"
	return append(all, made, unknown, zero)
}

// TestCompletions is the ends of several runs, G-RL-32.
func TestCompletions(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		t.Run("each_entry_by_itself_in_order", func(t *testing.T) {
			queues := []string{"ends", "ends / ü", "completions", "heartbeats", "jobs"}
			var entries []string
			var want []bool
			for _, queue := range queues {
				w.put(t, jobBody(queue, "a/b"), jobBody(queue, `"\`+"\t"))
				for _, v := range w.next(t, queue, 2) {
					entries, want = append(entries, runEntry(v)), append(want, true)
				}
			}
			w.put(t, jobBody("ends", "kept"))
			kept := w.claim(t, "ends")
			crossed := kept
			crossed.Queue = "ends / ü"
			entries, want = append(entries, runEntry(crossed)), append(want, false)
			for i, v := range lostRuns(t, w, "ends lost") {
				at := i * 2 % len(entries)
				entries = append(entries[:at:at], append([]string{runEntry(v)}, entries[at:]...)...)
				want = append(want[:at:at], append([]bool{false}, want[at:]...)...)
			}
			wantKnown(t, w.runs(t, completions, entries...), want...)
			for _, queue := range queues {
				w.wantGone(t, queue, "a/b")
				w.wantGone(t, queue, `"\`+"\t")
			}
			assertEqual(t, "kept", *w.get(t, "ends", "kept").RunID, *kept.RunID)
			for _, id := range []string{"replaced", "requeued", "timed out"} {
				assertEqual(t, id, w.get(t, "ends lost", id).RunID == nil, true)
			}
			assertEqual(t, "repeated", strings.Contains(fmt.Sprint(w.runs(t, completions,
				entries...)), "true"), false)
		})
		t.Run("twice_in_one_batch", func(t *testing.T) {
			w.put(t, jobBody("twice ended", "1"), jobBody("twice ended", "2"))
			v := w.next(t, "twice ended", 2)
			upper := v[0]
			upper.RunID = new(string)
			*upper.RunID = strings.ToUpper(*v[0].RunID)
			wantKnown(t, w.runs(t, completions, runEntry(upper), runEntry(v[1]), runEntry(v[0])),
				true, true, false)
		})
		t.Run("a_run_that_nobody_has_swept", func(t *testing.T) { // G-RL-18
			w.put(t, jobBody("late end", "1", `"timeout":1`))
			v := w.claim(t, "late end")
			w.clock.Advance(time.Minute)
			wantKnown(t, w.runs(t, completions, runEntry(v, `"state":1`)), true)
			w.wantGone(t, "late end", "1")
		})
		t.Run("none", func(t *testing.T) {
			r := w.Do(t, "POST", completions, " [ ] ").WantStatus(t, 200)
			assertEqual(t, "body", r.Body, "[]")
		})
		t.Run("more_than_one_group_of_the_engine", func(t *testing.T) {
			const n = 2500
			specs := make([]string, n)
			for i := range specs {
				specs[i] = jobBody("many ends", fmt.Sprint(i))
			}
			w.put(t, specs...)
			var entries []string
			for len(entries) < n {
				for _, v := range w.next(t, "many ends", config().MaxNumJobs) {
					entries = append(entries, runEntry(v))
				}
			}
			for i, known := range w.runs(t, heartbeats, entries...) {
				assertEqual(t, fmt.Sprint("heartbeat ", i), known, true)
			}
			for i, known := range w.runs(t, completions, entries...) {
				assertEqual(t, fmt.Sprint("end ", i), known, true)
			}
			w.wantGone(t, "many ends", "0")
			w.wantGone(t, "many ends", fmt.Sprint(n-1))
		})
	})
}

// TestHeartbeats is the heartbeats of several runs, G-RL-32.
func TestHeartbeats(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		t.Run("each_entry_by_itself_in_order", func(t *testing.T) {
			lost := lostRuns(t, w, "beside")
			w.put(t, jobBody("renewed / 1", "a", `"timeout":10,"state":1`),
				jobBody("renewed / 1", "b", `"timeout":10,"state":2`),
				jobBody("renewed / 1", "c", `"timeout":10,"state":3`),
				jobBody("renewed / 1", "d", `"timeout":10`))
			v := w.next(t, "renewed / 1", 4)
			w.clock.Advance(9 * time.Second)
			var entries []string
			for _, l := range lost {
				entries = append(entries, runEntry(l, `"state":"lost"`))
			}
			entries = append(entries, runEntry(v[0]), runEntry(v[1], `"state": {"b" : 1.0} `),
				runEntry(lost[0]), runEntry(v[2], `"state":null`))
			wantKnown(t, w.runs(t, heartbeats, entries...), false, false, false, false, false,
				false, false, false, true, true, false, true)
			w.clock.Advance(9 * time.Second)
			w.runMaintenance(t)
			for i, state := range []string{"1", `{"b" : 1.0}`, "null"} {
				got := w.get(t, v[i].Queue, v[i].ID)
				assertEqual(t, "state of "+v[i].ID, string(got.State), state)
				assertEqual(t, "run of "+v[i].ID, *got.RunID, *v[i].RunID)
			}
			w.wantLost(t, v[3]) // it was not in the batch
			for _, id := range []string{"replaced", "requeued", "timed out"} {
				assertEqual(t, id, string(w.get(t, "beside", id).State), "null")
			}
		})
		t.Run("twice_in_one_batch", func(t *testing.T) {
			w.put(t, jobBody("twice renewed", "1"))
			v := w.claim(t, "twice renewed")
			wantKnown(t, w.runs(t, heartbeats, runEntry(v, `"state":1`), runEntry(v, `"state":2`),
				runEntry(v)), true, true, true)
			assertEqual(t, "state", string(w.get(t, v.Queue, v.ID).State), "2")
		})
		t.Run("none", func(t *testing.T) {
			assertEqual(t, "body", w.Do(t, "POST", heartbeats, "[]").WantStatus(t, 200).Body, "[]")
		})
	})
}

// TestRunBatchesRefused: what is wrong in one entry refuses the request, names the entry and
// changes nothing. What cannot be understood counts before what is beyond a limit, as in an
// enqueue.
func TestRunBatchesRefused(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		w.put(t, jobBody("refusal", "1", `"state":0`))
		v := w.claim(t, "refusal")
		before := w.Do(t, "GET", jobPath("refusal", "1"), "").Body
		w.clock.Advance(time.Second)
		good := runEntry(v, `"state":1`)
		entry := func(queue, id, run string) string {
			return `{"queue":` + queue + `,"id":` + id + `,"run_id":` + run + `}`
		}
		run, long := `"`+*v.RunID+`"`, quote(strings.Repeat("ü", 1025))
		for _, tt := range []struct {
			body   string
			status int
			text   string
		}{
			{`[` + good, 400, "JSON"},
			{``, 415, ""},
			{good, 400, "array of runs"},
			{`null`, 400, "array of runs"},
			{`[` + good + `,1]`, 400, "run 1: a run must be an object"},
			{`[` + good + `,{"id":"1","run_id":` + run + `}]`, 400, "run 1: queue is missing"},
			{`[` + good + `,{"queue":"q","run_id":` + run + `}]`, 400, "run 1: id is missing"},
			{`[` + good + `,{"queue":"q","id":"1"}]`, 400, "run 1: run_id is missing"},
			{`[` + good + `,` + entry(`1`, `"1"`, run) + `]`, 400, "run 1: queue must be a string"},
			{`[` + good + `,` + entry(`"q"`, `null`, run) + `]`, 400, "run 1: id must be a string"},
			{`[` + entry(`"q"`, `"1"`, `7`) + `]`, 400, "run 0: run_id must be a string"},
			{`[` + good + `,` + entry(`"q"`, `"1"`, `"x"`) + `]`, 400,
				"run 1: run_id is not a UUID"},
			{`[` + good + `,` + entry(`"q"`, `"1"`, `"\ud800"`) + `]`, 400,
				"run 1: run_id is not a UUID"},
			{`[` + good + `,` + entry(`""`, `"1"`, run) + `]`, 422, "run 1: queue is empty"},
			{`[` + good + `,` + entry(`"q"`, `""`, run) + `]`, 422, "run 1: id is empty"},
			{`[` + good + `,` + entry(long, `"1"`, run) + `]`, 422, "run 1: queue is longer"},
			{`[` + good + `,` + entry(`"q"`, long, run) + `]`, 422, "run 1: id is longer"},
			{`[` + good + `,` + entry(`"\u0000"`, `"1"`, run) + `]`, 422, "run 1: queue"},
			{`[` + entry(`""`, `"1"`, run) + `,` + entry(`"q"`, `"1"`, `"x"`) + `]`, 400, "run 1"},
			{`[` + strings.Repeat(" ", bodyLimit) + good + `]`, 413, ""},
		} {
			for _, path := range []string{completions, heartbeats} {
				w.Do(t, "POST", path, tt.body).WantStatus(t, tt.status).WantErrorText(t, tt.text)
			}
		}
		for _, path := range []string{completions, heartbeats} {
			w.Do(t, "POST", path, "["+good+"]", "Content-Type", "text/plain").WantStatus(t, 415)
			w.Do(t, "POST", path+"?mode=unique", "["+good+"]").WantStatus(t, 400)
		}
		assertEqual(t, "job", w.Do(t, "GET", jobPath("refusal", "1"), "").Body, before)
		wantKnown(t, w.runs(t, heartbeats, runEntry(v, `"more":[]`)), true)
	})
}

// TestRunBatchLimit: a request names at most so many runs as another may submit jobs.
func TestRunBatchLimit(t *testing.T) {
	t.Parallel()
	body := []byte("[")
	for i := range relay.MaxBatch + 1 {
		body = fmt.Appendf(body,
			`{"queue":"q","id":"%d","run_id":"12345678-1234-8123-8123-123456789abc"},`, i)
	}
	body[len(body)-1] = ']'
	if n, err := relay.DecodeRuns(body); !job.IsKind(err, job.TooLarge) {
		t.Errorf("%d runs: %d, %v", relay.MaxBatch+1, n, err)
	}
	last := bytes.LastIndexByte(body, '{') - 1
	body[last] = ']'
	if n, err := relay.DecodeRuns(body[:last+1]); err != nil || n != relay.MaxBatch {
		t.Errorf("%d runs: %d, %v", relay.MaxBatch, n, err)
	}
}

// TestRunBatchCrowd: of many requests that end the same runs, in batches that overlap and one by
// one, each end counts once, and heartbeats beside them bring no run back.
func TestRunBatchCrowd(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		const jobs = 40
		for round := range 3 {
			queue := fmt.Sprint("crowd / ", round)
			var specs []string
			for i := range jobs {
				specs = append(specs, jobBody(queue, fmt.Sprint(i)))
			}
			w.put(t, specs...)
			runs := w.next(t, queue, jobs)
			var mu sync.Mutex
			ended := map[string]int{}
			var all sync.WaitGroup
			for caller := range 8 {
				var entries []string
				for i := range 30 {
					// Callers go through the runs in different directions and overlap.
					at := (caller*7 + i*[]int{1, jobs - 1}[caller%2]) % jobs
					entries = append(entries, runEntry(runs[at]))
				}
				all.Go(func() {
					path := []string{completions, heartbeats}[caller/6]
					for i, known := range w.runs(t, path, entries...) {
						if known && path == completions {
							mu.Lock()
							ended[entries[i]]++
							mu.Unlock()
						}
					}
				})
			}
			all.Wait()
			for _, run := range runs {
				if n := ended[runEntry(run)]; n != 1 {
					t.Errorf("run %s of job %s was ended %d times", *run.RunID, run.ID, n)
				}
				w.wantGone(t, queue, run.ID)
			}
		}
	})
}

// TestRunBatchMetrics: entries that are known count as single requests do, the others nowhere.
func TestRunBatchMetrics(t *testing.T) {
	t.Parallel()
	w := inMemory(t, config())
	w.put(t, jobBody("m", "1"), jobBody("m", "2"), jobBody("n", "1"))
	m, n := w.next(t, "m", 2), w.claim(t, "n")
	w.clock.Advance(2 * time.Second)
	entries := []string{runEntry(m[0]), runEntry(n), runEntry(m[1]), runEntry(m[0])}
	w.runs(t, heartbeats, entries...)
	w.runs(t, completions, entries...)
	w.runs(t, heartbeats, entries...)
	w.Do(t, "POST", completions, "[1]").WantStatus(t, 400)
	for name, want := range map[string]float64{"m relay_heartbeat_total": 3,
		"n relay_heartbeat_total": 1, "m relay_completed_total": 2, "n relay_completed_total": 1,
		"m relay_duration_seconds": 2, "n relay_duration_seconds": 1} {
		queue, metric, _ := strings.Cut(name, " ")
		got, _ := w.metric(t, metric, map[string]string{"queue": queue})
		assertEqual(t, name, got, want)
	}
	for code, want := range map[string]float64{"2xx": 1, "4xx": 1} {
		got, _ := w.metric(t, "relay_http_request_duration_seconds",
			map[string]string{"route": "POST " + completions, "code": code})
		assertEqual(t, "requests "+code, got, want)
	}
	malformed, _ := w.metric(t, "relay_errors_total", map[string]string{"type": "malformed"})
	assertEqual(t, "errors", malformed, 1)
}

// TestRunBatchLostAnswer: when a commit's answer was lost the request is retryable, and the repeat
// shows the runs as lost that the first one has ended.
func TestRunBatchLostAnswer(t *testing.T) {
	t.Parallel()
	clock := testkit.NewClock()
	f := &lostAnswer{Store: testkit.MemoryStore(t, clock.Now)}
	w := newWorld(t, clock, f, config())
	w.put(t, jobBody("lost", "1"), jobBody("lost", "2"))
	v := w.next(t, "lost", 2)
	body := "[" + runEntry(v[0]) + "," + runEntry(v[1]) + "]"
	f.next.Store(true)
	w.Do(t, "POST", heartbeats, body).WantStatus(t, 429)
	wantKnown(t, w.runs(t, heartbeats, runEntry(v[0]), runEntry(v[1])), true, true)
	f.next.Store(true)
	w.Do(t, "POST", completions, body).WantStatus(t, 429)
	wantKnown(t, w.runs(t, completions, runEntry(v[0]), runEntry(v[1])), false, false)
	w.wantGone(t, "lost", "1")
	w.wantGone(t, "lost", "2")
}
