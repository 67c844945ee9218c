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

// Hosts are not asked for more at a time than is set, and not at all while they want to be left
// alone.
const (
	hostSlotTimeout = 2 * time.Second // how long a download waits for others from its host
	retryLater      = time.Second     // how long one that waited in vain is given back for
	maxRetryAfter   = time.Hour       // what a Retry-After can ask for
)

// hosts are the hosts of this node's downloads.
type hosts struct {
	maxPerHost int // downloads at a time, 0 is no limit
	elapsed    func() time.Duration

	mu  sync.Mutex
	all map[string]*host
}

// host is remembered while it is in use or wants to be left alone.
type host struct {
	users       int           // that hold a place or wait for one
	slots       chan struct{} // a token is a download under way
	pausedUntil time.Duration // it is to be left alone
}

func newHosts(maxPerHost int, elapsed func() time.Duration) *hosts {
	return &hosts{maxPerHost: maxPerHost, elapsed: elapsed, all: map[string]*host{}}
}

// acquire takes a place at a host. later, if not 0, is when to come again instead: the host wants
// to be left alone, or has too many downloads under way. leave gives the place back.
func (h *hosts) acquire(ctx context.Context, name string) (release func(),
	retryAfter time.Duration) {
	h.mu.Lock()
	it := h.lookup(name)
	it.users++
	retryAfter = it.pausedUntil - h.elapsed()
	h.mu.Unlock()
	if retryAfter > 0 {
		h.release(name)
		return nil, retryAfter
	}
	if !it.acquireSlot(ctx) {
		h.release(name)
		return nil, retryLater
	}
	return func() {
		if it.slots != nil {
			<-it.slots
		}
		h.release(name)
	}, 0
}

// lookup returns a host, which is there from then on. The lock is held.
func (h *hosts) lookup(name string) *host {
	it := h.all[name]
	if it == nil {
		it = &host{}
		if h.maxPerHost > 0 {
			it.slots = make(chan struct{}, h.maxPerHost)
		}
		h.all[name] = it
	}
	return it
}

// acquireSlot waits for a place, as long as is worth holding up what comes behind.
func (h *host) acquireSlot(ctx context.Context) bool {
	if h.slots == nil {
		return true
	}
	select {
	case h.slots <- struct{}{}:
		return true
	default:
	}
	limit := time.NewTimer(hostSlotTimeout)
	defer limit.Stop()
	select {
	case h.slots <- struct{}{}:
		return true
	case <-limit.C:
	case <-ctx.Done():
	}
	return false
}

func (h *hosts) release(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	it := h.all[name]
	it.users--
	if it.users == 0 && it.pausedUntil <= h.elapsed() {
		delete(h.all, name)
	}
}

// sleep leaves a host alone for a while. Hosts whose while is over are forgotten on the way.
func (h *hosts) pause(name string, d time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.elapsed()
	for other, it := range h.all {
		if it.users == 0 && it.pausedUntil <= now {
			delete(h.all, other)
		}
	}
	it := h.lookup(name)
	it.pausedUntil = max(it.pausedUntil, now+d)
}

// parseRetryAfter is how long an answer asks to wait: seconds, or a date; 0 is not at all.
func parseRetryAfter(h http.Header, now time.Time) time.Duration {
	value := strings.TrimSpace(h.Get("Retry-After"))
	seconds, err := strconv.ParseUint(value, 10, 32)
	switch {
	case errors.Is(err, strconv.ErrRange):
		return maxRetryAfter
	case err == nil:
		return min(time.Duration(seconds)*time.Second, maxRetryAfter)
	}
	if date, err := http.ParseTime(value); err == nil {
		return min(max(0, date.Sub(now)), maxRetryAfter)
	}
	return 0
}
