package taskflow_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/internal/contract/taskflow"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/testkit"
)

// model is what the rules of the document say of a world of jobs, in memory.
type model struct {
	jobs  []taskflow.Job
	limit int
}

func (m *model) at(id string) *taskflow.Job {
	return &m.jobs[slices.IndexFunc(m.jobs, func(j taskflow.Job) bool { return j.ID == id })]
}

func (m *model) statuses() map[string]job.State {
	all := map[string]job.State{}
	for _, j := range m.jobs {
		all[j.ID] = j.Status
	}
	return all
}

func (m *model) with(s job.State) (some []taskflow.Job) {
	for _, j := range m.jobs {
		if j.Status == s {
			some = append(some, j)
		}
	}
	return some
}

// evaluate puts a job where its dependencies lead it.
func (m *model) evaluate(j *taskflow.Job) {
	j.Status = map[taskflow.DependencyStatus]job.State{taskflow.DependenciesSatisfied: "READY",
		taskflow.DependenciesWaiting: "PENDING",
		taskflow.DependenciesBlocked: "BLOCKED"}[taskflow.CheckDependencies(*j, m.statuses())]
}

func (m *model) finish(id string, s job.State) {
	m.at(id).Status = s
	if s == "COMPLETED" {
		for released := range taskflow.PropagateCompletion(id, m.jobs) {
			m.at(released).Status = "READY"
		}
		return
	}
	for blocked := range taskflow.PropagateFailure(id, m.jobs) {
		m.at(blocked).Status = "BLOCKED"
	}
}

// TestModel drives random histories through the API and the engine, and through the functions of
// the document: what the jobs are must be the same throughout.
func TestModel(t *testing.T) {
	t.Parallel()
	t.Run("TF-030 TF-042 TF-046 TF-047 TF-048 TF-054 TF-057 the engine does what the rules say",
		rapid.MakeCheck(func(rt *rapid.T) {
			c := config()
			c.MaxConcurrent = rapid.IntRange(1, 4).Draw(rt, "max_concurrent")
			w := inMemory(t, c)
			m := &model{limit: c.MaxConcurrent}
			runs := map[string]*job.Job{}
			pick := func() []string {
				var ids []string
				for _, j := range m.jobs {
					if rapid.IntRange(0, 3).Draw(rt, "depends") == 0 {
						ids = append(ids, j.ID)
					}
				}
				return ids
			}
			rt.Repeat(map[string]func(*rapid.T){
				"create": func(rt *rapid.T) {
					priority := rapid.IntRange(1, 3).Draw(rt, "priority")
					v := w.create(t, fmt.Sprint(`"priority":`, priority),
						dependenciesMember(pick()...),
						attempts(rapid.IntRange(1, 2).Draw(rt, "max_attempts"), "FIXED", 1, 1))
					j := taskflow.Job{ID: v.ID, Priority: priority, CreatedAt: v.CreatedAt,
						Dependencies: v.Dependencies,
						Policy:       taskflow.Policy{MaxAttempts: v.RetryPolicy.MaxAttempts}}
					m.evaluate(&j)
					m.jobs = append(m.jobs, j)
				},
				"claim": func(rt *rapid.T) {
					w.clock.Advance(lease / 2) // whatever waited to be tried again
					for _, j := range runs {
						if _, err := w.engine.Heartbeat(t.Context(), runOf(j), nil); err != nil {
							rt.Fatal(err)
						}
					}
					w.runMaintenance(t)
					n := rapid.IntRange(1, 3).Draw(rt, "n")
					want := taskflow.SelectNext(m.with("READY"), len(m.with("RUNNING")), m.limit)
					want = want[:min(n, len(want))]
					got := w.claims(t, n)
					var ids []string
					for _, j := range got {
						ids = append(ids, j.ID.Key)
						runs[j.ID.Key] = j
						m.at(j.ID.Key).Status = "RUNNING"
					}
					if !slices.Equal(ids, keys(want)) {
						rt.Fatalf("claimed %v, want %v", ids, keys(want))
					}
				},
				"finish": func(rt *rapid.T) {
					running := m.with("RUNNING")
					if len(running) == 0 {
						rt.Skip("nothing runs")
					}
					id := rapid.SampledFrom(keys(running)).Draw(rt, "id")
					run := runs[id]
					delete(runs, id)
					if rapid.Bool().Draw(rt, "well") {
						w.finish(t, run, taskflow.SuccessOutcome(run, nil))
						m.finish(id, "COMPLETED")
						return
					}
					w.finish(t, run, taskflow.FailureOutcome(run, "x", "y", true))
					if m.at(id).AttemptCount++; taskflow.ShouldRetry(*m.at(id)) {
						m.at(id).Status = "READY"
					} else {
						m.finish(id, "FAILED")
					}
				},
				"relink": func(rt *rapid.T) {
					if len(m.jobs) == 0 {
						rt.Skip("there is no job")
					}
					j := m.at(rapid.SampledFrom(keys(m.jobs)).Draw(rt, "id"))
					deps := pick()
					m.relink(rt, w.Do(t, "PUT", pathOf(j.ID), "{"+dependenciesMember(deps...)+"}"),
						j, deps)
				},
				"": func(rt *rapid.T) {
					ids := make([]job.ID, len(m.jobs))
					for i, j := range m.jobs {
						ids[i] = engineJobID(j.ID)
					}
					stored, err := w.engine.GetByIDs(t.Context(), ids, store.AllBodies)
					if err != nil || len(stored) != len(m.jobs) {
						rt.Fatalf("%d jobs are stored, want %d: %v", len(stored), len(m.jobs), err)
					}
					for _, j := range stored {
						if want := m.at(j.ID.Key); j.State != want.Status {
							rt.Fatalf("job %s is %s, want %s", want.ID, j.State, want.Status)
						}
					}
				},
			})
			for _, j := range m.jobs {
				v := w.get(t, j.ID)
				if v.Status != string(j.Status) || v.AttemptCount != j.AttemptCount ||
					!slices.Equal(v.Dependencies, j.Dependencies) {
					rt.Fatalf("the job is %+v, want %+v", v, j)
				}
			}
		}))
}

// relink compares the answer to an update of dependencies with the rules.
func (m *model) relink(t *rapid.T, r testkit.Reply, j *taskflow.Job, deps []string) {
	known := map[string][]string{}
	for _, other := range m.jobs {
		known[other.ID] = other.Dependencies
	}
	changed := *j
	changed.Dependencies = deps
	found := taskflow.DetectCycle(j.ID, deps, known)
	satisfied := taskflow.CheckDependencies(changed, m.statuses()) == taskflow.DependenciesSatisfied
	switch {
	case taskflow.Terminal(j.Status), found.HasCycle, j.Status != "PENDING" && !satisfied:
		if r.Status != 409 || (found.HasCycle && !taskflow.Terminal(j.Status) &&
			!strings.Contains(r.Body, `"cycle_path":["`+j.ID)) {
			t.Fatalf("got %d %s for %s after %v", r.Status, r.Body, j.Status, deps)
		}
		return
	case r.Status != 200:
		t.Fatalf("got %d %s for %s after %v", r.Status, r.Body, j.Status, deps)
	}
	*j = changed
	if j.Dependencies == nil {
		j.Dependencies = []string{}
	}
	if j.Status != "PENDING" {
		return
	}
	if m.evaluate(j); j.Status == "BLOCKED" {
		m.finish(j.ID, "BLOCKED")
	}
}
