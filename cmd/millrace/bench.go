package main

import (
	"cmp"
	"context"
	"crypto/rand"
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
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
)

type benchFlags struct {
	remote      remoteFlags
	jobs        int
	singles     int
	batch       int
	payload     int
	connections int
	dir         string
	asJSON      bool
}

func benchCommand(p process) *cobra.Command {
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
				return usageError("--jobs, --singles and --payload are not negative; --batch and --connections are at least 1")
			}
			return f.run(p)
		},
	}
	f.remote.register(c)
	c.Flags().IntVar(&f.jobs, "jobs", 50_000, "jobs in batches")
	c.Flags().IntVar(&f.singles, "singles", 20_000, "jobs one by one")
	c.Flags().IntVar(&f.batch, "batch", 100, "jobs of a batch")
	c.Flags().IntVar(&f.payload, "payload", 100, "bytes of a payload")
	c.Flags().IntVar(&f.connections, "connections", 64, "connections for single jobs; batches use an eighth")
	c.Flags().StringVar(&f.dir, "dir", "", "where the fresh server's directory is made (default: that of temporary files); the disk there is measured")
	c.Flags().BoolVar(&f.asJSON, "json", false, "print JSON")
	return c
}

func (f *benchFlags) run(p process) error {
	ctx, stop := untilSignal(context.Background())
	defer stop()
	b := &bench{flags: f, p: p, durability: "as durable as that server's store"}
	address := cmp.Or(f.remote.server, p.env("MILLRACE_SERVER"))
	if address == "" {
		dir, err := os.MkdirTemp(f.dir, "millrace-bench-")
		if err != nil {
			return withCode(exitUnable, err)
		}
		defer os.RemoveAll(dir)
		server, err := startServer(ctx, p, filepath.Join(dir, "data"))
		if err != nil {
			return err
		}
		defer server.stop(10 * time.Second)
		address = server.url
		b.durability = "every answer came after an fsync (SQLite, WAL, synchronous=FULL) in " + filepath.Dir(dir)
		if inMemory(dir) {
			b.durability += ", which is memory: nothing was written to a disk, see --dir"
		}
	}
	target, err := url.Parse(address)
	if err != nil || target.Host == "" || target.Scheme != "http" && target.Scheme != "https" {
		return usageError("%q is not the address of a server", address)
	}
	b.target, b.token = target, f.remote.bearer(p)
	err = b.run(ctx)
	if ctx.Err() != nil {
		return errInterrupted
	}
	var coded *failure
	switch {
	case err == nil:
		return b.write()
	case errors.As(err, &coded):
		return err
	default:
		return withCode(exitFailed, err)
	}
}

// bench is one measurement.
type bench struct {
	flags      *benchFlags
	p          process
	target     *url.URL
	token      string
	durability string
	phases     []benchPhase
}

// benchPhase is what was measured of one verb.
type benchPhase struct {
	Load        string        `json:"load"` // batches or singles
	Verb        string        `json:"verb"`
	Jobs        int           `json:"jobs"`
	Requests    int           `json:"requests"`
	Connections int           `json:"connections"`
	Took        time.Duration `json:"took_ns"`
	P50         time.Duration `json:"p50_ns"`
	P99         time.Duration `json:"p99_ns"`
}

func (b *bench) run(ctx context.Context) error {
	for _, load := range []struct {
		name              string
		jobs, batch, conn int
	}{
		{"batches", b.flags.jobs, b.flags.batch, max(1, b.flags.connections/8)},
		{"singles", b.flags.singles, 1, b.flags.connections},
	} {
		if load.jobs == 0 {
			continue
		}
		if err := b.load(ctx, load.name, load.jobs, load.batch, load.conn); err != nil {
			return err
		}
	}
	return nil
}

