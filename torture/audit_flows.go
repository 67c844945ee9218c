package main

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"
)

// checkKeys checks I8: requests with one idempotency key make their jobs once, and another request
// with the key is refused.
func (a *audit) checkKeys() {
	ids := map[string]string{} // of the first job of a key
	for _, o := range a.ops {
		if o.Key == "" || o.Class != classOK || o.Note != "" {
			continue
		}
		if o.Verb == "submit-other" {
			a.add("I8 idempotency", "op %d was accepted under a key of another request", o.ID)
			continue
		}
		id := o.Made[0].Job
		if ids[o.Key] != "" && ids[o.Key] != id {
			a.add("I8 idempotency", "key %s has made %s and %s", o.Key, ids[o.Key], id)
		}
		ids[o.Key] = id
	}
	named := map[string]string{}
	for _, id := range slices.Sorted(maps.Keys(a.final.Jobs)) {
		name := a.final.Jobs[id].Name
		if name != "" && named[name] != "" {
			a.add("I8 idempotency", "job %s was made twice: %s and %s", name, named[name], id)
		}
		named[name] = id
	}
}

// checkFlows checks I9, the graphs, and I14, the attempts, of TaskFlow.
func (a *audit) checkFlows() {
	for _, id := range slices.Sorted(maps.Keys(a.final.Jobs)) {
		h, j := a.jobs[id], a.final.Jobs[id]
		if j.Name == "" || h.sent == nil {
			continue
		}
		a.checkGraph(h, j)
		a.checkDependencyStarts(h, j)
		a.checkAttempts(h, j)
	}
}

// checkGraph checks the status of a job at rest against those of its dependencies.
func (a *audit) checkGraph(h *history, j finalJob) {
	if len(j.Deps) != len(h.sent.Deps) {
		a.add("I9 graph", "job %s has %d dependencies, sent were %d", h.id, len(j.Deps),
			len(h.sent.Deps))
	}
	open, failed := 0, 0
	for _, id := range j.Deps {
		switch a.final.Jobs[id].Status {
		case "COMPLETED":
		case "FAILED", "BLOCKED":
			failed++
		default:
			open++
		}
	}
	want := "one that has run"
	switch {
	case failed > 0:
		want = "BLOCKED"
	case open > 0:
		want = "PENDING"
	}
	isOther := want != j.Status
	if want == "one that has run" {
		isOther = j.Status == "PENDING" || j.Status == "BLOCKED"
	}
	if isOther {
		a.add("I9 graph", "job %s is %s, its dependencies make it %s", h.id, j.Status, want)
	}
}

// checkDependencyStarts checks that no run began before all dependencies may have completed.
func (a *audit) checkDependencyStarts(h *history, j finalJob) {
	for _, id := range j.Deps {
		dependency := a.history(id)
		for _, g := range h.attempts {
			if !slices.ContainsFunc(dependency.writes, func(o *op) bool {
				return o.Verb == "complete" && o.Class != classFailed &&
					o.Invoked < g.claim.Returned
			}) {
				a.add("I9 graph", "job %s: op %d claimed it before its dependency %s completed",
					h.id, g.claim.ID, id)
			}
		}
	}
}

// checkAttempts checks how often a job has failed against what was acknowledged.
func (a *audit) checkAttempts(h *history, j finalJob) {
	acknowledged, final, completed := 0, false, false
	for _, o := range h.writes {
		switch {
		case o.Class == classFailed:
		case o.Verb == "complete":
			completed = true
		case o.Verb == "fail":
			final = final || o.Final
			if o.Class == classOK {
				acknowledged++
			}
		}
	}
	switch limit := h.sent.Limit; {
	case j.Failures < acknowledged || j.Failures > limit:
		a.add("I14 accounting", "job %s counts %d failed attempts of %d, acknowledged are %d",
			h.id, j.Failures, limit, acknowledged)
	case j.Status == "FAILED" && j.Failures < limit && !final:
		a.add("I14 accounting", "job %s is FAILED after %d of %d attempts", h.id, j.Failures,
			limit)
	case j.Status == "COMPLETED" && !completed:
		a.add("I2 no phantom", "job %s is COMPLETED, and nobody has completed it", h.id)
	}
}

// checkOrder checks I15 on the queues with one worker: of two jobs that wait, the first in order is
// claimed first. A job counts as one that waits if it was acknowledged before the claim was sent,
// and no attempt was counted when it was claimed itself.
func (a *audit) checkOrder() {
	left := a.leftClaims()
	ordered := a.orderedJobs()
	for _, queue := range slices.Sorted(maps.Keys(ordered)) {
		w := waitingJobs{coming: ordered[queue]}
		for _, o := range a.claimsOf(queue) {
			w.moveTo(o.Invoked)
			if mayBeClaimed(o, left[queue]) {
				a.exempt++
				continue
			}
			a.checkOrderOf(o, w.there)
		}
	}
}

