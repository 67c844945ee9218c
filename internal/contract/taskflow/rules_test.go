package taskflow_test

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/internal/contract/taskflow"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/testkit"
)

// drawGraph draws a graph of n jobs, named by letters, with any edges.
func drawGraph(t *rapid.T, n int) map[string][]string {
	graph := map[string][]string{}
	for i := range n {
		id := string(rune('a' + i))
		graph[id] = nil
		for k := range n + 1 { // one of them is nobody's
			if rapid.IntRange(0, 3).Draw(t, "edge") == 0 {
				graph[id] = append(graph[id], string(rune('a'+k)))
			}
		}
	}
	return graph
}

// hasPath finds out by trying whether there is a way.
func hasPath(graph map[string][]string, from, to string, steps int) bool {
	return steps > 0 && slices.ContainsFunc(graph[from], func(next string) bool {
		return next == to || hasPath(graph, next, to, steps-1)
	})
}

func TestDetectCycle(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		deps     []string
		existing map[string][]string
		path     []string
	}{
		{"TF-036 no dependencies", nil, map[string][]string{"b": {"new"}}, nil},
		{"TF-035 itself", []string{"new"}, nil, []string{"new"}},
		{"TF-037 two", []string{"b"}, map[string][]string{"b": {"new"}}, []string{"new", "b"}},
		{"TF-037 three, in the order of the dependencies", []string{"b"},
			map[string][]string{"b": {"x", "c"}, "c": {"new"}, "x": nil},
			[]string{"new", "b", "c"}},
		{"TF-038 a diamond", []string{"b", "c"},
			map[string][]string{"b": {"d"}, "c": {"d"}, "d": nil}, nil},
		{"TF-038 a double diamond", []string{"b", "c", "d"},
			map[string][]string{"b": {"d", "e"}, "c": {"d", "e"}, "d": {"e"}}, nil},
		{"TF-039 an id that nobody knows", []string{"stranger"}, map[string][]string{"b": nil},
			nil},
		{"TF-039 of a dependency", []string{"b"}, map[string][]string{"b": {"stranger"}}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := taskflow.DetectCycle("new", c.deps, c.existing)
			if got.HasCycle != (c.path != nil) || !slices.Equal(got.CyclePath, c.path) {
				t.Errorf("got %+v, want %v", got, c.path)
			}
		})
	}
	t.Run("TF-041 a chain of 100,000", func(t *testing.T) {
		chain := map[string][]string{}
		for i := range 100_000 {
			chain[fmt.Sprint(i)] = []string{fmt.Sprint(i + 1)}
		}
		assertEqual(t, "open", taskflow.DetectCycle("new", []string{"0"}, chain).HasCycle, false)
		chain["100000"] = []string{"new"}
		assertEqual(t, "closed", len(taskflow.DetectCycle("new", []string{"0"}, chain).CyclePath),
			100_002)
	})
	t.Run("TF-037 as brute force finds it", rapid.MakeCheck(func(t *rapid.T) {
		n := rapid.IntRange(1, 6).Draw(t, "n")
		graph := drawGraph(t, n)
		got := taskflow.DetectCycle("a", graph["a"], graph)
		through := hasPath(graph, "a", "a", n)
		if (through && !got.HasCycle) || (through && got.CyclePath[0] != "a") {
			t.Fatalf("%v: got %+v, and there is a way from a to a", graph, got)
		}
		anywhere := slices.ContainsFunc(slices.Collect(maps.Keys(graph)), func(id string) bool {
			return (id == "a" || hasPath(graph, "a", id, n)) && hasPath(graph, id, id, n)
		})
		if got.HasCycle != anywhere || got.HasCycle != (len(got.CyclePath) > 0) {
			t.Fatalf("%v: got %+v, want a cycle: %t", graph, got, anywhere)
		}
		for i, id := range got.CyclePath {
			if next := got.CyclePath[(i+1)%len(got.CyclePath)]; !slices.Contains(graph[id], next) ||
				slices.Contains(got.CyclePath[:i], id) {
				t.Fatalf("%v: %v is no cycle", graph, got.CyclePath)
			}
		}
	}))
}

