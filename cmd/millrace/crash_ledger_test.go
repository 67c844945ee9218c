package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
)

// The crash test's own books, kept outside of the server: what was acknowledged, what was under way
// when the process was killed, and nothing else.

// jobStatus is the state of a job as the ledger has it.
type jobStatus int

const (
	statusSent      jobStatus = iota // in a request that has not been answered
	statusQueued                     // acknowledged, in the queue
	statusClaimed                    // by us
	statusFinishing                  // held, and in a request that ends it
	statusGone                       // acknowledged as completed or requeued
	statusAbsent                     // its request was never acknowledged, and it is not there
)

type ledgerJob struct {
	id     string
	status jobStatus
	run    string
	state  string   // last acknowledged state, "" for none
	tried  []string // states in heartbeats without an answer
}

// uncertainRequest is a request that was cut off: it happened or it did not, as a whole.
type uncertainRequest struct {
	verb string   // enqueue, complete or requeue
	ends []string // the jobs that complete and requeue end
	adds []string // the jobs that enqueue and requeue add
}

type ledger struct {
	mu           sync.Mutex
	jobs         map[string]*ledgerJob
	order        []string // ids in the order they were made
	uncertain    []uncertainRequest
	maybeClaimed int // jobs that cut-off answers of next may have held
	acks         int
	killAt       int
	kill         func()
	problems     []string
	made         int
}

func newLedger() *ledger { return &ledger{jobs: map[string]*ledgerJob{}} }

// addProblem records a broken promise. The caller holds the lock.
func (l *ledger) addProblem(format string, args ...any) {
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

// newIDs makes names for n jobs that are about to be sent.
func (l *ledger) newIDs(n int) []string {
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

// recordStored records acknowledged jobs; some may have been claimed before their answer came.
func (l *ledger) recordStored(ids []string) {
	for _, id := range ids {
		if j := l.jobs[id]; j.status == statusSent {
			j.status = statusQueued
		}
	}
}

func (l *ledger) recordEnqueued(ids []string, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !ok {
		l.uncertain = append(l.uncertain, uncertainRequest{verb: "enqueue", adds: ids})
		return
	}
	l.recordStored(ids)
	l.ack()
}

// recordClaimed records an answer of next. A job that was claimed or ended before must not be in
// it.
func (l *ledger) recordClaimed(jobs []wireJob) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, w := range jobs {
		j := l.jobs[w.ID]
		switch {
		case j == nil:
			l.addProblem("next returned %s, which was never enqueued", w.ID)
			continue
		case j.status != statusSent && j.status != statusQueued:
			l.addProblem("next returned %s a second time (status %d, run %s, now %s)", w.ID,
				j.status, j.run, w.RunID)
		}
		j.status, j.run = statusClaimed, w.RunID
	}
}

// recordLostAnswer books a next whose answer was cut off.
func (l *ledger) recordLostAnswer(asked int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.maybeClaimed += asked
}

// pick returns a claimed job for a verb, nil when there is none.
func (l *ledger) pick(r *rand.Rand, as jobStatus) *ledgerJob {
	if picked := l.pickSome(r, 1, as); len(picked) > 0 {
		return picked[0]
	}
	return nil
}

// pickSome returns up to n claimed jobs for a verb, in any order.
func (l *ledger) pickSome(r *rand.Rand, n int, as jobStatus) []*ledgerJob {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := l.withStatus(statusClaimed)
	r.Shuffle(len(all), func(i, k int) { all[i], all[k] = all[k], all[i] })
	picked := all[:min(n, len(all))]
	for _, j := range picked {
		j.status = as
	}
	return picked
}

func (l *ledger) withStatus(s jobStatus) []*ledgerJob {
	var all []*ledgerJob
	for _, id := range l.order {
		if j := l.jobs[id]; j.status == s {
			all = append(all, j)
		}
	}
	return all
}

func (l *ledger) count(s jobStatus) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.withStatus(s))
}

// recordEnd records the end of a job and the jobs that were submitted in its place.
func (l *ledger) recordEnd(verb string, j *ledgerJob, adds []string, ok bool) {
	l.recordEnds(verb, []*ledgerJob{j}, adds, ok)
}

// recordEnds records the ends of jobs by one request, and the jobs that were submitted in their
// place.
func (l *ledger) recordEnds(verb string, ends []*ledgerJob, adds []string, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !ok {
		l.uncertain = append(l.uncertain, uncertainRequest{verb: verb, ends: idsOf(ends),
			adds: adds})
		return
	}
	for _, j := range ends {
		j.status = statusGone
	}
	l.recordStored(adds)
	l.ack()
}

// recordHeartbeats records heartbeats with a state that were sent in one request.
func (l *ledger) recordHeartbeats(jobs []*ledgerJob, state string, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, j := range jobs {
		j.status = statusClaimed
		if !ok {
			j.tried = append(j.tried, state)
			continue
		}
		j.state, j.tried = state, nil
	}
	if ok {
		l.ack()
	}
}

// resolve decides the uncertain requests by the jobs that exist after the restart: a request
// happened as a whole or not at all.
func (l *ledger) resolve(onServer map[string]*wireJob) {
	for _, d := range l.uncertain {
		found := 0
		for _, id := range d.adds {
			if onServer[id] != nil {
				found++
			}
		}
		if found != 0 && found != len(d.adds) {
			l.addProblem("%s of %v was cut off and happened in part: %d of %d", d.verb, d.adds,
				found, len(d.adds))
		}
		for _, id := range d.adds {
			j := l.jobs[id]
			switch {
			case onServer[id] != nil && j.status == statusSent:
				j.status = statusQueued
			case onServer[id] == nil && j.status == statusSent:
				j.status = statusAbsent
			}
		}
		left := 0
		for _, id := range d.ends {
			j := l.jobs[id]
			if j.status = statusGone; onServer[id] != nil {
				j.status = statusClaimed
				left++
			}
		}
		if left != 0 && left != len(d.ends) {
			l.addProblem("%s of %v was cut off and happened in part: %d are left", d.verb, d.ends,
				left)
		}
		if d.verb == "requeue" && len(d.adds) > 0 && (left > 0) == (found > 0) {
			l.addProblem("requeue of %v was cut off: the old job and the new ones are both "+
				"there, or neither is", d.ends)
		}
	}
	l.uncertain = nil
}

// compare compares the ledger with what is there after the restart.
func (l *ledger) compare(onServer map[string]*wireJob) {
	adopted := 0
	for _, id := range l.order {
		j, w := l.jobs[id], onServer[id]
		switch {
		case j.status == statusGone || j.status == statusAbsent:
			if w != nil {
				l.addProblem("%s is there again (status %d)", id, j.status)
			}
		case w == nil:
			l.addProblem("%s was acknowledged and is lost (status %d)", id, j.status)
			j.status = statusAbsent
		case j.status == statusQueued && w.RunID != "": // its hand-out was cut off
			adopted++
			j.status, j.run = statusClaimed, w.RunID
		case j.status == statusClaimed && w.RunID != j.run:
			l.addProblem("%s was claimed under run %s, and its lease did not survive: run %q",
				id, j.run, w.RunID)
		case j.status == statusClaimed:
			if got := string(w.State); got != j.state && !slices.Contains(j.tried, got) {
				l.addProblem("%s has state %s, acknowledged was %s", id, got, j.state)
			}
			j.state, j.tried = string(w.State), nil
		}
	}
	if adopted > l.maybeClaimed {
		l.addProblem("%d jobs are in flight, and cut-off answers can have held %d", adopted,
			l.maybeClaimed)
	}
	l.maybeClaimed = 0
}
