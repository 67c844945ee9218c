package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/nodes"
	"github.com/millrace/millrace/internal/series"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/store/postgres"
	"github.com/millrace/millrace/internal/store/sqlite"
)

// Two machines of the bench: one keeps finished jobs, as River does, the other removes them, as
// Relay does.
var (
	benchPhases = map[job.State]job.Phase{"queued": job.Ready, "running": job.Leased,
		"done": job.Done}
	benchMoves = []job.Transition{
		{From: job.StateNone, On: job.Submitted, To: "queued"},
		{From: "queued", On: job.Claimed, To: "running"},
		{From: "running", On: job.Expired, To: "queued"},
	}
	machineKeeping = job.MustMachine(benchPhases,
		append(benchMoves[:3:3], job.Transition{From: "running", On: job.Succeeded, To: "done"}))
	machineDeleting = job.MustMachine(benchPhases,
		append(benchMoves[:3:3], job.Transition{From: "running", On: job.Succeeded, To: job.StateNone}))
)

// millraceRunner is Millrace's engine in this process, called as River's client is: submissions of
// insertBatch from several goroutines, then workers that claim, run a no-op and finish in batches.
type millraceRunner struct {
	open       func(ctx context.Context, run int) (store.Store, func(context.Context) error, error)
	machine    *job.Machine
	insert     int // jobs per submission
	claim      int // jobs per claim
	callers    int // of either
	durability string
	runs       int
	recorded   bool // what operators see is written meanwhile
}

func setupMillracePostgres(machine *job.Machine, insert, callers int) func(context.Context,
	*Env) (Runner, error) {
	return func(ctx context.Context, env *Env) (Runner, error) {
		pg, err := env.Postgres(ctx, "millrace")
		if err != nil {
			return nil, err
		}
		open := func(ctx context.Context, _ int) (store.Store, func(context.Context) error, error) {
			s, err := postgres.Open(ctx, postgres.Config{URL: pg.DSN()})
			clearStore := func(ctx context.Context) error {
				pool, err := pg.Pool(ctx, 1)
				if err != nil {
					return err
				}
				defer pool.Close()
				for _, q := range []string{
					"TRUNCATE jobs, waiting, ready, leases, finished, bodies, counts, events, outbox, " +
						"records",
					"VACUUM jobs"} {
					if _, err := pool.Exec(ctx, q); err != nil {
						return err
					}
				}
				return nil
			}
			return s, clearStore, err
		}
		return &millraceRunner{open: open, machine: machine, insert: insert, claim: 500,
			callers: callers, durability: pg.Durability()}, nil
	}
}

func setupMillraceSQLite(machine *job.Machine, insert, callers int) func(context.Context,
	*Env) (Runner, error) {
	return func(_ context.Context, env *Env) (Runner, error) {
		dir, err := os.MkdirTemp(env.Dir, "millrace-sqlite-") // several cases have one
		if err != nil {
			return nil, err
		}
		open := func(ctx context.Context, run int) (store.Store, func(context.Context) error,
			error) {
			s, err := sqlite.Open(ctx, sqlite.Config{Path: filepath.Join(dir,
				strconv.Itoa(run)+".db"), Now: time.Now})
			return s, func(context.Context) error { return nil }, err
		}
		return &millraceRunner{open: open, machine: machine, insert: insert, claim: 100,
			callers:    callers,
			durability: "SQLite WAL synchronous=FULL: an fsync before every answer"}, nil
	}
}

func (m *millraceRunner) Durability() string { return m.durability }

func (m *millraceRunner) Close() error { return nil }

func (m *millraceRunner) Run(ctx context.Context, n int) ([]Phase, error) {
	m.runs++
	s, clearStore, err := m.open(ctx, m.runs)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	if err := clearStore(ctx); err != nil {
		return nil, err
	}
	e, err := newEngine(s)
	if err != nil {
		return nil, err
	}
	defer e.Close()
	if err := e.Register(engine.JobType{Name: "bench", Machine: m.machine}); err != nil {
		return nil, err
	}
	if m.recorded {
		stop, err := record(ctx, e)
		if err != nil {
			return nil, err
		}
		defer stop()
	}
	insert, err := m.insertAll(ctx, e, n)
	if err != nil {
		return nil, fmt.Errorf("insert: %w", err)
	}
	work, err := m.workAll(ctx, e, n)
	if err != nil {
		return nil, fmt.Errorf("work: %w", err)
	}
	return []Phase{insert, work, totalPhase(n, insert, work)}, nil
}

