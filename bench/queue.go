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

// queueSystem is a job server that is used over connections: jobs are put, taken and ended, each
// acknowledged to its caller.
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
	// Put hands in the jobs from..to-1, acknowledged when it returns.
	Put(ctx context.Context, from, to int) error
	// Work takes at least one job if there is one, ends what it took, and passes the number of
	// each to ended once the end is acknowledged. It may return without a job.
	Work(ctx context.Context, ended func(num int)) error
	Close() error
}

// queueSettler is a system whose ends are not acknowledged. Settle returns when it has recorded
// them; it belongs to the time of the work.
type queueSettler interface {
	Settle(ctx context.Context, conns []queueConn) error
}

// queueRunner takes jobs through a system: all are put, then all are taken and ended.
type queueRunner struct {
	queueSystem
	conns int
	batch int // jobs of one Put
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
			return conns[g].Put(ctx, cut[i][0], cut[i][1])
		})
	if err != nil {
		return nil, fmt.Errorf("put: %w", err)
	}
	put := Phase{Name: phaseInsert, Jobs: n, Took: time.Since(started), Latency: latency}
	work, err := q.workAll(ctx, conns, n)
	if err != nil {
		return nil, fmt.Errorf("work: %w", err)
	}
	return []Phase{put, work, totalPhase(n, put, work)}, nil
}

// workAll takes and ends n jobs. Its clock stops at the last end, not when the last connection
// has found the queue empty.
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
	if s, ok := q.queueSystem.(queueSettler); ok {
		if err := s.Settle(ctx, conns); err != nil {
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