// claimsOf returns the claims of a queue that were answered with jobs, in the order in which they
// were sent.
func (a *audit) claimsOf(queue string) []*op {
	var claims []*op
	for _, o := range a.ops {
		if o.Queue == queue && len(o.Claimed) > 0 {
			claims = append(claims, o)
		}
	}
	slices.SortStableFunc(claims, func(x, y *op) int { return cmp.Compare(x.Invoked, y.Invoked) })
	return claims
}

// checkOrderOf checks that a claim left no job that comes before one of its own.
func (a *audit) checkOrderOf(claim *op, waiting []orderedJob) {
	for _, g := range claim.Claimed {
		claimed := a.history(g.Job).sent
		if claimed == nil {
			continue
		}
		for _, w := range waiting {
			if w.claimedAt > claim.Returned && w.comesBefore(claimed) {
				a.add("I15 order", "op %d claimed %s, and %s comes before it", claim.ID, g.Job, w.Job)
			}
		}
	}
}

// orderedJob is a job of a queue with one worker, with when it was first acknowledged and when its
// first claim was sent.
type orderedJob struct {
	*sent
	acknowledgedAt, claimedAt int64
}

// orderedJobs returns the jobs of the queues with one worker that were claimed before any attempt
// was counted, in the order of their acknowledgements.
func (a *audit) orderedJobs() map[string][]orderedJob {
	all := map[string][]orderedJob{orderedQueue: nil, orderedFlow: nil}
	for _, s := range a.sent {
		jobs, isOrdered := all[s.Queue]
		h := a.jobs[s.Job]
		if !isOrdered || h == nil || h.sent == nil {
			continue
		}
		if len(h.attempts) > 0 && h.attempts[0].Fresh {
			all[s.Queue] = append(jobs,
				orderedJob{s, s.acknowledgedAt(), h.attempts[0].claim.Invoked})
		}
	}
	for _, jobs := range all {
		slices.SortFunc(jobs, func(x, y orderedJob) int {
			return cmp.Compare(x.acknowledgedAt, y.acknowledgedAt)
		})
	}
	return all
}

// waitingJobs are the jobs of a queue that wait at a time that only grows, so that a claim is
// compared with these alone.
type waitingJobs struct {
	coming []orderedJob // acknowledged later, in that order
	there  []orderedJob
}

// moveTo sets the time: jobs acknowledged before it have come, jobs claimed until it have gone.
func (w *waitingJobs) moveTo(now int64) {
	come := 0
	for come < len(w.coming) && w.coming[come].acknowledgedAt < now {
		come++
	}
	w.there = append(w.there, w.coming[:come]...)
	w.coming = w.coming[come:]
	w.there = slices.DeleteFunc(w.there, func(j orderedJob) bool { return j.claimedAt <= now })
}

// maxClaim is how long a server may work on a claim whose caller has left.
const maxClaim = 30 * time.Second

// leftClaims returns the claims of each queue whose caller left before there was an answer.
func (a *audit) leftClaims() map[string][]*op {
	left := map[string][]*op{}
	for _, o := range a.ops {
		if o.Verb == "claim" && o.Class == classUnknown && o.Status == 0 &&
			o.Returned-o.Invoked >= requestTimeout.Microseconds() {
			left[o.Queue] = append(left[o.Queue], o)
		}
	}
	return left
}

// mayBeClaimed reports whether the first job of a queue may have been claimed for another caller
// when a claim was answered: one that left, after which the server gives the job back, and no
// attempt is counted.
func mayBeClaimed(claim *op, left []*op) bool {
	return slices.ContainsFunc(left, func(o *op) bool {
		return o.Invoked < claim.Returned && claim.Invoked < o.Returned+maxClaim.Microseconds()
	})
}

// comesBefore reports whether a job comes before another of its queue.
func (s *sent) comesBefore(other *sent) bool {
	if s.contract == relay {
		return s.DueAt < other.DueAt
	}
	return s.Priority > other.Priority
}

// acknowledgedAt returns when a request first said that the job is stored; where none did, it is
// after all others.
func (s *sent) acknowledgedAt() int64 {
	first := int64(math.MaxInt64)
	for _, o := range s.by {
		if o.Class == classOK && !o.Silent {
			first = min(first, o.Returned)
		}
	}
	return first
}
