package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/maintenance"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/store/postgres"
)

// ageingLoad is the engine in this process with its maintenance, at a steady rate: jobs are
// submitted, claimed and finished in batches, whatever the database does. Claims find a backlog, so
// that none waits for a submission.
type ageingLoad struct {
	rate, batch, clients int
	backlog              int
	keep                 time.Duration // how long finished jobs are kept; 0 removes them
	total                time.Duration

	store     store.Store
	engine    *engine.Engine
	checklist *Checklist

	claims    []claimTimes
	endedAt   atomic.Int64 // calls that are due later are not sent, from the beginning; 0 is none
	submitted atomic.Int64
	empty     atomic.Int64 // claims that found no job
	times     statementTimes
}

// claimTimes is how long a claim took from when it was due and from when it was sent; 0 is not yet
// known.
type claimTimes struct{ due, sent atomic.Int64 }

// open prepares the load on an empty database.
func (l *ageingLoad) open(ctx context.Context, pg *Postgres) error {
	var err error
	l.store, err = postgres.Open(ctx, postgres.Config{URL: pg.DSN(), Observe: l.times.observe})
	if err != nil {
		return err
	}
	if l.engine, err = newEngine(l.store); err != nil {
		return errors.Join(err, l.store.Close())
	}
	jobType := engine.JobType{Name: "bench", Machine: machineDeleting}
	if l.keep > 0 {
		jobType.Machine, jobType.Retention = machineKeeping, l.keep
	}
	if err := l.engine.Register(jobType); err != nil {
		return errors.Join(err, l.close())
	}
	if err := l.fill(ctx); err != nil {
		return errors.Join(err, l.close())
	}
	return nil
}

// fill queues the backlog of a load whose engine has its job type.
func (l *ageingLoad) fill(ctx context.Context) error {
	l.claims = make([]claimTimes, l.calls())
	l.checklist = newChecklist(l.backlog + l.calls()*l.batch)
	for _, cut := range batches(l.backlog, 1000) {
		if err := l.submit(ctx, cut[0], cut[1]); err != nil {
			return err
		}
	}
	return nil
}

func (l *ageingLoad) close() error {
	l.engine.Close()
	return l.store.Close()
}

// calls is the number of submissions, and of claims.
func (l *ageingLoad) calls() int {
	return int(l.total.Seconds() * float64(l.rate) / float64(l.batch))
}

// due is when a call is meant to be sent, from the beginning.
func (l *ageingLoad) due(call int) time.Duration {
	return time.Duration(call) * time.Duration(l.batch) * time.Second / time.Duration(l.rate)
}

// run offers the load and then proves that each job was worked exactly once. Calls that could not
// be sent within the time are left out.
func (l *ageingLoad) run(ctx context.Context, started time.Time) error {
	maintained, stop := context.WithCancel(ctx)
	var background, load sync.WaitGroup
	runner := &maintenance.Runner{Engine: l.engine, Log: slog.New(slog.DiscardHandler)}
	background.Go(func() { runner.Run(maintained) })
	defer background.Wait()
	defer stop()
	var submitErr, claimErr error
	load.Go(func() {
		submitErr = l.paced(ctx, started, func(ctx context.Context, call int) error {
			from := l.backlog + call*l.batch
			return l.submit(ctx, from, from+l.batch)
		})
	})
	load.Go(func() { claimErr = l.paced(ctx, started, l.claimTimed(started)) })
	load.Wait()
	if err := errors.Join(submitErr, claimErr); err != nil {
		return err
	}
	return l.drain(ctx)
}

// paced runs op for each call when it is due, or as soon as a client is free.
func (l *ageingLoad) paced(ctx context.Context, started time.Time,
	op func(ctx context.Context, call int) error) error {
	_, err := runParallel(ctx, l.clients, l.calls(), func(ctx context.Context, _, call int) error {
		if l.isAfterEnd(call) {
			return nil
		}
		if err := sleep(ctx, time.Until(started.Add(l.due(call)))); err != nil {
			return err
		}
		if time.Since(started) > l.total || l.isAfterEnd(call) {
			return nil
		}
		return op(ctx, call)
	})
	return err
}

// isAfterEnd reports whether a call is due after the end. One that was due before it is sent
// although it is late, so that its time counts.
func (l *ageingLoad) isAfterEnd(call int) bool {
	end := l.endedAt.Load()
	return end > 0 && int64(l.due(call)) >= end
}

