package job

import "slices"

// FindIndexCycle returns one dependency cycle among jobs that are numbered from 0, or nil. deps[i]
// are the numbers of the jobs that job i depends on.
//
// It is a depth-first search that keeps its own stack, since a chain may be as long as the store
// has jobs (TF-041):
//
//	depths   0      the search has not met the job
//	         n > 0  the job is the n-th on the path from the root to the current job
//	         done   everything behind the job has been searched
//
// A job is on the path only while the search is below it, so a diamond is no cycle (TF-038). The
// cycle lists each of its jobs once, along the dependencies; a job that depends on itself is a
// cycle of one (TF-035, G-TF-33). Roots are tried in their order, and a cycle through the root is
// preferred to one met on the way, because a caller numbers the job that it changes first. Time
// and memory grow with jobs plus dependencies: 100,000 jobs take milliseconds.
func FindIndexCycle(deps [][]int) []int {
	const done = -1
	depths := make([]int32, len(deps))
	followed := make([]int32, len(deps))
	var path []int
	for root := range deps {
		if depths[root] != 0 {
			continue
		}
		var cycle []int
		path, depths[root] = append(path[:0], root), 1
		for len(path) > 0 {
			at := path[len(path)-1]
			if int(followed[at]) == len(deps[at]) {
				depths[at] = done
				path = path[:len(path)-1]
				continue
			}
			next := deps[at][followed[at]]
			followed[at]++
			switch depth := depths[next]; {
			case depth == 0:
				path = append(path, next)
				depths[next] = int32(len(path))
			case depth == 1:
				return slices.Clone(path)
			case depth > 1 && cycle == nil:
				cycle = slices.Clone(path[depth-1:])
			}
		}
		if cycle != nil {
			return cycle
		}
	}
	return nil
}
