package taskflow_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/contract/taskflow"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/store/storetest"
	"github.com/millrace/millrace/internal/testkit"
)

// rerunView is what a rerun adds to a job.
type rerunView struct {
	jobView
	RerunOf string `json:"rerun_of"`
	RerunAs string `json:"rerun_as"`
}

func (w *world) getRerun(t testing.TB, id string) rerunView {
	t.Helper()
	return testkit.DecodeReply[rerunView](t, w.Do(t, "GET", pathOf(id), "").WantStatus(t, 200))
}

// rerun makes a rerun that must be accepted and returns the ids of the copies.
func (w *world) rerun(t testing.TB, path, body string) map[string]string {
	t.Helper()
	r := w.Do(t, "POST", path, body).WantStatus(t, 201)
	return testkit.DecodeReply[struct{ Jobs map[string]string }](t, r).Jobs
}

// refusedRerun makes a rerun that must be refused and returns the copies in its details.
func (w *world) refusedRerun(t testing.TB, path, body string) map[string]string {
	t.Helper()
	return testkit.DecodeReply[struct {
		Details struct{ Jobs map[string]string }
	}](t, w.Do(t, "POST", path, body).WantError(t, 409, "CONFLICT")).Details.Jobs
}

// failedGraph makes the graph a → b → c → d, x → b, b → y, where a and x complete and b fails.
func (w *world) failedGraph(t testing.TB) map[string]string {
	t.Helper()
	ids := w.graph(t, leaf("a"), leaf("x"), vertex("b", "a", "x"), vertex("c", "b"),
		vertex("d", "c"), vertex("y", "b"))
	w.succeed(t, ids["a"])
	w.succeed(t, ids["x"])
	w.fail(t, ids["b"], false)
	for ref, want := range map[string]string{"b": "FAILED", "c": "BLOCKED", "d": "BLOCKED",
		"y": "BLOCKED"} {
		w.status(t, ids[ref], want)
	}
	return ids
}

// TestRerunCarriesEveryField checks that a copy has every field of its original but those that a
// rerun is to renew: a field added to job.Job is carried, or stands here.
func TestRerunCarriesEveryField(t *testing.T) {
	t.Parallel()
	renewed := map[string]string{"ID": "the copy is another job", "Alias": "as is its identity",
		"Definition": "names the original", "OrderTime": "the time of the rerun",
		"DueAt": "the time of the rerun", "Lease": "of the settings", "Trace": "of the request"}
	original := storetest.FilledJob(0)
	again := (&taskflow.TaskFlow{}).Resubmission(original, "11111111-1111-4111-8111-111111111111")
	different := storetest.DifferentFields(&again.Job, original)
	want := slices.Sorted(maps.Keys(renewed))
	if slices.Sort(different); !slices.Equal(different, want) {
		t.Errorf("the copy differs in %q, want %q", different, want)
	}
}

