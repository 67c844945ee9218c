package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/client"
	"github.com/millrace/millrace/cmd/millrace/internal/cli"
	"github.com/millrace/millrace/cmd/millrace/internal/graphdraw"
)

type graphFlags struct {
	remote cli.RemoteFlags
	wait   bool
	ascii  bool
}

func graphCommand(p cli.Process) *cobra.Command {
	c := &cobra.Command{
		Use:   "graph",
		Short: "Submit TaskFlow jobs that depend on one another, and look at them",
		Args:  noSuchCommand,
		RunE:  func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(graphSubmitCommand(p), graphShowCommand(p))
	return c
}

func (f *graphFlags) register(c *cobra.Command) {
	f.remote.Register(c)
	c.Flags().BoolVar(&f.wait, "wait", false,
		"wait until every job has ended; exit with 1 if one did not complete")
	c.Flags().BoolVar(&f.ascii, "ascii", false, "draw with ASCII characters only")
}

func graphSubmitCommand(p cli.Process) *cobra.Command {
	var f graphFlags
	c := &cobra.Command{
		Use:   "submit FILE",
		Short: "Store a graph of TaskFlow jobs, all of it or nothing",
		Long: `Store a graph of TaskFlow jobs, all of it or nothing. FILE, or standard input for
-, is a JSON object:

  {"jobs": [
    {"ref": "extract", "queue": "etl", "payload": {"file": "a.csv"}},
    {"ref": "load", "queue": "etl", "depends_on": ["extract"], "priority": 7,
     "retry_policy": {"max_attempts": 5, "base_delay_seconds": 2}}
  ]}

depends_on holds refs of the same file or ids of jobs that exist. name is the ref
where it is left out. What it prints is the ref and the id of each job.

The exit code is 2 when the file is found wrong before anything is sent, such as
an unknown ref or a cycle, and 1 when the server refuses it.`,
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error { return f.submit(p, args[0]) },
	}
	f.register(c)
	return c
}

func graphShowCommand(p cli.Process) *cobra.Command {
	var f graphFlags
	c := &cobra.Command{
		Use:   "show ID",
		Short: "Draw the graph around a TaskFlow job",
		Long: `Draw the graph around a TaskFlow job: all that it depends on or that depends on
it, and so on. Dependencies stand above what waits for them.`,
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			ctx, stop := cli.UntilSignal(context.Background())
			defer stop()
			c, err := f.remote.Client(p, nil)
			if err != nil {
				return err
			}
			return f.show(ctx, p, c.TaskFlow(), args[0])
		},
	}
	f.register(c)
	return c
}

func (f *graphFlags) submit(p cli.Process, name string) error {
	ctx, stop := cli.UntilSignal(context.Background())
	defer stop()
	text, err := readDocument(ctx, p, name)
	if ctx.Err() != nil {
		return cli.ErrInterrupted
	}
	if err != nil {
		return cli.WithCode(cli.ExitUsage, err)
	}
	g, err := parseGraph(text)
	if err != nil {
		return cli.WithCode(cli.ExitUsage, fmt.Errorf("%s: %w", name, err))
	}
	c, err := f.remote.Client(p, nil)
	if err != nil {
		return err
	}
	ids, err := c.TaskFlow().Submit(ctx, g)
	if err != nil {
		return explainCycle(cli.RemoteError(ctx, err))
	}
	table := tabwriter.NewWriter(p.Stdout, 0, 0, 2, ' ', 0)
	for _, ref := range g.Refs() {
		fmt.Fprintf(table, "%s\t%s\n", cli.Printable(ref), ids[ref])
	}
	if err := table.Flush(); err != nil || !f.wait {
		return err
	}
	// A file may hold several graphs: all of them are waited for.
	shown := map[string]bool{}
	var worst error
	for _, ref := range g.Refs() {
		if id := ids[ref]; !shown[id] {
			graph, err := f.draw(ctx, p, c.TaskFlow(), id)
			worst = errors.Join(worst, err)
			for _, n := range graph.Nodes {
				shown[n.ID] = true
			}
			if ctx.Err() != nil {
				return cli.ErrInterrupted
			}
		}
	}
	return worst
}

// explainCycle adds the refs or ids along a cycle to what is said.
func explainCycle(err error) error {
	var fail *client.Error
	if !errors.As(err, &fail) || len(fail.Cycle) == 0 {
		return err
	}
	path := ""
	for _, ref := range fail.Cycle {
		path += cli.Printable(ref) + " → "
	}
	return cli.WithCode(cli.ExitCode(err),
		fmt.Errorf("%w: %s%s", err, path, cli.Printable(fail.Cycle[0])))
}

// graphJob is a job as a user writes it.
type graphJob struct {
	Ref       string          `json:"ref"`
	Name      string          `json:"name"`
	Queue     string          `json:"queue"`
	Payload   json.RawMessage `json:"payload"`
	Priority  json.RawMessage `json:"priority"`
	DependsOn []string        `json:"depends_on"`
	Retry     struct {
		MaxAttempts json.RawMessage         `json:"max_attempts"`
		Strategy    client.TaskFlowStrategy `json:"backoff_strategy"`
		BaseDelay   json.RawMessage         `json:"base_delay_seconds"`
		MaxDelay    json.RawMessage         `json:"max_delay_seconds"`
	} `json:"retry_policy"`
}

