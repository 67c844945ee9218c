package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
)

// The crash test's own books, kept outside of the server: what was acknowledged, what was under way when the process
// was killed, and nothing else.

// standing is what the ledger knows of a job.
type standing int

const (
	sending standing = iota // in a request that has not been answered
	queued                  // acknowledged, in the queue
	held                    // handed out to us
	ending                  // held, and in a request that ends it
	gone                    // acknowledged as completed or requeued
	absent                  // its request was never acknowledged, and it is not there
)

type ledgerJob struct {
	id       string
	standing standing
	run      string
	state    string   // last acknowledged state, "" for none
	tried    []string // states in heartbeats without an answer
}

// doubt is a request that was cut off: it happened or it did not, as a whole.
type doubt struct {
	verb string   // enqueue, complete or requeue
	ends string   // the job that complete and requeue end
	adds []string // the jobs that enqueue and requeue add
}

type ledger struct {
	mu       sync.Mutex
	jobs     map[string]*ledgerJob
	order    []string // ids in the order they were made
	doubts   []doubt
	blind    int // jobs that cut-off answers of next may have held
	acks     int
	killAt   int
	kill     func()
	problems []string
	made     int
}

func newLedger() *ledger { return &ledger{jobs: map[string]*ledgerJob{}} }

// wrong notes a broken promise; the caller holds the lock.
func (l *ledger) wrong(format string, args ...any) {
	if len(l.problems) < 20 {
		l.problems = append(l.problems, fmt.Sprintf(format, args...))
	}
}

// ack counts an acknowledgement, and kills the server right after the one that was drawn.
func (l *ledger) ack() {
	l.acks++
	if l.acks == l.killAt {
		l.kill()
	}
}

// fresh makes names for n jobs that are about to be sent.
func (l *ledger) fresh(n int) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	ids := make([]string, n)
	for i := range ids {
		l.made++
		ids[i] = fmt.Sprintf("job-%06d", l.made)
		l.jobs[ids[i]] = &ledgerJob{id: ids[i]}
		l.order = append(l.order, ids[i])
	}
	return ids
}

// stored books acknowledged jobs; some may have been handed out before their answer came.
func (l *ledger) stored(ids []string) {
	for _, id := range ids {
		if j := l.jobs[id]; j.standing == sending {
			j.standing = queued
		}
	}
}

func (l *ledger) enqueued(ids []string, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !ok {
		l.doubts = append(l.doubts, doubt{verb: "enqueue", adds: ids})
		return
	}
	l.stored(ids)
	l.ack()
}

// handedOut books an answer of next. A job that was handed out or ended before must not be in it.
func (l *ledger) handedOut(jobs []wireJob) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, w := range jobs {
		j := l.jobs[w.ID]
		switch {
		case j == nil:
			l.wrong("next handed out %s, which nobody made", w.ID)
			continue
		case j.standing != sending && j.standing != queued:
			l.wrong("next handed out %s a second time (standing %d, run %s, now %s)", w.ID, j.standing, j.run, w.RunID)
		}
		j.standing, j.run = held, w.RunID
	}
}

// lostAnswer books a next whose answer was cut off.
func (l *ledger) lostAnswer(asked int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.blind += asked
}

// take picks a held job for a verb, nil when there is none.
func (l *ledger) take(r *rand.Rand, as standing) *ledgerJob {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := l.in(held)
	if len(all) == 0 {
		return nil
	}
	j := all[r.IntN(len(all))]
	j.standing = as
	return j
}

func (l *ledger) in(s standing) []*ledgerJob {
	var all []*ledgerJob
	for _, id := range l.order {
		if j := l.jobs[id]; j.standing == s {
			all = append(all, j)
		}
	}
	return all
}

func (l *ledger) count(s standing) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.in(s))
}

// ended books the end of a job and what came in its place.
func (l *ledger) ended(verb string, j *ledgerJob, adds []string, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !ok {
		l.doubts = append(l.doubts, doubt{verb: verb, ends: j.id, adds: adds})
		return
	}
	j.standing = gone
	l.stored(adds)
	l.ack()
}

func (l *ledger) beaten(j *ledgerJob, state string, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	j.standing = held
	if !ok {
		j.tried = append(j.tried, state)
		return
	}
	j.state, j.tried = state, nil
	l.ack()
}

// settle resolves what was in doubt by what is there after the restart: a request happened as a whole or not at all.
func (l *ledger) settle(there map[string]*wireJob) {
	for _, d := range l.doubts {
		seen := 0
		for _, id := range d.adds {
			if there[id] != nil {
				seen++
			}
		}
		if seen != 0 && seen != len(d.adds) {
			l.wrong("%s of %v was cut off and happened in part: %d of %d", d.verb, d.adds, seen, len(d.adds))
		}
		for _, id := range d.adds {
			j := l.jobs[id]
			switch {
			case there[id] != nil && j.standing == sending:
				j.standing = queued
			case there[id] == nil && j.standing == sending:
				j.standing = absent
			}
		}
		if d.ends != "" {
			j := l.jobs[d.ends]
			if j.standing = gone; there[d.ends] != nil {
				j.standing = held
			}
			if d.verb == "requeue" && len(d.adds) > 0 && (there[d.ends] != nil) == (seen > 0) {
				l.wrong("requeue of %s was cut off: the old job and the new ones are both there, or neither is", d.ends)
			}
		}
	}
	l.doubts = nil
}

// compare holds the books against what is there after the restart.
func (l *ledger) compare(there map[string]*wireJob) {
	adopted := 0
	for _, id := range l.order {
		j, w := l.jobs[id], there[id]
		switch {
		case j.standing == gone || j.standing == absent:
			if w != nil {
				l.wrong("%s is there again (standing %d)", id, j.standing)
			}
		case w == nil:
			l.wrong("%s was acknowledged and is lost (standing %d)", id, j.standing)
			j.standing = absent
		case j.standing == queued && w.RunID != "": // its hand-out was cut off
			adopted++
			j.standing, j.run = held, w.RunID
		case j.standing == held && w.RunID != j.run:
			l.wrong("%s was handed out under run %s, and its lease did not survive: run %q", id, j.run, w.RunID)
		case j.standing == held:
			if got := string(w.State); got != j.state && !slices.Contains(j.tried, got) {
				l.wrong("%s has state %s, acknowledged was %s", id, got, j.state)
			}
			j.state, j.tried = string(w.State), nil
		}
	}
	if adopted > l.blind {
		l.wrong("%d jobs are in flight, and cut-off answers can have held %d", adopted, l.blind)
	}
	l.blind = 0
}
