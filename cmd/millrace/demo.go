package main

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
)

type demoFlags struct {
	workers     int
	concurrency int
	pace        time.Duration
	timeout     time.Duration
}

func demoCommand(p process) *cobra.Command {
	var f demoFlags
	c := &cobra.Command{
		Use:   "demo [FOLDER]",
		Short: "Show what Millrace does: a server, real work, a killed worker, and the accounts",
		Long: `Start a server on an empty temporary directory, give it one job for each file of
FOLDER (the source tree of Millrace when run inside of it, else the working
directory), and let several worker processes find out size, lines and SHA-256 of
each. One of the workers does not let go of a file; in the middle it is killed, and
what it has in hand comes back after its timeout and is done by the others. Then a graph of TaskFlow jobs makes a manifest
of the files step by step, one of which fails and is tried again, and is drawn.
Then FetchBox downloads some of them from a server of the demo's own, and what it
stored is compared byte for byte. Then Images makes smaller ones of pictures that the
demo draws, one of which is none and ends as a dead letter. Then a client of ForgeRun has the server run
simulated jobs that succeed, fail, are retried, canceled and scheduled, and every
change is told to a webhook. The report accounts for every job: exit code 0 when
the accounts balance, 1 when they do not. It needs no network, changes nothing in
FOLDER and leaves nothing behind.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if f.workers < 2 || f.concurrency < 1 || f.timeout < time.Second {
				return usageError(
					"--workers is at least 2 (one of them is killed), --concurrency 1, --timeout 1s")
			}
			folder, err := os.Getwd()
			if err != nil {
				return withCode(exitUnable, err)
			}
			if len(args) == 0 {
				folder = sourceRoot(folder)
			} else if folder, err = filepath.Abs(args[0]); err != nil {
				return withCode(exitUsage, err)
			}
			return f.run(p, folder)
		},
	}
	c.Flags().IntVar(&f.workers, "workers", 3, "worker processes; one of them is killed")
	c.Flags().IntVar(&f.concurrency, "concurrency", 4, "files that a worker has in hand at a time")
	c.Flags().DurationVar(&f.pace, "pace", -1,
		"least `time` for a file, so that there is something to see; 0 is full speed")
	c.Flags().Lookup("pace").DefValue = "a few seconds for all"
	c.Flags().DurationVar(&f.timeout, "timeout", 2*time.Second,
		"timeout of the jobs: how long a killed worker's jobs are missing")
	return c
}

func (f *demoFlags) run(p process, folder string) error {
	ctx, stop := untilSignal(context.Background())
	defer stop()
	p, ctx = p.untilUnread(ctx)
	files, err := listFiles(folder)
	if err != nil {
		return withCode(exitUsage, err)
	}
	if len(files.order) == 0 {
		return usageError("there is no file in %s", folder)
	}
	dir, err := os.MkdirTemp("", "millrace-demo-")
	if err != nil {
		return withCode(exitUnable, err)
	}
	defer os.RemoveAll(dir)
	fmt.Fprintf(p.stdout, "%d files in %s\n", len(files.order), folder)
	server, err := startServer(ctx, p, filepath.Join(dir, "data"),
		slices.Concat(demoForgeSettings, demoFetchSettings)...)
	if err != nil {
		return err
	}
	defer server.stop(10 * time.Second)
	fmt.Fprintf(p.stdout, "server on %s, data in %s\n", server.url, dir)
	api, err := client.New(client.Config{BaseURL: server.url})
	if err != nil {
		return withCode(exitFailed, err)
	}
	d := &demo{p: p, flags: *f, files: files, dir: dir, url: server.url, relay: api.Relay(),
		events: make(chan demoEvent, 256), tally: newDemoTally(files)}
	if d.flags.pace < 0 {
		d.flags.pace = min(5*time.Second*time.Duration(f.workers*f.concurrency)/time.Duration(
			len(files.order)), 250*time.Millisecond)
	}
	return d.run(ctx)
}

// demo is one demonstration.
type demo struct {
	p       process
	flags   demoFlags
	files   *listing
	dir     string // for what the demo itself writes
	url     string
	relay   *client.Relay
	events  chan demoEvent
	tally   *demoTally
	workers []*child
	bar     *progress
}

// demoEvent is one thing that happened: a worker began with a file or ended, or a result came in.
type demoEvent struct {
	worker  int
	started string
	ended   bool
	result  *demoResult
}

// stallTimeout is how long nothing at all may happen before the demo gives up and says what is
// missing.
const stallTimeout = 30 * time.Second

func (d *demo) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	d.tally.started = d.p.elapsed()
	if err := d.submit(ctx); err != nil {
		return remoteError(ctx, err)
	}
	defer d.stopWorkers()
	d.bar = d.p.newProgress("demo", int64(len(d.files.order)))
	defer d.bar.end()
	if err := d.startWorkers(ctx); err != nil {
		return withCode(exitFailed, err)
	}
	var collecting sync.WaitGroup
	collect, stopCollecting := context.WithCancel(ctx)
	defer stopCollecting()
	collecting.Go(func() { d.collect(collect) })

	d.watch(ctx)
	d.bar.end()
	if ctx.Err() != nil {
		return errInterrupted
	}
	d.tally.took = d.p.elapsed() - d.tally.started
	d.stopWorkers()
	stopCollecting()
	collecting.Wait()
	if err := d.inspect(ctx); err != nil {
		return remoteError(ctx, err)
	}
	d.tally.verify()
	d.tally.write(d.p.stdout, d)
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
	if !d.tally.tookOver() {
		return failedError("no file of the killed worker was taken over by another")
	}
	if !d.tally.balanced() || !flow || !box || !pictures || !forge {
		return failedError("the accounts do not balance")
	}
	fmt.Fprintln(d.p.stdout, "The accounts balance.")
	return nil
}

// submit queues one job for each file.
func (d *demo) submit(ctx context.Context) error {
	retries := demoRetries
	var batch []client.RelaySpec
	for i, path := range d.files.order {
		payload, err := json.Marshal(demoTask{path})
		if err != nil {
			return err
		}
		batch = append(batch, client.RelaySpec{Queue: demoFiles, ID: path, Timeout: d.flags.timeout,
			MaxRetries: &retries, Payload: payload})
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

// startWorkers starts them all; the others once the one that will be killed has a file in hand.
func (d *demo) startWorkers(ctx context.Context) error {
	if err := d.startWorker(ctx, demoVictim); err != nil {
		return err
	}
	quiet := time.NewTimer(stallTimeout)
	defer quiet.Stop()
	for d.tally.countInProgress() == 0 && d.tally.killed == 0 {
		select {
		case e := <-d.events:
			d.record(e)
			if e.ended {
				return errors.New("the first worker ended by itself")
			}
		case <-quiet.C:
			return fmt.Errorf("the first worker began nothing within %s", stallTimeout)
		case <-ctx.Done():
			return errInterrupted
		}
	}
	for n := range d.flags.workers - 1 {
		if err := d.startWorker(ctx, demoVictim+1+n); err != nil {
			return err
		}
	}
	return nil
}

func (d *demo) startWorker(ctx context.Context, number int) error {
	c, err := startChild(d.p, d.p.stderr, "demo-worker", "--server", d.url, "--root", d.files.root,
		"--number", strconv.Itoa(number),
		"--concurrency", strconv.Itoa(d.flags.concurrency), "--pace", d.flags.pace.String())
	if err != nil {
		return err
	}
	d.workers = append(d.workers, c)
	c.read(func(line string) {
		quoted, _ := strings.CutPrefix(line, "begin ")
		if path, err := strconv.Unquote(quoted); err == nil {
			d.emit(ctx, demoEvent{worker: number, started: path})
		}
	})
	go func() {
		<-c.done
		d.emit(ctx, demoEvent{worker: number, ended: true})
	}()
	return nil
}

func (d *demo) emit(ctx context.Context, e demoEvent) {
	select {
	case d.events <- e:
	case <-ctx.Done():
	}
}

func (d *demo) stopWorkers() {
	var all sync.WaitGroup
	for _, c := range d.workers {
		all.Go(func() { c.stop(10 * time.Second) })
	}
	all.Wait()
}

// collect takes results in until ctx ends.
func (d *demo) collect(ctx context.Context) {
	w := &client.Worker{Relay: d.relay, Queue: demoResults, Concurrency: 16,
		Handler: client.Typed(func(_ context.Context, _ *client.Run, r demoResult) error {
			d.emit(ctx, demoEvent{worker: r.Worker, result: &r})
			return nil
		})}
	_ = w.Run(ctx) // it is fit to run; whatever else is missing shows in the accounts
}

// watch keeps the books until every file has its result, and kills a worker in the middle.
func (d *demo) watch(ctx context.Context) {
	quiet := time.NewTimer(stallTimeout)
	defer quiet.Stop()
	for !d.tally.complete() {
		select {
		case e := <-d.events:
			quiet.Reset(stallTimeout)
			d.record(e)
		case <-quiet.C:
			d.bar.printf("nothing has happened for %s: giving up", stallTimeout)
			return
		case <-ctx.Done():
			return
		}
	}
}

func (d *demo) record(e demoEvent) {
	b := d.tally
	switch {
	case e.result != nil:
		if b.addResult(*e.result, d.p.elapsed()) {
			d.reportTakeover(*e.result)
			d.bar.add(1, fmt.Sprintf("%d of %d files done, %d in hand", len(b.results),
				len(d.files.order), b.countInProgress()))
		}
	case e.ended:
		b.alive--
		if e.worker != b.killed {
			d.bar.printf("worker %d ended by itself", e.worker)
		}
	default:
		b.start(e.worker, e.started)
	}
	if b.killDue() {
		d.workers[demoVictim-1].kill()
		b.kill(demoVictim, d.p.elapsed())
		d.bar.printf("killed worker %d (SIGKILL) with %s in hand", demoVictim,
			pluralize(int64(len(b.inProgressAtKill)), "file"))
	}
}

// reportTakeover tells of a file that the killed worker had in hand and another has done.
func (d *demo) reportTakeover(r demoResult) {
	if b := d.tally; b.inProgressAtKill[r.Path] && r.Tries > 1 {
		d.bar.printf("taken over from worker %d by worker %d, %s after the kill, in run %d: %s",
			b.killed, r.Worker,
			formatDuration(d.p.elapsed()-b.killedAt), r.Tries, printable(r.Path))
	}
}

// inspect looks whether anything is left in the queues.
func (d *demo) inspect(ctx context.Context) error {
	var wg sync.WaitGroup
	var mu sync.Mutex
	var failure error
	paths := make(chan string)
	for range 8 {
		wg.Go(func() {
			for path := range paths {
				for _, queue := range []string{demoFiles, demoResults} {
					found, err := d.relay.Exists(ctx, queue, path)
					mu.Lock()
					if err != nil {
						failure = err
					} else if found {
						d.tally.remaining++
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
