package main

import (
	"context"
	"fmt"
	"net/http"
	"time"
)

// relayStartRate is how many jobs a second are offered to relay-start.
const relayStartRate = 1000

// relayStart offers jobs at a steady rate to workers that wait in long polls.
type relayStart struct {
	*relayQueue
	conns int // that submit, and as many that wait
	rate  int
}

func setupRelayStart(onPostgres bool) func(context.Context, *Env) (Runner, error) {
	return func(ctx context.Context, env *Env) (Runner, error) {
		r, err := newRelayQueue(ctx, env, onPostgres)
		if err != nil {
			return nil, err
		}
		return &relayStart{relayQueue: r, conns: env.Clients, rate: env.rateOr(relayStartRate)}, nil
	}
}

// Run measures from the time at which a job was meant to be sent to the time at which a worker has
// the answer with it. The worker then completes it.
func (r *relayStart) Run(ctx context.Context, n int) ([]Phase, error) {
	if err := r.Reset(ctx); err != nil {
		return nil, err
	}
	addr := r.servers[0].addr
	submitters, closeSubmitters, err := dialMany(ctx, addr, r.conns)
	if err != nil {
		return nil, err
	}
	defer closeSubmitters()
	polls, closePolls, err := dialMany(ctx, addr, r.conns)
	if err != nil {
		return nil, err
	}
	defer closePolls()
	checklist, starts := newChecklist(n), make([]time.Time, n)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	ended := make(chan error, 1)
	go func() {
		_, err := runParallel(ctx, len(polls), len(polls), func(_ context.Context, g, _ int) error {
			c := relayConn{rawConn: polls[g], r: r.relayQueue, host: addr}
			return c.poll(r.queueName(0), "bench", checklist.done, func(num int, at time.Time) {
				if num >= 0 && num < n {
					starts[num] = at
				}
				checklist.MarkWorked(num)
			})
		})
		cancel(err) // without workers there is no more to measure
		ended <- err
	}()
	before := time.Now()
	meant, sent, err := runPaced(ctx, len(submitters), n, r.rate,
		func(ctx context.Context, g, i int) error {
			c := relayConn{rawConn: submitters[g], r: r.relayQueue, host: addr}
			return c.Submit(ctx, i, i+1)
		})
	if err != nil {
		return nil, err
	}
	took := time.Since(before)
	if err := checklist.Wait(ctx); err != nil {
		return nil, err
	}
	// Connections that wait for a job end when they are closed.
	closePolls()
	<-ended
	if err := checklist.Check(); err != nil {
		return nil, err
	}
	delay := make([]time.Duration, n)
	for i := range delay {
		delay[i] = starts[i].Sub(before.Add(dueAfter(i, r.rate)))
	}
	return []Phase{
		{Name: phaseInsert, Jobs: n, Took: took, Latency: meant},
		{Name: "insert, from sending", Jobs: n, Took: took, Latency: sent},
		{Name: startedFromIntended, Jobs: n, Took: took, Latency: delay},
	}, nil
}

// poll claims jobs of a queue as they come, notes for each when it was there, and completes them.
// It ends when the connection fails after stopped is closed.
func (c *relayConn) poll(queue, worker string, stopped <-chan struct{},
	worked func(num int, at time.Time)) error {
	request := fmt.Appendf(nil, "GET /v2/queues/%s/jobs?num_jobs=%d HTTP/1.1\r\nHost: %s\r\n"+
		"Prefer: wait=20\r\nMillrace-Worker: %s\r\n\r\n", queue, c.r.batch, c.host, worker)
	for {
		status, body, err := c.Do(request)
		at := time.Now()
		select {
		case <-stopped:
			return nil
		default:
		}
		switch {
		case err != nil:
			return err
		case status == http.StatusNoContent:
			continue
		case status != http.StatusOK:
			return fmt.Errorf("a poll was answered %d: %.200s", status, body)
		}
		if err := c.finish(queue, body, func(num int) { worked(num, at) }); err != nil {
			return err
		}
	}
}
