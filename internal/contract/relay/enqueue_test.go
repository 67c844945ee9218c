package relay_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/contract/relay"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/store/sqlite"
	"github.com/millrace/millrace/internal/testkit"
)

// TestModes is section 5.2.
func TestModes(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		t.Run("RL-017 unique_conflict_stores_nothing", func(t *testing.T) {
			w.put(t, spec("unique", "old", `"payload":1`))
			w.enqueue(t, "unique", spec("unique", "new"), spec("unique", "old", `"payload":2`), spec("unique-b", "new")).Want(t, 409)
			w.gone(t, "unique", "new")
			w.gone(t, "unique-b", "new")
			equal(t, "payload", string(w.get(t, "unique", "old").Payload), "1")
		})
		t.Run("RL-018 ignore_leaves_existing_jobs", func(t *testing.T) {
			w.put(t, spec("ignore", "flying", `"payload":1`), spec("ignore", "waiting", `"payload":1`))
			v := w.claim(t, "ignore")
			before := w.Do(t, "GET", jobPath("ignore", "waiting"), "")
			w.clock.Advance(time.Second)
			w.enqueue(t, "ignore", spec("ignore", "flying", `"payload":2`), spec("ignore", "waiting", `"payload":2`), spec("ignore", "new")).
				Want(t, 202).Empty(t)
			equal(t, "in flight", *w.get(t, "ignore", "flying").RunID, *v.RunID)
			equal(t, "payload", string(w.get(t, "ignore", "flying").Payload), "1")
			equal(t, "waiting", w.Do(t, "GET", jobPath("ignore", "waiting"), "").Body, before.Body)
			w.get(t, "ignore", "new")
			w.beat(t, v, "").Want(t, 202)
		})
		t.Run("RL-019 replace_takes_out_of_flight", func(t *testing.T) {
			w.put(t, spec("replace", "1", `"max_retries":1,"state":"old","timeout":5`))
			w.claim(t, "replace")
			w.clock.Advance(6 * time.Second)
			v := w.claim(t, "replace")
			equal(t, "after one timeout", number(v.RetriesRemaining), "0")
			w.enqueue(t, "replace", spec("replace", "1", `"max_retries":4,"state":"new","payload":[1],"timeout":7`), spec("replace", "2")).
				Want(t, 202).Empty(t)
			got := w.get(t, "replace", "1")
			equal(t, "out of flight", got.RunID == nil, true)
			equal(t, "retries_remaining", number(got.RetriesRemaining), "4")
			equal(t, "state", string(got.State), `"new"`)
			equal(t, "payload", string(got.Payload), `[1]`)
			equal(t, "timeout", got.Timeout, 7)
			w.lost(t, v) // RL-020
			w.enqueue(t, "replace", spec("replace", "1")).Want(t, 202)
			equal(t, "no state given", string(w.get(t, "replace", "1").State), "null")
			equal(t, "no limit given", number(w.get(t, "replace", "1").MaxRetries), "null")
		})
		t.Run("RL-020 old_run_is_useless_after_replace", func(t *testing.T) {
			w.put(t, spec("useless", "1"))
			old := w.claim(t, "useless")
			w.enqueue(t, "replace", spec("useless", "1")).Want(t, 202)
			w.lost(t, old)
			next := w.claim(t, "useless")
			w.lost(t, old)
			w.beat(t, next, "").Want(t, 202)
		})
		t.Run("RL-019 replace_may_move_run_at", func(t *testing.T) {
			w.put(t, spec("move", "1"))
			w.enqueue(t, "replace", spec("move", "1", at(w.clock.Now().Add(time.Hour)))).Want(t, 202)
			equal(t, "before", len(w.next(t, "move", 1)), 0)
			w.enqueue(t, "replace", spec("move", "1")).Want(t, 202)
			w.claim(t, "move")
		})
		t.Run("RL-021 default_and_unknown_mode", func(t *testing.T) {
			w.put(t, spec("mode", "1"))
			w.enqueue(t, "", spec("mode", "1")).Want(t, 409)
			for _, mode := range []string{"uniqe", "UNIQUE", "", "replace&mode=ignore", "%zz"} {
				w.Do(t, "POST", "/v2/queues/jobs?mode="+mode, "["+spec("mode", "2")+"]").Want(t, 400).Explains(t, "mode")
			}
			w.gone(t, "mode", "2")
		})
		t.Run("RL-022 twice_in_one_batch", func(t *testing.T) {
			batch := func(queue string) []string {
				return []string{spec(queue, "1", `"payload":1`), spec(queue, "other"), spec(queue, "1", `"payload":2`)}
			}
			w.enqueue(t, "unique", batch("twice-unique")...).Want(t, 409)
			w.gone(t, "twice-unique", "1")
			w.gone(t, "twice-unique", "other")
			w.enqueue(t, "ignore", batch("twice-ignore")...).Want(t, 202)
			equal(t, "first wins", string(w.get(t, "twice-ignore", "1").Payload), "1")
			w.enqueue(t, "replace", batch("twice-replace")...).Want(t, 202)
			equal(t, "last wins", string(w.get(t, "twice-replace", "1").Payload), "2")
			w.enqueue(t, "replace", batch("twice-replace")...).Want(t, 202)
			equal(t, "last wins again", string(w.get(t, "twice-replace", "1").Payload), "2")
		})
	})
}