// TestRerun: RT-001: a rerun copies what failed and what it blocked, and nothing above.
func TestRerun(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		t.Run("RT-001 a failed job with its dependents", func(t *testing.T) {
			ids := w.failedGraph(t)
			before := w.Do(t, "GET", pathOf(ids["b"]), "").Body
			copies := w.rerun(t, pathOf(ids["b"])+"/rerun", "")
			assertEqual(t, "copies", len(copies), 4)
			assertEqual(t, "b again", w.get(t, copies[ids["b"]]).Status, "READY")
			for _, ref := range []string{"b", "c", "d", "y"} {
				original, made := w.getRerun(t, ids[ref]), w.getRerun(t, copies[ids[ref]])
				assertEqual(t, "rerun_as", original.RerunAs, made.ID)
				assertEqual(t, "rerun_of", made.RerunOf, original.ID)
				assertEqual(t, "name and queue", made.Name+made.Queue,
					original.Name+original.Queue)
				assertEqual(t, "attempts start anew", made.AttemptCount, 0)
			}
			assertEqual(t, "dependencies that completed stay",
				fmt.Sprint(w.get(t, copies[ids["b"]]).Dependencies),
				fmt.Sprint([]string{ids["a"], ids["x"]}))
			assertEqual(t, "dependencies on copies", w.get(t, copies[ids["c"]]).Dependencies[0],
				copies[ids["b"]])
			after := w.Do(t, "GET", pathOf(ids["b"]), "").Body
			assertEqual(t, "the original is as it was, but for rerun_as", withoutRerunAs(t, after),
				withoutRerunAs(t, before))
			for _, ref := range []string{"b", "c", "d", "y"} {
				w.succeed(t, copies[ids[ref]])
			}
			w.status(t, ids["b"], "FAILED")
			w.status(t, ids["d"], "BLOCKED")
		})
		t.Run("RT-001 a blocked job takes its failed ancestors along", func(t *testing.T) {
			ids := w.failedGraph(t)
			copies := w.rerun(t, pathOf(ids["c"])+"/rerun", "{}")
			assertEqual(t, "copies: b, c, d and not y", len(copies), 3)
			assertEqual(t, "y is no copy", copies[ids["y"]], "")
			w.succeed(t, copies[ids["b"]])
			w.status(t, copies[ids["c"]], "READY")
		})
		t.Run("RT-001 a second rerun names the first", func(t *testing.T) {
			ids := w.failedGraph(t)
			path := pathOf(ids["b"]) + "/rerun"
			copies := w.rerun(t, path, "")
			n := w.jobs(t)
			assertEqual(t, "the copies of the first", fmt.Sprint(w.refusedRerun(t, path, "")),
				fmt.Sprint(copies))
			assertEqual(t, "jobs", w.jobs(t), n)
			again := w.rerun(t, path, `{"again": true}`)
			assertEqual(t, "rerun_as is the last", w.getRerun(t, ids["b"]).RerunAs,
				again[ids["b"]])
			assertEqual(t, "the first copy is left alone", w.get(t, copies[ids["b"]]).Status,
				"READY")
		})
		t.Run("RT-001 two failed branches, one after the other", func(t *testing.T) {
			ids := w.graph(t, leaf("l"), leaf("r"), vertex("both", "l", "r"))
			w.fail(t, ids["l"], false)
			w.fail(t, ids["r"], false)
			left := w.rerun(t, pathOf(ids["l"])+"/rerun", "")
			assertEqual(t, "r was not rerun", w.get(t, left[ids["both"]]).Status, "BLOCKED")
			right := w.rerun(t, pathOf(ids["r"])+"/rerun", "")
			w.succeed(t, left[ids["l"]])
			w.succeed(t, right[ids["r"]])
			w.status(t, right[left[ids["both"]]], "READY")
		})
		t.Run("RT-001 what is deleted is forgotten", func(t *testing.T) {
			ids := w.failedGraph(t)
			w.rerun(t, pathOf(ids["b"])+"/rerun", "")
			kept := func() (n int) {
				err := w.engine.ViewRecords(t.Context(), func(r engine.RecordReader) error {
					found, err := r.RecordsOf("taskflow.rerun", ids["b"], ids["c"], ids["d"], ids["y"])
					n = len(found)
					return err
				})
				if err != nil {
					t.Fatal(err)
				}
				return n
			}
			assertEqual(t, "records", kept(), 4)
			w.Do(t, "DELETE", pathOf(ids["y"]), "").WantStatus(t, 204)
			assertEqual(t, "records", kept(), 3)
			w.Do(t, "DELETE", pathOf(ids["b"])+"?cascade=true", "").WantStatus(t, 204)
			assertEqual(t, "records", kept(), 0)
		})
		t.Run("RT-001 a whole graph", func(t *testing.T) {
			ids := w.failedGraph(t)
			path := pathOf(ids["a"]) + "/graph/rerun"
			copies := w.rerun(t, path, "")
			assertEqual(t, "b, c, d and y", len(copies), 4)
			assertEqual(t, "what was rerun", fmt.Sprint(w.refusedRerun(t, path, "")),
				fmt.Sprint(copies))
			w.fail(t, copies[ids["b"]], false)
			second := w.rerun(t, path, "")
			assertEqual(t, "the copies that failed", len(second), 4)
			assertEqual(t, "a copy of the copy", second[copies[ids["b"]]] != "", true)
		})
		t.Run("G-TF-38 a graph again after its copies failed", func(t *testing.T) {
			for _, named := range []string{"a", "b", "d"} {
				ids := w.failedGraph(t)
				path, last := pathOf(ids[named])+"/graph/rerun", ids
				for range 3 {
					copies, now := w.rerun(t, path, `{"again": true}`), map[string]string{}
					for _, ref := range []string{"b", "c", "d", "y"} {
						now[ref] = copies[last[ref]]
						assertEqual(t, named+" again: the copy of the last "+ref, now[ref] != "", true)
					}
					assertEqual(t, named+" again: copies", len(copies), len(now))
					w.fail(t, now["b"], false)
					w.status(t, now["d"], "BLOCKED")
					last = now
				}
			}
		})
		t.Run("RT-001 AD-051 a rerun is the replay of the dead letters", func(t *testing.T) {
			ids := w.failedGraph(t)
			for i, path := range []string{"/rerun", "/graph/rerun"} {
				if i > 0 {
					ids = w.failedGraph(t)
				}
				made := w.rerun(t, pathOf(ids["b"])+path, "")[ids["b"]]
				both, err := w.engine.GetByIDs(t.Context(), []job.ID{engineJobID(ids["b"]),
					engineJobID(made)}, store.AllBodies)
				if err != nil || len(both) != 2 {
					t.Fatal(both, err)
				}
				slices.SortFunc(both, func(a, b *job.Job) int { return int(a.Seq - b.Seq) })
				deadLetters, err := w.engine.DeadLettersOf(t.Context(), []int64{both[0].Seq})
				if err != nil || len(deadLetters[both[0].Seq]) != 1 {
					t.Fatal(deadLetters, err)
				}
				assertEqual(t, "replayed as", deadLetters[both[0].Seq][0].ReplayedAs, both[1].Seq)
			}
		})
		t.Run("RT-001 nothing to rerun", func(t *testing.T) {
			id := w.create(t).ID
			w.refusedRerun(t, pathOf(id)+"/rerun", "")
			w.refusedRerun(t, pathOf(id)+"/graph/rerun", "")
			w.succeed(t, id)
			w.refusedRerun(t, pathOf(id)+"/rerun", `{"again": true}`)
		})
		t.Run("RT-001 bad requests", func(t *testing.T) {
			id := w.create(t).ID
			w.fail(t, id, false)
			n := w.jobs(t)
			for _, body := range []string{"[]", `{"again": 1}`, `{"agian": true}`, "{", `{"again":`,
				`"again"`, "null"} {
				w.Do(t, "POST", pathOf(id)+"/rerun", body).WantError(t, 400, "VALIDATION_ERROR")
				w.Do(t, "POST", pathOf(id)+"/graph/rerun", body).WantError(t, 400,
					"VALIDATION_ERROR")
			}
			gone := "00000000-0000-4000-8000-000000000000"
			for _, id := range []string{gone, "x"} {
				w.Do(t, "POST", pathOf(id)+"/rerun", "").WantError(t, 404, "NOT_FOUND")
				w.Do(t, "POST", pathOf(id)+"/graph/rerun", "").WantError(t, 404, "NOT_FOUND")
				w.Do(t, "POST", pathOf(id)+"/cancel", "").WantError(t, 404, "NOT_FOUND")
			}
			assertEqual(t, "jobs", w.jobs(t), n)
		})
		t.Run("RT-001 a page shows it too", func(t *testing.T) {
			id := w.create(t, `"queue":"shown"`).ID
			w.fail(t, id, false)
			made := w.rerun(t, pathOf(id)+"/rerun", "")[id]
			page := testkit.DecodeReply[struct{ Items []rerunView }](t,
				w.Do(t, "GET", jobsPath+"?queue=shown", "").WantStatus(t, 200))
			at := slices.IndexFunc(page.Items, func(v rerunView) bool { return v.ID == id })
			assertEqual(t, "rerun_as", page.Items[at].RerunAs, made)
			assertEqual(t, "rerun_of", page.Items[1-at].RerunOf, id)
			w.put(t, made, nameMember("renamed"), `"rerun_of":"`+id+`"`)
			assertEqual(t, "an update keeps rerun_of", w.getRerun(t, made).RerunOf, id)
			w.Do(t, "PUT", pathOf(made), `{"rerun_of":"`+made+`"}`).WantError(t, 400,
				"VALIDATION_ERROR")
		})
	})
}

