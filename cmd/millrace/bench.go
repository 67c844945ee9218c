package main

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

type benchFlags struct {
	remote      cli.RemoteFlags
	jobs        int
	singles     int
	batch       int
	payload     int
	connections int
	dir         string
	asJSON      bool
}

func benchCommand(p cli.Process) *cobra.Command {
	var f benchFlags
	c := &cobra.Command{
		Use:   "bench",
		Short: "Measure how fast jobs go through a server",
		Long: `Measure enqueue, next and complete over HTTP, in batches and one by one: jobs per
second and the latency of a request. Without --server (or MILLRACE_SERVER) it
measures a fresh server with its defaults on an empty temporary directory, where
every answer comes after the job is on disk. With --server it uses a queue of its
own there and empties it again. Client and server share the machine when both
run on it, and the client takes its part.`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if f.jobs < 0 || f.singles < 0 || f.batch < 1 || f.payload < 0 || f.connections < 1 {
				return cli.UsageError(
					"--jobs, --singles and --payload are not negative; --batch and --connections are at least 1")
			}
			return f.run(p)
		},
	}
	f.remote.Register(c)
	c.Flags().Lookup("server").Usage = "address of a server to measure (" + cli.EnvServer +
		"); without one a fresh server is"
	c.Flags().IntVar(&f.jobs, "jobs", 50_000, "jobs in batches")
	c.Flags().IntVar(&f.singles, "singles", 20_000, "jobs one by one")
	c.Flags().IntVar(&f.batch, "batch", 100, "jobs of a batch")
	c.Flags().IntVar(&f.payload, "payload", 100, "bytes of a payload")
	c.Flags().IntVar(&f.connections, "connections", 64, "connections")
	c.Flags().StringVar(&f.dir, "dir", "",
		"where the fresh server's directory is made (default: that of temporary files); the disk there is measured")
	c.Flags().BoolVar(&f.asJSON, "json", false, "print JSON")
	return c
}

func (f *benchFlags) run(p cli.Process) error {
	ctx, stop := cli.UntilSignal(context.Background())
	defer stop()
	b := &bench{flags: f, p: p, durability: "as durable as that server's store"}
	address := f.remote.Address(p)
	if f.remote.ServerSetting(p) == "" {
		dir, err := os.MkdirTemp(f.dir, "millrace-bench-")
		if err != nil {
			return cli.WithCode(cli.ExitUnable, err)
		}
		defer os.RemoveAll(dir)
		server, err := cli.StartServer(ctx, p, filepath.Join(dir, "data"))
		if err != nil {
			return err
		}
		defer server.Stop(10 * time.Second)
		address = server.URL
		b.durability = "every answer came after an fsync (SQLite, WAL, synchronous=FULL) in " +
			filepath.Dir(dir)
		if onMemoryFileSystem(dir) {
			b.durability += ", which is memory: nothing was written to a disk, see --dir"
		}
	}
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
	case err == nil:
		return b.write()
	case errors.As(err, &coded):
		return err
	default:
		return cli.WithCode(cli.ExitFailed, err)
	}
}

// bench is one measurement.
type bench struct {
	flags      *benchFlags
	p          cli.Process
	target     *url.URL
	trust      *tls.Config // nil for what the system trusts
	token      string
	durability string
	loads      []benchLoad
}

// benchLoad is what was measured of one kind of load.
type benchLoad struct {
	Load        string        `json:"load"` // batches or singles
	Jobs        int           `json:"jobs"`
	Batch       int           `json:"batch"`
	Connections int           `json:"connections"`
	Took        time.Duration `json:"took_ns"`
	Verbs       []benchVerb   `json:"verbs"`
}

// benchVerb is how long requests of one verb took.
type benchVerb struct {
	Verb     string        `json:"verb"`
	Requests int           `json:"requests"`
	P50      time.Duration `json:"p50_ns"`
	P99      time.Duration `json:"p99_ns"`
}

var benchVerbs = []string{"enqueue", "next", "complete"}

func (b *bench) run(ctx context.Context) error {
	for _, load := range []struct {
		name        string
		jobs, batch int
	}{{"batches", b.flags.jobs, b.flags.batch}, {"singles", b.flags.singles, 1}} {
		if load.jobs == 0 {
			continue
		}
		if err := b.load(ctx, load.name, load.jobs, load.batch); err != nil {
			return err
		}
	}
	return nil
}

// loadUntilKilled puts jobs through: each connection enqueues a batch, takes a batch and
// completes job by job, over and over, until all jobs are completed.
func (b *bench) load(ctx context.Context, name string, jobs, batch int) error {
	f := &benchRun{b: b, queue: "bench-" + rand.Text()[:8], jobs: jobs, batch: batch,
		bar: b.p.NewProgress(name, int64(jobs))}
	defer f.bar.End()
	f.prepare()
	conns := min(b.flags.connections, jobs)
	opened := make([]*benchConn, conns)
	for i := range opened {
		c, err := dialBench(ctx, b.target, b.trust)
		if err != nil {
			return err
		}
		defer c.conn.Close()
		opened[i] = c
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var all sync.WaitGroup
	started := b.p.Elapsed()
	for _, c := range opened {
		all.Go(func() {
			if err := f.drive(ctx, c); err != nil {
				cancel(err)
			}
		})
	}
	all.Wait()
	took := b.p.Elapsed() - started
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	load := benchLoad{Load: name, Jobs: jobs, Batch: batch, Connections: conns, Took: took}
	for i, verb := range benchVerbs {
		times := f.times[i]
		slices.Sort(times)
		load.Verbs = append(load.Verbs, benchVerb{verb, len(times), times[len(times)/2],
			times[len(times)*99/100]})
	}
	b.loads = append(b.loads, load)
	return nil
}

func statusError(verb string, status int, body []byte) error {
	err := fmt.Errorf("%s was answered %d %s: %s", verb, status, http.StatusText(status),
		strings.TrimSpace(string(body)))
	if status == http.StatusUnauthorized || status == http.StatusForbidden {
		return cli.WithCode(cli.ExitServer, err)
	}
	return err
}

func (b *bench) write() error {
	if b.flags.asJSON {
		return cli.WithCode(cli.ExitFailed,
			json.NewEncoder(b.p.Stdout).Encode(map[string]any{"loads": b.loads,
				"durability": b.durability, "cpus": runtime.NumCPU(),
				"version": cli.ReadBuildInfo().Version}))
	}
	w := b.p.Stdout
	for _, l := range b.loads {
		fmt.Fprintf(w, "%s of %d: %d jobs enqueued, taken and completed on %d connections: %.0f "+
			"jobs/s\n",
			l.Load, l.Batch, l.Jobs, l.Connections, float64(l.Jobs)/l.Took.Seconds())
		for _, v := range l.Verbs {
			fmt.Fprintf(w, "  %-9s %8d requests   p50 %8s   p99 %8s\n", v.Verb, v.Requests,
				cli.FormatDuration(v.P50), cli.FormatDuration(v.P99))
		}
	}
	fmt.Fprintf(w, "\ncomplete is always one request a job; payloads of %d bytes\n",
		b.flags.payload)
	fmt.Fprintf(w, "%s; %d CPUs for client and what else runs here\n", b.durability,
		runtime.NumCPU())
	return nil
}
