package fetchbox

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Hosts are not asked for more at a time than is set, and not at all while they want to be left alone.
const (
	patience    = 2 * time.Second // how long a download waits for others from its host
	comeAgain   = time.Second     // how long one that waited in vain is given back for
	longestWait = time.Hour       // what a Retry-After can ask for
)

// hosts are the hosts of this node's downloads.
type hosts struct {
	most    int // downloads at a time, 0 is no limit
	elapsed func() time.Duration

	mu  sync.Mutex
	all map[string]*host
}

// host is remembered while it is in use or wants to be left alone.
type host struct {
	users int           // that hold a place or wait for one
	slots chan struct{} // a token is a download under way
	until time.Duration // it is to be left alone
}

func newHosts(most int, elapsed func() time.Duration) *hosts {
	return &hosts{most: most, elapsed: elapsed, all: map[string]*host{}}
}

// enter takes a place at a host. later, if not 0, is when to come again instead: the host wants to be left alone, or has
// too many downloads under way. leave gives the place back.
func (h *hosts) enter(ctx context.Context, name string) (leave func(), later time.Duration) {
	h.mu.Lock()
	it := h.get(name)
	it.users++
	later = it.until - h.elapsed()
	h.mu.Unlock()
	if later > 0 {
		h.leave(name)
		return nil, later
	}
	if !it.take(ctx) {
		h.leave(name)
		return nil, comeAgain
	}
	return func() {
		if it.slots != nil {
			<-it.slots
		}
		h.leave(name)
	}, 0
}

// get returns a host, which is there from then on. The lock is held.
func (h *hosts) get(name string) *host {
	it := h.all[name]
	if it == nil {
		it = &host{}
		if h.most > 0 {
			it.slots = make(chan struct{}, h.most)
		}
		h.all[name] = it
	}
	return it
}

// take waits for a place, as long as is worth holding up what comes behind.
func (h *host) take(ctx context.Context) bool {
	if h.slots == nil {
		return true
	}
	select {
	case h.slots <- struct{}{}:
		return true
	default:
	}
	limit := time.NewTimer(patience)
	defer limit.Stop()
	select {
	case h.slots <- struct{}{}:
		return true
	case <-limit.C:
	case <-ctx.Done():
	}
	return false
}

func (h *hosts) leave(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	it := h.all[name]
	it.users--
	if it.users == 0 && it.until <= h.elapsed() {
		delete(h.all, name)
	}
}

// pause leaves a host alone for a while. Hosts whose while is over are forgotten on the way.
func (h *hosts) pause(name string, d time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.elapsed()
	for other, it := range h.all {
		if it.users == 0 && it.until <= now {
			delete(h.all, other)
		}
	}
	it := h.get(name)
	it.until = max(it.until, now+d)
}

// retryAfter is how long an answer asks to wait: seconds, or a date; 0 is not at all.
func retryAfter(h http.Header, now time.Time) time.Duration {
	value := strings.TrimSpace(h.Get("Retry-After"))
	seconds, err := strconv.ParseUint(value, 10, 32)
	switch {
	case errors.Is(err, strconv.ErrRange):
		return longestWait
	case err == nil:
		return min(time.Duration(seconds)*time.Second, longestWait)
	}
	if date, err := http.ParseTime(value); err == nil {
		return min(max(0, date.Sub(now)), longestWait)
	}
	return 0
}