// TestRerunsOfOneDependent: RT-001: failed jobs that block one job together are rerun one after
// another, or at once, and leave one copy of it that waits for all of theirs.
func TestRerunsOfOneDependent(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		for _, atOnce := range []bool{false, true} {
			const n = 8
			parts, refs := []string{}, []string{}
			for i := range n {
				refs = append(refs, fmt.Sprint("f", i))
				parts = append(parts, leaf(refs[i]))
			}
			ids := w.graph(t, append(parts, vertex("below", refs...))...)
			for _, ref := range refs {
				w.fail(t, ids[ref], false)
			}
			before := w.jobs(t)
			var all sync.WaitGroup
			for _, ref := range refs {
				rerun := func() { w.rerun(t, pathOf(ids[ref])+"/rerun", "") }
				if atOnce {
					all.Go(rerun)
				} else {
					rerun()
				}
			}
			all.Wait()
			assertEqual(t, "a copy of each, and one of what is below for each",
				w.jobs(t)-before, 2*n)
			last := ids["below"]
			for v := w.getRerun(t, last); v.RerunAs != ""; v = w.getRerun(t, last) {
				last = v.RerunAs
			}
			w.status(t, last, "PENDING")
			for _, ref := range refs {
				w.succeed(t, w.getRerun(t, ids[ref]).RerunAs)
			}
			w.status(t, last, "READY")
			w.succeed(t, last)
		}
	})
}

