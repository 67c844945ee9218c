package storetest

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
)

// queueTests prove the promises about queues and about what the nodes agree on: settings, counts
// that stay exact while many transactions add to them, leaders, and locks by name. Counts are kept
// in slots that concurrent transactions do not share, and CompactCounts removes rows of them, so
// the tests add up beside the store and compare.
var queueTests = []test{
	{"queue settings", queueSettings},
	{"counts add up", countsAdd},
	{"counts of 50 concurrent transactions are the truth", countsCrowd},
	{"ReadyQueues finds the queues with ready jobs", readyQueues},
	{"CountUpTo counts what is claimed before a job", countAhead},
	{"ReadyQueues finds since when jobs are ready", readySince},
	{"CompactCounts loses no count", compactInCrowd},
	{"CompactCounts removes the counters of empty queues", compactEmpty},
	{"CompactCounts keeps how many jobs are done", compactDone},
	{"a role has one leader", electOne},
	{"a crowd elects one", electCrowd},
	{"a name is locked by one at a time", lockName},
}

// queueSettings proves that settings are stored for each queue of each job type, replaced as a
// whole, and listed by job type and queue, whatever the order in which they were written.
func queueSettings(w *world) {
	list := func() []job.QueueSettings {
		return read(w, func(r store.Reader) ([]job.QueueSettings, error) {
			return r.QueueSettings()
		})
	}
	equal(w, "at first", list(), []job.QueueSettings(nil))
	a := job.QueueSettings{JobType: "x", Queue: "a", Paused: true}
	b := job.QueueSettings{JobType: "x", Queue: "b", MaxRunning: 3}
	c := job.QueueSettings{JobType: "w", Queue: "b"}
	for _, q := range []job.QueueSettings{b, a, c} {
		w.apply(store.Changes{Queues: []job.QueueSettings{q}})
	}
	equal(w, "three", list(), []job.QueueSettings{c, a, b})
	a.Paused, a.MaxRunning = false, 9
	w.apply(store.Changes{Queues: []job.QueueSettings{a}})
	equal(w, "changed", list(), []job.QueueSettings{c, a, b})
	none, rate := 0, job.Rate{Starts: 1_000_000, Period: 31 * 24 * time.Hour}
	a.Rate = job.Rate{Starts: 5, Period: 100 * time.Millisecond}
	a.Live = job.LiveLimits{MaxRunning: &none, Rate: &rate}
	b.Live = job.LiveLimits{Rate: &job.Rate{}}
	w.apply(store.Changes{Queues: []job.QueueSettings{a, b}})
	equal(w, "limits that an operator has set", list(), []job.QueueSettings{c, a, b})
	a.Live = job.LiveLimits{}
	w.apply(store.Changes{Queues: []job.QueueSettings{a}})
	equal(w, "and taken back", list(), []job.QueueSettings{c, a, b})
}

// counts returns the counts of a job type, of all if it is empty, by job type and queue, as the
// store has no order of them.
func (w *world) counts(jobType string) []job.QueueCount {
	w.Helper()
	return w.countsOf(store.QueueSelector{JobType: jobType})
}

// countsOf returns the counts of the selected queues, in the same order.
func (w *world) countsOf(s store.QueueSelector) []job.QueueCount {
	w.Helper()
	counts := read(w, func(r store.Reader) ([]job.QueueCount, error) { return r.Counts(s) })
	slices.SortFunc(counts, func(a, b job.QueueCount) int {
		return cmp.Or(cmp.Compare(a.JobType, b.JobType), cmp.Compare(a.Queue, b.Queue))
	})
	return counts
}

// countsAdd proves that Counts returns the sum of all deltas of a queue, several in one set
// included, and negative ones; that an empty job type means all; and that counters hold more than
// 32 bits.
func countsAdd(w *world) {
	w.apply(store.Changes{Counts: []job.QueueCount{
		{JobType: "x", Queue: "b", Ready: 2},
		{JobType: "x", Queue: "a", Waiting: 1},
		{JobType: "x", Queue: "b", Leased: 1},
	}})
	w.apply(store.Changes{Counts: []job.QueueCount{
		{JobType: "x", Queue: "b", Ready: -1, Leased: 1},
		{JobType: "y", Queue: "b", Ready: 1 << 40},
	}})
	x := []job.QueueCount{{JobType: "x", Queue: "a", Waiting: 1},
		{JobType: "x", Queue: "b", Ready: 1, Leased: 2}}
	equal(w, "of x", w.counts("x"), x)
	equal(w, "of all", w.counts(""), append(x,
		job.QueueCount{JobType: "y", Queue: "b", Ready: 1 << 40}))
	equal(w, "of none", w.counts("z"), []job.QueueCount(nil))
}

