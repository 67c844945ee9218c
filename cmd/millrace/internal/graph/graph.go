package graph

// This file is `millrace graph`: it submits graphs that users wrote as files, waits for them and
// has them drawn.
//
//	submit FILE   parseGraph ──▶ TaskFlow.Submit ──▶ ids ──▶ with --wait: waitGraph ──▶ Draw
//	show ID       the graph around a job ──▶ Draw; with --wait it waits first
//	rerun ID      TaskFlow.RerunGraph ──▶ ids of the copies; with --wait as submit
//
// An interruption ends the command and not the jobs: `graph show` draws them later.

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/client"
	"github.com/millrace/millrace/cmd/millrace/internal/cli"
	"github.com/millrace/millrace/internal/clock"
	"github.com/millrace/millrace/internal/contract/taskflow"
	"github.com/millrace/millrace/internal/setting"
	"github.com/millrace/millrace/internal/uuids"
)

// flags are the flags of all subcommands.
type flags struct {
	remote cli.RemoteFlags
	// wait says to wait until all jobs have ended.
	wait bool
	// ascii says to draw with ASCII characters only.
	ascii bool
	// required are the ids of the jobs that have to complete; nil means all that are drawn.
	required map[string]bool
}

// Command is `millrace graph`.
func Command(p cli.Process) *cobra.Command {
	c := cli.Group("graph", "Submit TaskFlow jobs that depend on one another, and draw them")
	c.AddCommand(submitCommand(p), showCommand(p), rerunCommand(p))
	return c
}

// register adds the flags to a command.
func (f *flags) register(c *cobra.Command) {
	f.remote.Register(c)
	c.Flags().BoolVar(&f.wait, "wait", false,
		"wait until every job has ended; exit with 1 if one did not complete")
	c.Flags().BoolVar(&f.ascii, "ascii", false, "draw with ASCII characters only")
}

