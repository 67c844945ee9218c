package testkit

import (
	"testing"
	"time"
)

// WaitTimeout bounds every wait of a test for what must come soon: a loop that wedges fails its
// test, with a message that names what was awaited, and does not hang its package. It is far above
// what anything takes, since a loaded machine may be slow: a test that passes never waits for it.
const WaitTimeout = time.Minute

// WaitUntil polls a condition that gives no signal of its own until it holds. what completes the
// message of a failure: timed out waiting for what.
func WaitUntil(tb testing.TB, what string, condition func() bool) {
	tb.Helper()
	if !Poll(WaitTimeout, condition) {
		tb.Fatalf("timed out after %v waiting for %s", WaitTimeout, what)
	}
}

// Poll asks for a condition until it holds, and reports false where it does not within the limit.
// It pauses four times as long as the condition takes, and 2 ms at least, so that what is awaited
// has most of the machine.
func Poll(limit time.Duration, condition func() bool) bool {
	for end := time.Now().Add(limit); ; {
		began := time.Now()
		if condition() {
			return true
		}
		took := time.Since(began)
		if began.After(end) {
			return false
		}
		time.Sleep(max(2*time.Millisecond, 4*took))
	}
}

// HasTick reports whether a wait that was decided between two times is one until the next multiple
// of every on the clock.
func HasTick(before, after time.Time, wait, every time.Duration) bool {
	first, last := before.Add(wait).UnixNano(), after.Add(wait).UnixNano()
	return wait > 0 && wait <= every && last/int64(every)*int64(every) >= first
}

// Receive waits for a value from a channel.
func Receive[T any](tb testing.TB, what string, from <-chan T) T {
	tb.Helper()
	timer := time.NewTimer(WaitTimeout)
	defer timer.Stop()
	select {
	case v := <-from:
		return v
	case <-timer.C:
		tb.Fatalf("timed out after %v waiting for %s", WaitTimeout, what)
		panic("not reached")
	}
}
