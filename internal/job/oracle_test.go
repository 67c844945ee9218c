package job

// What follows is the oracle that FindIndexCycle is compared with: the same search over ids of any
// type, written for clarity.

// CycleDetectionResult is the answer of the pure check of TF-037. CyclePath lists the jobs along
// the cycle in the order of the dependencies, each once (G-TF-33); it is empty without a cycle.
type CycleDetectionResult[K comparable] struct {
	HasCycle  bool
	CyclePath []K
}

// DetectCycle reports whether the jobs in known would hold a cycle once changed depends on
// dependencies. What known says about changed itself is ignored, so the same call serves a new job
// and an edited one (G-TF-04).
func DetectCycle[K comparable](changed K, dependencies []K,
	known map[K][]K) CycleDetectionResult[K] {
	path := FindCycle(changed, func(id K) []K {
		if id == changed {
			return dependencies
		}
		return known[id]
	})
	return CycleDetectionResult[K]{HasCycle: path != nil, CyclePath: path}
}

// FindCycle returns a cycle that can be reached from changed, or nil.
//
// Promises: a job is on the path only while the walk stands below it, so diamonds are no cycles
// (TF-038). An id for which deps returns nothing, known or not, ends its branch (TF-036, TF-039).
// The path starts with changed and names each job once along the dependencies; a job depending on
// itself is a path of one (TF-035, G-TF-33). Only where no cycle runs through changed, but one that
// was there before lies behind it, does the path start elsewhere. deps is called at most once for
// an id; time and memory grow with jobs plus edges, and the goroutine's stack does not grow at all
// (TF-041). An edge costs one look-up by id: where graphs are large, the store's number is a better
// K than text.
func FindCycle[K comparable](changed K, deps func(K) []K) []K {
	w := depthFirst[K]{deps: deps, index: make(map[K]int)}
	return w.from(changed)
}

// FindGraphCycle returns one cycle among everything that can be reached from nodes, or nil: the
// check for a graph that is submitted as a whole. The same nodes in the same order give the same
// path; the promises of FindCycle hold.
func FindGraphCycle[K comparable](nodes []K, deps func(K) []K) []K {
	w := depthFirst[K]{deps: deps, index: make(map[K]int, len(nodes)),
		nodes: make([]node[K], 0, len(nodes))}
	for _, id := range nodes {
		if cycle := w.from(id); cycle != nil {
			return cycle
		}
	}
	return nil
}

// depthFirst is a depth-first search that keeps its own stack, since a chain may be as long as the
// store has jobs. An id is looked up once per edge, which is where the time goes; everything else
// is kept by the id's number.
type depthFirst[K comparable] struct {
	deps  func(K) []K
	index map[K]int // id → its place in seen
	nodes []node[K]
	path  []int // the jobs from the root to where the walk stands
}

// node is a job that was met, and those of its dependencies not yet followed.
type node[K comparable] struct {
	id        K
	remaining []K
	depth     int // on the path counted from 1; 0 once everything behind the job is done
}

// from walks everything not seen before that root can reach. All of it is seen even when a cycle
// turns up early, unless the cycle goes through root: that one is worth more, because it is the one
// the change has closed.
func (w *depthFirst[K]) from(root K) (cycle []K) {
	if _, seen := w.index[root]; seen {
		return nil
	}
	w.push(root)
	for len(w.path) > 0 {
		top := &w.nodes[w.path[len(w.path)-1]]
		if len(top.remaining) == 0 {
			top.depth = 0
			w.path = w.path[:len(w.path)-1]
			continue
		}
		next := top.remaining[0]
		top.remaining = top.remaining[1:]
		i, seen := w.index[next]
		if !seen {
			w.push(next)
			continue
		}
		switch depth := w.nodes[i].depth; {
		case depth == 1:
			return w.pathFrom(1)
		case depth > 1 && cycle == nil:
			cycle = w.pathFrom(depth)
		}
	}
	return cycle
}

func (w *depthFirst[K]) push(id K) {
	w.index[id] = len(w.nodes)
	w.path = append(w.path, len(w.nodes))
	w.nodes = append(w.nodes, node[K]{id: id, remaining: w.deps(id), depth: len(w.path)})
}

func (w *depthFirst[K]) pathFrom(depth int) []K {
	ids := make([]K, 0, len(w.path)-depth+1)
	for _, i := range w.path[depth-1:] {
		ids = append(ids, w.nodes[i].id)
	}
	return ids
}
