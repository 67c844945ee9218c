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
// message of a failure: waited in vain for what.
func WaitUntil(tb testing.TB, what string, condition func() bool) {
	tb.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	timer := time.NewTimer(WaitTimeout)
	defer timer.Stop()
	for !condition() {
		select {
		case <-tick.C:
		case <-timer.C:
			tb.Fatalf("waited %v in vain for %s", WaitTimeout, what)
		}
	}
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
		tb.Fatalf("waited %v in vain for %s", WaitTimeout, what)
		panic("not reached")
	}
}