// truth adds up the deltas of concurrent updates that were kept.
type truth struct {
	mu sync.Mutex
	of map[string]job.QueueCount
}

// add adds the deltas of one update that has returned without an error. All must be of one job
// type.
func (t *truth) add(deltas []job.QueueCount) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, d := range deltas {
		c := t.of[d.Queue]
		t.of[d.Queue] = job.QueueCount{JobType: d.JobType, Queue: d.Queue,
			Waiting: c.Waiting + d.Waiting, Ready: c.Ready + d.Ready, Leased: c.Leased + d.Leased,
			Done: c.Done + d.Done}
	}
}

// compare fails the test for each queue whose count differs from the truth.
func (w *world) compare(t *truth) {
	w.Helper()
	got := map[string]job.QueueCount{}
	for _, c := range w.countsOf(store.QueueSelector{WithDone: true}) {
		got[c.Queue] = c
	}
	for queue, want := range t.of {
		c := got[queue]
		if want != (job.QueueCount{JobType: want.JobType, Queue: queue}).Plus(c) {
			w.Errorf("queue %s: got %+v, want %+v", queue, c, want)
		}
	}
}

// errUnwanted is the error with which fn undoes its own update.
var errUnwanted = fmt.Errorf("this update is not wanted")

// countsCrowd proves that no delta of 50 concurrent callers is lost or counted twice, and that
// those of an update that was undone, every fifth, are not counted.
func countsCrowd(w *world) {
	t := &truth{of: map[string]job.QueueCount{}}
	w.crowd(50, func(i int) error {
		for n := range 20 {
			var deltas []job.QueueCount
			// Deltas may be negative and name a queue twice; the sums need not make sense as
			// counts.
			for range 1 + rand.IntN(4) {
				deltas = append(deltas, job.QueueCount{JobType: "x",
					Queue:   fmt.Sprint(rand.IntN(5)),
					Waiting: rand.Int64N(5) - 2, Ready: rand.Int64N(5) - 2,
					Leased: rand.Int64N(5) - 2, Done: rand.Int64N(5) - 2})
			}
			// One update in five is undone by its own fn.
			wanted := n%5 != 0
			err := w.store.Update(w.context(), func(tx store.Tx) error {
				if err := tx.Apply(store.Changes{Counts: deltas}); err != nil || wanted {
					return err
				}
				return errUnwanted
			})
			switch {
			case err != nil && !errors.Is(err, errUnwanted):
				return err
			case wanted:
				t.add(deltas)
			}
		}
		return nil
	})
	w.compare(t)
}

// readyQueues proves that ReadyQueues returns those of the queues with ready jobs, that the
// count of a queue is the sum over its transactions, and that it returns no queue that is not
// asked for.
func readyQueues(w *world) {
	w.apply(store.Changes{Counts: []job.QueueCount{
		{JobType: "x", Queue: "ready", Ready: 1, Leased: 3},
		{JobType: "x", Queue: "was ready", Ready: 2},
		{JobType: "x", Queue: "leased", Waiting: 1, Delayed: 1, Leased: 1},
		{JobType: "y", Queue: "ready", Ready: 5},
	}})
	w.apply(store.Changes{Counts: []job.QueueCount{{JobType: "x", Queue: "was ready", Ready: -2}}})
	var asked []job.QueueHash
	for _, queue := range []string{"ready", "was ready", "leased", "unknown"} {
		asked = append(asked, job.QueueHashOf("x", queue))
	}
	for _, queues := range [][]job.QueueHash{asked, nil} {
		var want []store.ReadyQueue
		for _, q := range queues[:min(1, len(queues))] {
			want = append(want, store.ReadyQueue{Queue: q})
		}
		found := read(w, func(r store.Reader) ([]store.ReadyQueue, error) {
			return r.ReadyQueues(store.ReadySelector{Queues: queues})
		})
		if !slices.Equal(found, want) {
			w.Errorf("found %v of %v, want %v", found, queues, want)
		}
	}
}

