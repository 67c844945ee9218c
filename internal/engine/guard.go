package engine

import (
	"sync"
	"time"
)

// jumpAllowed is how far the store's clock may run ahead of the monotonic one
// between two looks, or behind itself, before it counts as a jump.
const jumpAllowed = time.Second

// guard notices when the store's clock jumps or the store stalls. Leases from
// before a jump forward seem to be over all at once although their workers had no
// time to beat, so they are kept for one more lease, counted from the jump. Leases
// from before a jump back would last for the length of the jump, so they are cut:
// see Engine.cutLeases.
type guard struct {
	monotonic func() time.Duration

	mu     sync.Mutex
	queue  map[*turn]bool // updates that wait for the store
	away   *turn          // the first that the store refused since it last served one
	store  time.Time      // the clock at the last look
	latest time.Duration  // the monotonic clock, not later than that look
	jumped time.Time
	back   bool // it jumped back and leases were not cut since
	slow   bool // the store stalled at the last look
}

// What an operator is told once for each time.
const (
	jumpedAhead = "the clock jumped ahead; runs under way are kept for one more lease"
	jumpedBack  = "the clock jumped back; leases are cut to their length"
	wasStalled  = "the store stalled; runs under way are kept for one more lease"
	wasAway     = "the store was away; runs under way are kept for one more lease"
)

// stallAllowed is how long an update may wait for the store, or all of them be
// refused, before those who wait with it count as silenced by the store and not by
// themselves.
const stallAllowed = time.Second

// turn is an update that waits for the store since a reading of the monotonic
// clock.
type turn struct{ since time.Duration }

func (g *guard) enter() *turn {
	t := &turn{since: g.monotonic()}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.queue == nil {
		g.queue = map[*turn]bool{}
	}
	g.queue[t] = true
	return t
}

func (g *guard) leave(t *turn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.queue, t)
}

// refused tells that the store did not let a turn begin.
func (g *guard) refused(t *turn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.away == nil {
		g.away = t
	}
}

// stalled returns for how long the store was away, or somebody has waited for it, if
// that was too long. Heartbeats may be among those, so what lapsed meanwhile is
// treated as at a jump of the clock.
func (g *guard) stalled(at time.Duration) (longest time.Duration) {
	if g.away != nil {
		longest = at - g.away.since
	}
	for t := range g.queue {
		longest = max(longest, at-t.since)
	}
	if longest <= stallAllowed {
		return 0
	}
	return longest
}

// observe compares a reading of the store's clock that was taken between two
// readings of the monotonic one. Waiting for the store between them only makes
// it look more forgiving. It returns what is new to an operator, and how much of it.
func (g *guard) observe(now time.Time, before, after time.Duration) (news string, by time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	stalled := g.stalled(after)
	if stalled > 0 && now.After(g.jumped) {
		g.jumped = now
	}
	if stalled > 0 && !g.slow {
		news, by = wasStalled, stalled
		if g.away != nil {
			news = wasAway
		}
	}
	g.slow, g.away = stalled > 0, nil
	ahead := now.Sub(g.store) // of the last look
	switch known := !g.store.IsZero(); {
	case known && ahead > after-g.latest+jumpAllowed:
		g.jumped = now
		news, by = jumpedAhead, ahead-(after-g.latest)
	case known && ahead < -jumpAllowed && before >= g.latest:
		g.back = true
		news, by = jumpedBack, -ahead
	case known && ahead <= 0:
		return news, by // an older transaction, or one of the same time: nothing is new
	}
	g.store, g.latest = now, before
	return news, by
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
