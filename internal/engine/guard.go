package engine

import (
	"sync"
	"time"
)

// maxClockDrift is how far the store's clock may run ahead of the monotonic one
// between two looks, or behind itself, before it counts as a jump.
const maxClockDrift = time.Second

// clockGuard notices when the store's clock jumps or the store stalls. Leases from
// before a jump forward seem to be over all at once although their workers had no
// time to beat, so they are kept for one more lease, counted from the jump. Leases
// from before a jump back would last for the length of the jump, so they are cut:
// see Engine.cutLeases.
type clockGuard struct {
	monotonic func() time.Duration

	mu      sync.Mutex
	waiting map[*waitingUpdate]bool // updates that wait for the store
	// the first that the store refused since it last served one
	refusedSince      *waitingUpdate
	lastNow           time.Time     // the clock at the last look
	lastMonotonic     time.Duration // the monotonic clock, not later than that look
	jumpedAt          time.Time
	mustShortenLeases bool // it jumped back and leases were not cut since
	wasStalled        bool // the store stalled at the last look
}

// What an operator is told once for each time.
const (
	messageClockAhead   = "the clock jumped ahead; runs under way are kept for one more lease"
	messageClockBack    = "the clock jumped back; leases are cut to their length"
	messageStoreStalled = "the store stalled; runs under way are kept for one more lease"
	messageStoreAway    = "the store was away; runs under way are kept for one more lease"
)

// maxStall is how long an update may wait for the store, or all of them be
// refused, before those who wait with it count as silenced by the store and not by
// themselves.
const maxStall = time.Second

// waitingUpdate is an update that waits for the store since a reading of the monotonic
// clock.
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

// noteRefused tells that the store did not let a turn begin.
func (g *clockGuard) noteRefused(t *waitingUpdate) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.refusedSince == nil {
		g.refusedSince = t
	}
}

// stalled returns for how long the store was away, or somebody has waited for it, if
// that was too long. Heartbeats may be among those, so what lapsed meanwhile is
// treated as at a jump of the clock.
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

// observe compares a reading of the store's clock that was taken between two
// readings of the monotonic one. Waiting for the store between them only makes
// it look more forgiving. It returns what is new to an operator, and how much of it.
func (g *clockGuard) observe(now time.Time, before, after time.Duration) (message string,
	by time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	stalled := g.stalled(after)
	if stalled > 0 && now.After(g.jumpedAt) {
		g.jumpedAt = now
	}
	if stalled > 0 && !g.wasStalled {
		message, by = messageStoreStalled, stalled
		if g.refusedSince != nil {
			message = messageStoreAway
		}
	}
	g.wasStalled, g.refusedSince = stalled > 0, nil
	ahead := now.Sub(g.lastNow) // of the last look
	switch known := !g.lastNow.IsZero(); {
	case known && ahead > after-g.lastMonotonic+maxClockDrift:
		g.jumpedAt = now
		message, by = messageClockAhead, ahead-(after-g.lastMonotonic)
	case known && ahead < -maxClockDrift && before >= g.lastMonotonic:
		g.mustShortenLeases = true
		message, by = messageClockBack, -ahead
	case known && ahead <= 0:
		return message, by // an older transaction, or one of the same time: nothing is new
	}
	g.lastNow, g.lastMonotonic = now, before
	return message, by
}

// lastJump returns the store's time right after the last jump forward, zero when
// there was none.
func (g *clockGuard) lastJump() time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.jumpedAt
}

// takeJumpBack reports, once, that the clock jumped back.
func (g *clockGuard) takeJumpBack() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	was := g.mustShortenLeases
	g.mustShortenLeases = false
	return was
}

// restoreJumpBack undoes takeJumpBack.
func (g *clockGuard) restoreJumpBack() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mustShortenLeases = true
}