// setupRecorded makes a case beside which all that a server writes for operators is written: the
// series every ten seconds, and the record of the node with its workers every five.
func setupRecorded(setup func(context.Context, *Env) (Runner, error)) func(context.Context,
	*Env) (Runner, error) {
	return func(ctx context.Context, env *Env) (Runner, error) {
		r, err := setup(ctx, env)
		if err != nil {
			return nil, err
		}
		r.(*millraceRunner).recorded = true
		return r, nil
	}
}

// record writes what operators see of an engine until stop is called, which writes it once more.
func record(ctx context.Context, e *engine.Engine) (stop func(), err error) {
	started := time.Now()
	recorder, err := series.New(series.Config{Engine: e})
	if err != nil {
		return nil, err
	}
	node, err := nodes.New(nodes.Config{Engine: e, StoreKind: "bench",
		Elapsed: func() time.Duration { return time.Since(started) }})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { recorder.Run(ctx) })
	running.Go(func() { node.Run(ctx) })
	return func() {
		cancel()
		running.Wait()
	}, nil
}

// newEngine makes an engine in this process. Its job type is registered afterwards.
func newEngine(s store.Store) (*engine.Engine, error) {
	start := time.Now()
	return engine.New(engine.Config{Store: s, Node: rand.Text(), Random: randomBytes,
		Monotonic: func() time.Duration { return time.Since(start) }})
}

func randomBytes() (r [16]byte) {
	rand.Read(r[:])
	return r
}

func (m *millraceRunner) insertAll(ctx context.Context, e *engine.Engine, n int) (Phase, error) {
	cut := batches(n, m.insert)
	started := time.Now()
	lat, err := runParallel(ctx, m.callers, len(cut), func(ctx context.Context, _, i int) error {
		batch := make([]engine.Submission, 0, m.insert)
		for num := cut[i][0]; num < cut[i][1]; num++ {
			payload, err := json.Marshal(newJob(num)) // as River encodes its arguments
			if err != nil {
				return err
			}
			batch = append(batch,
				engine.Submission{Job: job.Job{ID: job.ID{JobType: "bench", Scope: "default",
					Key: strconv.Itoa(num)},
					Queue: "default", Lease: time.Minute, Payload: payload}})
		}
		_, err := e.Submit(ctx, engine.Unique, batch)
		return err
	})
	return Phase{Name: phaseInsert, Jobs: n, Took: time.Since(started), Latency: lat}, err
}

func (m *millraceRunner) workAll(ctx context.Context, e *engine.Engine, n int) (Phase, error) {
	checklist := newChecklist(n)
	started := time.Now()
	_, err := runParallel(ctx, m.callers, m.callers, func(ctx context.Context, _, _ int) error {
		for {
			jobs, err := e.Claim(ctx, engine.ClaimRequest{JobType: "bench",
				Queues: []string{"default"}, Max: m.claim, Worker: "bench"})
			if err != nil || len(jobs) == 0 {
				return err
			}
			finishes := make([]engine.FinishRequest, len(jobs))
			for i, j := range jobs {
				var work Job
				if err := json.Unmarshal(j.Payload, &work); err != nil {
					return err
				}
				checklist.MarkWorked(work.Num)
				finishes[i] = engine.FinishRequest{Run: engine.Run{Run: j.Run},
					Outcome: engine.Outcome{On: job.Succeeded}}
			}
			for _, ended := range e.FinishAll(ctx, finishes) {
				if ended.Err != nil {
					return ended.Err
				}
			}
		}
	})
	took := time.Since(started)
	phase := Phase{Name: phaseWork, Jobs: n, Took: took}
	if err != nil {
		return phase, err
	}
	return phase, checklist.Wait(ctx)
}