// withoutRerunAs returns a job without the member that a rerun adds.
func withoutRerunAs(t testing.TB, body string) string {
	t.Helper()
	var members map[string]json.RawMessage
	if err := json.Unmarshal([]byte(body), &members); err != nil {
		t.Fatal(err)
	}
	delete(members, "rerun_as")
	text, _ := json.Marshal(members)
	return string(text)
}

// TestConcurrentReruns: RT-001: of two reruns at once one makes the copies, of a job and of a
// graph.
func TestConcurrentReruns(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		for _, route := range []string{"/rerun", "/graph/rerun"} {
			ids := w.failedGraph(t)
			n := w.jobs(t)
			var all sync.WaitGroup
			made := make([]int, 8)
			for i := range made {
				all.Go(func() {
					made[i] = w.Do(t, "POST", pathOf(ids["b"])+route, "").Status
				})
			}
			all.Wait()
			slices.Sort(made)
			assertEqual(t, "RT-001 "+route, fmt.Sprint(made),
				fmt.Sprint([]int{201, 409, 409, 409, 409, 409, 409, 409}))
			assertEqual(t, "jobs", w.jobs(t), n+4)
		}
	})
}

// TestRerunOfAThousand: RT-001: of a graph of 1,000 jobs whose 50th failed, that one and all below
// it are copied and run to their end, once each, and nothing above or beside them runs again. Of
// two reruns at once one makes the copies, and the originals stay as they are.
func TestRerunOfAThousand(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		const size, failed, beside = 1000, 49, 950
		ref := func(i int) string { return fmt.Sprint(i) }
		parts := []string{leaf("0")}
		for i := 1; i < size; i++ {
			switch {
			case i <= failed: // a chain, whose 50th job is the one that will fail
				parts = append(parts, vertex(ref(i), ref(i-1)))
			case i < beside: // a tree below it, of which each depends on one above too
				parts = append(parts, vertex(ref(i), ref(failed+(i-failed-1)/2), ref(i%failed)))
			default:
				parts = append(parts, vertex(ref(i), ref(failed-1)))
			}
		}
		ids := w.graph(t, parts...)
		for i := range failed {
			w.succeed(t, ids[ref(i)])
		}
		w.fail(t, ids[ref(failed)], false)
		w.runAll(t)
		originals := w.stored(t, ids)

		made := testkit.RunConcurrently(2, func(int) testkit.Reply {
			return w.Do(t, "POST", pathOf(ids[ref(failed)])+"/rerun", "")
		})
		slices.SortFunc(made, func(a, b testkit.Reply) int { return a.Status - b.Status })
		copies := testkit.DecodeReply[struct{ Jobs map[string]string }](t,
			made[0].WantStatus(t, 201)).Jobs
		before := testkit.DecodeReply[struct {
			Details struct{ Jobs map[string]string }
		}](t, made[1].WantError(t, 409, "CONFLICT")).Details.Jobs
		assertEqual(t, "RT-001 the other one names the copies", maps.Equal(before, copies), true)
		assertEqual(t, "RT-001 copies", len(copies), beside-failed)
		for i := range size {
			is := i >= failed && i < beside
			assertEqual(t, "RT-001 there is a copy of job "+ref(i), copies[ids[ref(i)]] != "", is)
		}
		assertEqual(t, "RT-001 jobs", w.jobs(t), size+len(copies))

		ran := w.runAll(t)
		assertEqual(t, "RT-001 jobs that ran", len(ran), len(copies))
		for original, made := range copies {
			assertEqual(t, "RT-001 runs of the copy of "+original, ran[made], 1)
		}
		for key, j := range w.stored(t, copies) {
			assertEqual(t, "RT-001 the copy "+key, j.State, taskflow.Completed)
		}
		if !reflect.DeepEqual(w.stored(t, ids), originals) {
			t.Error("RT-001 the originals have changed")
		}
	})
}

