package main

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// riverBatch is the number of jobs per InsertMany.
const riverBatch = 1000

// riverInsertMode is a way of handing jobs to River.
type riverInsertMode int

const (
	riverInsertMany   riverInsertMode = iota // InsertMany: the inserted rows are returned
	riverInsertCopy                          // InsertManyFast: COPY, nothing is returned
	riverInsertSingle                        // one Insert per job
)

// riverRunner is River as its own benchmark (`river bench`) runs it, which is the best that its
// authors found: FetchCooldown 2 ms instead of 100 ms, FetchPollInterval 20 ms instead of 1 s,
// MaxWorkers 2000 (flag --river-workers), the jobs table truncated and vacuumed before each run,
// completion counted on the subscription, that is after the completer wrote it, and not when the
// worker returned. Everything else is River's default: finished rows are kept, LISTEN/NOTIFY is on,
// the leader's maintenance runs.
//
// Three things are done for it beyond that. Inserts come from several goroutines where that is
// faster. The clock of the work starts when Start has returned, or at the first job if that came
// earlier, so starting up costs nothing. And the client is stopped at the moment the last worker
// returns: the batch completer lets a last batch of fewer than 100 jobs wait up to 250 ms, which a
// stop flushes at once; over a short run that wait would be most of the difference.
type riverRunner struct {
	env        *Env
	pg         *Postgres
	conns      int
	insertMode riverInsertMode
}

func setupRiver(insertMode riverInsertMode) func(context.Context, *Env) (Runner, error) {
	return func(ctx context.Context, env *Env) (Runner, error) {
		pg, err := env.Postgres(ctx, "river")
		if err != nil {
			return nil, err
		}
		r := &riverRunner{env: env, pg: pg, insertMode: insertMode, conns: env.Tuning.RiverConns}
		if insertMode == riverInsertSingle {
			// Best with a connection for each goroutine that inserts.
			r.conns = max(r.conns, env.Clients)
		}
		return r, r.migrate(ctx)
	}
}

// migrate makes River's tables; the second River case finds them made.
func (r *riverRunner) migrate(ctx context.Context) error {
	pool, err := r.pg.Pool(ctx, 2)
	if err != nil {
		return err
	}
	defer pool.Close()
	migrator, err := rivermigrate.New(riverpgxv5.New(pool),
		&rivermigrate.Config{Logger: r.logger()})
	if err != nil {
		return err
	}
	_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
	return err
}

func (r *riverRunner) Durability() string { return r.pg.Durability() }

// riverWorker does nothing but prove that it was called.
type riverWorker struct {
	river.WorkerDefaults[Job]
	checklist *Checklist
}

func (w *riverWorker) Work(_ context.Context, job *river.Job[Job]) error {
	w.checklist.MarkWorked(job.Args.Num)
	return nil
}

// Run opens its own pool, outside the clock, so that a case whose turn it is not holds none of the
// server's connections.
func (r *riverRunner) Run(ctx context.Context, n int) ([]Phase, error) {
	pool, err := r.pg.Pool(ctx, r.conns)
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	if _, err := pool.Exec(ctx, "TRUNCATE river_job"); err != nil {
		return nil, err
	}
	if _, err := pool.Exec(ctx, "VACUUM FULL river_job"); err != nil {
		return nil, err
	}
	checklist := newChecklist(n)
	client, err := r.client(pool, checklist)
	if err != nil {
		return nil, err
	}
	insert, err := r.insert(ctx, client, n)
	if err != nil {
		return nil, fmt.Errorf("insert: %w", err)
	}
	work, err := r.work(ctx, client, checklist, n)
	if err != nil {
		return nil, fmt.Errorf("work: %w", err)
	}
	if err := checkRiver(ctx, pool, n); err != nil {
		return nil, err
	}
	return []Phase{insert, work, totalPhase(n, insert, work)}, nil
}

