package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// submissionSettings is what the command line says.
type submissionSettings struct {
	dir                   string
	load, clients, rounds int
	rate                  int
	steady, maxTime       time.Duration
	stderr                io.Writer
}

const submissionsUsage = `usage: go run . submissions [flags]

Measures jobs of Relay that are submitted with SQL, in transactions of producers on the server's
PostgreSQL: how many a second become jobs, with their producers beside and as a backlog that a
server finds at its start, and the time from the answer to a COMMIT until a worker that waits in a
long poll has the job.
`

func parseSubmissions(args []string, stderr io.Writer) (submissionSettings, error) {
	s := submissionSettings{stderr: stderr}
	f := newFlags("submissions", submissionsUsage, stderr)
	f.StringVar(&s.dir, "dir", "", "folder for databases (default the system's temporary folder)")
	f.IntVar(&s.load, "n", 20_000, "requests of a round")
	f.IntVar(&s.clients, "clients", 16, "connections of producers")
	f.IntVar(&s.rounds, "rounds", 3, "how often each is measured")
	f.IntVar(&s.rate, "rate", 200, "transactions a second while latencies are measured")
	f.DurationVar(&s.steady, "time", 20*time.Second, "how long latencies are measured")
	f.DurationVar(&s.maxTime, "max-time", 30*time.Minute, "longest time for all of it")
	err := parseFlags(f, args, s.check)
	return s, err
}

func (s *submissionSettings) check(rest []string) error {
	switch {
	case len(rest) > 0:
		return errors.New("submissions takes flags only")
	case min(s.load, s.clients, s.rounds, s.rate) < 1 || s.load > maxJobs:
		return fmt.Errorf("the numbers must be at least 1, and those of jobs at most %d", maxJobs)
	case min(s.steady, s.maxTime) <= 0:
		return errors.New("times must be positive")
	}
	return nil
}

// runSubmissions is the subcommand. It answers the exit code as run does.
func runSubmissions(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	s, err := parseSubmissions(args, stderr)
	if err != nil {
		return usageCode(err)
	}
	return onDatabases(ctx, "postgres", s.dir, s.clients, s.maxTime, stdout, stderr, s.run)
}

// submissionWorld is a server and the connections of producers to its database.
type submissionWorld struct {
	*relayQueue
	*submissionSettings
	pool *pgxpool.Pool
}

// submissionBatches are the requests of a transaction that are measured.
var submissionBatches = []int{1, 10, 100}

func (s *submissionSettings) run(ctx context.Context, env *Env, onPostgres bool,
	stdout io.Writer) (err error) {
	w := &submissionWorld{submissionSettings: s}
	if w.relayQueue, err = newRelayQueue(ctx, env, onPostgres); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	for _, batch := range submissionBatches {
		var committed, beside, backlog []float64
		for range s.rounds {
			together, err := w.beside(ctx, batch)
			if err != nil {
				return err
			}
			commits, taken, err := w.apart(ctx, batch)
			if err != nil {
				return err
			}
			beside = append(beside, together)
			committed, backlog = append(committed, commits), append(backlog, taken)
		}
		fmt.Fprintf(stdout, "transactions of %d: producers alone commit %s requests/s; beside them "+
			"%s become jobs, and of a backlog %s (goal 5000)\n", batch, spreadText(committed),
			spreadText(beside), spreadText(backlog))
	}
	p, err := w.latency(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, "from the COMMIT to a worker at %d transactions/s: p50 %s p99 %s max %s "+
		"(goal 100ms)\n", s.rate,
		shortTime(p.P50), shortTime(p.P99), shortTime(p.Max))
	return nil
}

// Reset starts a server on an empty database, and connects the producers.
func (w *submissionWorld) Reset(ctx context.Context) (err error) {
	if w.pool != nil {
		w.pool.Close()
	}
	if err := w.relayQueue.Reset(ctx); err != nil {
		return err
	}
	w.pool, err = w.pg.Pool(ctx, w.clients)
	return err
}

func (w *submissionWorld) Close() error {
	if w.pool != nil {
		w.pool.Close()
	}
	return w.relayQueue.Close()
}

// beside returns how many requests a second become jobs while their producers commit them.
func (w *submissionWorld) beside(ctx context.Context, batch int) (rate float64, err error) {
	if err := w.Reset(ctx); err != nil {
		return 0, err
	}
	started := time.Now()
	if err := w.submitAll(ctx, batch); err != nil {
		return 0, err
	}
	return w.rateOf(ctx, started)
}

