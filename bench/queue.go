package main

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// queueSystem is a job server that is used over connections: jobs are submitted, claimed and
// finished, each acknowledged to its caller.
type queueSystem interface {
	Durability() string
	// Reset makes a queue without jobs.
	Reset(ctx context.Context) error
	// Dial opens a connection whose operations fail when ctx ends.
	Dial(ctx context.Context) (queueConn, error)
	Close() error
}

// queueConn is one connection, used by one goroutine at a time.
type queueConn interface {
	// Submit submits the jobs from..to-1, which are acknowledged when it returns.
	Submit(ctx context.Context, from, to int) error
	// Work claims at least one job if there is one, finishes what it claimed, and passes the number
	// of each to finished once that is acknowledged. It may return without a job.
	Work(ctx context.Context, finished func(num int)) error
	Close() error
}

// queueRunner submits all jobs to a system, and then claims and finishes all.
type queueRunner struct {
	queueSystem
	conns int
	batch int // jobs of one Submit
	// awaitFinished waits until the system has recorded which jobs are finished, and belongs to the
	// time of the work; nil: each of them is acknowledged.
	awaitFinished func(ctx context.Context, conns []queueConn) error
}

func (q *queueRunner) Run(ctx context.Context, n int) ([]Phase, error) {
	if err := q.Reset(ctx); err != nil {
		return nil, fmt.Errorf("reset: %w", err)
	}
	return q.load(ctx, n)
}

// load is Run on a queue that has been made.
func (q *queueRunner) load(ctx context.Context, n int) ([]Phase, error) {
	conns := make([]queueConn, 0, q.conns)
	defer func() {
		for _, c := range conns {
			c.Close()
		}
	}()
	for range q.conns {
		c, err := q.Dial(ctx)
		if err != nil {
			return nil, fmt.Errorf("dial: %w", err)
		}
		conns = append(conns, c)
	}
	cut := batches(n, q.batch)
	started := time.Now()
	latency, err := runParallel(ctx, len(conns), len(cut),
		func(ctx context.Context, g, i int) error {
			return conns[g].Submit(ctx, cut[i][0], cut[i][1])
		})
	if err != nil {
		return nil, fmt.Errorf("submit: %w", err)
	}
	insert := Phase{Name: phaseInsert, Jobs: n, Took: time.Since(started), Latency: latency}
	work, err := q.workAll(ctx, conns, n)
	if err != nil {
		return nil, fmt.Errorf("work: %w", err)
	}
	return []Phase{insert, work, totalPhase(n, insert, work)}, nil
}

// workAll claims and finishes n jobs. Its clock stops with the last one, not when the last
// connection has found the queue empty.
func (q *queueRunner) workAll(ctx context.Context, conns []queueConn, n int) (Phase, error) {
	checklist := newChecklist(n)
	working, stop := context.WithCancel(ctx)
	defer stop()
	started := time.Now()
	var took atomic.Int64
	go func() {
		select {
		case <-checklist.done:
			took.Store(int64(time.Since(started)))
			stop() // ends the connections that wait for a job
		case <-working.Done():
		}
	}()
	latency := make([][]time.Duration, len(conns))
	_, err := runParallel(ctx, len(conns), len(conns), func(_ context.Context, g, _ int) error {
		for working.Err() == nil {
			began, jobs := time.Now(), 0
			err := conns[g].Work(working, func(num int) {
				jobs++
				checklist.MarkWorked(num)
			})
			if err != nil && working.Err() == nil {
				return err
			}
			if jobs > 0 {
				latency[g] = append(latency[g], time.Since(began))
			}
		}
		return nil
	})
	if err != nil {
		return Phase{}, err
	}
	if err := checklist.Wait(ctx); err != nil {
		return Phase{}, err
	}
	phase := Phase{Name: phaseWork, Jobs: n, Took: time.Duration(took.Load())}
	if q.awaitFinished != nil {
		if err := q.awaitFinished(ctx, conns); err != nil {
			return Phase{}, err
		}
		phase.Took = time.Since(started)
	}
	for _, l := range latency {
		phase.Latency = append(phase.Latency, l...)
	}
	return phase, checklist.Check()
}

// appendSizedPayload writes the common payload with a body of so many bytes in place of the usual
// one, or the usual one for 0.
func appendSizedPayload(dst []byte, num, size int) []byte {
	if size == 0 {
		return appendPayload(dst, num)
	}
	return fmt.Appendf(dst, `{"num":%d,"body":"%s"}`, num, strings.Repeat("x", size))
}

// payloadNum reads the number of a payload back, -1 if there is none.
func payloadNum(payload []byte) int {
	_, rest, _ := bytes.Cut(payload, []byte(`"num":`))
	end := 0
	for end < len(rest) && rest[end] >= '0' && rest[end] <= '9' {
		end++
	}
	num, err := strconv.Atoi(string(rest[:end]))
	if err != nil {
		return -1
	}
	return num
}