// TF-042 to TF-045: every list of up to four outcomes against the rules in words.
func TestEvaluateDependencies(t *testing.T) {
	t.Parallel()
	all := []taskflow.Outcome{taskflow.OutcomeOpen, taskflow.OutcomeSucceeded,
		taskflow.OutcomeFailed}
	var visit func(prefix []taskflow.Outcome)
	visit = func(prefix []taskflow.Outcome) {
		want := "SATISFIED"
		if slices.Contains(prefix, taskflow.OutcomeOpen) {
			want = "WAITING"
		}
		if slices.Contains(prefix, taskflow.OutcomeFailed) {
			want = "BLOCKED"
		}
		if got := taskflow.EvaluateDependencies(prefix).String(); got != want {
			t.Errorf("EvaluateDependencies(%v) = %s, want %s", prefix, got, want)
		}
		if len(prefix) == 4 {
			return
		}
		for _, o := range all {
			visit(append(slices.Clip(prefix), o))
		}
	}
	visit(nil)
	if got := taskflow.EvaluateDependencies([]taskflow.Outcome{taskflow.OutcomeSucceeded,
		77}); got != taskflow.DependenciesWaiting {
		t.Errorf("an unknown outcome: %s, want WAITING", got)
	}
}

func TestCheckDependencies(t *testing.T) {
	t.Parallel()
	check := func(statuses ...job.State) string {
		j, known := taskflow.Job{}, map[string]job.State{}
		for i, s := range statuses {
			id := fmt.Sprint(i)
			j.Dependencies = append(j.Dependencies, id)
			if s != "" {
				known[id] = s
			}
		}
		return taskflow.CheckDependencies(j, known).String()
	}
	t.Run("TF-042 none", func(t *testing.T) { assertEqual(t, "status", check(), "SATISFIED") })
	t.Run("TF-044 one of unknown status is waited for", func(t *testing.T) {
		assertEqual(t, "status", check("COMPLETED", ""), "WAITING")
	})
	all := taskflow.Statuses
	count := 0
	for _, a := range all {
		for _, b := range all {
			for _, c := range all {
				three := []job.State{a, b, c}
				has := func(some ...job.State) bool {
					return slices.ContainsFunc(three, func(s job.State) bool {
						return slices.Contains(some, s)
					})
				}
				id, want := "TF-045", "SATISFIED"
				if has("FAILED", "BLOCKED") {
					id, want = "TF-043", "BLOCKED"
				} else if has("PENDING", "READY", "RUNNING") {
					id, want = "TF-044", "WAITING"
				}
				count++
				if got := check(three...); got != want {
					t.Errorf("%s %v: got %s, want %s", id, three, got, want)
				}
			}
		}
	}
	assertEqual(t, "TF-042 TF-043 TF-044 TF-045 combinations", count, 216)
}

// jobsOf draws jobs of few priorities, times and ids, so that there are ties.
func jobsOf(t *rapid.T) (all []taskflow.Job) {
	for i := range rapid.IntRange(0, 8).Draw(t, "n") {
		all = append(all, taskflow.Job{ID: fmt.Sprintf("%x%d", rapid.IntRange(0, 15).Draw(t, "id"),
			i), Priority: rapid.IntRange(1, 3).Draw(t, "priority"),
			CreatedAt: testkit.StartTime.Add(time.Duration(rapid.IntRange(0, 2).Draw(t,
				"at")) * time.Microsecond)})
	}
	return all
}

// runsBefore is the order as the document tells it.
func runsBefore(a, b taskflow.Job) bool {
	if a.Priority != b.Priority {
		return a.Priority > b.Priority
	}
	if !a.CreatedAt.Equal(b.CreatedAt) {
		return a.CreatedAt.Before(b.CreatedAt)
	}
	return a.ID < b.ID
}

func keys(jobs []taskflow.Job) (all []string) {
	for _, j := range jobs {
		all = append(all, j.ID)
	}
	return all
}

