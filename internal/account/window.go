package account

import (
	"sync"
	"time"
)

// quota is a limit in fixed windows, which are aligned to midnight UTC.
type quota struct {
	name   string
	limit  int
	length time.Duration
}

// The names of quotas, which are parts of the keys of records.
const (
	perDay    = "per day"
	perMinute = "per minute"
)

// Limits are how many requests a caller may make; 0 is no limit.
type Limits struct{ RatePerMinute, QuotaPerDay int }

// quotas returns those quotas that are limited.
func (l Limits) quotas() (all []quota) {
	for _, q := range []quota{{perDay, l.QuotaPerDay, 24 * time.Hour},
		{perMinute, l.RatePerMinute, time.Minute}} {
		if q.limit > 0 {
			all = append(all, q)
		}
	}
	return all
}

// initialLease is the size of a node's first lease of a window.
const initialLease = 8

// leaseSize returns how many requests a node leases of the available ones, given how many it has
// leased before: few at first, then as many as before, fewer towards the end, so that other nodes
// get some as well.
func (q quota) leaseSize(available, leased int) int {
	n := min(max(initialLease, leased), q.limit/20, (available+3)/4)
	return max(0, min(max(1, n), available))
}

// lease holds the requests that a node has leased of one window.
type lease struct {
	windowEnd time.Time // zero: the node has not read the window
	leased    int       // requests leased in total
	remaining int       // of these, not used
	exhausted bool      // the window has no more to lease
}

// current reports whether a lease is of the current window. One that is far ahead was made before
// the store's clock was set back.
func (s *lease) current(q quota, now time.Time) bool {
	return now.Before(s.windowEnd) && s.windowEnd.Sub(now) <= 2*q.length
}

// add adds a lease of the same window, or replaces the lease of an older window.
func (s *lease) add(g lease) {
	if !g.windowEnd.Equal(s.windowEnd) {
		*s = g
		return
	}
	s.leased, s.remaining, s.exhausted = s.leased+g.leased, s.remaining+g.remaining, g.exhausted
}

// Decision reports whether a request is within the limits.
type Decision struct {
	Allowed    bool
	Limit      string        // if not allowed: "per minute" or "per day"
	RetryAfter time.Duration // if not allowed: until the window ends
}

// bucket counts the requests of one caller on this node.
type bucket struct {
	mu     sync.Mutex
	limits Limits // that the leases are of
	quotas []quota
	leases []lease // by quota

	leasing chan struct{} // a semaphore of one: the right to lease more
}

// newBucket makes a bucket that has leased nothing.
func newBucket() *bucket { return &bucket{leasing: make(chan struct{}, 1)} }

// setLimits forgets what was leased under other limits: under these more or less may be left. The
// caller holds the lock.
func (m *bucket) setLimits(limits Limits) {
	if m.limits != limits {
		m.limits, m.quotas = limits, limits.quotas()
		m.leases = make([]lease, len(m.quotas))
	}
}

// take takes a request out of every lease, or refuses it because a window is used up. decided is
// false if it can do neither, because a lease has nothing left: more must be leased.
func (m *bucket) take(limits Limits, now time.Time) (v Decision, decided bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.setLimits(limits)
	return m.takeLocked(now)
}

// takeLocked is take for a caller that holds the lock. Of several windows that are used up, the one
// that ends last decides: RetryAfter is when the request can succeed.
func (m *bucket) takeLocked(now time.Time) (v Decision, decided bool) {
	decided = true
	for i := range m.leases {
		switch s := &m.leases[i]; {
		case !s.current(m.quotas[i], now):
			decided = false
		case s.remaining > 0:
		case !s.exhausted:
			decided = false
		case s.windowEnd.Sub(now) > v.RetryAfter:
			v = Decision{Limit: m.quotas[i].name, RetryAfter: s.windowEnd.Sub(now)}
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

// currentLeases returns the leases of the current windows under some limits. The lease of an older
// window is empty.
func (m *bucket) currentLeases(limits Limits, now time.Time) []lease {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.setLimits(limits)
	current := make([]lease, len(m.leases))
	for i, s := range m.leases {
		if s.current(m.quotas[i], now) {
			current[i] = s
		}
	}
	return current
}

// add adds new leases and takes one request out of them before other requests can. A quota of which
// nothing was leased has a zero windowEnd.
func (m *bucket) add(limits Limits, leased []lease, now time.Time) (v Decision, decided bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.setLimits(limits)
	for i, g := range leased {
		if !g.windowEnd.IsZero() {
			m.leases[i].add(g)
		}
	}
	return m.takeLocked(now)
}

// idle reports whether all windows have ended and no request is leasing.
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

// storeClock estimates the store's time without asking the store. The estimate is never early, so
// that a window ends on the node no later than in the store.
//
// Each transaction reads the store's time between two readings of the node's monotonic clock, which
// bounds the offset between the clocks. The narrowest bounds are kept as long as observations
// agree; an observation outside of them means that a clock has jumped, and replaces them.
type storeClock struct {
	elapsed func() time.Duration

	mu        sync.Mutex
	synced    bool
	low, high time.Time // bounds of the store's time at elapsed 0
}

// observe narrows the bounds by a transaction whose time was now, between the node's readings
// before and after.
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

// now returns the estimate, or the zero time before the first observation.
func (c *storeClock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.synced {
		return time.Time{}
	}
	return c.high.Add(c.elapsed())
}
