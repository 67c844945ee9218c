// Package bench measures how fast jobs go through a server of Relay, over HTTP.
//
// The client must cost little beside the server, because both may share a machine. Requests are
// therefore written before the clock starts, each connection sends them with plain reads and writes
// (conn.go), and answers are searched instead of decoded (load.go):
//
//	prepare   every request of a load as bytes
//	connect   the connections, which stay open
//	drive     each connection: enqueue a batch, claim it, complete it (job by job, or in one
//	          request), until all is done
//	report    jobs per second of the load, p50 and p99 of each verb
package bench

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/cmd/millrace/internal/cli"
)

// flags are the flags of the command.
type flags struct {
	remote cli.RemoteFlags
	// jobs is the number of jobs of the load in batches; 0 leaves it out.
	jobs int
	// singles is the number of jobs of the load one by one; 0 leaves it out.
	singles int
	// batch is the number of jobs in a request of the load in batches.
	batch int
	// completeBatches completes the jobs of a claim in one request, in the load in batches.
	completeBatches bool
	// payload is the size of a payload in bytes.
	payload int
	// connections is their number, at most; a load of fewer jobs has fewer.
	connections int
	// dir is where the fresh server's directory is made; empty for that of the system.
	dir    string
	asJSON bool
}

// Command is `millrace bench`.
func Command(p cli.Process) *cobra.Command {
	var f flags
	c := &cobra.Command{
		Use:   "bench",
		Short: "Measure how fast jobs go through a server",
		Long: `Measure enqueue, next and complete over HTTP, in batches and one by one: jobs per
second and the latency of a request. Without --server (or MILLRACE_SERVER) it
measures a fresh server with its defaults on an empty temporary directory, where
every answer comes after the job is on disk. With --server it uses a queue of its
own there and empties it again. When client and server run on one machine they
share its processors.`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if f.jobs < 0 || f.singles < 0 || f.batch < 1 || f.payload < 0 || f.connections < 1 {
				return cli.UsageError(
					"--jobs, --singles and --payload are not negative; --batch and --connections are at least 1")
			}
			return f.run(p)
		},
	}
	f.register(c)
	return c
}

// register adds the flags to the command.
func (f *flags) register(c *cobra.Command) {
	f.remote.Register(c)
	c.Flags().Lookup("server").Usage = "address of a server to measure (" + cli.EnvServer +
		"); without one a fresh server is"
	c.Flags().IntVar(&f.jobs, "jobs", 50_000, "jobs in batches")
	c.Flags().IntVar(&f.singles, "singles", 20_000, "jobs one by one")
	c.Flags().IntVar(&f.batch, "batch", 100, "jobs of a batch")
	c.Flags().BoolVar(&f.completeBatches, "complete-batches", false,
		"complete the jobs of a batch in one request, and not job by job")
	c.Flags().IntVar(&f.payload, "payload", 100, "bytes of a payload")
	c.Flags().IntVar(&f.connections, "connections", 64, "connections")
	c.Flags().StringVar(&f.dir, "dir", "",
		"where the fresh server's directory is made (default: that of temporary files); the disk there is measured")
	c.Flags().BoolVar(&f.asJSON, "json", false, "print JSON")
}

// stopTimeout is the time that the fresh server gets to end before it is killed.
const stopTimeout = 10 * time.Second

// run measures the server that the flags name, or a fresh one, and prints the report. The fresh
// server and its directory are gone when it returns; a measured server keeps no job of the bench,
// unless the bench ends early.
func (f *flags) run(p cli.Process) error {
	ctx, stop := cli.UntilSignal(context.Background())
	defer stop()
	if f.remote.ServerSetting(p) != "" {
		return f.measure(ctx, p, f.remote.Address(p), "as durable as that server's store")
	}
	dir, err := os.MkdirTemp(f.dir, "millrace-bench-")
	if err != nil {
		return cli.WithCode(cli.ExitUnable, err)
	}
	defer os.RemoveAll(dir)
	server, err := cli.StartServer(ctx, p, filepath.Join(dir, "data"))
	if err != nil {
		return err
	}
	defer server.Stop(stopTimeout)
	durability := "every answer came after an fsync (SQLite, WAL, synchronous=FULL) in " +
		filepath.Dir(dir)
	if onMemoryFileSystem(dir) {
		durability += ", which is memory: nothing was written to a disk, see --dir"
	}
	return f.measure(ctx, p, server.URL, durability)
}

// measure measures the server at an address. durability is the line of the report that says what an
// acknowledged job survives there. An error or an interruption leaves no report: numbers of a part
// of a load would not be comparable.
func (f *flags) measure(ctx context.Context, p cli.Process, address, durability string) error {
	b := &bench{flags: f, p: p, durability: durability}
	target, err := url.Parse(address)
	if err != nil || target.Host == "" || (target.Scheme != "http" && target.Scheme != "https") {
		return cli.UsageError("%q is not the address of a server", address)
	}
	b.target, b.token = target, f.remote.BearerToken(p)
	if b.trust, err = f.remote.TLSConfig(p); err != nil {
		return err
	}
	err = b.run(ctx)
	if ctx.Err() != nil {
		return cli.ErrInterrupted
	}
	var coded *cli.ExitError
	switch {
	case errors.As(err, &coded):
		return err
	case err != nil:
		return cli.WithCode(cli.ExitFailed, err)
	}
	return b.report()
}

