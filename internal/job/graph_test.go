package job_test

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/internal/job"
)

func depsOf[K comparable](graph map[K][]K) func(K) []K {
	return func(id K) []K { return graph[id] }
}

// TF-035 to TF-039, G-TF-33: what is a cycle, and what its path says.
func TestFindCycle(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		graph map[string][]string
		want  []string // of the change to a
	}{
		{"no dependencies", map[string][]string{"b": {"a"}}, nil},
		{"unknown id", map[string][]string{"a": {"nobody"}}, nil},
		{"itself", map[string][]string{"a": {"a"}}, []string{"a"}},
		{"itself after others", map[string][]string{"a": {"b", "a"}, "b": {"c"}}, []string{"a"}},
		{"two", map[string][]string{"a": {"b"}, "b": {"a"}}, []string{"a", "b"}},
		{"along the dependencies", map[string][]string{"a": {"b"}, "b": {"c"}, "c": {"a"}},
			[]string{"a", "b", "c"}},
		{"diamond", map[string][]string{"a": {"b", "c"}, "b": {"d"}, "c": {"d"}}, nil},
		{"diamond twice", map[string][]string{"a": {"b", "c", "d"}, "b": {"c", "d"}, "c": {"d"},
			"d": {"e"}}, nil},
		{"dead ends first", map[string][]string{"a": {"x", "b"}, "x": {"y"}, "b": {"x", "c"},
			"c": {"a"}}, []string{"a", "b", "c"}},
		{"closed below a diamond", map[string][]string{"a": {"b", "c"}, "b": {"d"}, "c": {"d"},
			"d": {"a"}}, []string{"a", "b", "d"}},
		{"same dependency twice", map[string][]string{"a": {"b", "b"}}, nil},
		{"an old cycle behind", map[string][]string{"a": {"b"}, "b": {"c"}, "c": {"d"}, "d": {"b"}},
			[]string{"b", "c", "d"}},
		{"the own cycle before an old one",
			map[string][]string{"a": {"b", "d"}, "b": {"c"}, "c": {"b"}, "d": {"a"}},
			[]string{"a", "d"}},
		{"an old cycle nobody reaches", map[string][]string{"a": {"b"}, "x": {"y"}, "y": {"x"}},
			nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := job.FindCycle("a", depsOf(tt.graph)); !slices.Equal(got, tt.want) {
				t.Errorf("FindCycle = %v, want %v", got, tt.want)
			}
			got := job.DetectCycle("a", tt.graph["a"], tt.graph)
			if got.HasCycle != (tt.want != nil) || !slices.Equal(got.CyclePath, tt.want) {
				t.Errorf("DetectCycle = %+v, want path %v", got, tt.want)
			}
		})
	}
}

// G-TF-04: an edit is checked by what it changes, not by what was stored before.
func TestDetectCycleTakesTheNewDependencies(t *testing.T) {
	t.Parallel()
	known := map[string][]string{"a": {"b"}, "b": {"c"}, "c": nil}
	if got := job.DetectCycle("a", nil, map[string][]string{"a": {"b"}, "b": {"a"}}); got.HasCycle {
		t.Errorf("taking the dependency away: %+v, want no cycle", got)
	}
	if got := job.DetectCycle("c", []string{"a"}, known); !slices.Equal(got.CyclePath,
		[]string{"c", "a", "b"}) {
		t.Errorf("closing the circle: %+v, want c a b", got)
	}
}

func TestFindGraphCycle(t *testing.T) {
	t.Parallel()
	graph := map[int][]int{1: {2, 3}, 2: {3}, 3: {9}, 4: {5}, 5: {6}, 6: {5}}
	if got := job.FindGraphCycle([]int{1, 2, 3}, depsOf(graph)); got != nil {
		t.Errorf("without a cycle: %v", got)
	}
	if got, want := job.FindGraphCycle([]int{1, 2, 3, 4, 5, 6}, depsOf(graph)),
		[]int{5, 6}; !slices.Equal(got, want) {
		t.Errorf("with a cycle: %v, want %v", got, want)
	}
}

// TF-041: the depth of a chain is not the depth of a stack, and no job is asked for twice.
func TestFindCycleDeepAndWide(t *testing.T) {
	t.Parallel()
	const n = 200_000
	asked := make([]int, n)
	chain := func(last []int) func(int) []int {
		return func(id int) []int {
			asked[id]++
			if id == n-1 {
				return last
			}
			return []int{id + 1}
		}
	}
	if got := job.FindCycle(0, chain(nil)); got != nil {
		t.Fatalf("an open chain has a cycle of %d", len(got))
	}
	if got := slices.Max(asked); got != 1 {
		t.Errorf("deps was called %d times for one id", got)
	}
	got := job.FindCycle(0, chain([]int{0}))
	if len(got) != n || got[0] != 0 || got[n-1] != n-1 {
		t.Errorf("a closed chain gave %d jobs, want %d", len(got), n)
	}
}

