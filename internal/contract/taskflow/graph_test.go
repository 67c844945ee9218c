package taskflow_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/contract/taskflow"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/testkit"
)

// graph creates a graph that must be accepted and returns the ids by ref.
func (w *world) graph(t testing.TB, jobs ...string) map[string]string {
	t.Helper()
	r := w.Do(t, "POST", "/api/v1/graphs", `{"jobs":[`+strings.Join(jobs, ",")+`]}`).WantStatus(t,
		201)
	return testkit.DecodeReply[struct{ Jobs map[string]string }](t, r).Jobs
}

// vertex writes a job of a graph.
func vertex(ref string, dependsOn ...string) string {
	return fmt.Sprintf(`{"ref":%q,"name":%q,"queue":"g","depends_on":["%s"]}`, ref, ref,
		strings.Join(dependsOn, `","`))
}

func leaf(ref string) string { return fmt.Sprintf(`{"ref":%q,"name":%q,"queue":"g"}`, ref, ref) }

type drawing struct {
	Nodes []struct {
		JobID  string `json:"job_id"`
		Name   string
		Queue  string
		Status string
	}
	Edges     []struct{ From, To string }
	Truncated bool
}

func TestGraphs(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		t.Run("TF-008 TF-032 TF-038 a graph at once", func(t *testing.T) {
			done := w.create(t).ID
			w.succeed(t, done)
			ids := w.graph(t, vertex("d", "b", "c"), vertex("b", "a"), vertex("c", "a", done, "a"),
				leaf("a"))
			for ref, want := range map[string]string{"a": "READY", "b": "PENDING", "c": "PENDING",
				"d": "PENDING"} {
				v := w.status(t, ids[ref], want)
				assertEqual(t, "name", v.Name, ref)
			}
			assertEqual(t, "dependencies", fmt.Sprint(w.get(t, ids["c"]).Dependencies),
				fmt.Sprint([]string{ids["a"], done}))
			for _, ref := range []string{"a", "b", "c", "d"} {
				w.succeed(t, ids[ref])
			}
			d := testkit.DecodeReply[drawing](t,
				w.Do(t, "GET", pathOf(ids["b"])+"/graph", "").WantStatus(t, 200))
			assertEqual(t, "nodes and edges", fmt.Sprint(len(d.Nodes), len(d.Edges), d.Truncated),
				"5 5 false")
			assertEqual(t, "the job itself is first",
				d.Nodes[0].JobID+d.Nodes[0].Status+d.Nodes[0].Queue, ids["b"]+"COMPLETEDg")
			assertEqual(t, "an edge", slices.Contains(d.Edges,
				struct{ From, To string }{ids["a"], ids["b"]}), true)
		})
		t.Run("TF-054 the order of a graph is that of its ids", func(t *testing.T) {
			var all []string
			for i := range 20 {
				all = append(all, leaf(fmt.Sprint(i)))
			}
			ids := w.graph(t, all...)
			want := slices.Sorted(func(yield func(string) bool) {
				for _, id := range ids {
					if !yield(id) {
						return
					}
				}
			})
			var got []string
			for _, j := range w.claims(t, 100) {
				got = append(got, j.ID.Key)
				w.finish(t, j, taskflow.SuccessOutcome(j, nil))
			}
			assertEqual(t, "order", fmt.Sprint(got), fmt.Sprint(want))
		})
		t.Run("TF-033 TF-037 TF-070 refused as a whole", func(t *testing.T) {
			n := w.jobs(t)
			p := w.Do(t, "POST", "/api/v1/graphs",
				`{"jobs":[`+strings.Join([]string{leaf("z"), vertex("a", "c"), vertex("b", "a"),
					vertex("c", "b")}, ",")+`]}`)
			assertEqual(t, "path", fmt.Sprint(cycle(t, p)), "[a c b]")
			p = w.Do(t, "POST", "/api/v1/graphs", `{"jobs":[`+vertex("a", "a")+`]}`)
			assertEqual(t, "path of one", fmt.Sprint(cycle(t, p)), "[a]")
			stranger := "00000000-0000-4000-8000-000000000000"
			for _, c := range []struct{ body, word string }{
				{`{}`, "jobs"}, {`{"jobs":[]}`, "jobs"}, {`{"jobs":{}}`, "jobs"},
				{`{"jobs":[7]}`, "jobs[0]"}, {`[]`, "object"}, {`{`, "JSON"},
				{`{"jobs":[` + leaf("a") + `,{"ref":"b","queue":"q"}]}`, "jobs[1]: name"},
				{`{"jobs":[{"name":"n","queue":"q"}]}`, "ref"},
				{`{"jobs":[{"ref":"","name":"n","queue":"q"}]}`, "ref"},
				{`{"jobs":[{"ref":5,"name":"n","queue":"q"}]}`, "ref"},
				{`{"jobs":[` + leaf("a") + `,` + leaf("a") + `]}`, "twice"},
				{`{"jobs":[{"ref":"a","name":"n","queue":"q","dependencies":[]}]}`, "dependencies"},
				{`{"jobs":[` + vertex("a", "nobody") + `]}`, "depends_on[0]"},
				{`{"jobs":[` + leaf("z") + `,` + vertex("a", "z", stranger) + `]}`, stranger},
				{`{"jobs":[` + vertex("a", slices.Repeat([]string{stranger}, 51)...) + `]}`,
					"depends_on"},
				{`{"jobs":[{"ref":"a","name":"n","queue":"q","depends_on":null}]}`, "depends_on"},
				{`{"jobs":[{"ref":"a","name":"n","queue":"q","priority":11}]}`, "priority"},
			} {
				w.Do(t, "POST", "/api/v1/graphs", c.body).WantError(t, 400, "VALIDATION_ERROR",
					c.word)
			}
			assertEqual(t, "stored", w.jobs(t), n)
		})
		t.Run("TF-041 TF-047 TF-049 a graph of 10,000", func(t *testing.T) {
			all := []string{leaf("0")}
			for i := 1; i < 10_000; i++ {
				all = append(all, vertex(fmt.Sprint(i), fmt.Sprint((i-1)/2)))
			}
			w.Do(t, "POST", "/api/v1/graphs",
				`{"jobs":[`+strings.Join(append(all, leaf("more")), ",")+`]}`, beyondDocument,
				"1").WantError(t, 400, "VALIDATION_ERROR", "jobs")
			ids := w.graph(t, all...)
			d := testkit.DecodeReply[drawing](t,
				w.Do(t, "GET", pathOf(ids["77"])+"/graph", "").WantStatus(t, 200))
			assertEqual(t, "shown", fmt.Sprint(len(d.Nodes), d.Truncated), "2000 true")
			w.fail(t, ids["0"], false)
			for _, i := range []int{1, 2, 77, 5000, 9999} {
				w.status(t, ids[fmt.Sprint(i)], "BLOCKED")
			}
		})
		t.Run("TF-072 no graph of nothing", func(t *testing.T) {
			w.Do(t, "GET", pathOf("00000000-0000-4000-8000-000000000000")+"/graph", "").WantError(t,
				404, "NOT_FOUND")
			w.Do(t, "GET", pathOf("x")+"/graph", "").WantError(t, 404, "NOT_FOUND")
		})
	})
}

