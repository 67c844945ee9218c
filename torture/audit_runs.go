package main

import "slices"

// checkLeases checks I3, one live lease: no run begins before the lease of another has ended, or
// its worker may have ended it. Two attempts are compared in both orders in which they may have
// been carried out.
func (a *audit) checkLeases(h *history) {
	for i, first := range h.attempts {
		for _, second := range h.attempts[i+1:] {
			inOrder := second.claim.Returned < h.leaseEnd(first) &&
				!h.mayHaveEnded(first, second.claim.Returned)
			reversed := second.isAfter(first) || // then there is no such order
				(first.claim.Returned < h.leaseEnd(second) &&
					!h.mayHaveEnded(second, first.claim.Returned))
			if inOrder && reversed {
				a.add("I3 one live lease", "job %s: run %s of op %d was claimed while run %s of "+
					"op %d had its lease", h.id, second.Run, second.claim.ID, first.Run,
					first.claim.ID)
			}
		}
	}
}

// mayHaveEnded reports whether a request that may have ended a run was sent before a time.
func (h *history) mayHaveEnded(g attempt, before int64) bool {
	return slices.ContainsFunc(h.writes, func(o *op) bool {
		return o.Run == g.Run && o.Verb != "heartbeat" && o.Class != classFailed &&
			o.Invoked < before
	})
}

// checkFencing checks I5: no request under a run that is not the current one has an effect.
func (a *audit) checkFencing(h *history) {
	for _, o := range h.writes {
		if o.Class == classOK && !o.Silent && h.wasStale(o) {
			a.add("I5 fencing", "job %s: %s of op %d under run %s was accepted, although a newer "+
				"run had been claimed or this one never was", h.id, o.Verb, o.ID, o.Run)
		}
	}
}

// countStale counts the requests that came too late: their run was claimed, and a newer one was too
// before they were sent.
func (a *audit) countStale() (n int) {
	for _, h := range a.jobs {
		for _, o := range h.writes {
			if _, known := h.runOf(o.Run); known && h.wasStale(o) {
				n++
			}
		}
	}
	return n
}

// checkOutcomes checks I4, one outcome: a job that was completed, or failed for good, is claimed no
// more, and nothing that is sent under its runs has an effect.
func (a *audit) checkOutcomes(h *history) {
	for _, end := range h.writes {
		if !h.isFinal(end) {
			continue
		}
		for _, o := range h.writes {
			if o != end && o.Class == classOK && !o.Silent && o.Invoked > end.Returned {
				a.add("I4 one outcome", "job %s: %s of op %d was accepted after %s of op %d", h.id,
					o.Verb, o.ID, end.Verb, end.ID)
			}
		}
		for _, g := range h.attempts {
			if g.claim.Invoked > end.Returned {
				a.add("I4 one outcome", "job %s: op %d claimed it after %s of op %d", h.id,
					g.claim.ID, end.Verb, end.ID)
			}
		}
		a.checkKept(h, end)
	}
}

// isFinal reports whether a request has certainly ended its job.
func (h *history) isFinal(o *op) bool {
	if o.Class != classOK {
		return false
	}
	switch o.Verb {
	case "complete":
		return !o.Silent || h.wasCurrent(o)
	case "fail":
		return o.Final
	}
	return false
}

// checkKept checks I1 for outcomes: one that was acknowledged is there at the end.
func (a *audit) checkKept(h *history, end *op) {
	j, found := a.final.Jobs[h.id]
	switch {
	case end.Contract == relay:
		if found {
			a.add("I1 no acknowledged loss", "job %s: complete of op %d is lost, the job is there",
				h.id, end.ID)
		}
	case end.Verb == "complete" && (j.Status != "COMPLETED" || labelOfRun(j.Result) != end.Run):
		a.add("I1 no acknowledged loss", "job %s: complete of op %d is lost: %s with result %s",
			h.id, end.ID, j.Status, j.Result)
	case end.Verb == "fail" && j.Status != "FAILED":
		a.add("I1 no acknowledged loss", "job %s: fail of op %d is lost: %s", h.id, end.ID,
			j.Status)
	}
}

// checkStarts checks I6: no run begins before its job is due, at first or after a failure.
func (a *audit) checkStarts(h *history) {
	for _, g := range h.attempts {
		if h.sent != nil && g.claim.Returned < h.sent.DueAt-slack {
			a.add("I6 not early", "job %s: op %d claimed it %d us early", h.id, g.claim.ID,
				h.sent.DueAt-g.claim.Returned)
		}
	}
	for _, o := range h.writes {
		own, ok := h.runOf(o.Run)
		if !ok || o.Verb != "fail" || o.Final || o.Class != classOK {
			continue
		}
		due := o.Invoked + retryDelay.Microseconds() - slack
		for _, g := range h.attempts {
			if g.isAfter(own) && g.claim.Returned < due {
				a.add("I6 not early", "job %s: op %d claimed it %d us before its retry was due",
					h.id, g.claim.ID, due-g.claim.Returned)
			}
		}
	}
}

// checkStates checks I1 for heartbeats of Relay: a run gets the last state that was acknowledged,
// or one of a heartbeat that may have come later.
func (a *audit) checkStates(h *history) {
	if h.sent == nil || h.sent.contract != relay {
		return
	}
	for _, g := range h.attempts {
		var last int64 // when the newest acknowledged heartbeat before the claim was sent
		for _, o := range h.writes {
			if o.Verb == "heartbeat" && o.Class == classOK && o.Returned < g.claim.Invoked {
				last = max(last, o.Invoked)
			}
		}
		possible := last == 0 && (g.State == "" || g.State == "null")
		for _, o := range h.writes {
			if o.Verb == "heartbeat" && o.Class != classFailed && o.Body == g.State &&
				(o.Returned >= last || o.Class == classUnknown) {
				possible = true
			}
		}
		if !possible {
			a.add("I1 no acknowledged loss", "job %s: op %d got the state %q, which is not that "+
				"of its last heartbeat", h.id, g.claim.ID, g.State)
		}
	}
}