func (r *riverRunner) client(pool *pgxpool.Pool, checklist *Checklist) (*river.Client[pgx.Tx],
	error) {
	workers := river.NewWorkers()
	river.AddWorker(workers, &riverWorker{checklist: checklist})
	return river.NewClient(riverpgxv5.New(pool), &river.Config{
		FetchCooldown:     2 * time.Millisecond,
		FetchPollInterval: 20 * time.Millisecond,
		Logger:            r.logger(),
		Queues: map[string]river.QueueConfig{
			river.QueueDefault: {MaxWorkers: r.env.Tuning.RiverWorkers}},
		Workers: workers,
	})
}

func (r *riverRunner) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(r.env.Log, &slog.HandlerOptions{Level: slog.LevelError}))
}

func (r *riverRunner) insert(ctx context.Context, client *river.Client[pgx.Tx], n int) (Phase,
	error) {
	if r.insertMode == riverInsertSingle {
		started := time.Now()
		latency, err := runParallel(ctx, r.env.Clients, n,
			func(ctx context.Context, _, i int) error {
				_, err := client.Insert(ctx, newJob(i), nil)
				return err
			})
		return Phase{Name: phaseInsert, Jobs: n, Took: time.Since(started), Latency: latency}, err
	}
	cut := batches(n, riverBatch)
	started := time.Now()
	_, err := runParallel(ctx, r.env.Tuning.RiverInserters, len(cut),
		func(ctx context.Context, _, i int) error {
			params := make([]river.InsertManyParams, 0, riverBatch)
			for num := cut[i][0]; num < cut[i][1]; num++ {
				params = append(params, river.InsertManyParams{Args: newJob(num)})
			}
			if r.insertMode == riverInsertCopy {
				_, err := client.InsertManyFast(ctx, params)
				return err
			}
			_, err := client.InsertMany(ctx, params)
			return err
		})
	return Phase{Name: phaseInsert, Jobs: n, Took: time.Since(started)}, err
}

// work starts the client, waits until each job has been worked and written as completed, and stops
// the client.
func (r *riverRunner) work(ctx context.Context, client *river.Client[pgx.Tx], checklist *Checklist,
	n int) (Phase, error) {
	events, unsubscribe := client.SubscribeConfig(&river.SubscribeConfig{
		ChanSize: n + 1, // an event that finds the channel full is dropped
		Kinds:    []river.EventKind{river.EventKindJobCompleted},
	})
	defer unsubscribe()
	completed := make(chan time.Time, 1)
	go countEvents(events, n, completed)

	if err := client.Start(context.WithoutCancel(ctx)); err != nil {
		return Phase{}, err
	}
	started := checklist.StartTime(time.Now())
	if err := checklist.Wait(ctx); err != nil {
		return Phase{}, fmt.Errorf("%w (stop: %v)", err, r.abort(ctx, client))
	}
	stopped := make(chan error, 1)
	go func() { stopped <- client.Stop(ctx) }()
	var end time.Time
	select {
	case end = <-completed:
	case <-ctx.Done():
		return Phase{}, fmt.Errorf("completions are missing: %w (stop: %v)", ctx.Err(),
			r.abort(ctx, client))
	}
	if err := <-stopped; err != nil {
		return Phase{}, err
	}
	return Phase{Name: phaseWork, Jobs: n, Took: end.Sub(started)}, checklist.Check()
}

// countEvents returns the time of the n-th completion. It ends with the subscription.
func countEvents(events <-chan *river.Event, n int, completed chan<- time.Time) {
	for range events {
		if n--; n == 0 {
			completed <- time.Now()
		}
	}
}

func (r *riverRunner) abort(ctx context.Context, client *river.Client[pgx.Tx]) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	return client.StopAndCancel(ctx)
}

// checkRiver proves that n rows were kept as completed.
func checkRiver(ctx context.Context, pool *pgxpool.Pool, n int) error {
	var done int
	err := pool.QueryRow(ctx,
		"SELECT count(*) FROM river_job WHERE state = 'completed'").Scan(&done)
	if err != nil {
		return err
	}
	if done != n {
		return fmt.Errorf("%d rows of %d are completed", done, n)
	}
	return nil
}

func (r *riverRunner) Close() error { return nil }
