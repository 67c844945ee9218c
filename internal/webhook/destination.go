package webhook

import (
	"slices"
	"sync"
	"time"
)

// destinations sees to it that no receiver delays another: each has a number of tries that may be under way, which grows
// while it answers well, less so if it does slowly, and shrinks to one while it does not. Those that have not answered well yet, or not
// lately, share half of the slots, a quarter on any one host, so that however many are dead the others are served. One
// nothing is known of, on a host nobody calls just now, gets its first try all the same, while its client's doubtful
// receivers hold less than three quarters.
//
// Who gets no slot is told when to come again. The waits of a host are booked one after another, as fast as it answers: of
// a thousand deliveries to a dead one, a few come back at a time.
//
// A receiver is a URL without its query, of one client; so is a host: what another client's does is of no concern.
type destinations struct {
	mu      sync.Mutex
	slots   int
	elapsed func() time.Duration
	draw    func() float64
	by      map[string]*destination
	hosts   map[string]*host
	clients map[string]int // tries under way at doubtful receivers
	doubted int            // all of these
}

type destination struct {
	flying int
	limit  int
	proven bool // its last answer was good and fast
	known  bool // it has been tried
	used   time.Duration
}

type host struct {
	flights []time.Duration // when the tries under way began
	doubted int             // of these, at doubtful receivers
	took    time.Duration   // a try lately, on average
	next    time.Duration   // when the last wait that is booked ends
	used    time.Duration
}

const (
	slowAnswer  = time.Second
	firstLimit  = 4                    // of a receiver nothing is known of
	minStep     = 2 * time.Millisecond // between two waits that are booked at a doubtful receiver
	fastStep    = 100 * time.Microsecond
	minBooking  = 10 * time.Millisecond
	maxBooking  = time.Minute
	forgetAfter = 10 * time.Minute
	manyPlaces  = 10_000
)

func newDestinations(slots int, elapsed func() time.Duration, draw func() float64) *destinations {
	return &destinations{slots: slots, elapsed: elapsed, draw: draw, by: map[string]*destination{}, hosts: map[string]*host{}, clients: map[string]int{}}
}

// receiver is whom a delivery goes to. URL has no query.
type receiver struct{ client, host, url string }

// slot is the right to make a try.
type slot struct {
	receiver
	place   *destination
	host    *host
	began   time.Duration
	doubted bool
	given   bool // back
}

// part is a share of the slots, at least one.
func (ds *destinations) part(of, in int) int { return max(1, ds.slots*of/in) }

// enter gives a slot at a receiver, or none and how long to wait for the next. doubtful says that it has not answered well
// lately.
func (ds *destinations) enter(r receiver) (s *slot, wait time.Duration, doubtful bool) {
	ds.mu.Lock()
	defer ds.mu.Unlock()
	now := ds.elapsed()
	d, h := ds.at(r, now)
	d.used, h.used = now, now
	if d.flying >= d.limit || !d.proven && ds.crowded(r, d, h) {
		return nil, ds.book(d, h, now), !d.proven
	}
	s = &slot{receiver: r, place: d, host: h, began: now, doubted: !d.proven}
	d.flying++
	h.flights = append(h.flights, now)
	if s.doubted {
		ds.doubted++
		h.doubted++
		ds.clients[r.client]++
	}
	return s, 0, s.doubted
}

// crowded reports whether doubtful receivers hold all they may.
func (ds *destinations) crowded(r receiver, d *destination, h *host) bool {
	if ds.clients[r.client] >= ds.part(3, 4) {
		return true
	}
	fresh := !d.known && len(h.flights) == 0
	return !fresh && (ds.doubted >= ds.part(1, 2) || h.doubted >= ds.part(1, 4))
}

// leave gives a slot back with how its try went.
func (ds *destinations) leave(s *slot, ok bool, took time.Duration) {
	ds.mu.Lock()
	defer ds.mu.Unlock()
	ds.free(s)
	d, h := s.place, s.host
	d.known = true
	if h.took == 0 {
		h.took = took
	}
	h.took = (3*h.took + took) / 4
	switch {
	case ok && took < slowAnswer:
		d.proven, d.limit, h.next = true, min(d.limit+1, ds.part(3, 4)), 0
	case ok: // slow: as many at a time as doubtful ones may have on a host, so that it keeps up if it can
		d.proven, d.limit = false, max(min(d.limit+1, ds.part(1, 4)), d.limit/2)
	default:
		d.proven, d.limit = false, max(1, d.limit/2)
	}
}

// cancel gives a slot back of which no use was made.
func (ds *destinations) cancel(s *slot) {
	ds.mu.Lock()
	defer ds.mu.Unlock()
	ds.free(s)
}

func (ds *destinations) free(s *slot) {
	if s.given {
		return
	}
	s.given = true
	s.place.flying--
	if i := slices.Index(s.host.flights, s.began); i >= 0 {
		s.host.flights = slices.Delete(s.host.flights, i, i+1)
	}
	if !s.doubted {
		return
	}
	ds.doubted--
	s.host.doubted--
	if ds.clients[s.client]--; ds.clients[s.client] == 0 {
		delete(ds.clients, s.client)
	}
}

func (ds *destinations) at(r receiver, now time.Duration) (*destination, *host) {
	if len(ds.by) >= manyPlaces {
		ds.forget(now)
	}
	key := r.client + " " + r.url
	d := ds.by[key]
	if d == nil {
		d = &destination{limit: min(firstLimit, ds.part(1, 4))}
		ds.by[key] = d
	}
	key = r.client + " " + r.host
	h := ds.hosts[key]
	if h == nil {
		h = &host{}
		ds.hosts[key] = h
	}
	return d, h
}

// forget drops receivers nobody has called for a while, or, where there are too many, all that none is calling now.
func (ds *destinations) forget(now time.Duration) {
	for _, idle := range []time.Duration{forgetAfter, 0} {
		for key, d := range ds.by {
			if d.flying == 0 && now-d.used >= idle {
				delete(ds.by, key)
			}
		}
		for key, h := range ds.hosts {
			if len(h.flights) == 0 && now-h.used >= idle {
				delete(ds.hosts, key)
			}
		}
		if len(ds.by) < manyPlaces/2 {
			return
		}
	}
}

// book returns how long to wait for a slot at a host, and keeps that place for whoever asked. A host that has let
// somebody wait longer than it used to is expected to go on like that.
func (ds *destinations) book(d *destination, h *host, now time.Duration) time.Duration {
	took := h.took
	if len(h.flights) > 0 {
		took = max(took, now-h.flights[0])
	}
	step := max(took/time.Duration(ds.part(1, 4)), minStep)
	if d.proven {
		step = max(took/time.Duration(d.limit), fastStep)
	}
	h.next = max(h.next, now) + step
	if wait := h.next - now; wait <= maxBooking {
		return max(wait, minBooking)
	}
	h.next = now + maxBooking
	return maxBooking/2 + time.Duration(ds.draw()*float64(maxBooking/2))
}
