package fetchbox

import (
	"context"
	"sync"
	"time"
)

// A node does not download more than MaxPerHost resources at a time from one host, and nothing from
// a host that has asked for a pause. A task that finds no slot in hostSlotTimeout is released, so
// that its worker can serve other hosts meanwhile. A paused host costs no attempt either: the tasks
// for it are released until the pause ends.
//
// All of this is per node, in memory, and gone with the process: two nodes together may download
// twice as much from a host. A slot is taken for the host of the task's URL; a pause holds for the
// host that has answered, which may be another one after redirects.
const (
	hostSlotTimeout = 2 * time.Second // the longest wait for a slot
	retryLater      = time.Second     // the delay of a task that found no slot
	maxRetryAfter   = time.Hour       // the longest pause that a Retry-After can ask for
)

// hosts are the hosts of this node's downloads.
type hosts struct {
	maxPerHost int // slots of a host, 0 is no limit
	elapsed    func() time.Duration

	mu  sync.Mutex
	all map[string]*host
}

// host is kept while downloads use it or its pause lasts.
type host struct {
	users       int           // downloads that have a slot or wait for one
	slots       chan struct{} // holds a token for each download in progress; nil is no limit
	pausedUntil time.Duration // by the monotonic clock
}

// newHosts makes the hosts of a node. maxPerHost is 0 for no limit; elapsed is a monotonic clock.
func newHosts(maxPerHost int, elapsed func() time.Duration) *hosts {
	return &hosts{maxPerHost: maxPerHost, elapsed: elapsed, all: map[string]*host{}}
}

// acquire takes a slot of a host, which release gives back. If the host is paused or has no free
// slot, release is nil and retryAfter says when to try again. It waits for a slot up to
// hostSlotTimeout, or until ctx ends. release must be called exactly once.
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

// lookup returns a host, and adds it if it is new. The caller holds the lock.
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

// acquireSlot waits for a slot, up to hostSlotTimeout. It reports whether it has one. The lock of
// hosts is not held meanwhile.
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

// release ends the use of a host, and forgets it if nothing else needs it.
func (h *hosts) release(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	it := h.all[name]
	it.users--
	if it.users == 0 && it.pausedUntil <= h.elapsed() {
		delete(h.all, name)
	}
}

// pause keeps downloads away from a host for a time. It also forgets the hosts whose pause has
// ended.
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