// reaches is the plain definition: is there a way of one edge or more from a to b?
func reaches(graph map[int][]int, a, b int) bool {
	seen := map[int]bool{}
	for next := slices.Clone(graph[a]); len(next) > 0; next = next[1:] {
		if next[0] == b {
			return true
		}
		if !seen[next[0]] {
			seen[next[0]] = true
			next = append(next, graph[next[0]]...)
		}
	}
	return false
}

// mustBeCycle checks a path against G-TF-33: each job once, each an edge of the next, the last one
// back to the first.
func mustBeCycle(tb rapid.TB, graph map[int][]int, path []int) {
	tb.Helper()
	seen := map[int]bool{}
	for i, id := range path {
		if next := path[(i+1)%len(path)]; !slices.Contains(graph[id], next) {
			tb.Fatalf("path %v: no edge from %d to %d in %v", path, id, next, graph)
		}
		if seen[id] {
			tb.Fatalf("path %v names %d twice", path, id)
		}
		seen[id] = true
	}
}

func TestCyclesAgainstBruteForce(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(1, 8).Draw(rt, "nodes")
		ids := rapid.SliceOfN(rapid.IntRange(0, n), 0, 3) // n itself is an unknown job
		graph, nodes := map[int][]int{}, []int{}
		for id := range n {
			graph[id] = ids.Draw(rt, fmt.Sprintf("deps of %d", id))
			nodes = append(nodes, id)
		}
		onCycle := func(id int) bool { return reaches(graph, id, id) }

		path := job.FindCycle(0, depsOf(graph))
		reachable := slices.ContainsFunc(nodes, func(id int) bool {
			return onCycle(id) && (id == 0 || reaches(graph, 0, id))
		})
		if (path != nil) != reachable {
			rt.Fatalf("FindCycle = %v in %v, brute force says %v", path, graph, reachable)
		}
		mustBeCycle(rt, graph, path)
		if onCycle(0) && path[0] != 0 {
			rt.Fatalf("path %v does not start with the changed job in %v", path, graph)
		}

		whole := job.FindGraphCycle(nodes, depsOf(graph))
		if want := slices.ContainsFunc(nodes, onCycle); (whole != nil) != want {
			rt.Fatalf("FindGraphCycle = %v in %v, brute force says %v", whole, graph, want)
		}
		mustBeCycle(rt, graph, whole)

		lists := make([][]int, n)
		for id := range n {
			lists[id] = slices.DeleteFunc(slices.Clone(graph[id]), func(d int) bool {
				return d == n
			})
		}
		if fast := job.FindIndexCycle(lists); !slices.Equal(fast, whole) {
			rt.Fatalf("FindIndexCycle = %v in %v, FindGraphCycle = %v", fast, graph, whole)
		}
	})
}

// uuidLike makes keys of the shape and cost of the ids in the store.
func uuidLike(n int) string { return fmt.Sprintf("%08x-0000-7000-8000-%012x", n, n*2654435761) }

// The budget is 50 ms for 100,000 jobs.
func BenchmarkFindCycle(b *testing.B) {
	const n = 100_000
	shapes := []struct {
		name  string
		width int
		fan   int
	}{{"chain", 1, 1}, {"layers of 100, fan 3", 100, 3}, {"layers of 1000, fan 10", 1000, 10}}
	for _, shape := range shapes {
		numbers, texts := make(map[int64][]int64, n), make(map[string][]string, n)
		for id := range n {
			next := (id/shape.width + 1) * shape.width // the first of the layer below
			for f := range shape.fan {
				if to := next + (id*7+f*13)%shape.width; to < n {
					numbers[int64(id)] = append(numbers[int64(id)], int64(to))
					texts[uuidLike(id)] = append(texts[uuidLike(id)], uuidLike(to))
				}
			}
		}
		nodes, names := make([]int64, n), make([]string, n)
		for id := range n {
			nodes[id], names[id] = int64(id), uuidLike(id)
		}
		lists := make([][]int, n)
		for id := range n {
			for _, to := range numbers[int64(id)] {
				lists[id] = append(lists[id], int(to))
			}
		}
		b.Run(shape.name+"/index", func(b *testing.B) {
			for b.Loop() {
				if cycle := job.FindIndexCycle(lists); cycle != nil {
					b.Fatal(cycle)
				}
			}
		})
		b.Run(shape.name+"/seq", func(b *testing.B) { benchmarkGraph(b, nodes, numbers) })
		b.Run(shape.name+"/uuid text", func(b *testing.B) { benchmarkGraph(b, names, texts) })
	}
}

func benchmarkGraph[K comparable](b *testing.B, nodes []K, graph map[K][]K) {
	b.ReportAllocs()
	for b.Loop() {
		if cycle := job.FindGraphCycle(nodes, depsOf(graph)); cycle != nil {
			b.Fatal(cycle)
		}
	}
}