// parseGraph reads what a user wrote. A member that is not known is a slip of the pen, which the
// server would not notice.
func parseGraph(text []byte) (*client.TaskFlowBuilder, error) {
	var file struct {
		Jobs []graphJob `json:"jobs"`
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&file); err != nil {
		return nil, graphSyntaxError(err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) { // another graph would be left out
		return nil, errors.New("not a graph: there is more behind the object")
	}
	refs := map[string]bool{}
	for _, job := range file.Jobs {
		refs[job.Ref] = true
	}
	g := &client.TaskFlowBuilder{}
	for _, job := range file.Jobs {
		spec, err := job.spec()
		if err != nil {
			return nil, fmt.Errorf("job %q: %w", job.Ref, err)
		}
		var after []string
		for _, on := range job.DependsOn {
			if refs[on] || !isUUID(on) { // what is neither is told as an unknown ref
				after = append(after, on)
			} else {
				spec.Dependencies = append(spec.Dependencies, on)
			}
		}
		g.Add(job.Ref, spec, after...)
	}
	return g, nil
}

// graphSyntaxError says in the words of the file what could not be read.
func graphSyntaxError(err error) error {
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) {
		return fmt.Errorf("not a graph: %s is of type %s", cmp.Or(wrong.Field, "the whole"),
			wrong.Value)
	}
	return fmt.Errorf("not a graph: %w", err)
}

// spec is the job but for its dependencies.
func (j *graphJob) spec() (client.TaskFlowSpec, error) {
	spec := client.TaskFlowSpec{Name: cmp.Or(j.Name, j.Ref), Queue: j.Queue, Payload: j.Payload}
	var baseDelay, maxDelay int
	for _, m := range []struct {
		name string
		raw  json.RawMessage
		to   *int
	}{{"priority", j.Priority, &spec.Priority},
		{"retry_policy.max_attempts", j.Retry.MaxAttempts, &spec.Retry.MaxAttempts},
		{"retry_policy.base_delay_seconds", j.Retry.BaseDelay, &baseDelay},
		{"retry_policy.max_delay_seconds", j.Retry.MaxDelay, &maxDelay}} {
		if m.raw == nil {
			continue
		}
		n, err := strconv.ParseInt(string(m.raw), 10, 32) // times a second it still fits
		if err != nil || n < 1 {                          // 0 would pass for one that is left out
			return spec, fmt.Errorf("%s must be a whole number from 1 on", m.name)
		}
		*m.to = int(n)
	}
	spec.Retry.Strategy = j.Retry.Strategy
	spec.Retry.BaseDelay, spec.Retry.MaxDelay = time.Duration(baseDelay)*time.Second,
		time.Duration(maxDelay)*time.Second
	return spec, nil
}

func isUUID(text string) bool {
	if len(text) != 36 {
		return false
	}
	for i, c := range []byte(text) {
		dash := i == 8 || i == 13 || i == 18 || i == 23
		hex := ('0' <= c && c <= '9') || ('a' <= c|0x20 && c|0x20 <= 'f')
		if dash != (c == '-') || (!dash && !hex) {
			return false
		}
	}
	return true
}

func (f *graphFlags) show(ctx context.Context, p cli.Process, tf *client.TaskFlow,
	id string) error {
	_, err := f.draw(ctx, p, tf, id)
	return err
}

// How often a graph is looked at while it is waited for: soon at first, then ever more seldom.
const (
	graphMinPoll = 50 * time.Millisecond
	graphMaxPoll = 2 * time.Second
)

// waitGraph looks at the graph around a job until all of it is over, and tells how far it is.
// It goes on while the server is away.
func waitGraph(ctx context.Context, p cli.Process, tf *client.TaskFlow,
	id string) (client.TaskFlowGraph, error) {
	shown := p.NewProgress("graph", 0)
	defer shown.End()
	for pause := graphMinPoll; ; pause = min(pause*3/2, graphMaxPoll) {
		graph, err := tf.Graph(ctx, id)
		switch {
		case errors.Is(err, client.ErrRetryable):
			shown.Add(0, "the server is away")
		case err != nil || graph.Final():
			return graph, err
		default:
			over, note := graphNote(graph)
			shown.SetTotal(over, int64(len(graph.Nodes)), note)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return graph, ctx.Err()
		}
	}
}

// graphNote tells how many jobs of a graph are over, and what the others do.
func graphNote(g client.TaskFlowGraph) (over int64, note string) {
	counts := map[client.TaskFlowStatus]int{}
	for _, n := range g.Nodes {
		counts[n.Status]++
		if n.Status.Final() {
			over++
		}
	}
	note = fmt.Sprintf("%d of %s over", over, cli.Pluralize(int64(len(g.Nodes)), "job"))
	for _, status := range []client.TaskFlowStatus{client.TaskFailed, client.TaskBlocked,
		client.TaskRunning, client.TaskReady, client.TaskPending} {
		if n := counts[status]; n > 0 {
			note += fmt.Sprintf(", %d %s", n, status)
		}
	}
	return over, note
}

// draw draws the graph around a job, once it has ended if that is asked for; then it fails if a job
// did.
func (f *graphFlags) draw(ctx context.Context, p cli.Process, tf *client.TaskFlow,
	id string) (client.TaskFlowGraph, error) {
	read := tf.Graph
	if f.wait {
		read = func(ctx context.Context, id string) (client.TaskFlowGraph, error) {
			return waitGraph(ctx, p, tf, id)
		}
	}
	graph, err := read(ctx, id)
	if err != nil {
		return graph, cli.RemoteError(ctx, err)
	}
	if _, err := io.WriteString(p.Stdout, graphdraw.Draw(graph, id, f.ascii)); err != nil {
		return graph, cli.FailedError("%w", err)
	}
	if graph.Truncated {
		fmt.Fprintln(p.Stderr, "the graph is larger; this is the part next to the job")
	}
	bad := 0
	for _, n := range graph.Nodes {
		if n.Status != client.TaskCompleted {
			bad++
		}
	}
	if f.wait && bad > 0 {
		return graph, cli.FailedError("%d of %d jobs did not complete", bad, len(graph.Nodes))
	}
	return graph, nil
}
