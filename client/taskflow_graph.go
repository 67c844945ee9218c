package client

import (
	"context"
	"fmt"
	"net/http"
	"slices"
)

// TaskFlowBuilder puts a graph together: jobs that depend on one another,
// stored all or none by [TaskFlow.Submit]. Within it jobs are known by refs of
// the caller's choice. The zero value is an empty graph. Not safe for
// concurrent use.
//
//	var g client.TaskFlowBuilder
//	extract := g.Add("extract", client.TaskFlowSpec{Name: "extract", Queue: "etl"})
//	g.Add("load", client.TaskFlowSpec{Name: "load", Queue: "etl"}, extract)
//	ids, err := taskflow.Submit(ctx, &g)
type TaskFlowBuilder struct {
	jobs       []graphPart
	index      map[string]int
	duplicates []string
}

// graphPart is a job of a graph.
type graphPart struct {
	ref       string
	spec      TaskFlowSpec
	dependsOn []string
}

// Add puts a job into the graph, to run after the jobs that the refs name,
// which may be added later. Dependencies in the spec are ids of jobs outside
// the graph. It returns the ref. Mistakes are told by [TaskFlow.Submit].
func (g *TaskFlowBuilder) Add(ref string, spec TaskFlowSpec, after ...string) string {
	if g.index == nil {
		g.index = map[string]int{}
	}
	if _, exists := g.index[ref]; exists {
		g.duplicates = append(g.duplicates, ref)
		return ref
	}
	g.index[ref] = len(g.jobs)
	g.jobs = append(g.jobs, graphPart{ref, spec, slices.Clone(after)})
	return ref
}

// Refs are those of all jobs, in the order in which they were added.
func (g *TaskFlowBuilder) Refs() []string {
	refs := make([]string, len(g.jobs))
	for i, part := range g.jobs {
		refs[i] = part.ref
	}
	return refs
}

// check finds what a server would refuse in terms of refs.
func (g *TaskFlowBuilder) check(op string) error {
	if len(g.duplicates) > 0 {
		return invalid(op, "ref %q is there twice", g.duplicates[0])
	}
	if len(g.jobs) == 0 {
		return invalid(op, "the graph is empty")
	}
	for _, part := range g.jobs {
		if err := checkName("ref", part.ref); err != nil {
			return invalid(op, "%v", err)
		}
		for _, ref := range part.dependsOn {
			if _, added := g.index[ref]; !added {
				return invalid(op, "job %q comes after %q, which is not in the graph", part.ref,
					ref)
			}
		}
	}
	if path := g.cycle(); path != nil {
		return cycleError(op, path)
	}
	return nil
}

// cycle finds one, along the dependencies. It keeps its own stack: chains may
// be long.
func (g *TaskFlowBuilder) cycle() []string {
	const onPath, done = 1, 2
	state := make([]int, len(g.jobs))
	next := make([]int, len(g.jobs))
	for start := range g.jobs {
		path := []int{}
		if state[start] == 0 {
			path, state[start] = append(path, start), onPath
		}
		for len(path) > 0 {
			at := path[len(path)-1]
			if next[at] == len(g.jobs[at].dependsOn) {
				state[at], path = done, path[:len(path)-1]
				continue
			}
			to := g.index[g.jobs[at].dependsOn[next[at]]]
			next[at]++
			switch state[to] {
			case onPath:
				return g.refsOf(path[slices.Index(path, to):])
			case 0:
				state[to], path = onPath, append(path, to)
			}
		}
	}
	return nil
}

func (g *TaskFlowBuilder) refsOf(jobs []int) []string {
	refs := make([]string, len(jobs))
	for i, job := range jobs {
		refs[i] = g.jobs[job].ref
	}
	return refs
}

func (g *TaskFlowBuilder) encode() ([]byte, error) {
	b := []byte(`{"jobs":[`)
	for i, part := range g.jobs {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(appendString(append(b, `{"ref":`...), part.ref), ',')
		var err error
		if b, err = part.spec.appendMembers(b); err != nil {
			return nil, fmt.Errorf("job %q: %w", part.ref, err)
		}
		b = appendStrings(append(b, `,"depends_on":`...),
			slices.Concat(part.dependsOn, part.spec.Dependencies))
		b = append(b, '}')
	}
	return append(b, "]}"...), nil
}

// Submit stores a graph, all of it or nothing, and returns the id of each job
// by its ref (design, section 3).
//
// Errors: [ErrInvalid] for what breaks a rule, refs that are unknown or there
// twice, and more than 10,000 jobs (G-TF-36); [ErrCycle] with the refs along
// it; [ErrUnauthorized]; [ErrRetryable].
//
// Repeating makes another graph. So a try whose answer was lost is not
// repeated: the error has Uncertain set, and the graph may be there.
func (t *TaskFlow) Submit(ctx context.Context, g *TaskFlowBuilder) (map[string]string, error) {
	const op = "taskflow submit"
	if err := g.check(op); err != nil {
		return nil, err
	}
	body, err := g.encode()
	if err != nil {
		return nil, invalid(op, "%v", err)
	}
	answer, err := doJSON[struct {
		Jobs map[string]string `json:"jobs"`
	}](ctx, t.client, call{op: op, method: http.MethodPost, path: "/api/v1/graphs",
		body: body, notRepeatable: true, accept: []int{http.StatusCreated}})
	return answer.Jobs, err
}

// TaskFlowNode is a job in a graph.
type TaskFlowNode struct {
	ID           string         `json:"job_id"`
	Name         string         `json:"name"`
	Queue        string         `json:"queue"`
	Status       TaskFlowStatus `json:"status"`
	Priority     int            `json:"priority"`
	AttemptCount int            `json:"attempt_count"`
}

// TaskFlowEdge says that job To depends on job From (G-TF-36).
type TaskFlowEdge struct {
	From string `json:"from"`
	To   string `json:"to"`
}

// TaskFlowGraph is what hangs together with a job.
type TaskFlowGraph struct {
	Nodes []TaskFlowNode `json:"nodes"`
	Edges []TaskFlowEdge `json:"edges"`
	// Truncated says that the graph has more nodes than the 2,000 there are.
	Truncated bool `json:"truncated"`
}

// Final reports whether every job of the graph has ended.
func (g TaskFlowGraph) Final() bool {
	return !slices.ContainsFunc(g.Nodes, func(n TaskFlowNode) bool { return !n.Status.Final() })
}

// Graph reads the graph around a job: all it depends on or that depends on it,
// and so on (G-TF-36).
//
// Errors: [ErrNotFound]; [ErrUnauthorized]; [ErrRetryable]. Repeating is safe.
func (t *TaskFlow) Graph(ctx context.Context, id string) (TaskFlowGraph, error) {
	const op = "taskflow graph"
	path, err := taskFlowPath(id)
	if err != nil {
		return TaskFlowGraph{}, invalid(op, "%v", err)
	}
	return doJSON[TaskFlowGraph](ctx, t.client,
		call{op: op, method: http.MethodGet, path: path + "/graph",
			readOnly: true, accept: []int{http.StatusOK}})
}

// WaitGraph looks at the graph around a job until every job of it has ended,
// and returns it; of a truncated one it sees only what [TaskFlow.Graph] shows.
//
// Errors: those of [TaskFlow.Graph], but for [ErrRetryable]; that of the
// context when it ends first.
func (t *TaskFlow) WaitGraph(ctx context.Context, id string) (TaskFlowGraph, error) {
	return watch(ctx, t.client, "taskflow wait",
		func() (TaskFlowGraph, error) { return t.Graph(ctx, id) },
		TaskFlowGraph.Final)
}