// TestEnqueue is section 5.3.
func TestEnqueue(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		t.Run("RL-023 accepted_with_empty_body", func(t *testing.T) {
			w.enqueue(t, "unique", spec("accepted", "1")).Want(t, 202).Empty(t)
		})
		t.Run("RL-024 several_queues_one_transaction", func(t *testing.T) {
			w.put(t, spec("several-a", "1"), spec("several-b", "1"), spec("several-a", "2"))
			equal(t, "a", ids(w.next(t, "several-a", 9)), "1 2")
			equal(t, "b", ids(w.next(t, "several-b", 9)), "1")
			w.enqueue(t, "", spec("several-c", "1"), spec("several-b", "1")).Want(t, 409)
			w.gone(t, "several-c", "1")
		})
		t.Run("RL-025 empty_array", func(t *testing.T) {
			for _, mode := range []string{"unique", "ignore", "replace"} {
				w.enqueue(t, mode).Want(t, 202).Empty(t)
			}
		})
		t.Run("RL-027 conflict_names_the_job", func(t *testing.T) {
			w.put(t, spec("named queue", "named id"))
			w.enqueue(t, "", spec("named queue", "fine"), spec("named queue", "named id")).Want(t, 409).
				Explains(t, "named queue", "named id")
		})
		t.Run("RL-034 visible_to_another_connection", func(t *testing.T) {
			if w.again == nil {
				return // a database in memory has one connection; TestCrash has its file
			}
			w.put(t, spec("durable", "1", `"payload":"kept"`))
			err := w.again(t).View(context.Background(), func(r store.Reader) error {
				jobs, err := r.Get([]job.ID{{Contract: "relay", Scope: "durable", Key: "1"}})
				if err == nil && (len(jobs) != 1 || string(jobs[0].Payload) != `"kept"`) {
					t.Errorf("got %v", jobs)
				}
				return err
			})
			if err != nil {
				t.Error(err)
			}
		})
		t.Run("RL-035 visible_at_once", func(t *testing.T) {
			w.put(t, spec("visible", "now"), spec("visible", "later", at(w.clock.Now().Add(time.Hour))))
			w.get(t, "visible", "now")
			equal(t, "run_at", w.get(t, "visible", "later").RunAt, w.clock.Now().Add(time.Hour))
		})
	})
}