// load puts jobs through the three verbs, one after another.
func (b *bench) load(ctx context.Context, name string, jobs, batch, conns int) error {
	queue := "bench-" + rand.Text()[:8]
	requests := make([][]byte, 0, jobs/batch+1)
	payload, _ := json.Marshal(strings.Repeat("x", max(0, b.flags.payload-2)))
	for from := 0; from < jobs; from += batch {
		var body strings.Builder
		for i := from; i < min(from+batch, jobs); i++ {
			body.WriteByte("[,"[min(i-from, 1)])
			fmt.Fprintf(&body, `{"queue":%q,"id":"%010d","timeout":600,"payload":%s}`, queue, i, payload)
		}
		body.WriteByte(']')
		requests = append(requests, benchRequest(b.target, b.token, http.MethodPost, "/v2/queues/jobs", []byte(body.String())))
	}
	if _, err := b.phase(ctx, name, "enqueue", jobs, conns, requests, http.StatusAccepted); err != nil {
		return err
	}
	next := benchRequest(b.target, b.token, http.MethodGet, fmt.Sprintf("/v2/queues/%s/jobs?num_jobs=%d", queue, batch), nil)
	for i := range requests {
		requests[i] = next
	}
	answers, err := b.phase(ctx, name, "next", jobs, conns, requests, http.StatusOK)
	if err != nil {
		return err
	}
	requests = requests[:0]
	for _, answer := range answers {
		var handed []struct {
			ID    string `json:"id"`
			RunID string `json:"run_id"`
		}
		if err := json.Unmarshal(answer, &handed); err != nil {
			return fmt.Errorf("answer of next: %w", err)
		}
		for _, j := range handed {
			requests = append(requests, benchRequest(b.target, b.token, http.MethodDelete,
				"/v2/queues/"+queue+"/jobs/"+j.ID+"/run-id/"+j.RunID, nil))
		}
	}
	if len(requests) != jobs {
		return fmt.Errorf("%d jobs were handed out of %d", len(requests), jobs)
	}
	_, err = b.phase(ctx, name, "complete", jobs, b.flags.connections, requests, http.StatusOK)
	return err
}

// phase sends all requests over some connections and notes how long each took. It returns the bodies of the answers.
func (b *bench) phase(ctx context.Context, load, verb string, jobs, conns int, requests [][]byte, want int) ([][]byte, error) {
	conns = min(conns, len(requests))
	bar := b.p.progress(load+" "+verb, int64(len(requests)))
	defer bar.end()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	opened := make([]*benchConn, conns)
	for i := range opened {
		c, err := dialBench(ctx, b.target)
		if err != nil {
			return nil, err
		}
		defer c.conn.Close()
		opened[i] = c
	}
	answers, times := make([][]byte, len(requests)), make([]time.Duration, len(requests))
	var at atomic.Int64
	var all sync.WaitGroup
	began := b.p.since()
	for _, c := range opened {
		all.Go(func() {
			for i := at.Add(1) - 1; i < int64(len(requests)) && ctx.Err() == nil; i = at.Add(1) - 1 {
				start := b.p.since()
				status, body, err := c.do(requests[i])
				times[i], answers[i] = b.p.since()-start, body
				if err == nil && status != want {
					err = refusal(verb, status, body)
				}
				if err != nil {
					cancel(err)
					return
				}
				if i%64 == 63 {
					bar.add(64, fmt.Sprintf("%d of %d requests", i+1, len(requests)))
				}
			}
		})
	}
	all.Wait()
	took := b.p.since() - began
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	slices.Sort(times)
	b.phases = append(b.phases, benchPhase{load, verb, jobs, len(requests), conns, took,
		times[len(times)/2], times[len(times)*99/100]})
	return answers, nil
}

func refusal(verb string, status int, body []byte) error {
	err := fmt.Errorf("%s was answered %d %s: %s", verb, status, http.StatusText(status), strings.TrimSpace(string(body)))
	if status == http.StatusUnauthorized || status == http.StatusForbidden {
		return withCode(exitServer, err)
	}
	return err
}

func (b *bench) write() error {
	if b.flags.asJSON {
		return withCode(exitFailed, json.NewEncoder(b.p.stdout).Encode(map[string]any{"phases": b.phases,
			"durability": b.durability, "cpus": runtime.NumCPU(), "version": readBuild().Version}))
	}
	w := b.p.stdout
	fmt.Fprintf(w, "%-8s %-9s %8s %6s %9s %10s %10s\n", "", "", "jobs", "conns", "jobs/s", "p50", "p99")
	through := map[string]time.Duration{}
	for _, ph := range b.phases {
		through[ph.Load] += ph.Took
		fmt.Fprintf(w, "%-8s %-9s %8d %6d %9.0f %10s %10s\n", ph.Load, ph.Verb, ph.Jobs, ph.Connections,
			float64(ph.Jobs)/ph.Took.Seconds(), short(ph.P50), short(ph.P99))
		if ph.Verb == "complete" {
			fmt.Fprintf(w, "%-8s %-9s %8d %6s %9.0f   through all three\n", ph.Load, "together", ph.Jobs, "",
				float64(ph.Jobs)/through[ph.Load].Seconds())
		}
	}
	fmt.Fprintf(w, "\nbatches of %d; complete is always one request a job; payloads of %d bytes; latencies are of requests\n",
		b.flags.batch, b.flags.payload)
	fmt.Fprintf(w, "%s; %d CPUs for client and what else runs here\n", b.durability, runtime.NumCPU())
	return nil
}
