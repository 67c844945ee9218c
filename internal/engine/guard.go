package engine

import (
	"sync"
	"time"
)

// maxClockDrift is how far the store's clock may run ahead of the monotonic one between two
// readings, or behind itself, before it counts as a jump.
const maxClockDrift = time.Second

// clockGuard notices when the store's clock jumps or the store stalls. Every transaction shows it
// the store's clock beside the monotonic clock of this process.
//
// After a jump ahead all leases seem to have expired although their workers had no time to send
// heartbeats. So no lease ends before its length has passed since the jump (store.Tx.LockExpired).
// A stall or an outage of the store is treated like a jump ahead. After a jump back leases would
// last for the length of the jump, so they are shortened: see Engine.shortenLeases. The time
// of an earlier jump ahead would then lie in the future, so that jump counts as one of the moment
// of the jump back.
type clockGuard struct {
	monotonic func() time.Duration

	mu      sync.Mutex
	waiting map[*waitingUpdate]bool // updates that wait for the store
	// refusedSince is the first update that the store refused since it last served one.
	refusedSince      *waitingUpdate
	lastNow           time.Time     // the store's clock at the last reading
	lastMonotonic     time.Duration // the monotonic clock, not later than that reading
	jumpedAt          time.Time     // the store's clock after the last jump ahead
	mustShortenLeases bool          // it jumped back, and leases were not shortened since
	wasStalled        bool          // the store stalled at the last reading
}

// The log messages, one for each time it happens.
const (
	messageClockAhead       = "the clock jumped ahead; runs under way are kept for one more lease"
	messageClockBack        = "the clock jumped back; leases are cut to their length"
	messageStoreStalled     = "the store stalled; runs under way are kept for one more lease"
	messageStoreUnavailable = "the store was unavailable; runs under way are kept for one more lease"
)

// maxStall is how long an update may wait for the store, or all of them be refused, before the
// silence of workers is taken for the store's fault and not for theirs.
const maxStall = time.Second

// waitingUpdate is an update that waits for the store since a reading of the monotonic clock.
type waitingUpdate struct{ since time.Duration }

func (g *clockGuard) begin() *waitingUpdate {
	t := &waitingUpdate{since: g.monotonic()}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.waiting == nil {
		g.waiting = map[*waitingUpdate]bool{}
	}
	g.waiting[t] = true
	return t
}

func (g *clockGuard) end(t *waitingUpdate) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.waiting, t)
}

// noteRefused notes that the store did not let an update begin.
func (g *clockGuard) noteRefused(t *waitingUpdate) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.refusedSince == nil {
		g.refusedSince = t
	}
}

// stalled returns how long the store was unavailable, or the longest that an update has waited for
// it, if that is more than maxStall. Heartbeats may be among the updates that wait, so leases that
// have expired meanwhile are treated as after a jump of the clock.
func (g *clockGuard) stalled(at time.Duration) (longest time.Duration) {
	if g.refusedSince != nil {
		longest = at - g.refusedSince.since
	}
	for t := range g.waiting {
		longest = max(longest, at-t.since)
	}
	if longest <= maxStall {
		return 0
	}
	return longest
}

// observe compares a reading of the store's clock with two readings of the monotonic one, taken
// before and after it. The longer the store took between them, the less counts as a jump. It
// returns a message for the log, if there is one, and by how much the clock jumped or the store
// stalled.
func (g *clockGuard) observe(now time.Time, before, after time.Duration) (message string,
	by time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	message, by = g.observeStall(now, after)
	if jump, by := g.observeReading(now, before, after); jump != "" {
		return jump, by
	}
	return message, by
}

// observeView is observe for a view, which shows nothing about the store's writes.
func (g *clockGuard) observeView(now time.Time, before, after time.Duration) (message string,
	by time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.observeReading(now, before, after)
}

// observeStall notes that the store serves an update, and whether others have waited too long.
func (g *clockGuard) observeStall(now time.Time, after time.Duration) (message string,
	by time.Duration) {
	stalled := g.stalled(after)
	if stalled > 0 && now.After(g.jumpedAt) {
		g.jumpedAt = now
	}
	if stalled > 0 && !g.wasStalled {
		message, by = messageStoreStalled, stalled
		if g.refusedSince != nil {
			message = messageStoreUnavailable
		}
	}
	g.wasStalled, g.refusedSince = stalled > 0, nil
	return message, by
}

// observeReading compares the clocks.
func (g *clockGuard) observeReading(now time.Time, before, after time.Duration) (message string,
	by time.Duration) {
	ahead := now.Sub(g.lastNow) // of the last reading
	switch known := !g.lastNow.IsZero(); {
	case known && ahead > after-g.lastMonotonic+maxClockDrift:
		g.jumpedAt = now
		message, by = messageClockAhead, ahead-(after-g.lastMonotonic)
	case known && ahead < -maxClockDrift && before >= g.lastMonotonic:
		g.mustShortenLeases = true
		if g.jumpedAt.After(now) { // leases would be kept until the clock is there again
			g.jumpedAt = now
		}
		message, by = messageClockBack, -ahead
	case known && ahead <= 0:
		return message, by // a transaction that began earlier or at the same time
	}
	g.lastNow, g.lastMonotonic = now, before
	return message, by
}

// lastJump returns the store's time right after the last jump ahead, zero if there was none.
func (g *clockGuard) lastJump() time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.jumpedAt
}

// jumpedBack reports whether takeJumpBack would.
func (g *clockGuard) jumpedBack() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.mustShortenLeases
}

// takeJumpBack reports, once, that the clock jumped back.
func (g *clockGuard) takeJumpBack() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	taken := g.mustShortenLeases
	g.mustShortenLeases = false
	return taken
}

// restoreJumpBack undoes takeJumpBack.
func (g *clockGuard) restoreJumpBack() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mustShortenLeases = true
}