// apart returns how many requests a second producers commit without a server, and how many of them
// a server that is started then makes jobs.
func (w *submissionWorld) apart(ctx context.Context, batch int) (commits, rate float64, err error) {
	if err := errors.Join(w.Reset(ctx), w.relayQueue.Close()); err != nil {
		return 0, 0, err
	}
	started := time.Now()
	if err := w.submitAll(ctx, batch); err != nil {
		return 0, 0, err
	}
	commits = float64(w.load) / time.Since(started).Seconds()
	if err := w.serve(ctx); err != nil {
		return 0, 0, err
	}
	rate, err = w.rateOf(ctx, time.Now())
	return commits, rate, err
}

// submitAll commits the requests of a round in transactions of batch.
func (w *submissionWorld) submitAll(ctx context.Context, batch int) error {
	_, err := runParallel(ctx, w.clients, (w.load+batch-1)/batch,
		func(ctx context.Context, _, i int) error {
			return w.submit(ctx, i*batch, min((i+1)*batch, w.load))
		})
	return err
}

// rateOf waits until all requests are jobs, and returns how many a second that were.
func (w *submissionWorld) rateOf(ctx context.Context, started time.Time) (float64, error) {
	for {
		var waiting bool
		if err := w.pool.QueryRow(ctx,
			"SELECT EXISTS (SELECT FROM inbox WHERE state = 'waiting')").Scan(&waiting); err != nil {
			return 0, err
		}
		if !waiting {
			break
		}
		if err := sleep(ctx, 10*time.Millisecond); err != nil {
			return 0, err
		}
	}
	rate, submitted := float64(w.load)/time.Since(started).Seconds(), 0
	if err := w.pool.QueryRow(ctx,
		"SELECT count(*) FROM inbox WHERE state = 'submitted'").Scan(&submitted); err != nil {
		return 0, err
	}
	if submitted != w.load {
		return 0, fmt.Errorf("%d requests are submitted instead of %d", submitted, w.load)
	}
	return rate, nil
}

// submit commits a transaction with requests for jobs.
func (w *submissionWorld) submit(ctx context.Context, from, to int) error {
	return pgx.BeginFunc(ctx, w.pool, func(tx pgx.Tx) error {
		var calls pgx.Batch
		for num := from; num < to; num++ {
			calls.Queue("SELECT millrace.submit('relay', $1)", fmt.Sprintf(
				`{"queue":"q0","id":"%d","timeout":600,"payload":%s}`, num,
				appendSizedPayload(nil, num, 0)))
		}
		return tx.SendBatch(ctx, &calls).Close()
	})
}

// latency returns the times from the answer to a COMMIT until a worker has its job.
func (w *submissionWorld) latency(ctx context.Context) (p Percentiles, err error) {
	if err := w.Reset(ctx); err != nil {
		return p, err
	}
	addr := w.servers[0].addr
	conns, closeWorkers, err := dialMany(ctx, addr, w.clients)
	if err != nil {
		return p, err
	}
	defer closeWorkers()
	n := int(w.steady.Seconds() * float64(w.rate))
	received := make([]time.Time, n)
	var left atomic.Int64
	left.Store(int64(n))
	stopped := make(chan struct{})
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var working sync.WaitGroup
	for i, c := range conns {
		c := relayConn{rawConn: c, r: w.relayQueue, host: addr}
		working.Go(func() {
			if err := c.poll("q0", fmt.Sprint("bench-", i), stopped,
				func(num int, at time.Time) {
					received[num] = at
					left.Add(-1)
				}); err != nil {
				cancel(err)
			}
		})
	}
	committed, err := w.submitSteadily(ctx, n)
	for left.Load() > 0 {
		if err != nil {
			break
		}
		err = sleep(ctx, time.Millisecond)
	}
	close(stopped)
	closeWorkers()
	working.Wait()
	if err != nil {
		return p, errors.Join(context.Cause(ctx), err)
	}
	took := make([]time.Duration, n)
	for i := range took {
		took[i] = max(received[i].Sub(committed[i]), 0)
	}
	return percentilesOf(took), nil
}

// submitSteadily commits transactions of one request at the rate, and returns when each COMMIT was
// answered.
func (w *submissionWorld) submitSteadily(ctx context.Context, n int) ([]time.Time, error) {
	committed, started := make([]time.Time, n), time.Now()
	_, err := runParallel(ctx, w.clients, n, func(ctx context.Context, _, i int) error {
		if err := sleep(ctx, time.Until(started.Add(dueAfter(i, w.rate)))); err != nil {
			return err
		}
		err := w.submit(ctx, i, i+1)
		committed[i] = time.Now()
		return err
	})
	return committed, err
}
