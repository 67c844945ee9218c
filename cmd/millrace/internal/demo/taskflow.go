package demo

import (
	"bufio"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/millrace/millrace/client"
	"github.com/millrace/millrace/cmd/millrace/internal/cli"
	"github.com/millrace/millrace/cmd/millrace/internal/graph"
)

// The graph is executed by a worker of this process, which claims the jobs over HTTP like any
// remote worker:
//
//	list ──▶ measure 1, 2, 3 ──▶ merge ──▶ pack
//	                               └─────▶ sum
//
// Each step reads the files that those before it have written and writes some itself, so that a
// step that started too early would fail or be wrong. The worker counts the attempts and notices
// dependencies that had not completed; verify compares all that with the server's graph and with
// what the Relay part has measured.

// graphStep is a job of the graph.
type graphStep struct {
	name      string
	dependsOn []string // names of other steps
	do        func(g *graphRun) error
}

// graphQueue is the queue of the demo's graph.
const graphQueue = "demo"

// graphSteps is the graph: list the files of the demo in three parts, measure each part, merge the
// measurements into one manifest, and compress and sum up the manifest.
var graphSteps = []graphStep{
	{"list", nil, (*graphRun).list},
	{"measure 1", []string{"list"}, func(g *graphRun) error { return g.measure(1) }},
	{"measure 2", []string{"list"}, func(g *graphRun) error { return g.measure(2) }},
	{"measure 3", []string{"list"}, func(g *graphRun) error { return g.measure(3) }},
	{"merge", []string{"measure 1", "measure 2", "measure 3"}, (*graphRun).merge},
	{"pack", []string{"merge"}, (*graphRun).pack},
	{"sum", []string{"merge"}, (*graphRun).sum},
}

// flakyStep is the step whose first attempt fails, so that its retry can be seen.
const flakyStep = "measure 2"

// graphParts is how many parts the list of files has, and how many steps the worker executes at a
// time: the parts are measured concurrently.
const graphParts = 3

// graphRun is the state of the graph's worker. The steps exchange files of a folder.
type graphRun struct {
	files *listing
	dir   string

	mu sync.Mutex
	// runs counts attempts, by step.
	runs map[string]int
	// completed has the steps that have ended well.
	completed map[string]bool
	// problems are for the report.
	problems []string
}

// manifestLine is a line of the manifest, and of the lists that lead to it.
type manifestLine struct {
	Path string `json:"path"`
	fileStats
	Error string `json:"error,omitempty"` // why the file could not be measured
}

// taskFlow shows TaskFlow: a graph over the files of the demo, worked on by a worker of this
// process over HTTP. It draws the graph and reports whether every step ran as often as it should,
// after its dependencies, and with the right result.
func (d *demo) taskFlow(ctx context.Context, dir string) (bool, error) {
	c, err := client.New(client.Config{BaseURL: d.url})
	if err != nil {
		return false, cli.WithCode(cli.ExitFailed, err)
	}
	g := &graphRun{files: d.files, dir: dir, runs: map[string]int{}, completed: map[string]bool{}}
	ctx, cancel := context.WithTimeoutCause(ctx, stallTimeout, errors.New("it did not end in time"))
	defer cancel()
	var b client.TaskFlowGraphBuilder
	for _, step := range graphSteps {
		b.Add(step.name, client.TaskFlowSpec{Name: step.name, Queue: graphQueue,
			Payload: json.RawMessage(`{}`),
			Retry: client.TaskFlowRetryPolicy{BaseDelay: time.Second,
				Strategy: client.TaskFlowBackoffFixed}},
			step.dependsOn...)
	}
	ids, err := c.TaskFlow().SubmitGraph(ctx, &b)
	if err != nil {
		return false, cli.RemoteError(ctx, err)
	}
	started := d.p.Elapsed()
	done, err := g.work(ctx, d.p, c, ids)
	if err != nil {
		return false, cli.RemoteError(ctx, err)
	}
	took := d.p.Elapsed() - started
	fmt.Fprintf(d.p.Stdout,
		"\nTaskFlow: a graph of %d steps over the files, '%s' fails its first attempt\n%s",
		len(graphSteps), flakyStep, graph.Draw(done, "", false))
	g.verify(done, d.checklist)
	fmt.Fprintf(d.p.Stdout,
		"\n%d steps in %d runs in %s; %d files in the manifest, compared with what the workers found\n",
		len(done.Jobs), g.allRuns(), cli.FormatDuration(took), len(d.files.order))
	return d.writeProblems(g.problems), nil
}