// countUpTo counts jobs that are one group.
func (w *world) countUpTo(s store.CountSelector, limit int) int {
	w.Helper()
	groups := read(w, func(r store.Reader) ([]store.JobGroup, error) {
		return r.CountUpTo(s, limit)
	})
	equal(w, "groups", len(groups), 1)
	return groups[0].Jobs
}

// countAhead proves that CountUpTo counts the ready jobs of the queue that claim order has before
// a job, and no more than asked for.
func countAhead(w *world) {
	at := func(key, queue string, priority int, order time.Duration) *job.Job {
		return newJob(key, in("x", queue), func(j *job.Job) {
			j.Priority, j.OrderTime = priority, start.Add(order)
		})
	}
	jobs := []*job.Job{at("a", "q", 5, time.Hour), at("b", "q", 5, time.Hour),
		at("c", "q", 5, 2*time.Hour), at("d", "q", 0, 0), at("e", "q", -3, 0)}
	w.insert(jobs[2], jobs[0], jobs[4], jobs[3], jobs[1])
	w.insert(at("other", "p", 9, 0), newJob("held", in("x", "q"), waiting(start, 1)))
	for i, j := range jobs {
		for _, limit := range []int{10, 2} {
			got := w.countUpTo(store.CountSelector{Ahead: j}, limit)
			equal(w, fmt.Sprint(j.ID.Key, " of ", limit), got, min(i, limit))
		}
	}
}

// readySince proves that ReadyQueues returns since when the first job of the claim order of any
// priority is ready.
func readySince(w *world) {
	ready := func(key, queue string, priority int, order, since time.Duration) *job.Job {
		return newJob(key, in("x", queue), func(j *job.Job) {
			j.Priority, j.OrderTime, j.UpdatedAt = priority, start.Add(order), start.Add(since)
		})
	}
	w.insert(ready("a", "one", 5, time.Hour, time.Hour), ready("b", "one", 5, 2*time.Hour, 0),
		ready("c", "one", job.NoPriority, time.Minute, 30*time.Minute),
		ready("d", "one", -3, time.Hour, 2*time.Hour),
		ready("e", "two", 0, time.Hour, time.Second),
		newJob("f", in("x", "none"), waiting(start, 1)))
	w.apply(store.Changes{Counts: []job.QueueCount{{JobType: "x", Queue: "one", Ready: 4},
		{JobType: "x", Queue: "two", Ready: 1}, {JobType: "x", Queue: "none", Waiting: 1}}})
	var asked []job.QueueHash
	for _, queue := range []string{"one", "two", "none", "unknown"} {
		asked = append(asked, job.QueueHashOf("x", queue))
	}
	found := read(w, func(r store.Reader) ([]store.ReadyQueue, error) {
		return r.ReadyQueues(store.ReadySelector{Queues: asked, WithSince: true})
	})
	got := map[job.QueueHash]time.Duration{}
	for _, q := range found {
		got[q.Queue] = q.Since.Sub(start)
	}
	equal(w, "since", got, map[job.QueueHash]time.Duration{asked[0]: 30 * time.Minute,
		asked[1]: time.Second})
}

// compactInCrowd proves that CompactCounts changes no sum while 19 others count: it deletes only
// counters that it has locked and that add up to zero, so a delta that is written meanwhile stays.
// Half of the time each queue is empty, so there is something to remove. It never deadlocks with
// Apply.
func compactInCrowd(w *world) {
	t := &truth{of: map[string]job.QueueCount{}}
	w.crowd(20, func(i int) error {
		for n := range 30 {
			if i == 0 {
				if err := w.store.Update(w.context(), func(tx store.Tx) error {
					return errOf(tx.CompactCounts(3))
				}); err != nil {
					return err
				}
				continue
			}
			// A queue is empty half of the time.
			deltas := []job.QueueCount{{JobType: "x", Queue: fmt.Sprint(i % 4),
				Ready: int64(1 - n%2*2), Done: rand.Int64N(5) - 2}}
			// Another queue that only grows and must never be compacted.
			if n%10 == 9 {
				deltas = append(deltas, job.QueueCount{JobType: "x", Queue: "more", Leased: 1})
			}
			if err := w.store.Update(w.context(), func(tx store.Tx) error {
				return tx.Apply(store.Changes{Counts: deltas})
			}); err != nil {
				return err
			}
			t.add(deltas)
		}
		return nil
	})
	w.compare(t)
	w.update(func(tx store.Tx) error { return errOf(tx.CompactCounts(100)) })
	w.compare(t)
}