// runAll runs all jobs that are READY or become so, and returns how often each has run.
func (w *world) runAll(t testing.TB) map[string]int {
	t.Helper()
	runs := map[string]int{}
	for jobs := w.claims(t, 1000); len(jobs) > 0; jobs = w.claims(t, 1000) {
		var ends []engine.FinishRequest
		for _, j := range jobs {
			runs[j.ID.Key]++
			ends = append(ends, engine.FinishRequest{Run: runOf(j),
				Outcome: taskflow.SuccessOutcome(j, []byte(`{"ok":true}`))})
		}
		for _, done := range w.engine.FinishAll(t.Context(), ends) {
			if done.Err != nil {
				t.Fatal(done.Err)
			}
		}
	}
	return runs
}

// stored returns the jobs with the ids that are values of a map, by their ids.
func (w *world) stored(t testing.TB, ids map[string]string) map[string]*job.Job {
	t.Helper()
	var all []job.ID
	for _, id := range ids {
		all = append(all, engineJobID(id))
	}
	found, err := w.engine.GetByIDs(t.Context(), all, store.AllBodies)
	if err != nil || len(found) != len(ids) {
		t.Fatalf("%d of %d jobs: %v", len(found), len(ids), err)
	}
	byID := map[string]*job.Job{}
	for _, j := range found {
		byID[j.ID.Key] = j
	}
	return byID
}