func TestOrder(t *testing.T) {
	t.Parallel()
	now := testkit.StartTime
	one := taskflow.Job{ID: "b", Priority: 5, CreatedAt: now}
	for _, c := range []struct {
		name   string
		second taskflow.Job
	}{
		{"TF-052 priority counts first",
			taskflow.Job{ID: "a", Priority: 4, CreatedAt: now.Add(-time.Hour)}},
		{"TF-053 then the time", taskflow.Job{ID: "a", Priority: 5,
			CreatedAt: now.Add(time.Microsecond)}},
		{"TF-054 then the id", taskflow.Job{ID: "c", Priority: 5, CreatedAt: now}},
		{"TF-054 as text", taskflow.Job{ID: "b0", Priority: 5, CreatedAt: now}},
	} {
		t.Run(c.name, func(t *testing.T) {
			assertEqual(t, "first", taskflow.OrderJobs([]taskflow.Job{c.second, one})[0].ID, one.ID)
			assertEqual(t, "sign", taskflow.CompareJobs(one, c.second) < 0 &&
				taskflow.CompareJobs(c.second, one) > 0, true)
		})
	}
	t.Run("TF-052 TF-053 TF-054 any jobs", rapid.MakeCheck(func(t *rapid.T) {
		all := jobsOf(t)
		was := keys(all)
		got := taskflow.OrderJobs(all)
		if !slices.Equal(keys(all), was) || len(got) != len(all) {
			t.Fatal("the input has changed, or jobs are lost")
		}
		for i := range got {
			for k := range got {
				if runsBefore(got[i], got[k]) != (i < k) {
					t.Fatalf("order %v", got)
				}
			}
		}
	}))
}

func TestSelectNext(t *testing.T) {
	t.Parallel()
	t.Run("TF-055 TF-056 TF-057 any jobs, any number of slots", rapid.MakeCheck(func(t *rapid.T) {
		all := jobsOf(t)
		running, limit := rapid.IntRange(0, 12).Draw(t, "running"),
			rapid.IntRange(0, 12).Draw(t, "limit")
		got := taskflow.SelectNext(all, running, limit)
		if len(got) != max(0, min(limit-running, len(all))) {
			t.Fatalf("%d of %d jobs with %d of %d running", len(got), len(all), running, limit)
		}
		for _, j := range all { // whoever is left out comes after everybody who is not
			if !slices.Contains(keys(got), j.ID) &&
				slices.ContainsFunc(got, func(g taskflow.Job) bool {
					return runsBefore(j, g)
				}) {
				t.Fatalf("%s is left out of %v", j.ID, keys(got))
			}
		}
	}))
	t.Run("TF-056 no slot", func(t *testing.T) {
		assertEqual(t, "jobs", len(taskflow.SelectNext([]taskflow.Job{{ID: "a"}}, 3, 3))+
			len(taskflow.SelectNext([]taskflow.Job{{ID: "a"}}, 4, 3)), 0)
	})
}

func TestRetryDelay(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		strategy job.Strategy
		want     [4]int
	}{
		"TF-060 TF-063 fixed":       {job.Fixed, [4]int{10, 10, 10, 10}},
		"TF-061 TF-063 linear":      {job.Linear, [4]int{10, 20, 30, 40}},
		"TF-062 TF-063 exponential": {job.Exponential, [4]int{10, 20, 40, 80}},
	} {
		t.Run(name, func(t *testing.T) {
			for i, want := range c.want {
				assertEqual(t, fmt.Sprint("attempt ", i+1),
					taskflow.RetryDelay(taskflow.Policy{Strategy: c.strategy, BaseDelay: 10,
						MaxDelay: 300}, i+1), want)
			}
		})
	}
	t.Run("TF-061 TF-062 TF-064 as the formulas say", rapid.MakeCheck(func(t *rapid.T) {
		base := rapid.IntRange(1, 300).Draw(t, "base")
		limit := rapid.IntRange(base, 3600).Draw(t, "max")
		n := rapid.OneOf(rapid.IntRange(1, 20), rapid.IntRange(1, math.MaxInt)).Draw(t, "n")
		power := math.Min(float64(base)*math.Pow(2, math.Min(float64(n-1), 100)), float64(limit))
		for strategy, want := range map[job.Strategy]int{job.Fixed: base,
			job.Linear:      int(math.Min(float64(base)*float64(n), float64(limit))),
			job.Exponential: int(power)} {
			if got := taskflow.RetryDelay(taskflow.Policy{Strategy: strategy, BaseDelay: base,
				MaxDelay: limit}, n); got != want {
				t.Fatalf("%s of %d to %d after %d: got %d, want %d", strategy, base, limit, n, got,
					want)
			}
		}
	}))
	t.Run("TF-065 retried while attempts are left", func(t *testing.T) {
		for limit := 1; limit <= 10; limit++ {
			for n := range 12 {
				got := taskflow.ShouldRetry(taskflow.Job{AttemptCount: n,
					Policy: taskflow.Policy{MaxAttempts: limit}})
				assertEqual(t, fmt.Sprint(n, " of ", limit), got, n < limit)
			}
		}
	})
}

