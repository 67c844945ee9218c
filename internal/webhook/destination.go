package webhook

import (
	"slices"
	"sync"
	"time"
)

// destinations sees to it that no receiver delays another: each has a number of tries that may be
// under way, which grows while it answers well, less so if it does slowly, and shrinks to one while
// it does not. Those that have not answered well yet, or not lately, share half of the slots, a
// quarter on any one host, so that however many are dead the others are served. One nothing is
// known of, on a host nobody calls just now, gets its first try all the same, while its client's
// doubtful receivers hold less than three quarters.
//
// Who gets no slot is told when to come again. The waits of a host are booked one after another, as
// fast as it answers: of a thousand deliveries to a dead one, a few come back at a time.
//
// A receiver is a URL without its query, of one client; so is a host: what another client's does is
// of no concern.
type destinations struct {
	mu              sync.Mutex
	slots           int
	elapsed         func() time.Duration
	randomFloat     func() float64
	byKey           map[string]*destination
	hosts           map[string]*host
	suspectByClient map[string]int // tries under way at doubtful receivers
	suspectInFlight int            // all of these
}

type destination struct {
	inFlight int
	limit    int
	healthy  bool // its last answer was good and fast
	tried    bool // it has been tried
	lastUsed time.Duration
}

type host struct {
	startTimes      []time.Duration // when the tries under way began
	suspectInFlight int             // of these, at doubtful receivers
	averageDuration time.Duration   // a try lately, on average
	reservedUntil   time.Duration   // when the last wait that is booked ends
	lastUsed        time.Duration
}

const (
	slowResponse = time.Second
	initialLimit = 4 // of a receiver nothing is known of
	// between two waits that are booked at a doubtful receiver
	minStep         = 2 * time.Millisecond
	fastStep        = 100 * time.Microsecond
	minWait         = 10 * time.Millisecond
	maxWait         = time.Minute
	evictAfter      = 10 * time.Minute
	maxDestinations = 10_000
)

func newDestinations(slots int, elapsed func() time.Duration, draw func() float64) *destinations {
	return &destinations{slots: slots, elapsed: elapsed, randomFloat: draw,
		byKey: map[string]*destination{}, hosts: map[string]*host{},
		suspectByClient: map[string]int{}}
}

// receiver is whom a delivery goes to. URL has no query.
type receiver struct{ client, host, url string }

// slot is the right to make a try.
type slot struct {
	receiver
	destination *destination
	host        *host
	startedAt   time.Duration
	suspect     bool
	released    bool // back
}

// slotFraction is a share of the slots, at least one.
func (ds *destinations) slotFraction(numerator, denominator int) int {
	return max(1, ds.slots*numerator/denominator)
}

// acquire gives a slot at a receiver, or none and how long to wait for the next. doubtful says that
// it has not answered well lately.
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

// overSuspectLimit reports whether doubtful receivers hold all they may.
func (ds *destinations) overSuspectLimit(r receiver, d *destination, h *host) bool {
	if ds.suspectByClient[r.client] >= ds.slotFraction(3, 4) {
		return true
	}
	untried := !d.tried && len(h.startTimes) == 0
	return !untried && (ds.suspectInFlight >= ds.slotFraction(1, 2) ||
		h.suspectInFlight >= ds.slotFraction(1, 4))
}

// release gives a slot back with how its try went.
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
		// slow: as many at a time as doubtful ones may have on a host, so that it keeps up if it
		// can
		d.healthy, d.limit = false, max(min(d.limit+1, ds.slotFraction(1, 4)), d.limit/2)
	default:
		d.healthy, d.limit = false, max(1, d.limit/2)
	}
}

// releaseUnused gives a slot back of which no use was made.
func (ds *destinations) releaseUnused(s *slot) {
	ds.mu.Lock()
	defer ds.mu.Unlock()
	ds.freeSlot(s)
}

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

// evict drops receivers nobody has called for a while, or, where there are too many, all that none
// is calling now.
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

// reserve returns how long to wait for a slot at a host, and keeps that place for whoever asked. A
// host that has let somebody wait longer than it used to is expected to go on like that.
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