// work runs the steps until all jobs of the graph have ended. ids are the ids of the jobs, by step.
// When it returns the worker has ended as well, so that the state of g no longer changes.
func (g *graphRun) work(ctx context.Context, p cli.Process, c *client.Client,
	ids map[string]string) (client.TaskFlowGraph, error) {
	names := map[string]string{}
	for name, id := range ids {
		names[id] = name
	}
	bar := p.NewProgress("taskflow", int64(len(graphSteps)))
	defer bar.End()
	working, stop := context.WithCancel(ctx)
	w := &client.JobWorker{API: c.WorkerAPI(), Contract: client.ContractTaskFlow,
		Concurrency: graphParts,
		Handlers: map[string]client.JobHandler{graphQueue: func(_ context.Context,
			run *client.JobRun) (json.RawMessage, error) {
			name := names[run.Job.ID]
			if err := g.step(name); err != nil {
				return nil, err
			}
			bar.Add(1, "steps done")
			return nil, nil
		}}}
	var all sync.WaitGroup
	all.Go(func() { _ = w.Run(working) }) // its only error is a wrong configuration
	graph, err := c.TaskFlow().WaitGraph(ctx, ids[graphSteps[0].name])
	stop()
	all.Wait()
	return graph, err
}

// step makes one attempt at a step. The first attempt at flakyStep fails on purpose. A name that is
// no step is a final error, after which the server makes no other attempt. It is called
// concurrently.
func (g *graphRun) step(name string) error {
	at := slices.IndexFunc(graphSteps, func(s graphStep) bool { return s.name == name })
	if at < 0 {
		return client.Final(fmt.Errorf("there is no step %q", name))
	}
	if g.startRun(name, graphSteps[at].dependsOn) == 1 && name == flakyStep {
		return errors.New("this fails on purpose")
	}
	if err := graphSteps[at].do(g); err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.completed[name] = true
	return nil
}

// startRun counts an attempt at a step and returns its number, from 1 on. It is a problem if a
// dependency of the step has not completed.
func (g *graphRun) startRun(name string, after []string) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.runs[name]++
	for _, on := range after {
		if !g.completed[on] {
			g.problems = append(g.problems, fmt.Sprintf("%s started before %s", name, on))
		}
	}
	return g.runs[name]
}

// allRuns returns the attempts of all steps.
func (g *graphRun) allRuns() (n int) {
	for _, runs := range g.runs {
		n += runs
	}
	return n
}

// file returns the path of a file that the steps exchange.
func (g *graphRun) file(name string) string { return filepath.Join(g.dir, name) }

// list writes the paths of the files in graphParts lists. Paths are dealt out one by one, so that
// the parts take about the same time.
func (g *graphRun) list() error {
	parts := make([][]manifestLine, graphParts)
	for i, path := range g.files.order {
		parts[i%graphParts] = append(parts[i%graphParts], manifestLine{Path: path})
	}
	for i, part := range parts {
		if err := writeLines(g.file(fmt.Sprint("list ", i+1)), part); err != nil {
			return err
		}
	}
	return nil
}

// measure measures the files of one list; parts count from 1.
func (g *graphRun) measure(part int) error {
	lines, err := readLines(g.file(fmt.Sprint("list ", part)))
	for i := range lines {
		m, err := measureFile(filepath.Join(g.files.root, filepath.FromSlash(lines[i].Path)))
		if lines[i].fileStats = m; err != nil {
			lines[i].Error = err.Error()
		}
	}
	return errors.Join(err, writeLines(g.file(fmt.Sprint("measured ", part)), lines))
}