// TestBadBodies is what is refused before the engine sees it.
func TestBadBodies(t *testing.T) {
	t.Parallel()
	w := inMemory(t, config())
	deep := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	for _, c := range []struct {
		id, body string
		status   int
		words    []string
	}{
		{"RL-026 no_json", `{"queue"`, 400, []string{"JSON"}},
		{"RL-026 nothing", ` `, 400, nil},
		{"RL-026 trailing_data", `[] []`, 400, nil},
		{"RL-026 trailing_comma", `[` + spec("bad", "1") + `,]`, 400, nil},
		{"RL-026 object", spec("bad", "1"), 400, []string{"object", "array"}},
		{"RL-026 null", `null`, 400, []string{"array"}},
		{"RL-026 string", `"x"`, 400, nil},
		{"RL-026 number_in_array", `[7]`, 400, []string{"job 0", "object"}},
		{"RL-026 null_in_array", `[` + spec("bad", "1") + `,null]`, 400, []string{"job 1"}},
		{"RL-026 invalid_utf8", "[" + spec("bad", "1", "\"payload\":\"\xff\"") + "]", 400, []string{"UTF-8"}},
		{"RL-026 invalid_utf8_in_id", "[{\"queue\":\"bad\",\"id\":\"\xc3\x28\",\"timeout\":1,\"payload\":1}]", 400, nil},
		{"RL-026 nested_513_deep", "[" + spec("bad", "1", `"payload":`+deep(511)) + "]", 400, []string{"512"}},
		{"RL-026 queue_number", `[{"queue":7,"id":"1","timeout":1,"payload":1}]`, 400, []string{"queue", "string"}},
		{"RL-026 id_null", `[{"queue":"bad","id":null,"timeout":1,"payload":1}]`, 400, []string{"id", "string"}},
		{"RL-026 malformed_before_beyond", `[` + spec("", "1") + `,` + spec("bad", "1", `"timeout":"x"`) + `]`, 400, []string{"job 1"}},
		{"RL-026 malformed_before_beyond_in_one", `[` + spec("", "1", `"timeout":"x"`) + `]`, 400, []string{"timeout"}},
		{"RL-028 empty_queue", "[" + spec("", "1") + "]", 422, []string{"queue"}},
		{"RL-028 empty_id", "[" + spec("bad", "") + "]", 422, []string{"id"}},
		{"RL-028 nul_in_queue", `[{"queue":"a\u0000b","id":"1","timeout":1,"payload":1}]`, 422, []string{"queue"}},
		{"RL-028 nul_in_id", `[{"queue":"bad","id":"\u0000","timeout":1,"payload":1}]`, 422, []string{"id"}},
		{"RL-028 lone_surrogate_in_id", `[{"queue":"bad","id":"\ud800","timeout":1,"payload":1}]`, 422, []string{"id"}},
		{"RL-028 second_job_beyond", `[` + spec("bad", "1") + `,` + spec("bad", "2", `"timeout":-1`) + `]`, 422, []string{"job 1", "timeout"}},
	} {
		t.Run(c.id, func(t *testing.T) {
			w.Do(t, "POST", "/v2/queues/jobs", c.body).Want(t, c.status).Explains(t, c.words...) // RL-031
			w.put(t, spec("running", c.id))
			v := w.claim(t, "running")
			w.Do(t, "PUT", v.runPath(), c.body).Want(t, c.status).Explains(t, c.words...)
			w.Do(t, "DELETE", v.runPath(), "").Want(t, 200)
		})
	}
	equal(t, "jobs stored", len(w.next(t, "bad", 50)), 0)
	for _, contentType := range []string{"", "text/plain", "application/x-www-form-urlencoded", "application/jsonx", "json", "application/json+x;;"} {
		t.Run("RL-032 content_type_"+contentType, func(t *testing.T) {
			w.Do(t, "POST", "/v2/queues/jobs", "[]", "Content-Type", contentType).Want(t, 415).Explains(t, "Content-Type")
		})
	}
	for _, contentType := range []string{"application/json", "application/json; charset=utf-8", "Application/JSON", "application/vnd.x+json"} {
		t.Run("RL-032 json_by_another_name_"+contentType, func(t *testing.T) {
			w.Do(t, "POST", "/v2/queues/jobs", "[]", "Content-Type", contentType, beyondDocument, "1").Want(t, 202)
		})
	}
}

