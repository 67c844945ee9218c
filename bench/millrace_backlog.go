package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/internal/contract/relay"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/store/sqlite"
)

// backlog is the real server on SQLite with n jobs queued: how long it takes until it is ready,
// what a claim costs, how much memory it holds. Run it with -n 1000 and with -n 10000000 and
// compare.
type backlog struct {
	millraceHTTP
	memory string
}

// backlogClaims is how many jobs are claimed and completed one after another.
const backlogClaims = 2000

func setupBacklog(ctx context.Context, env *Env) (Runner, error) {
	r, err := setupMillraceHTTP("backlog")(ctx, env)
	if err != nil {
		return nil, err
	}
	return &backlog{millraceHTTP: *r.(*millraceHTTP)}, nil
}

func (b *backlog) Durability() string { return b.memory }

func (b *backlog) Run(ctx context.Context, n int) ([]Phase, error) {
	data := filepath.Join(b.dir, "data")
	if err := os.RemoveAll(data); err != nil {
		return nil, err
	}
	insert, err := b.fill(ctx, filepath.Join(data, "millrace.db"), n)
	if err != nil {
		return nil, fmt.Errorf("fill: %w", err)
	}
	server, err := serveMillrace(ctx, b.binary, data, nil)
	if err != nil {
		return nil, err
	}
	defer server.Stop()
	claim, err := claimAll(ctx, server.addr, "q", min(n, backlogClaims))
	if err != nil {
		return nil, err
	}
	b.memory = fmt.Sprintf("%d queued: ready after %v, resident memory after the claims %s", n,
		server.ready.Round(time.Millisecond), residentMemory(server.cmd.Process.Pid))
	return []Phase{insert, claim, {Name: "start", Jobs: n, Took: server.ready}}, nil
}

func (b *backlog) fill(ctx context.Context, path string, n int) (Phase, error) {
	s, err := sqlite.Open(ctx, sqlite.Config{Path: path, Now: time.Now})
	if err != nil {
		return Phase{}, err
	}
	defer s.Close()
	start := time.Now()
	err = fillRelay(ctx, s, nil, path, "q", 0, n)
	return Phase{Name: "fill", Jobs: n, Took: time.Since(start)}, err
}

// newRelayEngine makes an engine in this process that has Relay.
func newRelayEngine(s store.Store) (*engine.Engine, error) {
	e, err := newEngine(s)
	if err != nil {
		return nil, err
	}
	contract, err := relay.New(relay.Config{Engine: e, Registry: prometheus.NewRegistry(),
		Log:      slog.New(slog.DiscardHandler),
		Settings: relay.Settings{MaxNumJobs: 1000, BodyLimit: 1 << 20, RetryableStatus: 429}})
	if err != nil {
		return nil, err
	}
	return e, e.Register(contract.JobType())
}

// fillRelay queues the jobs from..to-1 in a queue of Relay. The store is PostgreSQL, or SQLite with
// its file at a path.
func fillRelay(ctx context.Context, s store.Store, pg *Postgres, path, queue string, from,
	to int) error {
	e, err := newRelayEngine(s)
	if err != nil {
		return err
	}
	defer e.Close()
	f := &jobFill{store: s, engine: e, pg: pg, path: path, queue: queue,
		id: job.ID{JobType: relay.Name, Scope: queue}}
	return f.run(ctx, from, to)
}

// claimAll claims and completes jobs one after another; the latency is of next.
func claimAll(ctx context.Context, addr, queue string, n int) (Phase, error) {
	conn, err := dialRaw(ctx, addr)
	if err != nil {
		return Phase{}, err
	}
	defer conn.Close()
	next := fmt.Appendf(nil, "GET /v2/queues/%s/jobs HTTP/1.1\r\nHost: %s\r\n\r\n", queue,
		addr)
	claim := Phase{Name: phaseClaim, Jobs: n}
	for range n {
		started := time.Now()
		status, body, err := conn.Do(next)
		took := time.Since(started)
		if err != nil {
			return claim, err
		}
		if status != http.StatusOK {
			return claim, fmt.Errorf("next was answered %d", status)
		}
		claim.Latency, claim.Took = append(claim.Latency, took), claim.Took+took
		id, _, _ := strings.Cut(textAfter(string(body), `"id":"`), `"`)
		run, _, _ := strings.Cut(textAfter(string(body), `"run_id":"`), `"`)
		status, _, err = conn.Do(fmt.Appendf(nil,
			"DELETE /v2/queues/%s/jobs/%s/run-id/%s HTTP/1.1\r\nHost: %s\r\n\r\n", queue, id, run,
			addr))
		if err != nil {
			return claim, err
		}
		if status != http.StatusOK {
			return claim, errors.New("a complete was answered " + strconv.Itoa(status))
		}
	}
	return claim, nil
}

func textAfter(s, mark string) string { _, tail, _ := strings.Cut(s, mark); return tail }

// residentMemory reads the memory of a process, as far as the system reports it.
func residentMemory(pid int) string {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return "unknown here"
	}
	line, _, _ := strings.Cut(textAfter(string(status), "VmRSS:"), "\n")
	return strings.TrimSpace(line)
}