// merge writes the manifest: the measurements of all parts, sorted by path.
func (g *graphRun) merge() error {
	var all []manifestLine
	for part := range graphParts {
		lines, err := readLines(g.file(fmt.Sprint("measured ", part+1)))
		if err != nil {
			return err
		}
		all = append(all, lines...)
	}
	slices.SortFunc(all, func(a, b manifestLine) int { return strings.Compare(a.Path, b.Path) })
	return writeLines(g.file("manifest"), all)
}

// pack compresses the manifest.
func (g *graphRun) pack() error {
	text, err := os.ReadFile(g.file("manifest"))
	if err != nil {
		return err
	}
	f, err := os.Create(g.file("manifest.gz"))
	if err != nil {
		return err
	}
	z := gzip.NewWriter(f)
	_, err = z.Write(text)
	return errors.Join(err, z.Close(), f.Close())
}

// sum writes the sizes and lines of all files, summed up.
func (g *graphRun) sum() error {
	lines, err := readLines(g.file("manifest"))
	var total manifestLine
	for _, l := range lines {
		total.Size += l.Size
		total.Lines += l.Lines
	}
	return errors.Join(err, writeLines(g.file("sum"), []manifestLine{total}))
}

// verify compares the results of the steps with those of the workers in the Relay part. It runs
// when the worker has ended and takes no lock.
func (g *graphRun) verify(graph client.TaskFlowGraph, c *checklist) {
	addProblem := func(format string, args ...any) {
		g.problems = append(g.problems, fmt.Sprintf(format, args...))
	}
	for _, n := range graph.Jobs {
		runs := 1
		if n.Name == flakyStep {
			runs = 2
		}
		if n.Status != client.TaskFlowStatusCompleted || g.runs[n.Name] != runs ||
			n.FailedAttempts != runs-1 {
			addProblem("%s is %s after %d runs of %d, with %d failures", n.Name, n.Status,
				g.runs[n.Name], runs, n.FailedAttempts)
		}
	}
	packed, err := readLines(g.file("manifest.gz"))
	sum, broken := readLines(g.file("sum"))
	if err := errors.Join(err, broken); err != nil || len(packed) != len(g.files.order) ||
		len(sum) != 1 || len(graph.Jobs) != len(graphSteps) {
		addProblem("%d of %d steps left %d of %d files and %d sums: %v", len(graph.Jobs),
			len(graphSteps), len(packed), len(g.files.order), len(sum), err)
		return
	}
	for _, l := range packed {
		r := c.results[l.Path]
		if (r.fileStats != l.fileStats || (r.Error == "") != (l.Error == "")) &&
			g.files.unchanged(l.Path) {
			addProblem("%s was found to be %+v and %+v", l.Path, r.fileStats, l.fileStats)
		}
		sum[0].Size -= l.Size
		sum[0].Lines -= l.Lines
	}
	if sum[0].Size != 0 || sum[0].Lines != 0 {
		addProblem("the sum is off by %d bytes and %d lines", sum[0].Size, sum[0].Lines)
	}
}

// writeLines writes lines as JSON to a file that it makes or replaces.
func writeLines(path string, lines []manifestLine) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(f)
	e := json.NewEncoder(w)
	for _, l := range lines {
		err = errors.Join(err, e.Encode(l))
	}
	return errors.Join(err, w.Flush(), f.Close())
}

// readLines reads what writeLines has written, also compressed if the name ends in .gz.
func readLines(path string) (lines []manifestLine, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	d := json.NewDecoder(f)
	if strings.HasSuffix(path, ".gz") {
		z, err := gzip.NewReader(f)
		if err != nil {
			return nil, err
		}
		d = json.NewDecoder(z)
	}
	for d.More() {
		var l manifestLine
		if err := d.Decode(&l); err != nil {
			return nil, err
		}
		lines = append(lines, l)
	}
	return lines, nil
}