// drawJobs draws jobs with statuses and edges to earlier ones.
func drawJobs(t *rapid.T) (all []taskflow.Job) {
	for i := range rapid.IntRange(1, 8).Draw(t, "n") {
		j := taskflow.Job{ID: fmt.Sprint(i),
			Status: rapid.SampledFrom(taskflow.Statuses).Draw(t, "status")}
		for k := range i {
			if rapid.IntRange(0, 2).Draw(t, "edge") == 0 {
				j.Dependencies = append(j.Dependencies, fmt.Sprint(k))
			}
		}
		all = append(all, j)
	}
	return all
}

func TestPropagate(t *testing.T) {
	t.Parallel()
	node := func(id string, s job.State, deps ...string) taskflow.Job {
		return taskflow.Job{ID: id, Status: s, Dependencies: deps}
	}
	t.Run("TF-047 through all who wait", func(t *testing.T) {
		got := taskflow.PropagateFailure("a",
			[]taskflow.Job{node("a", "FAILED"), node("b", "PENDING", "a"),
				node("c", "PENDING", "b", "x"), node("d", "PENDING", "x")})
		assertEqual(t, "blocked", fmt.Sprint(slices.Sorted(maps.Keys(got))), "[b c]")
	})
	t.Run("TF-048 neither those who do not wait nor what is behind them", func(t *testing.T) {
		got := taskflow.PropagateFailure("a",
			[]taskflow.Job{node("r", "READY", "a"), node("s", "RUNNING", "a"),
				node("e", "COMPLETED", "a"), node("f", "PENDING", "r", "s", "e")})
		assertEqual(t, "blocked", len(got), 0)
	})
	t.Run("TF-046 only whom nothing else holds", func(t *testing.T) {
		got := taskflow.PropagateCompletion("a",
			[]taskflow.Job{node("a", "RUNNING"), node("z", "COMPLETED"),
				node("b", "PENDING", "a", "z"),
				node("c", "PENDING", "a", "b"), node("d", "PENDING", "z"),
				node("e", "BLOCKED", "a")})
		assertEqual(t, "released", fmt.Sprint(slices.Sorted(maps.Keys(got))), "[b]")
	})
	t.Run("TF-046 TF-047 TF-048 as brute force finds it", rapid.MakeCheck(func(t *rapid.T) {
		all := drawJobs(t)
		blocked, released := map[string]bool{}, map[string]bool{}
		for range all { // until nothing changes
			for _, j := range all {
				if j.Status == "PENDING" &&
					slices.ContainsFunc(j.Dependencies, func(id string) bool {
						return id == "0" || blocked[id]
					}) {
					blocked[j.ID] = true
				}
			}
		}
		for _, j := range all {
			done := func(id string) bool {
				return id == "0" || slices.ContainsFunc(all, func(d taskflow.Job) bool {
					return d.ID == id && d.Status == "COMPLETED"
				})
			}
			open := slices.ContainsFunc(j.Dependencies, func(id string) bool { return !done(id) })
			if j.Status == "PENDING" && slices.Contains(j.Dependencies, "0") && !open {
				released[j.ID] = true
			}
		}
		if got := taskflow.PropagateFailure("0", all); !maps.Equal(got, blocked) {
			t.Fatalf("%+v: blocked %v, want %v", all, got, blocked)
		}
		if got := taskflow.PropagateCompletion("0", all); !maps.Equal(got, released) {
			t.Fatalf("%+v: released %v, want %v", all, got, released)
		}
	}))
	t.Run("TF-041 a chain of 100,000 is blocked", func(t *testing.T) {
		var chain []taskflow.Job
		for i := range 100_000 {
			chain = append(chain, node(fmt.Sprint(i+1), "PENDING", fmt.Sprint(i)))
		}
		assertEqual(t, "blocked", len(taskflow.PropagateFailure("0", chain)), 100_000)
	})
}
