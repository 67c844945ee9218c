package engine

import (
	"sync"
	"time"
)

// jumpAllowed is how far the store's clock may run ahead of the monotonic one
// between two looks, or behind itself, before it counts as a jump.
const jumpAllowed = time.Second

// guard notices when the store's clock jumps. Leases from before a jump forward
// seem to be over all at once although their workers had no time to beat, so
// they are kept for one more lease, counted from the jump. Leases from before a
// jump back would last for the length of the jump, so they are cut: see
// Engine.cutLeases.
type guard struct {
	monotonic func() time.Duration

	mu     sync.Mutex
	store  time.Time     // the clock at the last look
	latest time.Duration // the monotonic clock, not later than that look
	jumped time.Time
	back   bool // it jumped back and leases were not cut since
}

// observe compares a reading of the store's clock that was taken between two
// readings of the monotonic one. Waiting for the store between them only makes
// it look more forgiving.
func (g *guard) observe(now time.Time, before, after time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	ahead := now.Sub(g.store) // of the last look
	switch known := !g.store.IsZero(); {
	case known && ahead > after-g.latest+jumpAllowed:
		g.jumped = now
	case known && ahead < -jumpAllowed && before >= g.latest:
		g.back = true
	case known && ahead <= 0:
		return // an older transaction, or one of the same time: nothing is new
	}
	g.store, g.latest = now, before
}

// jump returns the store's time right after the last jump forward, zero when
// there was none.
func (g *guard) jump() time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.jumped
}

// takeBack reports, once, that the clock jumped back.
func (g *guard) takeBack() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	was := g.back
	g.back = false
	return was
}

// putBack undoes takeBack.
func (g *guard) putBack() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.back = true
}
