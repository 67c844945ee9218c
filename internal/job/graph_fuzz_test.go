package job_test

import (
	"slices"
	"testing"

	"github.com/millrace/millrace/internal/job"
)

// FuzzFindIndexCycle: a cycle is found where removing jobs without dependencies, again and again,
// leaves some, and it is one.
func FuzzFindIndexCycle(f *testing.F) {
	f.Add(uint8(3), []byte{0, 1, 1, 2, 2, 0})
	f.Add(uint8(4), []byte{0, 1, 0, 2, 1, 3, 2, 3})
	f.Add(uint8(1), []byte{0, 0})
	f.Add(uint8(5), []byte{4, 3, 3, 2, 2, 1, 1, 0, 1, 4, 0, 1})
	f.Fuzz(func(t *testing.T, n uint8, edges []byte) {
		if n == 0 {
			return
		}
		deps := make([][]int, n)
		for i := 0; i+1 < len(edges); i += 2 {
			from, to := int(edges[i]%n), int(edges[i+1]%n)
			deps[from] = append(deps[from], to)
		}
		cycle := job.FindIndexCycle(deps)
		if has := hasCycle(deps); has != (cycle != nil) {
			t.Fatalf("%v: got %v, want a cycle: %t", deps, cycle, has)
		}
		for i, at := range cycle {
			if !slices.Contains(deps[at], cycle[(i+1)%len(cycle)]) ||
				slices.Contains(cycle[:i], at) {
				t.Fatalf("%v: %v is no cycle", deps, cycle)
			}
		}
	})
}

// hasCycle removes jobs that depend on nothing that is left until none is found.
func hasCycle(deps [][]int) bool {
	gone := make([]bool, len(deps))
	for left := len(deps); left > 0; {
		before := left
		for i := range deps {
			blocked := slices.ContainsFunc(deps[i], func(d int) bool { return !gone[d] })
			if !gone[i] && !blocked {
				gone[i] = true
				left--
			}
		}
		if left == before {
			return true
		}
	}
	return false
}