func (l *ageingLoad) submit(ctx context.Context, from, to int) error {
	batch := make([]engine.Submission, 0, to-from)
	for num := from; num < to; num++ {
		batch = append(batch, engine.Submission{Job: job.Job{ID: job.ID{JobType: "bench",
			Scope: "default", Key: strconv.Itoa(num)}, Queue: "default", Lease: time.Minute,
			Payload: appendPayload(nil, num)}})
	}
	if _, err := l.engine.Submit(ctx, engine.Unique, batch); err != nil {
		return fmt.Errorf("submit: %w", err)
	}
	l.submitted.Add(int64(to - from))
	return nil
}

// claimTimed returns the call that claims a batch and finishes it. Only the claim is timed.
func (l *ageingLoad) claimTimed(started time.Time) func(context.Context, int) error {
	return func(ctx context.Context, call int) error {
		sent := time.Now()
		jobs, err := l.claim(ctx, l.batch)
		if err != nil {
			return err
		}
		l.claims[call].due.Store(int64(time.Since(started) - l.due(call)))
		l.claims[call].sent.Store(int64(time.Since(sent)))
		if len(jobs) == 0 {
			l.empty.Add(1)
		}
		return l.finish(ctx, jobs)
	}
}

func (l *ageingLoad) claim(ctx context.Context, n int) ([]*job.Job, error) {
	jobs, err := l.engine.Claim(ctx, engine.ClaimRequest{JobType: "bench",
		Queues: []string{"default"}, Max: n, Worker: "bench"})
	if err != nil {
		return nil, fmt.Errorf("claim: %w", err)
	}
	return jobs, nil
}

func (l *ageingLoad) finish(ctx context.Context, jobs []*job.Job) error {
	finishes := make([]engine.FinishRequest, len(jobs))
	for i, j := range jobs {
		l.checklist.MarkWorked(payloadNum(j.Payload))
		finishes[i] = engine.FinishRequest{Run: engine.Run{Run: j.Run},
			Outcome: engine.Outcome{On: job.Succeeded}}
	}
	for _, ended := range l.engine.FinishAll(ctx, finishes) {
		if ended.Err != nil {
			return fmt.Errorf("finish: %w", ended.Err)
		}
	}
	return nil
}

// drain works what is left and checks the checklist.
func (l *ageingLoad) drain(ctx context.Context) error {
	for {
		jobs, err := l.claim(ctx, 1000)
		if err != nil {
			return err
		}
		if len(jobs) == 0 {
			break
		}
		if err := l.finish(ctx, jobs); err != nil {
			return err
		}
	}
	worked := int64(len(l.checklist.worked)) - l.checklist.remaining.Load()
	if submitted := l.submitted.Load(); worked != submitted {
		return fmt.Errorf("of %d jobs %d were worked", submitted, worked)
	}
	return l.checklist.Check()
}

// claimsBetween are the times of the claims that were due in a part of the run.
func (l *ageingLoad) claimsBetween(from, to time.Duration) (due, sent []time.Duration) {
	for i := range l.claims {
		at, took := l.due(i), l.claims[i].due.Load()
		if at >= from && at < to && took > 0 {
			due = append(due, time.Duration(took))
			sent = append(sent, time.Duration(l.claims[i].sent.Load()))
		}
	}
	return due, sent
}

// statementTimes sums the times of statements, apart for each period of the run.
type statementTimes struct {
	mu     sync.Mutex
	period string
	sums   map[statementKey]statementSum
}

type statementKey struct{ period, name string }

type statementSum struct {
	n    int
	took time.Duration
}

func (s *statementTimes) begin(period string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.period = period
}

func (s *statementTimes) observe(name string, took time.Duration, _ error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sums == nil {
		s.sums = map[statementKey]statementSum{}
	}
	key := statementKey{s.period, name}
	sum := s.sums[key]
	s.sums[key] = statementSum{n: sum.n + 1, took: sum.took + took}
}

// mean is the mean time of a statement in a period, and how often it ran.
func (s *statementTimes) mean(period, name string) (time.Duration, int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sum := s.sums[statementKey{period, name}]
	return sum.took / time.Duration(max(sum.n, 1)), sum.n
}

// longest names the statements that took most of a period.
func (s *statementTimes) longest(period string, n int) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for key := range s.sums {
		if key.period == period {
			names = append(names, key.name)
		}
	}
	slices.SortFunc(names, func(a, b string) int {
		return int(s.sums[statementKey{period, b}].took - s.sums[statementKey{period, a}].took)
	})
	return names[:min(n, len(names))]
}
