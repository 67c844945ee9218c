package main

import (
	"encoding/json"
	"maps"
	"slices"
)

// labelOfRun returns the run that the load has put into a result.
func labelOfRun(result string) string {
	var r struct{ Run string }
	if json.Unmarshal([]byte(result), &r) != nil {
		return ""
	}
	return r.Run
}

// checkStored checks I1, no acknowledged loss, and I2, no phantom.
func (a *audit) checkStored() {
	for _, label := range slices.Sorted(maps.Keys(a.sent)) {
		s := a.sent[label]
		if s.acknowledged() && !a.isThere(s) && !a.mayHaveGone(s) {
			a.add("I1 no acknowledged loss", "job %s of op %d was acknowledged and is lost", label,
				s.by[0].ID)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(a.jobs)) {
		h := a.jobs[id]
		if len(h.attempts) == 0 && a.final.Jobs[id].Queue == "" {
			continue
		}
		if h.sent == nil || len(h.sent.by) == 0 {
			a.add("I2 no phantom", "job %s was never sent, or refused", id)
			continue
		}
		a.checkPayloads(h)
	}
}

// isThere reports whether a job is there at the end, or among the dead letters.
func (a *audit) isThere(s *sent) bool {
	if _, found := a.final.Jobs[s.Job]; found {
		return true
	}
	if _, found := a.final.Forge[s.Job]; found {
		return true
	}
	if _, found := a.final.Fetch[s.Job]; found {
		return true
	}
	if _, found := a.final.Files[s.Job]; found {
		return true
	}
	_, dead := a.final.Dead[s.Job]
	return dead && s.contract == relay
}

// mayHaveGone reports whether a job of Relay may have been completed or requeued: by a run that was
// claimed and may have been the current one.
func (a *audit) mayHaveGone(s *sent) bool {
	h := a.jobs[s.Job]
	return h != nil && s.contract == relay && slices.ContainsFunc(h.writes, func(o *op) bool {
		return o.Verb != "heartbeat" && o.Class != classFailed && !h.wasStale(o) &&
			(o.Verb != "requeue" || a.allSeen(o))
	})
}

// isSeen reports whether there is a proof that a job was stored.
func (a *audit) isSeen(m *made) bool {
	s := a.sent[m.label()]
	h := a.jobs[s.Job]
	return (h != nil && len(h.attempts) > 0) || a.isThere(s)
}

// allSeen reports whether there is a proof for all jobs that a request has made.
func (a *audit) allSeen(o *op) bool {
	return !slices.ContainsFunc(o.Made, func(m made) bool { return !a.isSeen(&m) })
}

// checkPayloads checks that a job has the payload with which it was sent.
func (a *audit) checkPayloads(h *history) {
	all := make([]string, 0, len(h.attempts)+1)
	for _, g := range h.attempts {
		all = append(all, g.Payload)
	}
	if j, found := a.final.Jobs[h.id]; found {
		all = append(all, j.Payload)
	}
	for _, payload := range all {
		if payload != h.sent.Payload {
			a.add("I2 no phantom", "job %s has the payload %s, sent was %s", h.id, payload,
				h.sent.Payload)
		}
	}
}

// checkRequeues checks that a requeue ends its job and makes the new ones, or does neither.
func (a *audit) checkRequeues() {
	for _, o := range a.ops {
		if o.Verb != "requeue" || o.Class == classFailed {
			continue
		}
		seen := slices.ContainsFunc(o.Made, func(m made) bool { return a.isSeen(&m) })
		h := a.jobs[o.Job]
		_, remains := a.final.Jobs[o.Job]
		again := remains || slices.ContainsFunc(h.attempts, func(g attempt) bool {
			return o.Class == classOK && g.claim.Invoked > o.Returned
		})
		switch {
		case seen && !a.allSeen(o):
			a.add("I1 no acknowledged loss", "op %d has made a part of its jobs", o.ID)
		case seen && again:
			a.add("I4 one outcome", "op %d has requeued job %s, which is there again", o.ID, o.Job)
		case !seen && h.wasCurrent(o):
			a.add("I1 no acknowledged loss", "op %d was acknowledged, its jobs are lost", o.ID)
		}
	}
	a.checkDead()
}

// checkDead checks that a job was given up after its last attempt and no earlier.
func (a *audit) checkDead() {
	for id, dead := range a.final.Dead {
		s := a.sent[id]
		if s == nil {
			a.add("I2 no phantom", "a dead letter is of job %s, which was never sent", id)
			continue
		}
		if dead.Attempts != s.Limit {
			a.add("I14 accounting", "job %s was given up after %d attempts, its limit is %d", id,
				dead.Attempts, s.Limit)
		}
	}
}

// checkTables checks that SQL shows what the API shows (I1 by two routes), that nothing is left to
// be done (I7), and that counters are right (I14).
func (a *audit) checkTables() {
	for _, text := range a.final.Faults {
		a.add("database", "%s", text)
	}
	found, rows := map[string]counts{}, map[string]int{}
	for _, r := range a.final.Rows {
		rows[r.Job]++
		key := r.Contract + "/" + r.Queue
		c := found[key]
		switch r.Phase {
		case "ready":
			c.Ready++
		case "leases":
			c.Leased++
		}
		found[key] = c
		a.checkRow(r)
	}
	for id := range a.final.Jobs {
		if rows[id] != 1 {
			a.add("API and SQL differ", "job %s has %d rows", id, rows[id])
		}
	}
	for key, kept := range a.final.Counts {
		if kept != found[key] {
			a.add("I14 accounting", "queue %s counts %+v, and has %+v", key, kept, found[key])
		}
	}
}

// checkRow compares a row of the tables with what the API shows, and reports a job that is left.
// Jobs of other contracts, such as the deliveries of webhooks, are not shown and must have ended
// too.
func (a *audit) checkRow(r row) {
	j, shown := a.final.Jobs[r.Job]
	switch r.Contract {
	case forgerun:
		j.Status = a.final.Forge[r.Job].State
		shown = j.Status != ""
	case relay, taskflow:
		if r.Queue == scheduledQueue { // see checkSchedule
			shown, j.Status = true, r.State
		}
	default: // no job of a client
		shown, j.Status = true, r.State
	}
	switch {
	case r.Phase == "":
		a.add("database", "job %s has no state", r.Job)
	case !shown:
		a.add("API and SQL differ", "job %s is in the tables, and not shown", r.Job)
	case r.Contract != relay && j.Status != r.State:
		a.add("API and SQL differ", "job %s is %s, and shown as %s", r.Job, r.State, j.Status)
	}
	isParked := r.Queue == parkedQueue || r.Queue == parkedFlow || r.Queue == scheduledQueue ||
		r.Contract == "schedule"
	if !isParked && r.Phase != "finished" {
		a.add("I7 liveness", "job %s of queue %s is left %s", r.Job, r.Queue, r.Phase)
	}
}
