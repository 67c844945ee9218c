package client

import (
	"context"
	"fmt"
	"net/http"
	"slices"
)

// TaskFlowBuilder builds a graph: jobs that depend on one another, which [TaskFlow.Submit] stores
// all or none. Within the graph each job has a ref, any text that the caller chooses. The zero
// value is an empty graph. A TaskFlowBuilder is not safe for concurrent use.
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

// graphPart is a job of a graph; dependsOn are refs.
type graphPart struct {
	ref       string
	spec      TaskFlowSpec
	dependsOn []string
}

// Add adds a job to the graph and returns its ref. The job runs after the jobs with the refs in
// after, which may be added later. Dependencies in the spec are ids of jobs outside the graph.
// [TaskFlow.Submit] reports what is wrong with a graph.
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

// Refs returns the refs of all jobs, in the order in which they were added.
func (g *TaskFlowBuilder) Refs() []string {
	refs := make([]string, len(g.jobs))
	for i, part := range g.jobs {
		refs[i] = part.ref
	}
	return refs
}

// check finds mistakes before the graph is sent, to report them by refs.
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

// cycle returns the refs of a dependency cycle, nil if there is none. It is a depth-first search
// that keeps a stack of its own, because chains of dependencies may be long.
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

// refsOf returns the refs of jobs that are given by index.
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

// Submit stores a graph, all of it or nothing, and returns the id of each job by its ref.
//
// Errors: [ErrInvalid], also for refs that are unknown or used twice and for more than 10,000 jobs
// (G-TF-36); [ErrCycle] with the refs along the cycle; [ErrUnauthorized]; [ErrRetryable].
//
// Repeating would store another graph, so a try whose answer was lost is not repeated. The error is
// Uncertain then, and the graph may exist.
func (t *TaskFlow) Submit(ctx context.Context, g *TaskFlowBuilder) (map[string]string, error) {
	return t.submit(ctx, g, nil)
}

// SubmitOnce is [TaskFlow.Submit] with an idempotency key, as that of [TaskFlow.CreateOnce]: of
// equal graphs with the same key one is stored, and all others return its ids. Repeating is safe.
func (t *TaskFlow) SubmitOnce(ctx context.Context, key string,
	g *TaskFlowBuilder) (map[string]string, error) {
	return t.submit(ctx, g, idempotencyHeader(key))
}

func (t *TaskFlow) submit(ctx context.Context, g *TaskFlowBuilder,
	key http.Header) (map[string]string, error) {
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
		body: body, header: key, notRepeatable: key == nil,
		accept: []int{http.StatusCreated, http.StatusOK}})
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

// TaskFlowGraph is a set of jobs that are connected by dependencies.
type TaskFlowGraph struct {
	Nodes []TaskFlowNode `json:"nodes"`
	Edges []TaskFlowEdge `json:"edges"`
	// Truncated is true when the graph has more than the 2,000 nodes in Nodes.
	Truncated bool `json:"truncated"`
}

// Final reports whether every job of the graph has ended.
func (g TaskFlowGraph) Final() bool {
	return !slices.ContainsFunc(g.Nodes, func(n TaskFlowNode) bool { return !n.Status.Final() })
}

// Graph reads the graph of a job: all jobs that it depends on or that depend on it, directly or not
// (G-TF-36).
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

// WaitGraph polls the graph of a job until every job in it has ended, and returns it. Of a
// truncated graph it sees only the jobs that [TaskFlow.Graph] returns.
//
// Errors: those of [TaskFlow.Graph] except [ErrRetryable]; that of the context when it ends first.
func (t *TaskFlow) WaitGraph(ctx context.Context, id string) (TaskFlowGraph, error) {
	return watch(ctx, t.client, "taskflow wait",
		func() (TaskFlowGraph, error) { return t.Graph(ctx, id) },
		TaskFlowGraph.Final)
}