// TestTies: of jobs that are created at once, those of one transaction have the same created_at,
// and the order of their ids decides.
func TestTies(t *testing.T) {
	t.Parallel()
	clock := testkit.NewClock()
	w := newWorld(t, clock, testkit.MemoryStore(t, func() time.Time {
		clock.Advance(time.Microsecond)
		return clock.Now()
	}), config())
	t.Run("TF-052 TF-053 TF-054 many creates at once", func(t *testing.T) {
		var all []taskflow.Job
		times := map[time.Time]bool{}
		for i, r := range testkit.RunConcurrently(200, func(i int) testkit.Reply {
			return w.Do(t, "POST", jobsPath, jobSpec(fmt.Sprint(`"priority":`, 1+i%2)))
		}) {
			v := testkit.DecodeReply[jobView](t, r.WantStatus(t, 201))
			all = append(all, taskflow.Job{ID: v.ID, Priority: 1 + i%2, CreatedAt: v.CreatedAt})
			times[v.CreatedAt] = true
		}
		// in one transaction for certain
		for _, id := range w.graph(t, leaf("b"), leaf("a"), leaf("c")) {
			v := w.get(t, id)
			all = append(all, taskflow.Job{ID: v.ID, Priority: v.Priority, CreatedAt: v.CreatedAt})
			times[v.CreatedAt] = true
		}
		if len(times) > len(all)-2 {
			t.Errorf("%d jobs were created at %d times", len(all), len(times))
		}
		var got []string
		for _, j := range w.claims(t, 1000) {
			got = append(got, j.ID.Key)
		}
		assertEqual(t, "order", fmt.Sprint(got), fmt.Sprint(keys(taskflow.OrderJobs(all))))
	})
}

// FuzzCreate: whatever the body, it is accepted or refused as the caller's fault.
func FuzzCreate(f *testing.F) {
	for _, seed := range []string{`{}`, `[]`, jobSpec(), jobSpec(`"priority":1e0`),
		jobSpec(`"retry_policy":{"max_attempts":null}`), `{"name":"\u0000","queue":"q"}`,
		jobSpec(`"dependencies":["00000000-0000-4000-8000-000000000000"]`),
		`{"jobs":[` + vertex("a", "b") + "," + leaf("b") + `]}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, parse := range []func([]byte) error{taskflow.ParseCreate, taskflow.ParseGraph} {
			if err := parse(body); err != nil && job.KindOf(err) != job.Invalid {
				t.Fatalf("%q is refused as %s: %v", body, job.KindOf(err), err)
			}
		}
	})
}
