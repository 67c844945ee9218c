package engine

import (
	"sync"

	"github.com/millrace/millrace/internal/job"
)

// wakeAll as a number of waiters wakes everybody.
const wakeAll = int(^uint(0) >> 1)

// hub knows who in this process waits for jobs of which lanes. Being woken
// promises nothing: whoever wakes looks for itself.
type hub struct {
	mu         sync.Mutex
	waiters    map[job.QueueHash][]*waiter
	closed     bool
	dueChanged chan struct{} // holds one nudge
}

type waiter struct {
	hashes []job.QueueHash
	ch     chan struct{} // holds one wake-up
}

func newHub() *hub {
	return &hub{waiters: map[job.QueueHash][]*waiter{}, dueChanged: make(chan struct{}, 1)}
}

// add registers a waiter. Look for jobs after it, not before, so that nothing
// is missed; leave when done.
func (h *hub) add(hashes []job.QueueHash) *waiter {
	w := &waiter{hashes: hashes, ch: make(chan struct{}, 1)}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		w.ch <- struct{}{}
		return w
	}
	for _, l := range hashes {
		h.waiters[l] = append(h.waiters[l], w)
	}
	return w
}

// leave ends a wait. A wake-up that came while the waiter was leaving is handed
// on, so that whatever it was about is not left lying.
func (h *hub) remove(w *waiter) {
	h.mu.Lock()
	defer h.mu.Unlock()
	defer func() {
		select {
		case <-w.ch:
			for _, l := range w.hashes {
				h.wakeLocked(l, 1)
			}
		default:
		}
	}()
	for _, l := range w.hashes {
		all := h.waiters[l]
		for i, other := range all {
			if other == w {
				all = append(all[:i:i], all[i+1:]...)
				break
			}
		}
		if len(all) == 0 {
			delete(h.waiters, l)
		} else {
			h.waiters[l] = all
		}
	}
}

// waiting is how many wait for a lane.
func (h *hub) waiting(hash job.QueueHash) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.waiters[hash])
}

// wake wakes up to n of those who wait for a lane, those who have waited longest
// first; one that was woken already and has not looked yet does not count.
func (h *hub) wake(hash job.QueueHash, n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.wakeLocked(hash, n)
}

func (h *hub) wakeLocked(hash job.QueueHash, n int) {
	for _, w := range h.waiters[hash] {
		if n == 0 {
			return
		}
		select {
		case w.ch <- struct{}{}:
			n--
		default:
		}
	}
}

// signal leaves one signal for whoever receives next, unless one lies there.
func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

func (h *hub) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for _, all := range h.waiters {
		for _, w := range all {
			signal(w.ch)
		}
	}
}

func (h *hub) isClosed() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.closed
}