// compactEmpty proves that CompactCounts removes the counters of up to n empty queues and of no
// other, that it returns those queues, and that a queue whose counters are gone can be counted
// again.
func compactEmpty(w *world) {
	count := func(queue string, n int64) {
		w.apply(store.Changes{Counts: []job.QueueCount{{JobType: "x", Queue: queue, Ready: n}}})
	}
	for i := range 5 {
		count(fmt.Sprint(i), 2)
		count(fmt.Sprint(i), -2)
	}
	count("kept", 1)
	compact := func(n int) []job.QueueCount {
		return change(w, func(tx store.Tx) ([]job.QueueCount, error) { return tx.CompactCounts(n) })
	}
	removed := compact(2)
	equal(w, "after two", len(w.counts("x")), 4)
	removed = append(removed, compact(100)...)
	slices.SortFunc(removed, func(a, b job.QueueCount) int { return cmp.Compare(a.Queue, b.Queue) })
	var want []job.QueueCount
	for i := range 5 {
		want = append(want, job.QueueCount{JobType: "x", Queue: fmt.Sprint(i)})
	}
	equal(w, "removed", removed, want)
	equal(w, "after all", w.counts("x"), []job.QueueCount{{JobType: "x", Queue: "kept", Ready: 1}})
	count("0", 1)
	equal(w, "used again", w.counts("x")[0], job.QueueCount{JobType: "x", Queue: "0", Ready: 1})
}

// compactDone proves that how many jobs are done is kept when the counters of a queue are removed,
// that it changes with later ones, and that Counts has it where it is asked for: queues that have
// nothing else are left out otherwise. A queue whose name is too long for an index keeps its
// counters.
func compactDone(w *world) {
	long := strings.Repeat("ü", store.MaxNameBytes+1)
	count := func(jobType, queue string, ready, done int64) {
		w.apply(store.Changes{Counts: []job.QueueCount{{JobType: jobType, Queue: queue,
			Ready: ready, Done: done}}})
	}
	all := func() []job.QueueCount {
		return w.countsOf(store.QueueSelector{WithDone: true})
	}
	compact := func() (names []string) {
		removed := change(w, func(tx store.Tx) ([]job.QueueCount, error) {
			return tx.CompactCounts(100)
		})
		for _, q := range removed {
			names = append(names, q.JobType+"/"+q.Queue)
		}
		slices.Sort(names)
		return names
	}
	done := func(jobType, queue string, n int64) job.QueueCount {
		return job.QueueCount{JobType: jobType, Queue: queue, Done: n}
	}
	for _, jobType := range []string{"x", "y"} {
		count(jobType, "q", 1, 0)
		count(jobType, "q", -1, 3)
	}
	count("x", "busy", 1, 5)
	count("x", long, 0, 2)
	want := []job.QueueCount{{JobType: "x", Queue: "busy", Ready: 1, Done: 5}, done("x", "q", 3),
		done("x", long, 2), done("y", "q", 3)}
	equal(w, "before", all(), want)
	sums := []job.QueueCount{{JobType: "x", Ready: 1, Done: 10}, {JobType: "y", Done: 3}}
	ofOne := func(jobType, queue string, withDone bool) []job.QueueCount {
		return w.countsOf(store.QueueSelector{JobType: jobType, Queue: queue, WithDone: withDone})
	}
	equalSums := func() {
		w.Helper()
		equal(w, "sums", w.countsOf(store.QueueSelector{Sums: true, WithDone: true}), sums)
		equal(w, "sums of one", w.countsOf(store.QueueSelector{JobType: "x", Sums: true}),
			[]job.QueueCount{{JobType: "x", Ready: 1}})
		for _, q := range want {
			equal(w, "one queue", ofOne(q.JobType, q.Queue, true), []job.QueueCount{q})
		}
		q := want[0]
		q.Done = 0
		equal(w, "one queue without done", ofOne("x", "busy", false), []job.QueueCount{q})
		equal(w, "no queue", len(ofOne("y", "busy", true)), 0)
	}
	equalSums()
	equal(w, "removed", compact(), []string{"x/q", "y/q"})
	equal(w, "removed", all(), want)
	equalSums()
	equal(w, "without those that are done", w.counts("x"),
		[]job.QueueCount{{JobType: "x", Queue: "busy", Ready: 1}, {JobType: "x", Queue: long}})
	equal(w, "of y", w.countsOf(store.QueueSelector{JobType: "y", WithDone: true}), want[3:])
	count("x", "q", 1, -1)
	want[1] = job.QueueCount{JobType: "x", Queue: "q", Ready: 1, Done: 2}
	equal(w, "used again", all(), want)
	count("x", "q", -1, -2)
	count("y", "q", 0, 4)
	equal(w, "removed again", compact(), []string{"x/q", "y/q"})
	want[3].Done = 7
	equal(w, "at last", all(), slices.Delete(want, 1, 2))
}

