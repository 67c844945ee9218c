package account

import (
	"sync"
	"time"
)

// quota is a limit in fixed windows of a length, counted from midnight UTC.
type quota struct {
	name   string
	limit  int
	length time.Duration
}

// leaseFirst is how many requests a node leases of a window to begin with.
const leaseFirst = 8

// lease says how many requests a node takes of the rest of a window, given how
// many it has taken before: few at first, then as many again as it has used, less
// towards the end, so that other nodes find some as well.
func (q quota) lease(rest, taken int) int {
	n := min(max(leaseFirst, taken), q.limit/20, (rest+3)/4)
	return max(0, min(max(1, n), rest))
}

// share is what a node has of a quota in one window.
type share struct {
	until time.Time // end of the window; zero: nothing is known
	taken int       // leased in all
	left  int       // of that
	last  bool      // there is no more to lease
}

// current reports whether a share counts at a time. One that is far ahead is of
// before the store's clock was set back.
func (s *share) current(q quota, now time.Time) bool {
	return now.Before(s.until) && s.until.Sub(now) <= 2*q.length
}

// add takes in what was leased.
func (s *share) add(g share) {
	if !g.until.Equal(s.until) {
		*s = g
		return
	}
	s.taken, s.left, s.last = s.taken+g.taken, s.left+g.left, g.last
}

// Verdict says whether a request is within the limits.
type Verdict struct {
	OK         bool
	Limit      string        // "per minute" or "per day", when it is not
	RetryAfter time.Duration // likewise: when the window is over
}

// meter counts the requests of one caller on this node.
type meter struct {
	mu     sync.Mutex
	shares []share // by quota

	turn chan struct{} // held by the one who leases
}

func newMeter(quotas int) *meter {
	return &meter{shares: make([]share, quotas), turn: make(chan struct{}, 1)}
}

// take takes a request out of every share, or none. Where a quota is used up it
// says so; where it cannot tell, known is false: something is to be leased.
func (m *meter) take(quotas []quota, now time.Time) (v Verdict, known bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.takeLocked(quotas, now)
}

func (m *meter) takeLocked(quotas []quota, now time.Time) (v Verdict, known bool) {
	known = true
	for i := range m.shares {
		switch s := &m.shares[i]; {
		case !s.current(quotas[i], now):
			known = false
		case s.left > 0:
		case !s.last:
			known = false
		case s.until.Sub(now) > v.RetryAfter:
			v = Verdict{Limit: quotas[i].name, RetryAfter: s.until.Sub(now)}
		}
	}
	if v.RetryAfter > 0 {
		return v, true
	}
	if !known {
		return Verdict{}, false
	}
	for i := range m.shares {
		m.shares[i].left--
	}
	return Verdict{OK: true}, true
}

// held returns the shares that count at a time; others are empty.
func (m *meter) held(quotas []quota, now time.Time) []share {
	m.mu.Lock()
	defer m.mu.Unlock()
	held := make([]share, len(m.shares))
	for i, s := range m.shares {
		if s.current(quotas[i], now) {
			held[i] = s
		}
	}
	return held
}

// add takes in what was leased at a time, and takes a request out of it at once,
// before others do. Shares that have nothing new have no end.
func (m *meter) add(quotas []quota, leased []share, now time.Time) (v Verdict, known bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, g := range leased {
		if !g.until.IsZero() {
			m.shares[i].add(g)
		}
	}
	return m.takeLocked(quotas, now)
}

// idle reports whether the windows of all shares are over.
func (m *meter) idle(now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range m.shares {
		if now.Before(m.shares[i].until) {
			return false
		}
	}
	return len(m.turn) == 0
}

// storeClock tells the store's time without asking it, never too early: a window
// ends here no later than there. Each look at the store says that its time was
// read between two readings of the node's own clock; the narrowest of those
// bounds is kept for as long as the looks agree, and given up when one of the
// clocks has jumped.
type storeClock struct {
	elapsed func() time.Duration

	mu        sync.Mutex
	known     bool
	low, high time.Time // the store's time at elapsed 0 is between them
}

func (c *storeClock) saw(now time.Time, before, after time.Duration) {
	low, high := now.Add(-after), now.Add(-before)
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.known || low.After(c.high) || high.Before(c.low) {
		c.known, c.low, c.high = true, low, high
		return
	}
	if low.After(c.low) {
		c.low = low
	}
	if high.Before(c.high) {
		c.high = high
	}
}

// now returns the zero time while nothing is known.
func (c *storeClock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.known {
		return time.Time{}
	}
	return c.high.Add(c.elapsed())
}
