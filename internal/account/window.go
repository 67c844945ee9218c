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

// initialLease is how many requests a node leases of a window to begin with.
const initialLease = 8

// lease says how many requests a node takes of the rest of a window, given how
// many it has taken before: few at first, then as many again as it has used, less
// towards the end, so that other nodes find some as well.
func (q quota) leaseSize(available, leased int) int {
	n := min(max(initialLease, leased), q.limit/20, (available+3)/4)
	return max(0, min(max(1, n), available))
}

// lease is what a node has of a quota in one window.
type lease struct {
	windowEnd time.Time // end of the window; zero: nothing is known
	leased    int       // leased in all
	remaining int       // of that
	exhausted bool      // there is no more to lease
}

// current reports whether a share counts at a time. One that is far ahead is of
// before the store's clock was set back.
func (s *lease) current(q quota, now time.Time) bool {
	return now.Before(s.windowEnd) && s.windowEnd.Sub(now) <= 2*q.length
}

// add takes in what was leased.
func (s *lease) add(g lease) {
	if !g.windowEnd.Equal(s.windowEnd) {
		*s = g
		return
	}
	s.leased, s.remaining, s.exhausted = s.leased+g.leased, s.remaining+g.remaining, g.exhausted
}

// Decision says whether a request is within the limits.
type Decision struct {
	Allowed    bool
	Limit      string        // "per minute" or "per day", when it is not
	RetryAfter time.Duration // likewise: when the window is over
}

// bucket counts the requests of one caller on this node.
type bucket struct {
	mu     sync.Mutex
	leases []lease // by quota

	leasing chan struct{} // held by the one who leases
}

func newBucket(quotas int) *bucket {
	return &bucket{leases: make([]lease, quotas), leasing: make(chan struct{}, 1)}
}

// take takes a request out of every share, or none. Where a quota is used up it
// says so; where it cannot tell, known is false: something is to be leased.
func (m *bucket) take(quotas []quota, now time.Time) (v Decision, decided bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.takeLocked(quotas, now)
}

func (m *bucket) takeLocked(quotas []quota, now time.Time) (v Decision, decided bool) {
	decided = true
	for i := range m.leases {
		switch s := &m.leases[i]; {
		case !s.current(quotas[i], now):
			decided = false
		case s.remaining > 0:
		case !s.exhausted:
			decided = false
		case s.windowEnd.Sub(now) > v.RetryAfter:
			v = Decision{Limit: quotas[i].name, RetryAfter: s.windowEnd.Sub(now)}
		}
	}
	if v.RetryAfter > 0 {
		return v, true
	}
	if !decided {
		return Decision{}, false
	}
	for i := range m.leases {
		m.leases[i].remaining--
	}
	return Decision{Allowed: true}, true
}

// held returns the shares that count at a time; others are empty.
func (m *bucket) currentLeases(quotas []quota, now time.Time) []lease {
	m.mu.Lock()
	defer m.mu.Unlock()
	current := make([]lease, len(m.leases))
	for i, s := range m.leases {
		if s.current(quotas[i], now) {
			current[i] = s
		}
	}
	return current
}

// add takes in what was leased at a time, and takes a request out of it at once,
// before others do. Shares that have nothing new have no end.
func (m *bucket) add(quotas []quota, leased []lease, now time.Time) (v Decision, decided bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, g := range leased {
		if !g.windowEnd.IsZero() {
			m.leases[i].add(g)
		}
	}
	return m.takeLocked(quotas, now)
}

// idle reports whether the windows of all shares are over.
func (m *bucket) idle(now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range m.leases {
		if now.Before(m.leases[i].windowEnd) {
			return false
		}
	}
	return len(m.leasing) == 0
}

// storeClock tells the store's time without asking it, never too early: a window
// ends here no later than there. Each look at the store says that its time was
// read between two readings of the node's own clock; the narrowest of those
// bounds is kept for as long as the looks agree, and given up when one of the
// clocks has jumped.
type storeClock struct {
	elapsed func() time.Duration

	mu        sync.Mutex
	synced    bool
	low, high time.Time // the store's time at elapsed 0 is between them
}

func (c *storeClock) observe(now time.Time, before, after time.Duration) {
	low, high := now.Add(-after), now.Add(-before)
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.synced || low.After(c.high) || high.Before(c.low) {
		c.synced, c.low, c.high = true, low, high
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
	if !c.synced {
		return time.Time{}
	}
	return c.high.Add(c.elapsed())
}