// TestCancel: RT-001: a cancel ends the attempt of a RUNNING job for good and blocks what waits.
func TestCancel(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		ids := w.graph(t, leaf("a"), vertex("b", "a"))
		w.Do(t, "POST", pathOf(ids["a"])+"/cancel", "").WantError(t, 409, "CONFLICT")
		j := w.claimAndStart(t, ids["a"])
		for _, body := range []string{`{"x":1}`, `{"again":true}`, "[]", "null", "{", "x"} {
			w.Do(t, "POST", pathOf(ids["a"])+"/cancel", body).WantError(t, 400,
				"VALIDATION_ERROR")
		}
		w.Do(t, "POST", pathOf(ids["a"])+"/cancel", "{}", "Content-Type",
			"text/plain").WantError(t, 400, "VALIDATION_ERROR")
		w.status(t, ids["a"], "RUNNING")
		w.Do(t, "POST", pathOf(ids["a"])+"/cancel", "").WantStatus(t, 200)
		v := testkit.DecodeReply[struct {
			Status       string
			AttemptCount int `json:"attempt_count"`
			LastError    struct {
				ErrorType string `json:"error_type"`
				Retryable bool
			} `json:"last_error"`
		}](t, w.Do(t, "GET", pathOf(ids["a"]), "").WantStatus(t, 200))
		assertEqual(t, "RT-001 the job", fmt.Sprintf("%+v", v),
			"{Status:FAILED AttemptCount:1 LastError:{ErrorType:canceled Retryable:false}}")
		w.status(t, ids["b"], "BLOCKED")
		_, err := w.engine.Finish(context.Background(), runOf(j),
			taskflow.SuccessOutcome(j, nil))
		if !job.IsKind(err, job.RunLost) {
			t.Errorf("the outcome of a canceled attempt: %v", err)
		}
		w.status(t, ids["a"], "FAILED")
		w.Do(t, "POST", pathOf(ids["a"])+"/cancel", "").WantError(t, 409, "CONFLICT")
		w.Do(t, "POST", pathOf(ids["b"])+"/cancel", "", "Content-Type",
			"application/x-www-form-urlencoded").WantError(t, 409, "CONFLICT")
	})
}

// TestCascade: RT-001: a delete with cascade removes a job and all that waits for it, or nothing.
func TestCascade(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		other := w.create(t).ID
		ids := w.graph(t, leaf("top"), vertex("a", "top"), vertex("b", "a"), vertex("c", "a", "b"),
			vertex("d", "c", other))
		w.succeed(t, ids["top"])
		w.succeed(t, ids["a"])
		w.claimAndStart(t, ids["b"])
		n := w.jobs(t)
		for _, query := range []string{"?cascade=yes", "?cascade=", "?casade=true",
			"?cascade=true&cascade=true"} {
			r := w.Do(t, "DELETE", pathOf(ids["a"])+query, "")
			if r.Status != 400 && r.Status != 409 {
				t.Errorf("DELETE %s answers %d", query, r.Status)
			}
		}
		w.Do(t, "DELETE", pathOf(ids["a"]), "").WantError(t, 409, "CONFLICT")
		w.Do(t, "DELETE", pathOf(ids["a"])+"?cascade=true", "").WantError(t, 409, "CONFLICT")
		assertEqual(t, "RT-001 all or nothing", w.jobs(t), n)
		w.Do(t, "POST", pathOf(ids["b"])+"/cancel", " {} ").WantStatus(t, 200)
		w.Do(t, "DELETE", pathOf(ids["a"])+"?cascade=true", "").WantStatus(t, 204)
		assertEqual(t, "RT-001 a, b, c and d are gone", w.jobs(t), n-4)
		w.status(t, ids["top"], "COMPLETED")
		w.Do(t, "DELETE", pathOf(ids["a"])+"?cascade=true", "").WantError(t, 404, "NOT_FOUND")
		w.Do(t, "DELETE", pathOf(other)+"?cascade=false", "").WantStatus(t, 204)
		w.Do(t, "DELETE", pathOf(ids["top"])+"?cascade=true", "").WantStatus(t, 204)
	})
}

