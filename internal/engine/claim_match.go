package engine

import (
	"slices"
	"time"

	"github.com/millrace/millrace/internal/job"
)

// A submission whose jobs are ready at once matches them with claims of this node that wait, and
// claims for these in its own transaction. So a job starts with the commit that stores it, not with
// one after it, and both cost one sync:
//
//	Claim ─▶ hub.await: idle        submitGroup ─▶ hub.match
//	                                  its transaction: insert, then hub.take, and claimPass
//	                                  as any claim
//	      ◀──────────────────────────── commit ─▶ hub.deliver
//
// The insert may wait for another transaction. So until it is taken a claim is free to wake, to
// leave, and to end when its time is up; once it is taken, the transaction waits for nobody.
//
// A claim that is matched gets what is first in claim order, which need not be a job of that
// submission, and nothing where a limit or a pause leaves nothing. It goes on waiting then, with
// the wake-ups it has got meanwhile. Jobs that nobody was matched with wake claims as any job does.

// matchedClaim is a claim that waits, and the call by which a submission serves it.
type matchedClaim struct {
	waiter *waiter
	call   claimCall // the submission alone uses it
	taken  bool      // the waiter waits for deliver. The hub's lock is for it.
}

func callsOfMatched(matched []*matchedClaim) (calls []*claimCall) {
	for _, m := range matched {
		calls = append(calls, &m.call)
	}
	return calls
}

// matchClaims matches the jobs of a group that are ready at once with claims that wait. Each is to
// be delivered to.
func (e *Engine) matchClaims(group []*ticket[submitCall]) (matched []*matchedClaim) {
	if !e.hub.hasIdle() {
		return nil
	}
	jobs := map[queueKey]int{}
	var queues []queueKey // in the order of the calls
	for _, t := range group {
		for i := range t.call.batch {
			j := &t.call.batch[i].Job
			if !j.DueAt.IsZero() {
				continue
			}
			key := queueKeyOf(j)
			if jobs[key] == 0 {
				queues = append(queues, key)
			}
			jobs[key]++
		}
	}
	for _, key := range queues {
		hash := job.QueueHashOf(key.jobType, key.queue)
		matched = append(matched, e.hub.match(jobs[key], hash, anyQueueHash(key.jobType))...)
	}
	return matched
}

// lockMatched returns those of the claims that are matched which the submission may serve, with
// their limits locked. On a store that other nodes write to these are under no limit: a submission
// must not wait for a node that stalls with a limit locked.
func (u *unit) lockMatched(matched []*matchedClaim) (served []*matchedClaim, err error) {
	u.e.hub.untake(matched) // the transaction may run again
	alone := u.e.store.Writers() == 1
	for _, m := range matched {
		m.call.jobs = nil
		if alone || !slices.ContainsFunc(u.limitKeys(&m.call.req), u.isLimited) {
			served = append(served, m)
		}
	}
	return served, u.lockLimits(callsOfMatched(served))
}

// claimMatched serves the claims that the submission is matched with and that wait still, after it
// has stored its jobs. Those of its jobs that are claimed wake no other claim.
func (u *unit) claimMatched(matched []*matchedClaim) error {
	if len(matched) == 0 {
		return nil
	}
	if err := u.flushJobs(); err != nil {
		return err
	}
	calls := callsOfMatched(u.e.hub.take(matched))
	if err := u.claimPass(calls); err != nil {
		return err
	}
	u.dropWakeUps(calls)
	return nil
}

// dropWakeUps takes back the wake-ups for jobs that were inserted and claimed.
func (u *unit) dropWakeUps(calls []*claimCall) {
	inserted := make(map[int64]bool, len(u.inserted))
	for _, j := range u.inserted {
		inserted[j.Seq] = true
	}
	for _, c := range calls {
		for _, j := range c.jobs {
			if !inserted[j.Seq] {
				continue
			}
			key := queueKeyOf(j)
			if u.after.becameReady[key]--; u.after.becameReady[key] == 0 {
				delete(u.after.becameReady, key)
			}
		}
	}
}

// await waits until a claim is to ask again, gets jobs, or has no more time. What ends its wait may
// come after a submission has taken it: then it waits for that, which is about to commit.
//
// limited says that a limit has left the claim fewer jobs than it may have: it wakes when a slot is
// free. One that ends without that has another claim wake, which may be waiting for the same slot.
func (h *hub) await(w *waiter, limited bool, timeout <-chan time.Time) (jobs []*job.Job,
	asksAgain bool) {
	h.setIdle(w, limited)
	select {
	case jobs = <-w.delivered:
		return jobs, true
	case <-w.ch:
		asksAgain = true
	case <-timeout:
	case <-w.call.ctx.Done():
	}
	if isTaken := h.setBusy(w); isTaken {
		jobs = <-w.delivered
	}
	ends := !asksAgain && len(jobs) == 0
	if (asksAgain && len(jobs) > 0) || (ends && limited) {
		signal(w.ch) // remove passes it on
	}
	return jobs, asksAgain
}

func (h *hub) setIdle(w *waiter, limited bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	w.idle, w.limited = true, limited
	h.idle++
}

// setBusy ends the wait of a waiter, and reports whether something is or will be delivered to it.
// One that is not taken leaves its match.
func (h *hub) setBusy(w *waiter) (isTaken bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !w.idle {
		return true // deliver has ended it
	}
	w.idle = false
	h.idle--
	if w.match != nil && w.match.taken {
		return true
	}
	w.match = nil
	return false
}

// hasIdle reports whether there is a claim to match.
func (h *hub) hasIdle() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.idle > 0
}

// match takes waiters, those that have waited longest for any of the hashes first, until they want
// as many jobs as there are.
func (h *hub) match(jobs int, hashes ...job.QueueHash) (matched []*matchedClaim) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, hash := range hashes {
		for _, w := range h.waiters[hash] {
			if jobs <= 0 {
				return matched
			}
			if !w.idle || w.match != nil {
				continue
			}
			w.match = &matchedClaim{waiter: w, call: w.call}
			matched = append(matched, w.match)
			jobs -= w.call.req.Max
		}
	}
	return matched
}

// take returns those of the claims that are still matched. From here on they wait for deliver,
// whatever ends their wait.
func (h *hub) take(matched []*matchedClaim) (taken []*matchedClaim) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, m := range matched {
		if m.waiter.match == m {
			m.taken = true
			taken = append(taken, m)
		}
	}
	return taken
}

// untake frees the claims that a try of the transaction has taken in vain. Those whose wait has
// ended meanwhile leave with nothing.
func (h *hub) untake(matched []*matchedClaim) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, m := range matched {
		m.taken = false
		if w := m.waiter; w.match == m && !w.idle {
			w.match = nil
			w.delivered <- nil
		}
	}
}

// deliver ends a match: the waiters get what the submission has claimed for them. Where it is not
// known to be committed they get nothing, and what was leased nevertheless comes back with the end
// of its lease. A waiter that gets nothing and still waits stays idle.
func (h *hub) deliver(matched []*matchedClaim, committed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, m := range matched {
		w := m.waiter
		if w.match != m {
			continue // it has left
		}
		w.match = nil
		var jobs []*job.Job
		if committed {
			jobs = m.call.jobs
		}
		if len(jobs) == 0 && w.idle {
			continue
		}
		if w.idle {
			w.idle = false
			h.idle--
		}
		w.delivered <- jobs
	}
}
