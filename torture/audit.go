package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// slack is by how much two readings of clocks of one machine may differ, in microseconds.
const slack = 1000

// maxExamples is how many violations of one kind are described; all are counted.
const maxExamples = 5

// violations are what the audit has found, by the invariant.
type violations struct {
	counts   map[string]int
	examples []string
}

// add counts a violation, and keeps its description where there are few of its kind.
func (v *violations) add(kind, format string, args ...any) {
	if v.counts == nil {
		v.counts = map[string]int{}
	}
	v.counts[kind]++
	if v.counts[kind] <= maxExamples {
		v.examples = append(v.examples, kind+": "+fmt.Sprintf(format, args...))
	}
}

// kinds returns the invariants that are violated.
func (v *violations) kinds() []string { return slices.Sorted(maps.Keys(v.counts)) }

// audit checks the invariants (docs/reliability.md) on the requests of a run and on what there is
// after it. It is a function of these alone.
type audit struct {
	*violations
	ops   []*op
	final *final

	sent map[string]*sent    // by label
	jobs map[string]*history // by id

	lifeCounts lives
	limited    rateCounts
	exempt     int // claims that checkOrder says nothing about
	wiped      int // dead letters that may have gone with the streams
}

// sent is a job as it was sent, by the requests that may have made it.
type sent struct {
	made
	contract string
	by       []*op // all but those that failed
	refused  int
}

// acknowledged reports whether a request said that the job is stored.
func (s *sent) acknowledged() bool {
	return slices.ContainsFunc(s.by, func(o *op) bool { return o.Class == classOK && !o.Silent })
}

// label identifies a job before the server has named it.
func (m *made) label() string {
	if m.Name != "" {
		return m.Name
	}
	return m.Job
}

// attempt is a job in an answer to a claim.
type attempt struct {
	*claimedJob
	claim *op
}

// isAfter reports whether an attempt is certainly newer than another of the same job.
func (g attempt) isAfter(other attempt) bool { return g.claim.Invoked > other.claim.Returned }

// history is what happened to one job.
type history struct {
	id       string
	sent     *sent     // nil for a job that nobody sent
	attempts []attempt // in the order of the answers
	writes   []*op     // under its runs, and under runs that were made up
}

// runOf returns the attempt of a run; ok is false for a run that was never claimed.
func (h *history) runOf(run string) (g attempt, ok bool) {
	for _, g := range h.attempts {
		if g.Run == run {
			return g, true
		}
	}
	return attempt{}, false
}

// wasStale reports whether a newer run than that of a request had been claimed, and answered,
// before the request was sent.
func (h *history) wasStale(o *op) bool {
	own, ok := h.runOf(o.Run)
	return !ok || slices.ContainsFunc(h.attempts, func(g attempt) bool {
		return g.isAfter(own) && g.claim.Returned < o.Invoked
	})
}

// leaseEnd is the earliest time at which the lease of a run may have ended.
func (h *history) leaseEnd(g attempt) int64 {
	end := g.claim.Invoked + g.Lease
	for _, o := range h.writes {
		if o.Verb == "heartbeat" && o.Run == g.Run && o.Class == classOK && !h.wasStale(o) {
			end = max(end, o.Invoked+g.Lease)
		}
	}
	return end - slack
}

// wasCurrent reports whether a request was certainly carried out within the lease of its run.
func (h *history) wasCurrent(o *op) bool {
	g, ok := h.runOf(o.Run)
	return ok && o.Class == classOK && o.Returned < g.claim.Invoked+g.Lease-slack
}

// check runs all checks.
func check(ops []*op, f *final, v *violations) *audit {
	a := &audit{violations: v, ops: ops, final: f, sent: map[string]*sent{},
		jobs: map[string]*history{}}
	a.index()
	a.checkAnswers()
	for _, id := range slices.Sorted(maps.Keys(a.jobs)) {
		h := a.jobs[id]
		a.checkLeases(h)
		a.checkFencing(h)
		a.checkOutcomes(h)
		a.checkStarts(h)
		a.checkStates(h)
	}
	a.checkStored()
	a.checkRequeues()
	a.checkTables()
	a.checkKeys()
	a.checkFlows()
	a.checkForge()
	a.checkRate()
	a.checkFetch()
	a.checkFiles()
	a.checkSchedule()
	a.checkCallers()
	a.checkOrder()
	a.lifeCounts = a.checkLives()
	return a
}

// index sorts the requests by job.
func (a *audit) index() {
	for _, o := range a.ops {
		for i := range o.Made {
			a.indexSent(o, &o.Made[i])
		}
	}
	for _, o := range a.ops {
		for i := range o.Claimed {
			g := attempt{&o.Claimed[i], o}
			h := a.history(g.Job)
			h.attempts = append(h.attempts, g)
		}
		if o.Run != "" {
			h := a.history(o.Job)
			h.writes = append(h.writes, o)
		}
	}
	for _, h := range a.jobs {
		slices.SortStableFunc(h.attempts, func(x, y attempt) int {
			return int(x.claim.Returned - y.claim.Returned)
		})
	}
	a.identify()
}

// identify finds as what each job was sent: by its id, which a caller of Relay chooses and other
// answers say, or by its name. A payload says it only where no answer did, so that a job with
// that of another one is seen.
func (a *audit) identify() {
	byID := map[string]*sent{}
	for id, j := range a.final.Jobs {
		a.history(id)
		byID[id] = a.sent[cmp.Or(j.Name, id)]
	}
	for _, s := range a.sent {
		if s.Job != "" {
			byID[s.Job] = s
		}
	}
	for id, h := range a.jobs {
		h.sent = byID[id]
		if h.sent == nil && len(h.attempts) > 0 && h.attempts[0].claim.Contract != relay {
			h.sent = a.sent[labelOf(h.attempts[0].Payload)]
		}
	}
}

// indexSent adds a request to the job that it makes. A job has one label over all repetitions of
// its request, and the id of the first that was answered.
func (a *audit) indexSent(o *op, m *made) {
	s := a.sent[m.label()]
	if s == nil {
		s = &sent{made: *m, contract: o.Contract}
		a.sent[m.label()] = s
	}
	if o.Class == classFailed || o.Verb == "submit-other" {
		s.refused++
		return
	}
	s.by = append(s.by, o)
	if s.Job == "" {
		s.Job = m.Job
	}
}

// history returns the history of a job, which it makes where there is none yet.
func (a *audit) history(id string) *history {
	h := a.jobs[id]
	if h == nil {
		h = &history{id: id}
		a.jobs[id] = h
	}
	return h
}

// labelOf returns the label that the load has put into a payload.
func labelOf(payload string) string {
	var p struct{ Of string }
	if json.Unmarshal([]byte(payload), &p) != nil {
		return ""
	}
	return p.Of
}

// checkAnswers reports answers that no contract allows, and 500 to anything that was sent.
func (a *audit) checkAnswers() {
	for _, o := range a.ops {
		if o.Note != "" {
			a.add("answer", "%s of op %d: %.300s", o.Verb, o.ID, o.Note)
		}
	}
}
