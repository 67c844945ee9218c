// Package clock waits, between tries with a Backoff. What decides about jobs takes its time from
// the engine, never from here.
package clock

import (
	"context"
	"time"
)

// Timer starts a timer: passed receives when d has passed, and stop ends the timer before. Tests
// replace it; nil is real time.
type Timer func(d time.Duration) (passed <-chan time.Time, stop func())

// Wait waits until d has passed or ctx ends, and reports whether d has passed.
func (t Timer) Wait(ctx context.Context, d time.Duration) bool { return t.WaitOr(ctx, d, nil) }

// WaitOr waits until d has passed, early receives or ctx ends, and reports whether it was not ctx.
func (t Timer) WaitOr(ctx context.Context, d time.Duration, early <-chan struct{}) bool {
	if t == nil {
		t = realTimer
	}
	passed, stop := t(d)
	defer stop()
	select {
	case <-passed:
		return true
	case <-early:
		return true
	case <-ctx.Done():
		return false
	}
}

func realTimer(d time.Duration) (<-chan time.Time, func()) {
	timer := time.NewTimer(d)
	return timer.C, func() { timer.Stop() }
}

// UntilTick returns how long it is until the clock of this machine shows a multiple of d: no longer
// than d. What is written at ticks, by all nodes, is one change to those who look every second
// whether there was any.
func UntilTick(d time.Duration) time.Duration {
	return d - time.Duration(time.Now().UnixNano())%d
}

// Sleep waits for d or until ctx ends, and reports whether ctx has not ended.
func Sleep(ctx context.Context, d time.Duration) bool { return SleepOr(ctx, d, nil) }

// SleepOr is Sleep that also ends when early receives.
func SleepOr(ctx context.Context, d time.Duration, early <-chan struct{}) bool {
	return Timer(nil).WaitOr(ctx, d, early) && ctx.Err() == nil
}