// elect runs for one role and reports whether a node is its leader.
func (w *world) elect(node string, until time.Time) bool {
	w.Helper()
	return change(w, func(tx store.Tx) (bool, error) { return tx.Elect("role", node, until) })
}

// electOne proves what Elect promises of a term: only its node is the leader and may extend it; it
// lasts until the given time, that moment excluded, by the store's clock (G-X-11); its node ends it
// by a term that has ended; and with NoRole the terms of that node alone end. Roles do not
// depend on each other.
func electOne(w *world) {
	equal(w, "a", w.elect("a", start.Add(10*time.Second)), true)
	equal(w, "b while a is", w.elect("b", start.Add(10*time.Second)), false)
	w.at(9 * time.Second)
	equal(w, "a again", w.elect("a", start.Add(20*time.Second)), true)
	w.at(20*time.Second - time.Microsecond)
	equal(w, "b just before", w.elect("b", start.Add(time.Hour)), false)
	w.at(20 * time.Second)
	equal(w, "b when the time has come", w.elect("b", start.Add(30*time.Second)), true)
	equal(w, "a then", w.elect("a", start.Add(time.Hour)), false)
	equal(w, "b gives up", w.elect("b", start), true)
	equal(w, "a takes over", w.elect("a", start.Add(time.Hour)), true)
	w.update(func(tx store.Tx) error { return errOf(tx.Elect(store.NoRole, "b", start)) })
	equal(w, "b while a is", w.elect("b", start.Add(time.Hour)), false)
	w.update(func(tx store.Tx) error { return errOf(tx.Elect(store.NoRole, "a", start)) })
	equal(w, "b when a's have ended", w.elect("b", start.Add(time.Hour)), true)
	equal(w, "another role", change(w, func(tx store.Tx) (bool, error) {
		return tx.Elect("other", "b", start.Add(time.Hour))
	}), true)
}

// electCrowd proves that of 30 nodes that run for a role at the same time exactly one is elected
// (G-X-10), when there was no leader before and when the last term has ended.
func electCrowd(w *world) {
	for round := range 3 {
		now := w.at(time.Duration(round) * time.Minute)
		var won atomic.Int32
		w.crowd(30, func(i int) error {
			is := false
			err := w.store.Update(w.context(), func(tx store.Tx) (err error) {
				is, err = tx.Elect("role", fmt.Sprint(round, i), now.Add(time.Minute))
				return err
			})
			if err != nil {
				return err
			}
			if is {
				won.Add(1)
			}
			return nil
		})
		equal(w, fmt.Sprint("winners of round ", round), won.Load(), int32(1))
	}
}

// lockName proves that LockName lets one transaction at a time go on: it counts how many of ten are
// between their lock and their end.
func lockName(w *world) {
	var inside, peak atomic.Int32
	w.crowd(10, func(i int) error {
		return w.store.Update(w.context(), func(tx store.Tx) error {
			if err := tx.LockName("graph"); err != nil {
				return err
			}
			peak.Store(max(peak.Load(), inside.Add(1)))
			_, err := tx.Exists(job.ID{})
			inside.Add(-1)
			return err
		})
	})
	equal(w, "at a time", peak.Load(), int32(1))
}
