package webhook

import (
	"slices"
	"sync"
	"time"
)

// destinations limits the attempts in flight so that no receiver delays another.
//
// Each receiver has a limit of its own. The limit grows with every successful attempt and is halved
// with every failed one, down to one. A receiver is healthy after a fast success; until then, and
// after a slow or failed attempt, it is suspect:
//
//	             fast success
//	 suspect ──────────────────► healthy
//	(also new) ◄──────────────────
//	          slow success, failure
//
// Suspect receivers together get half of the slots, those of one host a quarter and those of one
// client three quarters, so that however many are dead, the healthy ones are served. A receiver
// that was never tried, on a host without attempts in flight, needs only its client's share for its
// first attempt.
//
// A delivery that gets no slot gets the time to wait instead. The waits of a host are reserved one
// after another, at the rate at which the host answers: of a thousand deliveries to a dead host, a
// few come back at a time.
//
// Receivers (a URL without its query) and hosts are counted for each client apart, so that one
// client's receivers never slow down another's.
type destinations struct {
	mu              sync.Mutex
	slots           int
	elapsed         func() time.Duration
	randomFloat     func() float64
	byKey           map[string]*destination
	hosts           map[string]*host
	suspectByClient map[string]int // attempts in flight at suspect receivers
	suspectInFlight int            // their sum
}

// destination is what a node knows of one receiver. It is lost with the process: after a restart
// every receiver is suspect until its first fast success.
type destination struct {
	inFlight int
	limit    int
	healthy  bool // the last attempt was a fast success
	tried    bool // an attempt has ended
	lastUsed time.Duration
}

// host is what a node knows of the receivers of one host, which share its capacity.
type host struct {
	startTimes      []time.Duration // when the attempts in flight began
	suspectInFlight int             // of these, at suspect receivers
	averageDuration time.Duration   // moving average of an attempt
	reservedUntil   time.Duration   // when the last reserved wait ends
	lastUsed        time.Duration
}

const (
	slowResponse    = time.Second
	initialLimit    = 4                      // of a new receiver
	minStep         = 2 * time.Millisecond   // between two reserved waits, suspect receiver
	fastStep        = 100 * time.Microsecond // the same, healthy receiver
	minWait         = 10 * time.Millisecond
	maxWait         = time.Minute
	evictAfter      = 10 * time.Minute
	maxDestinations = 10_000
)

// newDestinations makes the limits for a number of slots. elapsed is a monotonic clock; draw
// returns numbers from [0, 1) and spreads long waits.
func newDestinations(slots int, elapsed func() time.Duration, draw func() float64) *destinations {
	return &destinations{
		slots:           slots,
		elapsed:         elapsed,
		randomFloat:     draw,
		byKey:           map[string]*destination{},
		hosts:           map[string]*host{},
		suspectByClient: map[string]int{},
	}
}

// receiver identifies where a delivery goes. The url has no query.
type receiver struct{ client, host, url string }

// slot is the permission to make one attempt. It must be released.
type slot struct {
	receiver
	destination *destination
	host        *host
	startedAt   time.Duration
	suspect     bool // the receiver was suspect when the slot was acquired
	released    bool
}

// slotFraction returns a fraction of the slots, at least one.
func (ds *destinations) slotFraction(numerator, denominator int) int {
	return max(1, ds.slots*numerator/denominator)
}

// acquire returns a slot at a receiver, or nil and how long to wait before asking again. suspect
// reports whether the receiver is suspect. A slot must be released by release after an attempt or
// by releaseUnused without one.
func (ds *destinations) acquire(r receiver) (s *slot, wait time.Duration, suspect bool) {
	ds.mu.Lock()
	defer ds.mu.Unlock()
	now := ds.elapsed()
	d, h := ds.lookup(r, now)
	d.lastUsed, h.lastUsed = now, now
	if d.inFlight >= d.limit || (!d.healthy && ds.overSuspectLimit(r, d, h)) {
		return nil, ds.reserve(d, h, now), !d.healthy
	}
	s = &slot{receiver: r, destination: d, host: h, startedAt: now, suspect: !d.healthy}
	d.inFlight++
	h.startTimes = append(h.startTimes, now)
	if s.suspect {
		ds.suspectInFlight++
		h.suspectInFlight++
		ds.suspectByClient[r.client]++
	}
	return s, 0, s.suspect
}

