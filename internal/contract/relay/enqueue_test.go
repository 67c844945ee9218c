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
			w.put(t, jobBody("unique", "old", `"payload":1`))
			w.enqueue(t, "unique", jobBody("unique", "new"),
				jobBody("unique", "old", `"payload":2`), jobBody("unique-b", "new")).WantStatus(t,
				409)
			w.wantGone(t, "unique", "new")
			w.wantGone(t, "unique-b", "new")
			assertEqual(t, "payload", string(w.get(t, "unique", "old").Payload), "1")
		})
		t.Run("RL-018 ignore_leaves_existing_jobs", func(t *testing.T) {
			w.put(t, jobBody("ignore", "flying", `"payload":1`),
				jobBody("ignore", "waiting", `"payload":1`))
			v := w.claim(t, "ignore")
			before := w.Do(t, "GET", jobPath("ignore", "waiting"), "")
			w.clock.Advance(time.Second)
			w.enqueue(t, "ignore", jobBody("ignore", "flying", `"payload":2`),
				jobBody("ignore", "waiting", `"payload":2`), jobBody("ignore", "new")).
				WantStatus(t, 202).WantEmpty(t)
			assertEqual(t, "in flight", *w.get(t, "ignore", "flying").RunID, *v.RunID)
			assertEqual(t, "payload", string(w.get(t, "ignore", "flying").Payload), "1")
			assertEqual(t, "waiting", w.Do(t, "GET", jobPath("ignore", "waiting"), "").Body,
				before.Body)
			w.get(t, "ignore", "new")
			w.heartbeat(t, v, "").WantStatus(t, 202)
		})
		t.Run("RL-019 replace_takes_out_of_flight", func(t *testing.T) {
			w.put(t, jobBody("replace", "1", `"max_retries":1,"state":"old","timeout":5`))
			w.claim(t, "replace")
			w.clock.Advance(6 * time.Second)
			v := w.claim(t, "replace")
			assertEqual(t, "after one timeout", number(v.RetriesRemaining), "0")
			w.enqueue(t, "replace", jobBody("replace", "1",
				`"max_retries":4,"state":"new","payload":[1],"timeout":7`),
				jobBody("replace", "2")).
				WantStatus(t, 202).WantEmpty(t)
			got := w.get(t, "replace", "1")
			assertEqual(t, "out of flight", got.RunID == nil, true)
			assertEqual(t, "retries_remaining", number(got.RetriesRemaining), "4")
			assertEqual(t, "state", string(got.State), `"new"`)
			assertEqual(t, "payload", string(got.Payload), `[1]`)
			assertEqual(t, "timeout", got.Timeout, 7)
			w.wantLost(t, v) // RL-020
			w.enqueue(t, "replace", jobBody("replace", "1")).WantStatus(t, 202)
			assertEqual(t, "no state given", string(w.get(t, "replace", "1").State), "null")
			assertEqual(t, "no limit given", number(w.get(t, "replace", "1").MaxRetries), "null")
		})
		t.Run("RL-020 old_run_is_useless_after_replace", func(t *testing.T) {
			w.put(t, jobBody("useless", "1"))
			old := w.claim(t, "useless")
			w.enqueue(t, "replace", jobBody("useless", "1")).WantStatus(t, 202)
			w.wantLost(t, old)
			next := w.claim(t, "useless")
			w.wantLost(t, old)
			w.heartbeat(t, next, "").WantStatus(t, 202)
		})
		t.Run("RL-019 replace_may_move_run_at", func(t *testing.T) {
			w.put(t, jobBody("move", "1"))
			w.enqueue(t, "replace", jobBody("move", "1",
				at(w.clock.Now().Add(time.Hour)))).WantStatus(t, 202)
			assertEqual(t, "before", len(w.next(t, "move", 1)), 0)
			w.enqueue(t, "replace", jobBody("move", "1")).WantStatus(t, 202)
			w.claim(t, "move")
		})
		t.Run("RL-021 default_and_unknown_mode", func(t *testing.T) {
			w.put(t, jobBody("mode", "1"))
			w.enqueue(t, "", jobBody("mode", "1")).WantStatus(t, 409)
			for _, mode := range []string{"uniqe", "UNIQUE", "", "replace&mode=ignore", "%zz"} {
				w.Do(t, "POST", "/v2/queues/jobs?mode="+mode,
					"["+jobBody("mode", "2")+"]").WantStatus(t, 400).WantErrorText(t, "mode")
			}
			w.wantGone(t, "mode", "2")
		})
		t.Run("RL-022 twice_in_one_batch", func(t *testing.T) {
			batch := func(queue string) []string {
				return []string{jobBody(queue, "1", `"payload":1`), jobBody(queue, "other"),
					jobBody(queue, "1", `"payload":2`)}
			}
			w.enqueue(t, "unique", batch("twice-unique")...).WantStatus(t, 409)
			w.wantGone(t, "twice-unique", "1")
			w.wantGone(t, "twice-unique", "other")
			w.enqueue(t, "ignore", batch("twice-ignore")...).WantStatus(t, 202)
			assertEqual(t, "first wins", string(w.get(t, "twice-ignore", "1").Payload), "1")
			w.enqueue(t, "replace", batch("twice-replace")...).WantStatus(t, 202)
			assertEqual(t, "last wins", string(w.get(t, "twice-replace", "1").Payload), "2")
			w.enqueue(t, "replace", batch("twice-replace")...).WantStatus(t, 202)
			assertEqual(t, "last wins again", string(w.get(t, "twice-replace", "1").Payload), "2")
		})
	})
}

