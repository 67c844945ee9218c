package testkit

import (
	"testing"
	"time"
)

// Patience bounds every wait of a test for what must come soon: a loop that wedges fails
// its test, with a message that names what was awaited, and does not hang its package.
const Patience = 30 * time.Second

// Until polls a condition that gives no signal of its own until it holds.
func Until(tb testing.TB, what string, holds func() bool) {
	tb.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	limit := time.NewTimer(Patience)
	defer limit.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-limit.C:
			tb.Fatalf("waited %v in vain for %s", Patience, what)
		}
	}
}

// Receive waits for a value from a channel.
func Receive[T any](tb testing.TB, what string, from <-chan T) T {
	tb.Helper()
	limit := time.NewTimer(Patience)
	defer limit.Stop()
	select {
	case v := <-from:
		return v
	case <-limit.C:
		tb.Fatalf("waited %v in vain for %s", Patience, what)
		panic("not reached")
	}
}
