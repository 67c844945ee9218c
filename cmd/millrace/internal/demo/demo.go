package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/client"
	"github.com/millrace/millrace/cmd/millrace/internal/cli"
)

// The Relay part has three kinds of processes. The demo submits a job for each file. Worker
// processes measure the files and requeue each job as a result. A worker in the demo's own process
// collects the results. Everything that happens becomes an event; one goroutine reads the events,
// keeps the checklist and kills a worker when a third of the files is done:
//
//	submit → [files] → workers → [results] → collect → events → checklist
//	                      └──── a line for each start ────┘

// flags are the flags of the command.
type flags struct {
	// workers is the number of worker processes, one of which is killed.
	workers int
	// concurrency is the number of files that a worker has in progress.
	concurrency int
	// pace is the least time for a file; below 0 it is such that all take a few seconds.
	pace time.Duration
	// timeout is the timeout of the jobs.
	timeout time.Duration
	// keep says that the server goes on at the end, with work that comes in.
	keep bool
}

// Command is `millrace demo`.
func Command(p cli.Process) *cobra.Command {
	var f flags
	c := &cobra.Command{
		Use:   "demo [FOLDER]",
		Short: "Show what Millrace does: a server, real work, a killed worker, and the accounts",
		Long: `Start a server on an empty temporary directory, submit one job for each file of
FOLDER (the source tree of Millrace when run inside of it, else the working
directory), and let several worker processes measure size, lines and SHA-256 of
each. One of the workers never finishes one of its files; in the middle it is
killed, and the jobs that it had claimed are done by the others after their timeout.

Then a graph of TaskFlow jobs makes a manifest of the files step by step; one step
fails and is retried, and the graph is drawn. Then FetchBox downloads some of the
files from a server of the demo's own, and the objects are compared byte for byte.
Then Images makes variants of pictures that the demo draws; one file is no picture
and becomes a dead letter. Then ForgeRun runs simulated jobs that succeed, fail, are
retried, canceled and scheduled, and sends every change to a webhook.

The report accounts for every job: exit code 0 when the accounts balance, 1 when
they do not. With --keep the server goes on then, with work that comes in slowly, and
a link to its console is printed; Ctrl-C ends it. The demo needs no network, changes nothing in FOLDER and leaves nothing
behind.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if f.workers < 2 || f.concurrency < 1 || f.timeout < time.Second {
				return cli.UsageError(
					"--workers is at least 2 (one of them is killed), --concurrency 1, --timeout 1s")
			}
			folder, err := os.Getwd()
			if err != nil {
				return cli.WithCode(cli.ExitUnable, err)
			}
			if len(args) == 0 {
				folder = sourceRoot(folder)
			} else if folder, err = filepath.Abs(args[0]); err != nil {
				return cli.WithCode(cli.ExitUsage, err)
			}
			return f.run(p, folder)
		},
	}
	c.Flags().IntVar(&f.workers, "workers", 3, "worker processes; one of them is killed")
	c.Flags().IntVar(&f.concurrency, "concurrency", 4, "files that a worker measures at a time")
	c.Flags().DurationVar(&f.pace, "pace", -1,
		"least `time` for a file, so that there is something to see; 0 is full speed")
	c.Flags().Lookup("pace").DefValue = "a few seconds for all"
	c.Flags().DurationVar(&f.timeout, "timeout", 2*time.Second,
		"timeout of the jobs: how long the jobs of a killed worker wait")
	c.Flags().BoolVar(&f.keep, "keep", false,
		"go on serving at the end, with work that comes in, and print a link to the console")
	return c
}

// run runs the demo on a folder. It makes the temporary directory and the server, and removes them
// before it returns. A folder without files is a usage error.
func (f *flags) run(p cli.Process, folder string) error {
	ctx, stop := cli.UntilSignal(context.Background())
	defer stop()
	p, ctx = p.UntilOutputCloses(ctx)
	files, err := listFiles(folder)
	if err != nil {
		return cli.WithCode(cli.ExitUsage, err)
	}
	if len(files.order) == 0 {
		return cli.UsageError("there is no file in %s: the demo works on the files of a folder, "+
			"of the current one unless another is named: millrace demo FOLDER", folder)
	}
	dir, err := os.MkdirTemp("", "millrace-demo-")
	if err != nil {
		return cli.WithCode(cli.ExitUnable, err)
	}
	defer os.RemoveAll(dir)
	fmt.Fprintf(p.Stdout, "%d files in %s\n", len(files.order), folder)
	server, err := cli.StartServer(ctx, p, filepath.Join(dir, "data"),
		slices.Concat(forgeRunSettings, fetchBoxSettings)...)
	if err != nil {
		return err
	}
	defer server.Stop(10 * time.Second)
	fmt.Fprintf(p.Stdout, "server on %s, data in %s\n", server.URL, dir)
	api, err := client.New(client.Config{BaseURL: server.URL})
	if err != nil {
		return cli.WithCode(cli.ExitFailed, err)
	}
	d := &demo{p: p, flags: *f, files: files, dir: dir, url: server.URL, relay: api.Relay(),
		events: make(chan event, 256), checklist: newChecklist(files)}
	if d.flags.pace < 0 {
		d.flags.pace = defaultPace(f.workers*f.concurrency, len(files.order))
	}
	return d.run(ctx)
}

// defaultPace is the least time for a file with which so many slots need five seconds for all
// files, but no more than a quarter of a second.
func defaultPace(slots, files int) time.Duration {
	return min(5*time.Second*time.Duration(slots)/time.Duration(files), 250*time.Millisecond)
}

// demo is one run of the command. Its parts run one after the other: within the Relay part the
// goroutines of workers and collector only send events, and the goroutine of run does everything
// else.
type demo struct {
	p     cli.Process
	flags flags
	files *listing
	// dir holds the data of the server and the files that the demo writes.
	dir string
	// url is the address of the server.
	url   string
	relay *client.Relay
	// events come from the workers and the collector, and go to the one goroutine of watch.
	events    chan event
	checklist *checklist
	// workers has worker n at n-1.
	workers []*cli.Child
	bar     *cli.Progress
}

// event is one thing that happened in the Relay part. Exactly one of started, ended and result is
// set.
type event struct {
	// worker is the number of the worker that the event is about.
	worker int
	// started is the path of the file that the worker has started with.
	started string
	// ended says that the worker process has ended.
	ended bool
	// result is a result that was claimed from the queue of results.
	result *fileResult
}

// stallTimeout is the time without any event after which a part of the demo gives up and reports
// the steps that are missing.
const stallTimeout = 30 * time.Second

// run goes through the parts, and fails if one of them does not balance. A part that does not
// balance does not keep the next from being shown: it is counted at the end. An error, such as a
// server that does not answer, ends the demo at once.
func (d *demo) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	d.checklist.started = d.p.Elapsed()
	if err := d.submit(ctx); err != nil {
		return cli.RemoteError(ctx, err)
	}
	defer d.stopWorkers()
	d.bar = d.p.NewProgress("demo", int64(len(d.files.order)))
	defer d.bar.End()
	if err := d.startWorkers(ctx); err != nil {
		return cli.WithCode(cli.ExitFailed, err)
	}
	var collecting sync.WaitGroup
	collect, stopCollecting := context.WithCancel(ctx)
	defer stopCollecting()
	collecting.Go(func() { d.collect(collect) })

	d.watch(ctx)
	d.bar.End()
	if ctx.Err() != nil {
		return cli.ErrInterrupted
	}
	d.checklist.took = d.p.Elapsed() - d.checklist.started
	d.stopWorkers()
	stopCollecting()
	collecting.Wait()
	if err := d.inspect(ctx); err != nil {
		return cli.RemoteError(ctx, err)
	}
	d.checklist.verify()
	d.checklist.write(d.p.Stdout, d)
	flow, err := d.taskFlow(ctx, d.dir)
	if err != nil {
		return err
	}
	box, err := d.fetchBox(ctx)
	if err != nil {
		return err
	}
	pictures, err := d.images(ctx)
	if err != nil {
		return err
	}
	forge, err := d.forgeRun(ctx)
	if err != nil {
		return err
	}
	if !d.checklist.tookOver() {
		return cli.FailedError("no file of the killed worker was taken over by another")
	}
	if !d.checklist.balanced() || !flow || !box || !pictures || !forge {
		return cli.FailedError("the accounts do not balance")
	}
	fmt.Fprintln(d.p.Stdout, "The accounts balance.")
	if !d.flags.keep {
		return nil
	}
	return d.keep(ctx)
}

// submit queues one job for each file, 500 in a request. The path is the job's id.
func (d *demo) submit(ctx context.Context) error {
	retries := maxRetries
	var batch []client.RelaySpec
	for i, path := range d.files.order {
		payload, err := json.Marshal(fileTask{path})
		if err != nil {
			return err
		}
		batch = append(batch, client.RelaySpec{Queue: filesQueue, ID: path,
			Timeout: d.flags.timeout, MaxRetries: &retries, Payload: payload})
		if len(batch) < 500 && i+1 < len(d.files.order) {
			continue
		}
		if err := d.relay.Enqueue(ctx, batch, client.RelayIgnore); err != nil {
			return err
		}
		batch = nil
	}
	return nil
}

// startWorkers starts the worker that will be killed and, when it has started with a file, all
// others. So there is always a file to take over. It reads the events itself until then; watch does
// so afterwards.
func (d *demo) startWorkers(ctx context.Context) error {
	if err := d.startWorker(ctx, victimWorker); err != nil {
		return err
	}
	quiet := time.NewTimer(stallTimeout)
	defer quiet.Stop()
	for d.checklist.countInProgress() == 0 && d.checklist.killed == 0 {
		select {
		case e := <-d.events:
			d.record(e)
			if e.ended {
				return errors.New("the first worker ended by itself")
			}
		case <-quiet.C:
			return fmt.Errorf("the first worker started no file within %s", stallTimeout)
		case <-ctx.Done():
			return cli.ErrInterrupted
		}
	}
	for n := range d.flags.workers - 1 {
		if err := d.startWorker(ctx, victimWorker+1+n); err != nil {
			return err
		}
	}
	return nil
}

// startWorker starts a worker process. Its standard output becomes events: a line for each file
// that it starts with, and one event for its end. Lines that are not about a file are left out.
func (d *demo) startWorker(ctx context.Context, number int) error {
	c, err := cli.StartChild(d.p, d.p.Stderr, "demo-worker", "--server", d.url, "--root",
		d.files.root, "--number", strconv.Itoa(number),
		"--concurrency", strconv.Itoa(d.flags.concurrency), "--pace", d.flags.pace.String())
	if err != nil {
		return err
	}
	d.workers = append(d.workers, c)
	c.Read(func(line string) {
		quoted, _ := strings.CutPrefix(line, "begin ")
		path, err := strconv.Unquote(quoted)
		if err != nil {
			return // the line is not about a file
		}
		d.emit(ctx, event{worker: number, started: path})
	})
	go func() {
		<-c.Done
		d.emit(ctx, event{worker: number, ended: true})
	}()
	return nil
}

// emit sends an event, unless the demo has ended.
func (d *demo) emit(ctx context.Context, e event) {
	select {
	case d.events <- e:
	case <-ctx.Done():
	}
}

// stopWorkers ends all workers and waits for them, ten seconds at most for each before it is
// killed. It may be called more than once.
func (d *demo) stopWorkers() {
	var all sync.WaitGroup
	for _, c := range d.workers {
		all.Go(func() { c.Stop(10 * time.Second) })
	}
	all.Wait()
}

// collect claims results until ctx ends. A handler without an error completes the job of the
// result, so that its queue is empty when everything is counted.
func (d *demo) collect(ctx context.Context) {
	w := &client.Worker{Relay: d.relay, Queue: resultsQueue, Concurrency: 16,
		Handler: client.Typed(func(_ context.Context, _ *client.Run, r fileResult) error {
			d.emit(ctx, event{worker: r.Worker, result: &r})
			return nil
		})}
	_ = w.Run(ctx) // the checklist reports results that are missing
}

// watch records events until every file has its result, and kills a worker in the middle. It gives
// up after stallTimeout without any event; the checklist then shows which steps are missing.
func (d *demo) watch(ctx context.Context) {
	quiet := time.NewTimer(stallTimeout)
	defer quiet.Stop()
	for !d.checklist.complete() {
		select {
		case e := <-d.events:
			quiet.Reset(stallTimeout)
			d.record(e)
		case <-quiet.C:
			d.bar.Printf("nothing has happened for %s: giving up", stallTimeout)
			return
		case <-ctx.Done():
			return
		}
	}
}

// record adds an event to the checklist, and kills the worker when that is due. One goroutine at a
// time calls it: that of startWorkers and later of watch.
func (d *demo) record(e event) {
	c := d.checklist
	switch {
	case e.result != nil:
		if c.addResult(*e.result, d.p.Elapsed()) {
			d.reportTakeover(*e.result)
			d.bar.Add(1, fmt.Sprintf("%d of %d files done, %d in progress", len(c.results),
				len(d.files.order), c.countInProgress()))
		}
	case e.ended:

		if e.worker != c.killed {
			d.bar.Printf("worker %d ended by itself", e.worker)
		}
	default:
		c.start(e.worker, e.started)
	}
	if c.killDue() {
		d.workers[victimWorker-1].Kill()
		c.kill(victimWorker, d.p.Elapsed())
		d.bar.Printf("killed worker %d (SIGKILL), which had claimed %s", victimWorker,
			cli.Pluralize(int64(len(c.inProgressAtKill)), "file"))
	}
}

// reportTakeover prints that another worker has done a file of the killed worker. It prints nothing
// about other results.
func (d *demo) reportTakeover(r fileResult) {
	if c := d.checklist; c.inProgressAtKill[r.Path] && r.Attempt > 1 {
		d.bar.Printf("taken over from worker %d by worker %d, %s after the kill, in attempt %d: %s",
			c.killed, r.Worker,
			cli.FormatDuration(d.p.Elapsed()-c.killedAt), r.Attempt, cli.Printable(r.Path))
	}
}

// inspect counts the jobs that are left in the queues. A balanced demo has none: each job was
// completed, as a result, by the collector.
func (d *demo) inspect(ctx context.Context) error {
	var wg sync.WaitGroup
	var mu sync.Mutex
	var failure error
	paths := make(chan string)
	for range 8 {
		wg.Go(func() {
			for path := range paths {
				for _, queue := range []string{filesQueue, resultsQueue} {
					found, err := d.relay.Exists(ctx, queue, path)
					mu.Lock()
					if err != nil {
						failure = err
					} else if found {
						d.checklist.remaining++
					}
					mu.Unlock()
				}
			}
		})
	}
	for _, path := range d.files.order {
		paths <- path
	}
	close(paths)
	wg.Wait()
	return failure
}