// submitCommand is `millrace graph submit`.
func submitCommand(p cli.Process) *cobra.Command {
	var f flags
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

depends_on holds refs of the same file or ids of jobs that exist. A job without a
name has its ref as its name. The command prints the ref and the id of each job.

The exit code is 2 when the file is refused before anything is sent, for an unknown
ref or a dependency cycle, and 1 when the server refuses it.`,
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error { return f.submit(p, args[0]) },
	}
	f.register(c)
	return c
}

// showCommand is `millrace graph show`.
func showCommand(p cli.Process) *cobra.Command {
	var f flags
	c := &cobra.Command{
		Use:   "show ID",
		Short: "Draw the graph around a TaskFlow job",
		Long: `Draw the graph around a TaskFlow job: its dependencies and its dependents, theirs,
and so on. Dependencies stand above their dependents.`,
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			ctx, stop := cli.UntilSignal(context.Background())
			defer stop()
			c, err := f.remote.Client(p, nil)
			if err != nil {
				return err
			}
			if _, err = f.draw(ctx, p, c.TaskFlow(), args[0]); err != nil {
				return explainNumber(err, args[0])
			}
			return nil
		},
	}
	f.register(c)
	return c
}

// explainNumber says more about an error where the id may be a number.
func explainNumber(err error, argument string) error {
	if _, numberErr := cli.ParseNumber(argument); numberErr != nil {
		return err
	}
	return cli.WithCode(cli.ExitCode(err), fmt.Errorf("%w; %s may be the number of a job, of which "+
		"'millrace jobs show %[2]s' prints the id", err, argument))
}

// submit submits the graph in the named file, "-" for standard input, and prints the id of each
// job. With --wait it then waits for the jobs and draws them. The server stores the whole graph or
// nothing of it, so an error leaves nothing behind but after an answer that was lost.
func (f *flags) submit(p cli.Process, name string) error {
	ctx, stop := cli.UntilSignal(context.Background())
	defer stop()
	text, err := cli.ReadDocument(ctx, p, name)
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
	ids, err := c.TaskFlow().SubmitGraph(ctx, g)
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
	return f.drawAll(ctx, p, c.TaskFlow(), g.Refs(), ids)
}

// drawAll waits for the jobs of a file and draws them. A file may hold several graphs that are not
// connected: each is drawn once. It returns the errors of all, as one graph that fails must not
// hide the others; an interruption ends it at once.
func (f *flags) drawAll(ctx context.Context, p cli.Process, tf *client.TaskFlow, refs []string,
	ids map[string]string) error {
	drawn := map[string]bool{} // ids of jobs
	var failures error
	for _, ref := range refs {
		if drawn[ids[ref]] {
			continue
		}
		graph, err := f.draw(ctx, p, tf, ids[ref])
		failures = errors.Join(failures, err)
		for _, n := range graph.Jobs {
			drawn[n.ID] = true
		}
		if ctx.Err() != nil {
			return interrupted(ids[ref])
		}
	}
	return failures
}

// interrupted is the error of a wait that a signal has ended. It says how the job is waited for
// again.
func interrupted(id string) error {
	return cli.WithCode(cli.ExitInterrupted,
		fmt.Errorf("interrupted; the jobs go on, to wait for them again: "+
			"millrace graph show --wait %s", id))
}

// explainCycle adds the refs or ids along a dependency cycle to an error of the server, in the
// direction from a job to what it depends on, back to the first. Other errors stay as they are.
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

// fileJob is a job of a file. Numbers are read as they are written, so that a number left out
// differs from 0. The help shows a file with its members.
type fileJob struct {
	Ref       string          `json:"ref"`
	Name      string          `json:"name"`
	Queue     string          `json:"queue"`
	Payload   json.RawMessage `json:"payload"`
	Priority  json.RawMessage `json:"priority"`
	DependsOn []string        `json:"depends_on"`
	Retry     struct {
		MaxAttempts json.RawMessage                `json:"max_attempts"`
		Strategy    client.TaskFlowBackoffStrategy `json:"backoff_strategy"`
		BaseDelay   json.RawMessage                `json:"base_delay_seconds"`
		MaxDelay    json.RawMessage                `json:"max_delay_seconds"`
	} `json:"retry_policy"`
	Callback *client.TaskFlowCallback `json:"callback"`
}

// parseGraph makes a graph of a file. It refuses unknown members: most are misspelled, and the
// server ignores members that it does not have. An entry of depends_on that is no ref of the file
// and has the form of a UUID is the id of a job at the server. Refs, cycles within the file and
// whatever else the client checks are errors of Submit, before anything is sent.
func parseGraph(text []byte) (*client.TaskFlowGraphBuilder, error) {
	var file struct {
		Jobs []fileJob `json:"jobs"`
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&file); err != nil {
		return nil, syntaxError(err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) { // a second graph would be left out silently
		return nil, errors.New("not a graph: there is more behind the object")
	}
	refs := map[string]bool{}
	for _, job := range file.Jobs {
		refs[job.Ref] = true
	}
	g := &client.TaskFlowGraphBuilder{}
	for _, job := range file.Jobs {
		spec, err := job.spec()
		if err != nil {
			return nil, fmt.Errorf("job %q: %w", job.Ref, err)
		}
		var after []string
		for _, on := range job.DependsOn {
			if _, isID := uuids.Parse(on); isID && !refs[on] {
				spec.Dependencies = append(spec.Dependencies, on)
			} else {
				after = append(after, on) // the builder refuses a ref that no job has
			}
		}
		g.Add(job.Ref, spec, after...)
	}
	return g, nil
}

// syntaxError names the member of the file that could not be read.
func syntaxError(err error) error {
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) {
		return fmt.Errorf("not a graph: %s is of type %s", cmp.Or(wrong.Field, "the whole"),
			wrong.Value)
	}
	name, isUnknown := cli.UnknownMember(err)
	if !isUnknown {
		return fmt.Errorf("not a graph: %w", cli.JSONError(err))
	}
	member := taskflow.GraphMember(name)
	if member == "" {
		member, _ = setting.Closest(name, fileMembers)
	}
	if member == "" {
		return fmt.Errorf("not a graph: unknown member %q", name)
	}
	return fmt.Errorf("not a graph: unknown member %q; did you mean %q?", name, member)
}

// fileMembers are the members of the objects of a file.
var fileMembers = []string{"jobs", "ref", "name", "queue", "payload", "priority", "depends_on",
	"retry_policy", "max_attempts", "backoff_strategy", "base_delay_seconds", "max_delay_seconds",
	"callback", "url", "events"}

// spec returns what the job submits, without its dependencies. Numbers must be positive: 0 would
// mean the server's default, which a number that is left out asks for.
func (j *fileJob) spec() (client.TaskFlowSpec, error) {
	spec := client.TaskFlowSpec{Name: cmp.Or(j.Name, j.Ref), Queue: j.Queue, Payload: j.Payload,
		Callback: j.Callback}
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
		// 32 bits of seconds fit into a duration; 0 would mean the server's default.
		n, err := strconv.ParseInt(string(m.raw), 10, 32)
		if err != nil || n < 1 {
			return spec, fmt.Errorf("%s must be a whole number from 1 on", m.name)
		}
		*m.to = int(n)
	}
	spec.Retry.Strategy = j.Retry.Strategy
	spec.Retry.BaseDelay, spec.Retry.MaxDelay = time.Duration(baseDelay)*time.Second,
		time.Duration(maxDelay)*time.Second
	return spec, nil
}

// The pause between two readings of a graph grows by half each time, from the first to the second:
// a short graph is drawn soon, and a long one costs few requests.
const (
	minPollInterval = 50 * time.Millisecond
	maxPollInterval = 2 * time.Second
)

// waitGraph reads the graph around a job until all its jobs have ended, and shows how far it has
// come. It goes on while the server is unavailable; every other error ends it, with the graph as it
// was read last. It has no time limit but that of ctx.
func waitGraph(ctx context.Context, p cli.Process, tf *client.TaskFlow,
	id string) (client.TaskFlowGraph, error) {
	shown := p.NewProgress("graph", 0)
	defer shown.End()
	for pause := minPollInterval; ; pause = min(pause*3/2, maxPollInterval) {
		graph, err := tf.Graph(ctx, id)
		switch {
		case errors.Is(err, client.ErrRetryable):
			shown.Add(0, "the server is unavailable")
		case err != nil || graph.Final():
			return graph, err
		default:
			ended, note := progressNote(graph)
			shown.SetTotal(ended, int64(len(graph.Jobs)), note)
		}
		if !clock.Sleep(ctx, pause) {
			return graph, ctx.Err()
		}
	}
}

// progressNote returns how many jobs of a graph have ended, and counts the others by status. What
// needs attention comes first: failed and blocked jobs, then those that run.
func progressNote(g client.TaskFlowGraph) (ended int64, note string) {
	counts := map[client.TaskFlowStatus]int{}
	for _, n := range g.Jobs {
		counts[n.Status]++
		if n.Status.Final() {
			ended++
		}
	}
	note = fmt.Sprintf("%d of %s ended", ended, cli.Pluralize(int64(len(g.Jobs)), "job"))
	for _, status := range []client.TaskFlowStatus{client.TaskFlowStatusFailed,
		client.TaskFlowStatusBlocked,
		client.TaskFlowStatusRunning, client.TaskFlowStatusReady, client.TaskFlowStatusPending} {
		if n := counts[status]; n > 0 {
			note += fmt.Sprintf(", %d %s", n, status)
		}
	}
	if queues := unservedQueues(g); len(queues) > 0 {
		note += "; no worker has taken a job of queue " + strings.Join(queues, ", ") + " yet"
	}
	return ended, note
}

// unservedQueues returns the queues, quoted, that have ready jobs in a graph and no job there that
// a worker has ever taken.
func unservedQueues(g client.TaskFlowGraph) (queues []string) {
	ready, taken := map[string]bool{}, map[string]bool{}
	for _, n := range g.Jobs {
		ready[n.Queue] = ready[n.Queue] || n.Status == client.TaskFlowStatusReady
		taken[n.Queue] = taken[n.Queue] || n.FailedAttempts > 0 ||
			n.Status == client.TaskFlowStatusRunning ||
			n.Status == client.TaskFlowStatusCompleted
	}
	for _, queue := range slices.Sorted(maps.Keys(ready)) {
		if ready[queue] && !taken[queue] {
			queues = append(queues, strconv.Quote(queue))
		}
	}
	return queues
}

// draw prints the graph around a job. With --wait it first waits for all jobs of the graph, and
// returns an error if one did not complete. It returns the graph also with that error, as drawAll
// needs its nodes.
func (f *flags) draw(ctx context.Context, p cli.Process, tf *client.TaskFlow,
	id string) (client.TaskFlowGraph, error) {
	read := tf.Graph
	if f.wait {
		read = func(ctx context.Context, id string) (client.TaskFlowGraph, error) {
			return waitGraph(ctx, p, tf, id)
		}
	}
	graph, err := read(ctx, id)
	if err != nil && ctx.Err() != nil && f.wait {
		return graph, interrupted(id)
	}
	if err != nil {
		return graph, cli.RemoteError(ctx, err)
	}
	if _, err := io.WriteString(p.Stdout, Draw(graph, id, f.ascii)); err != nil {
		return graph, cli.FailedError("%w", err)
	}
	if graph.Truncated {
		fmt.Fprintln(p.Stderr, "the graph is larger; this is the part next to the job")
	}
	bad, all := 0, 0
	for _, n := range graph.Jobs {
		if f.required != nil && !f.required[n.ID] {
			continue
		}
		if all++; n.Status != client.TaskFlowStatusCompleted {
			bad++
		}
	}
	if f.wait && bad > 0 {
		return graph, cli.FailedError("%d of %d jobs did not complete", bad, all)
	}
	return graph, nil
}
