package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Job is what every case carries: a number, to prove that each job was worked exactly once, and a
// body of the size of a small real payload.
type Job struct {
	Num  int    `json:"num"`
	Body string `json:"body"`
}

// Kind names the job to River.
func (Job) Kind() string { return "bench" }

// body is the same for all jobs, so that making payloads costs no case anything.
var body = strings.Repeat("payload-", 12)

func newJob(num int) Job { return Job{Num: num, Body: body} }

// appendPayload writes the job as JSON without reflection, for the floors.
func appendPayload(dst []byte, num int) []byte {
	return fmt.Appendf(dst, `{"num":%d,"body":"%s"}`, num, body)
}

// Checklist proves that each of n jobs was worked exactly once and reports when the first and the
// last one were.
type Checklist struct {
	worked     []atomic.Bool
	remaining  atomic.Int64
	duplicates atomic.Int64
	created    time.Time
	first      atomic.Int64 // nanoseconds after created, zero while there is none
	done       chan struct{}
}

func newChecklist(n int) *Checklist {
	t := &Checklist{worked: make([]atomic.Bool, n), created: time.Now(), done: make(chan struct{})}
	t.remaining.Store(int64(n))
	return t
}

// MarkWorked records one job as worked. A number outside the checklist counts as twice.
func (t *Checklist) MarkWorked(num int) {
	if t.first.Load() == 0 {
		t.first.CompareAndSwap(0, int64(time.Since(t.created))|1)
	}
	if num < 0 || num >= len(t.worked) || t.worked[num].Swap(true) {
		t.duplicates.Add(1)
		return
	}
	if t.remaining.Add(-1) == 0 {
		close(t.done)
	}
}

// StartTime returns when the clock of the work starts: when the workers were ready, or at the first
// job if that came earlier. So no peer pays for starting up, and none gets a job for free.
func (t *Checklist) StartTime(ready time.Time) time.Time {
	if ns := t.first.Load(); ns != 0 {
		if first := t.created.Add(time.Duration(ns)); first.Before(ready) {
			return first
		}
	}
	return ready
}

// Wait ends when each job has been worked once, or with the context.
func (t *Checklist) Wait(ctx context.Context) error {
	select {
	case <-t.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%d jobs of %d were not worked: %w", t.remaining.Load(), len(t.worked),
			ctx.Err())
	}
}

// Check returns an error if a job was worked twice.
func (t *Checklist) Check() error {
	if twice := t.duplicates.Load(); twice != 0 {
		return fmt.Errorf("%d jobs were worked more than once", twice)
	}
	return nil
}

// runParallel runs op for 0..n-1 from so many goroutines and answers the time of each operation.
// Every goroutine takes the next number when it is free. The first error ends the crowd.
func runParallel(ctx context.Context, goroutines, n int,
	op func(ctx context.Context, goroutine, i int) error) ([]time.Duration, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var (
		took = make([]time.Duration, n)
		next atomic.Int64
		wg   sync.WaitGroup
	)
	for g := range min(goroutines, n) {
		wg.Go(func() {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				started := time.Now()
				if err := op(ctx, g, i); err != nil {
					cancel(err)
					return
				}
				took[i] = time.Since(started)
			}
		})
	}
	wg.Wait()
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	return took, nil
}

// runPaced runs op for 0..n-1 at a rate per second, from so many goroutines. It answers the time of
// each operation from when it was meant to begin, so that one that had to wait for a goroutine
// counts as slow, and from when it began.
func runPaced(ctx context.Context, goroutines, n, rate int,
	op func(ctx context.Context, goroutine, i int) error) (meant, began []time.Duration,
	err error) {
	meant, began = make([]time.Duration, n), make([]time.Duration, n)
	started := time.Now()
	_, err = runParallel(ctx, goroutines, n, func(ctx context.Context, g, i int) error {
		due := started.Add(dueAfter(i, rate))
		if err := sleep(ctx, time.Until(due)); err != nil {
			return err
		}
		now := time.Now()
		if err := op(ctx, g, i); err != nil {
			return err
		}
		meant[i], began[i] = time.Since(due), time.Since(now)
		return nil
	})
	return meant, began, err
}

// dueAfter is how long after the first operation operation i of a paced load is due.
func dueAfter(i, rate int) time.Duration {
	return time.Duration(i) * time.Second / time.Duration(rate)
}

// sleep waits for d, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// batches cuts n jobs into half-open ranges of at most size.
func batches(n, size int) [][2]int {
	var cut [][2]int
	for from := 0; from < n; from += size {
		cut = append(cut, [2]int{from, min(from+size, n)})
	}
	return cut
}