// TestEnqueue is section 5.3.
func TestEnqueue(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		t.Run("RL-023 accepted_with_empty_body", func(t *testing.T) {
			w.enqueue(t, "unique", jobBody("accepted", "1")).WantStatus(t, 202).WantEmpty(t)
		})
		t.Run("RL-024 several_queues_one_transaction", func(t *testing.T) {
			w.put(t, jobBody("several-a", "1"), jobBody("several-b", "1"),
				jobBody("several-a", "2"))
			assertEqual(t, "a", ids(w.next(t, "several-a", 9)), "1 2")
			assertEqual(t, "b", ids(w.next(t, "several-b", 9)), "1")
			w.enqueue(t, "", jobBody("several-c", "1"), jobBody("several-b", "1")).WantStatus(t,
				409)
			w.wantGone(t, "several-c", "1")
		})
		t.Run("RL-025 empty_array", func(t *testing.T) {
			for _, mode := range []string{"unique", "ignore", "replace"} {
				w.enqueue(t, mode).WantStatus(t, 202).WantEmpty(t)
			}
		})
		t.Run("RL-027 conflict_names_the_job", func(t *testing.T) {
			w.put(t, jobBody("named queue", "named id"))
			w.enqueue(t, "", jobBody("named queue", "fine"),
				jobBody("named queue", "named id")).WantStatus(t, 409).
				WantErrorText(t, "named queue", "named id")
		})
		t.Run("RL-034 visible_to_another_connection", func(t *testing.T) {
			if w.reopenStore == nil {
				return // a database in memory has one connection; TestCrash has its file
			}
			w.put(t, jobBody("durable", "1", `"payload":"kept"`))
			err := w.reopenStore(t).View(context.Background(), func(r store.Reader) error {
				jobs, err := r.Load(store.Selector{
					IDs:    []job.ID{{JobType: "relay", Scope: "durable", Key: "1"}},
					Bodies: store.AllBodies,
				})
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
			w.put(t, jobBody("visible", "now"),
				jobBody("visible", "later", at(w.clock.Now().Add(time.Hour))))
			w.get(t, "visible", "now")
			assertEqual(t, "run_at", w.get(t, "visible", "later").RunAt,
				w.clock.Now().Add(time.Hour))
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
		{"RL-026 trailing_comma", `[` + jobBody("bad", "1") + `,]`, 400, nil},
		{"RL-026 object", jobBody("bad", "1"), 400, []string{"object", "array"}},
		{"RL-026 null", `null`, 400, []string{"array"}},
		{"RL-026 string", `"x"`, 400, nil},
		{"RL-026 number_in_array", `[7]`, 400, []string{"job 0", "object"}},
		{"RL-026 null_in_array", `[` + jobBody("bad", "1") + `,null]`, 400, []string{"job 1"}},
		{"RL-026 invalid_utf8", "[" + jobBody("bad", "1", "\"payload\":\"\xff\"") + "]", 400,
			[]string{"UTF-8"}},
		{"RL-026 invalid_utf8_in_id",
			"[{\"queue\":\"bad\",\"id\":\"\xc3\x28\",\"timeout\":1,\"payload\":1}]", 400, nil},
		{"RL-026 nested_513_deep", "[" + jobBody("bad", "1", `"payload":`+deep(511)) + "]", 400,
			[]string{"512"}},
		{"RL-026 queue_number", `[{"queue":7,"id":"1","timeout":1,"payload":1}]`, 400,
			[]string{"queue", "string"}},
		{"RL-026 id_null", `[{"queue":"bad","id":null,"timeout":1,"payload":1}]`, 400,
			[]string{"id", "string"}},
		{"RL-026 malformed_before_beyond",
			`[` + jobBody("", "1") + `,` + jobBody("bad", "1", `"timeout":"x"`) + `]`, 400,
			[]string{"job 1"}},
		{"RL-026 malformed_before_beyond_in_one", `[` + jobBody("", "1", `"timeout":"x"`) + `]`,
			400, []string{"timeout"}},
		{"RL-028 empty_queue", "[" + jobBody("", "1") + "]", 422, []string{"queue"}},
		{"RL-028 empty_id", "[" + jobBody("bad", "") + "]", 422, []string{"id"}},
		{"RL-028 nul_in_queue", `[{"queue":"a\u0000b","id":"1","timeout":1,"payload":1}]`, 422,
			[]string{"queue"}},
		{"RL-028 nul_in_id", `[{"queue":"bad","id":"\u0000","timeout":1,"payload":1}]`, 422,
			[]string{"id"}},
		{"RL-028 lone_surrogate_in_id", `[{"queue":"bad","id":"\ud800","timeout":1,"payload":1}]`,
			422, []string{"id"}},
		{"RL-028 second_job_beyond", `[` + jobBody("bad", "1") + `,` +
			jobBody("bad", "2", `"timeout":-1`) + `]`, 422, []string{"job 1", "timeout"}},
	} {
		t.Run(c.id, func(t *testing.T) {
			// RL-031
			w.Do(t, "POST", "/v2/queues/jobs", c.body).WantStatus(t, c.status).WantErrorText(t,
				c.words...)
			w.put(t, jobBody("running", c.id))
			v := w.claim(t, "running")
			w.Do(t, "PUT", v.runPath(), c.body).WantStatus(t, c.status).WantErrorText(t, c.words...)
			w.Do(t, "DELETE", v.runPath(), "").WantStatus(t, 200)
		})
	}
	assertEqual(t, "jobs stored", len(w.next(t, "bad", 50)), 0)
	for _, contentType := range []string{"", "text/plain", "application/x-www-form-urlencoded",
		"application/jsonx", "json", "application/json+x;;"} {
		t.Run("RL-032 content_type_"+contentType, func(t *testing.T) {
			w.Do(t, "POST", "/v2/queues/jobs", "[]", "Content-Type", contentType).WantStatus(t,
				415).WantErrorText(t, "Content-Type")
		})
	}
	for _, contentType := range []string{"application/json", "application/json; charset=utf-8",
		"Application/JSON", "application/vnd.x+json"} {
		t.Run("RL-032 json_by_another_name_"+contentType, func(t *testing.T) {
			w.Do(t, "POST", "/v2/queues/jobs", "[]", "Content-Type", contentType, beyondDocument,
				"1").WantStatus(t, 202)
		})
	}
}

// TestBodyLimit is RL-033 and G-RL-25.
func TestBodyLimit(t *testing.T) {
	t.Parallel()
	w := inMemory(t, config())
	atLimit := jobBody("limit", "fits", `"payload":"`+strings.Repeat("x", bodyLimit-100)+`"`)
	w.put(t, atLimit+strings.Repeat(" ", bodyLimit-2-len(atLimit)))
	w.claim(t, "limit")
	over := "[" + atLimit + strings.Repeat(" ", bodyLimit-1-len(atLimit)) + "]"
	run := jobPath("limit", "x") + "/run-id/00000000-0000-8000-8000-000000000000"
	for _, c := range []struct{ method, path string }{{"POST", "/v2/queues/jobs"}, {"PUT", run},
		{"PATCH", run}, {"DELETE", run},
		{"GET", "/v2/queues/limit/jobs"}, {"GET", jobPath("limit", "fits")},
		{"POST", "/v1/queues/jobs"}} {
		t.Run("RL-033 too_large_"+c.method+"_"+c.path, func(t *testing.T) {
			w.Do(t, c.method, c.path, over).WantStatus(t, 413).WantErrorText(t, "1048576")
		})
		t.Run("RL-033 too_large_in_chunks_"+c.method+"_"+c.path, func(t *testing.T) {
			req, err := http.NewRequest(c.method, w.URL+c.path,
				io.MultiReader(strings.NewReader(over)))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Content-Type", "application/json")
			resp, err := w.Client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			assertEqual(t, "status", resp.StatusCode, 413)
		})
	}
}

// TestCrash is RL-034 on a database file: what a copy of the files holds at the moment of the
// answer is what a crash leaves.
func TestCrash(t *testing.T) {
	t.Parallel()
	t.Run("RL-034 jobs_survive", func(t *testing.T) {
		clock, dir := testkit.NewClock(), t.TempDir()
		open := func(dir string) store.Store {
			s, err := sqlite.Open(context.Background(),
				sqlite.Config{Path: filepath.Join(dir, "jobs.db"), Now: clock.Now})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { s.Close() })
			return s
		}
		w := newWorld(t, clock, open(dir), config())
		w.put(t, jobBody("crash", "1", `"payload":"kept"`), jobBody("crash", "2"))
		run := w.claim(t, "crash")
		left := t.TempDir()
		if err := os.CopyFS(left, os.DirFS(dir)); err != nil {
			t.Fatal(err)
		}
		w = newWorld(t, clock, open(left), config())
		assertEqual(t, "payload", string(w.get(t, "crash", "1").Payload), `"kept"`)
		w.heartbeat(t, run, "").WantStatus(t, 202)
		assertEqual(t, "next", ids(w.next(t, "crash", 9)), "2")
	})
}

// TestRequestLog: nothing is logged of requests that went well, or that were refused, at the level
// of production.
func TestRequestLog(t *testing.T) {
	t.Parallel()
	w := inMemory(t, config())
	w.put(t, jobBody("log", "1"))
	w.enqueue(t, "", jobBody("log", "1")).WantStatus(t, 409)
	if log := w.log.String(); log != "" {
		t.Errorf("the log says %s", log)
	}
}

// A request holds at most so many jobs; one more is too large, whatever the body limit
// (docs/decisions/0009).
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
