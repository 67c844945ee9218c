package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// steadyLoad submits jobs to a server through Relay at a steady rate, and workers that wait in long
// polls claim and complete them, for as long as something else is measured beside it.
type steadyLoad struct {
	queue *relayQueue // the server, and how many jobs a request has
	conns int         // that submit, and as many that work, one for each queue at least
	rate  int         // jobs a second

	calls                    atomic.Int64 // submissions that were started
	submitted, worked, twice atomic.Int64 // jobs

	mu   sync.Mutex
	seen []bool          // which jobs were worked
	late []time.Duration // of the submissions, from when each was due until it was answered
}

// steadyDrain is how long jobs that were submitted may take until they are worked.
const steadyDrain = time.Minute

// beside runs the load while something else runs, whose context ends when the load fails. It then
// proves that each job was worked once.
func (l *steadyLoad) beside(ctx context.Context, during func(context.Context) error) error {
	addr := l.queue.servers[0].addr
	submitters, closeSubmitters, err := dialMany(ctx, addr, l.conns)
	if err != nil {
		return err
	}
	defer closeSubmitters()
	claimers, closeClaimers, err := dialMany(ctx, addr, max(l.conns, l.queue.queues))
	if err != nil {
		return err
	}
	defer closeClaimers()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var running sync.WaitGroup
	submitting, stopSubmitting := context.WithCancel(ctx)
	defer stopSubmitting()
	stopped := make(chan struct{})
	for g, c := range claimers {
		c := relayConn{rawConn: c, r: l.queue, host: addr}
		running.Go(func() {
			worker := "bench-" + strconv.Itoa(g)
			err := c.poll(l.queue.queueName(g), worker, stopped, l.markWorked)
			if err != nil {
				cancel(fmt.Errorf("work beside: %w", err))
			}
		})
	}
	var submissions sync.WaitGroup
	submissions.Go(func() {
		if err := l.submitAll(submitting, submitters, addr); err != nil {
			cancel(fmt.Errorf("submit beside: %w", err))
		}
	})
	err = during(ctx)
	stopSubmitting()
	submissions.Wait()
	if ctx.Err() == nil {
		err = errors.Join(err, l.drain(ctx))
	}
	close(stopped)
	closeClaimers() // those that wait for a job end with their connection
	running.Wait()
	return errors.Join(context.Cause(ctx), err)
}

// submitAll submits batches, each when it is due or as soon as a connection is free, until ctx
// ends.
func (l *steadyLoad) submitAll(ctx context.Context, conns []*rawConn, addr string) error {
	started, first, batch := time.Now(), l.calls.Load(), l.queue.batch
	_, err := runParallel(ctx, len(conns), len(conns), func(ctx context.Context, g, _ int) error {
		c := relayConn{rawConn: conns[g], r: l.queue, host: addr}
		for {
			call := l.calls.Add(1) - 1
			due := started.Add(dueAfter(int(call-first)*batch, l.rate))
			if err := sleep(ctx, time.Until(due)); err != nil {
				return nil
			}
			from := int(call) * batch
			if err := c.Submit(ctx, from, from+batch); err != nil {
				return err
			}
			l.submitted.Add(int64(batch))
			l.mu.Lock()
			l.late = append(l.late, time.Since(due))
			l.mu.Unlock()
		}
	})
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return nil // it was stopped
	}
	return err
}

// markWorked notes a job that was completed.
func (l *steadyLoad) markWorked(num int, _ time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if num >= len(l.seen) {
		l.seen = append(l.seen, make([]bool, max(num, 1<<16)+1)...)
	}
	if num < 0 || l.seen[num] {
		l.twice.Add(1)
		return
	}
	l.seen[num] = true
	l.worked.Add(1)
}

// drain waits until each job that was submitted was worked.
func (l *steadyLoad) drain(ctx context.Context) error {
	end := time.Now().Add(steadyDrain)
	for l.worked.Load() < l.submitted.Load() && time.Now().Before(end) {
		if err := sleep(ctx, 5*time.Millisecond); err != nil {
			return err
		}
	}
	return l.check()
}

// check is an error unless each job that was submitted was worked once.
func (l *steadyLoad) check() error {
	submitted, worked, twice := l.submitted.Load(), l.worked.Load(), l.twice.Load()
	if submitted != worked || twice > 0 {
		return fmt.Errorf("of %d jobs beside %d were worked, and %d more than once", submitted,
			worked, twice)
	}
	return nil
}

// String says what the load was.
func (l *steadyLoad) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := percentilesOf(l.late)
	return fmt.Sprintf("%d jobs at %d a second in requests of %d; submissions from due p50 %s p99 "+
		"%s max %s", l.worked.Load(), l.rate, l.queue.batch, shortTime(p.P50), shortTime(p.P99),
		shortTime(p.Max))
}
