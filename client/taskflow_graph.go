package client

import (
	"context"
	"fmt"
	"net/http"
	"slices"
)

// TaskFlowGraphBuilder builds a graph: jobs that depend on one another, which
// [TaskFlow.SubmitGraph] stores all or none. Within the graph each job has a ref, any text that the
// caller chooses. The zero value is an empty graph. A TaskFlowGraphBuilder is not safe for
// concurrent use.
//
//	var g client.TaskFlowGraphBuilder
//	extract := g.Add("extract", client.TaskFlowSpec{Name: "extract", Queue: "etl"})
//	g.Add("load", client.TaskFlowSpec{Name: "load", Queue: "etl"}, extract)
//	ids, err := flow.SubmitGraph(ctx, &g)
type TaskFlowGraphBuilder struct {
	jobs       []graphJob
	index      map[string]int
	duplicates []string
}

// graphJob is a job of a graph; dependsOn are refs.
type graphJob struct {
	ref       string
	spec      TaskFlowSpec
	dependsOn []string
}

// Add adds a job to the graph and returns its ref. The job runs after the jobs with the refs in
// after, which may be added later. Dependencies in the spec are ids of jobs outside the graph.
// [TaskFlow.SubmitGraph] reports the problems of a graph.
func (g *TaskFlowGraphBuilder) Add(ref string, spec TaskFlowSpec, after ...string) string {
	if g.index == nil {
		g.index = map[string]int{}
	}
	if _, exists := g.index[ref]; exists {
		g.duplicates = append(g.duplicates, ref)
		return ref
	}
	g.index[ref] = len(g.jobs)
	g.jobs = append(g.jobs, graphJob{ref, spec, slices.Clone(after)})
	return ref
}

// Refs returns the refs of all jobs, in the order in which they were added.
func (g *TaskFlowGraphBuilder) Refs() []string {
	refs := make([]string, len(g.jobs))
	for i, job := range g.jobs {
		refs[i] = job.ref
	}
	return refs
}

// check finds mistakes before the graph is sent, to report them by refs.
func (g *TaskFlowGraphBuilder) check(op string) error {
	if len(g.duplicates) > 0 {
		return invalid(op, "ref %q is there twice", g.duplicates[0])
	}
	if len(g.jobs) == 0 {
		return invalid(op, "the graph is empty")
	}
	for _, job := range g.jobs {
		if err := checkName("ref", job.ref); err != nil {
			return invalid(op, "%v", err)
		}
		for _, ref := range job.dependsOn {
			if _, added := g.index[ref]; !added {
				return invalid(op, "job %q comes after %q, which is not in the graph", job.ref,
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
func (g *TaskFlowGraphBuilder) cycle() []string {
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
func (g *TaskFlowGraphBuilder) refsOf(jobs []int) []string {
	refs := make([]string, len(jobs))
	for i, job := range jobs {
		refs[i] = g.jobs[job].ref
	}
	return refs
}

func (g *TaskFlowGraphBuilder) encode() ([]byte, error) {
	b := []byte(`{"jobs":[`)
	for i, job := range g.jobs {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(appendString(append(b, `{"ref":`...), job.ref), ',')
		var err error
		if b, err = job.spec.appendMembers(b); err != nil {
			return nil, fmt.Errorf("job %q: %w", job.ref, err)
		}
		b = appendStrings(append(b, `,"depends_on":`...),
			slices.Concat(job.dependsOn, job.spec.Dependencies))
		b = append(b, '}')
	}
	return append(b, "]}"...), nil
}

// SubmitGraph stores a graph, all of it or nothing, and returns the id of each job by its ref.
//
// Errors: [ErrInvalid], also for refs that are unknown or used twice and for more than 10,000 jobs
// (G-TF-36); [ErrCycle] with the refs along the cycle; [ErrUnauthorized]; [ErrRetryable].
//
// Repeating would store another graph, so a try whose answer was lost is not repeated. The error is
// Uncertain then, and the graph may exist.
func (t *TaskFlow) SubmitGraph(ctx context.Context,
	g *TaskFlowGraphBuilder) (map[string]string, error) {
	return t.submitGraph(ctx, g, nil)
}

// SubmitGraphOnce is [TaskFlow.SubmitGraph] with an idempotency key, as that of
// [TaskFlow.SubmitOnce]: of equal graphs with the same key one is stored, and all others return its
// ids. Repeating is safe.
func (t *TaskFlow) SubmitGraphOnce(ctx context.Context, key string,
	g *TaskFlowGraphBuilder) (map[string]string, error) {
	return t.submitGraph(ctx, g, idempotencyHeader(key))
}

func (t *TaskFlow) submitGraph(ctx context.Context, g *TaskFlowGraphBuilder,
	header http.Header) (map[string]string, error) {
	const op = "taskflow submit graph"
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
		body: body, header: header, notIdempotent: header == nil,
		accept: []int{http.StatusCreated, http.StatusOK}})
	return answer.Jobs, err
}

// TaskFlowGraphJob is a job in a graph.
type TaskFlowGraphJob struct {
	ID             string         `json:"job_id"`
	Name           string         `json:"name"`
	Queue          string         `json:"queue"`
	Status         TaskFlowStatus `json:"status"`
	Priority       int            `json:"priority"`
	FailedAttempts int            `json:"attempt_count"`
}

// TaskFlowEdge says that job To depends on job From (G-TF-36).
type TaskFlowEdge struct {
	From string `json:"from"`
	To   string `json:"to"`
}

// TaskFlowGraph is a set of jobs that are connected by dependencies.
type TaskFlowGraph struct {
	Jobs  []TaskFlowGraphJob `json:"nodes"`
	Edges []TaskFlowEdge     `json:"edges"`
	// Truncated is true when the graph has more than the 2,000 jobs in Jobs.
	Truncated bool `json:"truncated"`
}

// Final reports whether every job of the graph has finished.
func (g TaskFlowGraph) Final() bool {
	return !slices.ContainsFunc(g.Jobs, func(j TaskFlowGraphJob) bool { return !j.Status.Final() })
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

// WaitGraph polls the graph of a job until every job in it has finished, and returns it. Of a
// truncated graph it sees only the jobs that [TaskFlow.Graph] returns. Jobs that have failed are no
// error: the status of each says how it ended.
//
// Errors: those of [TaskFlow.Graph] except [ErrRetryable]; that of the context when it ends first.
func (t *TaskFlow) WaitGraph(ctx context.Context, id string) (TaskFlowGraph, error) {
	return watch(ctx, t.client, "taskflow wait graph",
		func() (TaskFlowGraph, error) { return t.Graph(ctx, id) },
		TaskFlowGraph.Final)
}