// bench is one run of the command. The loads run one after the other and are appended to loads.
type bench struct {
	flags      *flags
	p          cli.Process
	target     *url.URL
	trust      *tls.Config // nil for what the system trusts
	token      string
	durability string // what an acknowledged job survives, for the report
	loads      []loadResult
}

// loadResult is what was measured of one load, as --json prints it. Times are in nanoseconds.
type loadResult struct {
	Load        string        `json:"load"` // batches or singles
	Jobs        int           `json:"jobs"`
	Batch       int           `json:"batch"`
	Connections int           `json:"connections"`
	Took        time.Duration `json:"took_ns"`
	Verbs       []verbResult  `json:"verbs"`
}

// verbResult is how long the requests of one verb took.
type verbResult struct {
	Verb     string        `json:"verb"`
	Requests int           `json:"requests"`
	P50      time.Duration `json:"p50_ns"`
	P99      time.Duration `json:"p99_ns"`
}

// verb is one of the requests that are measured.
type verb int

// The verbs, in the order in which a job meets them.
const (
	verbEnqueue verb = iota
	verbNext
	verbComplete
	verbCount int = iota
)

// String returns the name of the verb in reports.
func (v verb) String() string { return [...]string{"enqueue", "next", "complete"}[v] }

// run measures the loads one after the other.
func (b *bench) run(ctx context.Context) error {
	for _, load := range []struct {
		name        string
		jobs, batch int
	}{{"batches", b.flags.jobs, b.flags.batch}, {"singles", b.flags.singles, 1}} {
		if load.jobs == 0 {
			continue
		}
		if err := b.measureLoad(ctx, load.name, load.jobs, load.batch); err != nil {
			return err
		}
	}
	return nil
}

// measureLoad runs one load in a queue of its own until all its jobs are completed. Connections are
// opened before the clock starts, so that no handshake is measured. The first error of a connection
// ends the others, and is the error of the load.
func (b *bench) measureLoad(ctx context.Context, name string, jobs, batch int) error {
	l := &load{b: b, queue: "bench-" + rand.Text()[:8], jobs: jobs, batch: batch,
		completesBatches: batch > 1 && b.flags.completeBatches,
		bar:              b.p.NewProgress(name, int64(jobs))}
	defer l.bar.End()
	l.prepare()
	opened := make([]*conn, min(b.flags.connections, jobs))
	for i := range opened {
		c, err := dial(ctx, b.target, b.trust)
		if err != nil {
			return err
		}
		defer c.net.Close()
		opened[i] = c
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var all sync.WaitGroup
	started := b.p.Elapsed()
	for _, c := range opened {
		all.Go(func() {
			if err := l.drive(ctx, c); err != nil {
				cancel(err)
			}
		})
	}
	all.Wait()
	took := b.p.Elapsed() - started
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	result := loadResult{Load: name, Jobs: jobs, Batch: batch, Connections: len(opened), Took: took}
	for i, times := range l.times {
		slices.Sort(times)
		result.Verbs = append(result.Verbs, verbResult{verb(i).String(), len(times),
			times[len(times)/2], times[len(times)*99/100]})
	}
	b.loads = append(b.loads, result)
	return nil
}

// statusError is the error of an answer with a status that the verb does not expect. A refused
// token has an exit code of its own.
func statusError(v verb, status int, body []byte) error {
	err := fmt.Errorf("%s was answered %d %s: %s", v, status, http.StatusText(status),
		strings.TrimSpace(string(body)))
	if status == http.StatusUnauthorized || status == http.StatusForbidden {
		return cli.WithCode(cli.ExitUnauthorized, err)
	}
	return err
}

// report prints what was measured, as text or as JSON.
func (b *bench) report() error {
	if b.flags.asJSON {
		return cli.WithCode(cli.ExitFailed,
			json.NewEncoder(b.p.Stdout).Encode(map[string]any{"loads": b.loads,
				"durability": b.durability, "cpus": runtime.NumCPU(),
				"version": cli.ReadBuildInfo().Version}))
	}
	w := b.p.Stdout
	for _, l := range b.loads {
		fmt.Fprintf(w, "%s of %d: %d jobs enqueued, claimed and completed on %d connections: %.0f "+
			"jobs/s\n",
			l.Load, l.Batch, l.Jobs, l.Connections, float64(l.Jobs)/l.Took.Seconds())
		for _, v := range l.Verbs {
			fmt.Fprintf(w, "  %-9s %8d requests   p50 %8s   p99 %8s\n", v.Verb, v.Requests,
				cli.FormatDuration(v.P50), cli.FormatDuration(v.P99))
		}
	}
	completes := "complete is always one request a job"
	if b.flags.completeBatches {
		completes = "in batches, complete is one request for the jobs of a claim"
	}
	fmt.Fprintf(w, "\n%s; payloads of %d bytes\n", completes, b.flags.payload)
	fmt.Fprintf(w, "%s; %d CPUs for the client and whatever else runs here\n", b.durability,
		runtime.NumCPU())
	return nil
}