// TestIdempotencyKey: RT-002: the same request with the same key makes its jobs once.
func TestIdempotencyKey(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		send := func(t *testing.T, path, key, body string) testkit.Reply {
			t.Helper()
			return w.Do(t, "POST", path, body, "Idempotency-Key", key)
		}
		t.Run("RT-002 a create", func(t *testing.T) {
			first := testkit.DecodeReply[jobView](t, send(t, jobsPath, "k1", jobSpec()).WantStatus(t,
				201))
			n := w.jobs(t)
			again := testkit.DecodeReply[jobView](t, send(t, jobsPath, "k1", jobSpec()).WantStatus(t,
				200))
			assertEqual(t, "the first answer", fmt.Sprintf("%+v", again), fmt.Sprintf("%+v", first))
			send(t, jobsPath, "k1", jobSpec(`"priority":9`)).WantError(t, 409,
				"IDEMPOTENCY_CONFLICT")
			assertEqual(t, "jobs", w.jobs(t), n)
			w.clock.Advance(window + time.Second)
			w.runMaintenance(t)
			later := testkit.DecodeReply[jobView](t, send(t, jobsPath, "k1", jobSpec()).WantStatus(t,
				201))
			assertEqual(t, "another job after the window", later.ID != first.ID, true)
		})
		t.Run("RT-002 a graph", func(t *testing.T) {
			body := `{"jobs":[` + leaf("a") + "," + vertex("b", "a") + `]}`
			first := send(t, "/api/v1/graphs", "k2", body).WantStatus(t, 201)
			n := w.jobs(t)
			second := send(t, "/api/v1/graphs", "k2", body).WantStatus(t, 200)
			assertEqual(t, "the first answer", string(second.Body), string(first.Body))
			send(t, "/api/v1/graphs", "k2", `{"jobs":[`+leaf("a")+`]}`).WantError(t, 409,
				"IDEMPOTENCY_CONFLICT")
			assertEqual(t, "jobs", w.jobs(t), n)
			send(t, jobsPath, "k2", jobSpec()).WantError(t, 409, "IDEMPOTENCY_CONFLICT")
		})
		t.Run("RT-002 a crowd with one key", func(t *testing.T) {
			n := w.jobs(t)
			var all sync.WaitGroup
			got := make([]string, 12)
			for i := range got {
				all.Go(func() {
					r := send(t, jobsPath, "crowd", jobSpec())
					got[i] = testkit.DecodeReply[jobView](t, r).ID
				})
			}
			all.Wait()
			assertEqual(t, "ids", len(slices.Compact(slices.Sorted(slices.Values(got)))), 1)
			assertEqual(t, "jobs", w.jobs(t), n+1)
		})
		t.Run("RT-002 what was refused is not remembered", func(t *testing.T) {
			unknown := dependenciesMember("00000000-0000-4000-8000-000000000000")
			send(t, jobsPath, "k3", jobSpec(unknown)).WantError(t, 400, "VALIDATION_ERROR")
			send(t, jobsPath, "k3", jobSpec()).WantStatus(t, 201)
		})
		t.Run("RT-002 keys", func(t *testing.T) {
			long := strings.Repeat("\U0001F511", 255)
			send(t, jobsPath, long, jobSpec()).WantStatus(t, 201)
			send(t, jobsPath, long+"k", jobSpec()).WantError(t, 400, "VALIDATION_ERROR")
			send(t, jobsPath, "\xff", jobSpec()).WantError(t, 400, "VALIDATION_ERROR")
			send(t, jobsPath, "", jobSpec()).WantStatus(t, 201) // as without a key
		})
		t.Run("RT-002 a job that is gone", func(t *testing.T) {
			id := testkit.DecodeReply[jobView](t, send(t, jobsPath, "k4", jobSpec()).WantStatus(t,
				201)).ID
			w.Do(t, "DELETE", pathOf(id), "").WantStatus(t, 204)
			send(t, jobsPath, "k4", jobSpec()).WantError(t, 404, "NOT_FOUND")
		})
	})
}