// TestBodyLimit is RL-033 and G-RL-25.
func TestBodyLimit(t *testing.T) {
	t.Parallel()
	w := inMemory(t, config())
	fits := spec("limit", "fits", `"payload":"`+strings.Repeat("x", bodyLimit-100)+`"`)
	w.put(t, fits+strings.Repeat(" ", bodyLimit-2-len(fits)))
	w.claim(t, "limit")
	over := "[" + fits + strings.Repeat(" ", bodyLimit-1-len(fits)) + "]"
	run := jobPath("limit", "x") + "/run-id/00000000-0000-8000-8000-000000000000"
	for _, c := range []struct{ method, path string }{{"POST", "/v2/queues/jobs"}, {"PUT", run}, {"PATCH", run}, {"DELETE", run},
		{"GET", "/v2/queues/limit/jobs"}, {"GET", jobPath("limit", "fits")}, {"POST", "/v1/queues/jobs"}} {
		t.Run("RL-033 too_large_"+c.method+"_"+c.path, func(t *testing.T) {
			w.Do(t, c.method, c.path, over).Want(t, 413).Explains(t, "1048576")
		})
		t.Run("RL-033 too_large_in_chunks_"+c.method+"_"+c.path, func(t *testing.T) {
			req, err := http.NewRequest(c.method, w.URL+c.path, io.MultiReader(strings.NewReader(over)))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Content-Type", "application/json")
			resp, err := w.Client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			equal(t, "status", resp.StatusCode, 413)
		})
	}
}

// TestCrash is RL-034 on a database file: what a copy of the files holds at the
// moment of the answer is what a crash leaves.
func TestCrash(t *testing.T) {
	t.Parallel()
	t.Run("RL-034 jobs_survive", func(t *testing.T) {
		clock, dir := testkit.NewClock(), t.TempDir()
		open := func(dir string) store.Store {
			s, err := sqlite.Open(context.Background(), sqlite.Config{Path: filepath.Join(dir, "jobs.db"), Now: clock.Now})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { s.Close() })
			return s
		}
		w := newWorld(t, clock, open(dir), config())
		w.put(t, spec("crash", "1", `"payload":"kept"`), spec("crash", "2"))
		run := w.claim(t, "crash")
		left := t.TempDir()
		if err := os.CopyFS(left, os.DirFS(dir)); err != nil {
			t.Fatal(err)
		}
		w = newWorld(t, clock, open(left), config())
		equal(t, "payload", string(w.get(t, "crash", "1").Payload), `"kept"`)
		w.beat(t, run, "").Want(t, 202)
		equal(t, "next", ids(w.next(t, "crash", 9)), "2")
	})
}

// TestRequestLog: nothing is logged of requests that went well, or that were
// refused, at the level of production.
func TestRequestLog(t *testing.T) {
	t.Parallel()
	w := inMemory(t, config())
	w.put(t, spec("log", "1"))
	w.enqueue(t, "", spec("log", "1")).Want(t, 409)
	if log := w.log.String(); log != "" {
		t.Errorf("the log says %s", log)
	}
}

// A request holds at most so many jobs; one more is too large, whatever the
// body limit (docs/decisions/0009).
func TestBatchLimit(t *testing.T) {
	t.Parallel()
	body := []byte("[")
	for i := range relay.MaxBatch + 1 {
		body = fmt.Appendf(body, `{"queue":"q","id":"%d","timeout":1,"payload":0},`, i)
	}
	body[len(body)-1] = ']'
	if _, err := relay.DecodeJobs(body); !job.IsKind(err, job.TooLarge) {
		t.Errorf("%d jobs: %v", relay.MaxBatch+1, err)
	}
	last := bytes.LastIndexByte(body, '{') - 1
	body[last] = ']'
	if batch, err := relay.DecodeJobs(body[:last+1]); err != nil || len(batch) != relay.MaxBatch {
		t.Errorf("%d jobs: %d, %v", relay.MaxBatch, len(batch), err)
	}
}
