package engine

import (
	"slices"
	"sync"

	"github.com/millrace/millrace/internal/job"
)

// wakeAll as a number of waiters wakes all of them.
const wakeAll = int(^uint(0) >> 1)

// hub knows the claims of this process that wait, by the hashes of their queues. A wake-up promises
// nothing: its waiter asks the store.
//
// No wake-up is lost: a claim adds its waiter before it asks the store, a waiter keeps one wake-up
// until it is received, and remove passes an unused one on to the next waiter.
type hub struct {
	mu         sync.Mutex
	waiters    map[job.QueueHash][]*waiter
	idle       int // of the waiters
	closed     bool
	dueChanged chan struct{} // has a buffer of one, as have the others and ch of waiter
	// endsRecorded receives when workers may have recorded ends of runs, endsToVerify when there
	// are some with results to verify.
	endsRecorded, endsToVerify chan struct{}
}

type waiter struct {
	hashes []job.QueueHash
	ch     chan struct{}

	idle    bool // it waits, and its claim is not being served
	limited bool // while it is idle: a limit left it fewer jobs than it may have

	call      claimCall
	match     *matchedClaim   // with a submission, while it is idle or taken; nil: with none
	delivered chan []*job.Job // has a buffer of one
}

// slots is the hash of the limits of the job type.
func (w *waiter) slots() job.QueueHash { return w.hashes[0] }

func newHub() *hub {
	return &hub{waiters: map[job.QueueHash][]*waiter{}, dueChanged: make(chan struct{}, 1),
		endsRecorded: make(chan struct{}, 1), endsToVerify: make(chan struct{}, 1)}
}

// add registers a waiter, to be removed when it is done. Ask the store for jobs after it, not
// before.
func (h *hub) add(call claimCall) *waiter {
	w := &waiter{hashes: queueHashesOf(call.req), ch: make(chan struct{}, 1), call: call,
		delivered: make(chan []*job.Job, 1)}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		w.ch <- struct{}{}
		return w
	}
	for _, hash := range w.hashes {
		h.waiters[hash] = append(h.waiters[hash], w)
	}
	return w
}

// remove ends a wait. A wake-up that the waiter has not received is passed on.
func (h *hub) remove(w *waiter) {
	h.mu.Lock()
	defer h.mu.Unlock()
	defer func() {
		select {
		case <-w.ch:
			for _, hash := range w.hashes {
				h.wakeLocked(hash, 1)
			}
		default:
		}
	}()
	for _, hash := range w.hashes {
		all := h.waiters[hash]
		if i := slices.Index(all, w); i >= 0 {
			all = slices.Delete(all, i, i+1)
		}
		if len(all) == 0 {
			delete(h.waiters, hash)
		} else {
			h.waiters[hash] = all
		}
	}
}

// hashes returns the hashes that claims wait for.
func (h *hub) hashes() map[job.QueueHash]bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := make(map[job.QueueHash]bool, len(h.waiters))
	for hash := range h.waiters {
		all[hash] = true
	}
	return all
}

// waiting returns how many claims wait for a hash.
func (h *hub) waiting(hash job.QueueHash) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.waiters[hash])
}

// wake wakes up to n of the claims that wait for a hash, those that have waited longest first, and
// those that are matched last, as they wait for a submission. One that has a wake-up already does
// not count, nor one to which a free slot is of no use.
func (h *hub) wake(hash job.QueueHash, n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.wakeLocked(hash, n)
}

func (h *hub) wakeLocked(hash job.QueueHash, n int) {
	for _, matched := range []bool{false, true} {
		for _, w := range h.waiters[hash] {
			if n == 0 {
				return
			}
			noUse := hash == w.slots() && w.idle && !w.limited
			if (w.match != nil) != matched || noUse {
				continue
			}
			select {
			case w.ch <- struct{}{}:
				n--
			default:
			}
		}
	}
}

// findsNothing reports whether a claim that has just been added would find nothing: another one
// waits for the same queues, and has found nothing since anything was committed for them. That
// holds where all commits are of this process.
func (h *hub) findsNothing(w *waiter) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.ContainsFunc(h.waiters[w.slots()], func(other *waiter) bool {
		skips := other.call.req.Skip != nil || w.call.req.Skip != nil
		return other.idle && !other.limited && !skips && len(other.ch) == 0 &&
			slices.Equal(other.hashes, w.hashes)
	})
}

// wakeJobType wakes all claims of a job type, whatever they wait for.
func (h *hub) wakeJobType(jobType string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, w := range h.waiters[slotsHash(jobType)] {
		signal(w.ch)
	}
}

// signal sends to a channel with a buffer of one, unless a signal is in it already.
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
