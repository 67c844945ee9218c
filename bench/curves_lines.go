package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/store/postgres"
	"github.com/millrace/millrace/internal/store/sqlite"
)

// payloadBytes bounds what is submitted for a point of the curve of payloads.
const payloadBytes = 256 << 20

// relayLine sends single jobs through servers of the binary; what grows is set by adjust, which
// answers how many jobs there are.
type relayLine struct {
	*queueRunner
	queue  *relayQueue
	jobs   int
	adjust func(r *queueRunner, q *relayQueue, size, jobs int) int
}

func setupRelayLine(adjust func(r *queueRunner, q *relayQueue, size, jobs int) int) func(
	context.Context, *Env, bool, int) (curveLine, error) {
	return func(ctx context.Context, env *Env, onPostgres bool, jobs int) (curveLine, error) {
		q, err := newRelayQueue(ctx, env, onPostgres)
		if err != nil {
			return nil, err
		}
		return &relayLine{queueRunner: &queueRunner{queueSystem: q, conns: env.Clients, batch: 1},
			queue: q, jobs: jobs, adjust: adjust}, nil
	}
}

// At returns how many jobs a second go through all three steps.
func (l *relayLine) At(ctx context.Context, size int) (float64, error) {
	// What runs still has the number of nodes of the point before.
	if err := l.queue.Close(); err != nil {
		return 0, err
	}
	n := l.adjust(l.queueRunner, l.queue, size, l.jobs)
	phases, err := l.Run(ctx, n)
	if err != nil {
		return 0, err
	}
	return phases[len(phases)-1].Rate(), nil
}

func (l *relayLine) Close(ctx context.Context) error {
	return errors.Join(l.queue.Close(), l.queue.clear(ctx), os.RemoveAll(l.queue.dir))
}

// backlogLine has more and more jobs queued.
type backlogLine struct {
	*relayQueue
	jobs   int
	filled int // jobs that were ever queued
	queued int // jobs that are
}

func setupBacklogLine(ctx context.Context, env *Env, onPostgres bool, jobs int) (curveLine, error) {
	q, err := newRelayQueue(ctx, env, onPostgres)
	if err != nil {
		return nil, err
	}
	return &backlogLine{relayQueue: q, jobs: jobs}, q.clear(ctx)
}

// At returns the 99th percentile of a claim by one connection, in milliseconds.
func (l *backlogLine) At(ctx context.Context, size int) (float64, error) {
	if err := l.fill(ctx, size); err != nil {
		return 0, fmt.Errorf("fill: %w", err)
	}
	syncDisk() // The fill has left gigabytes that the system would write beside the claims.
	if err := l.serve(ctx); err != nil {
		return 0, err
	}
	n := min(l.jobs, size)
	claim, err := claimAll(ctx, l.servers[0].addr, l.queueName(0), n)
	l.queued -= n
	if err := errors.Join(err, l.relayQueue.Close()); err != nil {
		return 0, err
	}
	return float64(percentilesOf(claim.Latency).P99) / float64(time.Millisecond), nil
}

// fill queues jobs until there are so many.
func (l *backlogLine) fill(ctx context.Context, size int) error {
	path := filepath.Join(l.data(0), "millrace.db")
	s, err := openStore(ctx, l.pg, path)
	if err != nil {
		return err
	}
	defer s.Close()
	more := size - l.queued
	err = fillRelay(ctx, s, l.pg, path, l.queueName(0), l.filled, l.filled+more)
	l.filled, l.queued = l.filled+more, size
	return err
}

func (l *backlogLine) Close(ctx context.Context) error {
	return errors.Join(l.relayQueue.Close(), l.clear(ctx), os.RemoveAll(l.dir))
}

// openStore opens a database as a server has it; without PostgreSQL it is the file.
func openStore(ctx context.Context, pg *Postgres, path string) (store.Store, error) {
	if pg != nil {
		return postgres.Open(ctx, postgres.Config{URL: pg.DSN()})
	}
	return sqlite.Open(ctx, sqlite.Config{Path: path, Now: time.Now})
}

// machineFinished is the machine of jobs that are done when submitted.
var machineFinished = job.MustMachine(map[job.State]job.Phase{"done": job.Done},
	[]job.Transition{{From: job.StateNone, On: job.Submitted, To: "done"}})

// historyLine has more and more finished jobs beside those that are worked, which are removed.
type historyLine struct {
	millraceRunner
	dir    string
	pg     *Postgres
	store  store.Store
	engine *engine.Engine
	jobs   int
	kept   int
}

func setupHistoryLine(ctx context.Context, env *Env, onPostgres bool, jobs int) (curveLine, error) {
	l := &historyLine{jobs: jobs, millraceRunner: millraceRunner{machine: machineDeleting,
		insert: 100, claim: 100, callers: 4}}
	var err error
	if onPostgres {
		if l.pg, err = env.Postgres(ctx, "history"); err != nil {
			return nil, err
		}
	}
	if l.dir, err = os.MkdirTemp(env.Dir, "history-"); err != nil {
		return nil, err
	}
	if l.store, err = openStore(ctx, l.pg, l.path()); err != nil {
		return nil, err
	}
	if l.engine, err = newEngine(l.store); err != nil {
		return nil, errors.Join(err, l.store.Close())
	}
	err = l.engine.Register(engine.JobType{Name: "bench", Machine: l.machine},
		engine.JobType{Name: "history", Machine: machineFinished})
	if err != nil {
		return nil, errors.Join(err, l.store.Close())
	}
	return l, nil
}

// At returns how many jobs a second go through the engine in process in batches of 100.
func (l *historyLine) At(ctx context.Context, size int) (float64, error) {
	if err := l.fill(ctx, size); err != nil {
		return 0, fmt.Errorf("fill: %w", err)
	}
	syncDisk() // The fill has left gigabytes that the system would write beside the work.
	insert, err := l.insertAll(ctx, l.engine, l.jobs)
	if err != nil {
		return 0, err
	}
	work, err := l.workAll(ctx, l.engine, l.jobs)
	return totalPhase(l.jobs, insert, work).Rate(), err
}

// fill stores finished jobs until there are so many.
func (l *historyLine) fill(ctx context.Context, size int) error {
	f := &jobFill{store: l.store, engine: l.engine, pg: l.pg, path: l.path(), queue: "default",
		id: job.ID{JobType: "history", Scope: "default"}}
	if err := f.run(ctx, l.kept, size); err != nil {
		return err
	}
	l.kept = size
	return nil
}

// path is the file of SQLite.
func (l *historyLine) path() string { return filepath.Join(l.dir, "history.db") }

func (l *historyLine) Close(ctx context.Context) error {
	l.engine.Close()
	err := errors.Join(l.store.Close(), os.RemoveAll(l.dir))
	if l.pg != nil {
		err = errors.Join(err, l.pg.Recreate(ctx))
	}
	return err
}