// overSuspectLimit reports whether the suspect receivers have used up their share of the slots.
func (ds *destinations) overSuspectLimit(r receiver, d *destination, h *host) bool {
	if ds.suspectByClient[r.client] >= ds.slotFraction(3, 4) {
		return true
	}
	untried := !d.tried && len(h.startTimes) == 0
	return !untried && (ds.suspectInFlight >= ds.slotFraction(1, 2) ||
		h.suspectInFlight >= ds.slotFraction(1, 4))
}

// release returns a slot and learns from the outcome of its attempt.
func (ds *destinations) release(s *slot, ok bool, took time.Duration) {
	ds.mu.Lock()
	defer ds.mu.Unlock()
	ds.freeSlot(s)
	d, h := s.destination, s.host
	d.tried = true
	if h.averageDuration == 0 {
		h.averageDuration = took
	}
	h.averageDuration = (3*h.averageDuration + took) / 4
	switch {
	case ok && took < slowResponse:
		d.healthy, d.limit, h.reservedUntil = true, min(d.limit+1, ds.slotFraction(3, 4)), 0
	case ok:
		// A slow receiver may have as many attempts in flight as the suspects of one host, so that
		// it keeps up if it can.
		d.healthy, d.limit = false, max(min(d.limit+1, ds.slotFraction(1, 4)), d.limit/2)
	default:
		d.healthy, d.limit = false, max(1, d.limit/2)
	}
}

// releaseUnused returns a slot without an attempt. It changes nothing for a slot that was released
// already, so a handler may defer it.
func (ds *destinations) releaseUnused(s *slot) {
	ds.mu.Lock()
	defer ds.mu.Unlock()
	ds.freeSlot(s)
}

// freeSlot takes an attempt out of all counts, once. The caller holds the lock.
func (ds *destinations) freeSlot(s *slot) {
	if s.released {
		return
	}
	s.released = true
	s.destination.inFlight--
	if i := slices.Index(s.host.startTimes, s.startedAt); i >= 0 {
		s.host.startTimes = slices.Delete(s.host.startTimes, i, i+1)
	}
	if !s.suspect {
		return
	}
	ds.suspectInFlight--
	s.host.suspectInFlight--
	if ds.suspectByClient[s.client]--; ds.suspectByClient[s.client] == 0 {
		delete(ds.suspectByClient, s.client)
	}
}

// lookup returns the receiver and its host, and makes those that are new. The caller holds the
// lock.
func (ds *destinations) lookup(r receiver, now time.Duration) (*destination, *host) {
	if len(ds.byKey) >= maxDestinations {
		ds.evict(now)
	}
	key := r.client + " " + r.url
	d := ds.byKey[key]
	if d == nil {
		d = &destination{limit: min(initialLimit, ds.slotFraction(1, 4))}
		ds.byKey[key] = d
	}
	key = r.client + " " + r.host
	h := ds.hosts[key]
	if h == nil {
		h = &host{}
		ds.hosts[key] = h
	}
	return d, h
}

// evict drops receivers and hosts that were not used for evictAfter. If that leaves too many, it
// drops all that have no attempts in flight.
func (ds *destinations) evict(now time.Duration) {
	for _, idle := range []time.Duration{evictAfter, 0} {
		for key, d := range ds.byKey {
			if d.inFlight == 0 && now-d.lastUsed >= idle {
				delete(ds.byKey, key)
			}
		}
		for key, h := range ds.hosts {
			if len(h.startTimes) == 0 && now-h.lastUsed >= idle {
				delete(ds.hosts, key)
			}
		}
		if len(ds.byKey) < maxDestinations/2 {
			return
		}
	}
}

// reserve returns how long a delivery must wait for a slot at a host and reserves that time, so
// that the next delivery waits one step longer. A step is what an attempt takes divided by the
// attempts that the host may have in flight. If the oldest attempt in flight already takes longer
// than the average, the host is expected to stay that slow.
func (ds *destinations) reserve(d *destination, h *host, now time.Duration) time.Duration {
	took := h.averageDuration
	if len(h.startTimes) > 0 {
		took = max(took, now-h.startTimes[0])
	}
	step := max(took/time.Duration(ds.slotFraction(1, 4)), minStep)
	if d.healthy {
		step = max(took/time.Duration(d.limit), fastStep)
	}
	h.reservedUntil = max(h.reservedUntil, now) + step
	if wait := h.reservedUntil - now; wait <= maxWait {
		return max(wait, minWait)
	}
	h.reservedUntil = now + maxWait
	return maxWait/2 + time.Duration(ds.randomFloat()*float64(maxWait/2))
}
