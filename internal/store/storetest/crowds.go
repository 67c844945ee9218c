package storetest

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
)

// crowdTests prove exclusion by crowds: many goroutines do the same to the same rows, and
// afterwards the sums must be right. They find what no test of two callers finds, such as a lock
// that is taken too late or in another order. On PostgreSQL the crowd is larger than the pool of
// connections.
var crowdTests = []test{
	{"100 claimants get each of 2000 jobs once", func(w *world) { w.claimAll(100, 2000) }},
	{"overlapping sets in any order end well", overlapping},
	{"jobs that move all the time lose no move", movingJobs},
	{"one of many submits an identity", submitOnce},
}

// crowd runs run on n goroutines, waits for all of them, and fails and ends the test with their
// errors.
func (w *world) crowd(n int, run func(i int) error) {
	w.Helper()
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			if err := run(i); err != nil {
				w.Errorf("%d: %v", i, err)
			}
		})
	}
	all.Wait()
	if w.Failed() {
		w.FailNow()
	}
}

// ClaimAll has a crowd claim and finish jobs on a new store of open and fails tb unless each was
// claimed exactly once. It returns the store, for tests that examine a database after such use.
func ClaimAll(tb testing.TB, open Open, claimants, jobs int) store.Store {
	w := newWorld(tb, open)
	w.claimAll(claimants, jobs)
	return w.store
}

// claimAll proves that LockReady gives a job to one claimant only, and that no job is passed over
// for ever: the rows that it returns stay locked until the transaction ends, and others skip them.
// Each claimant walks three queues, claims up to ten jobs at a time, and finishes them in a second
// transaction. It leaves after three empty answers; a job that it skipped is then in the hands of
// another claimant. Every payload must have come with its own job.
func (w *world) claimAll(claimants, jobs int) {
	const queues = 3
	for i := 0; i < jobs; i += 100 {
		var set []*job.Job
		for k := i; k < min(i+100, jobs); k++ {
			set = append(set, newJob(fmt.Sprint(k), in("relay", fmt.Sprint("q", k%queues)),
				func(j *job.Job) {
					j.Payload = []byte(j.ID.Key)
				}))
		}
		w.insert(set...)
	}
	var mu sync.Mutex
	claimed := map[string]int{}
	w.crowd(claimants, func(i int) error {
		worker := fmt.Sprint("worker ", i)
		for idle := 0; idle < queues; {
			queue := fmt.Sprint("q", (i+idle)%queues)
			var own []*job.Job
			// A claim as the engine makes it: ready jobs are locked, changed in memory and written
			// in one transaction.
			err := w.store.Update(w.context(), func(tx store.Tx) (err error) {
				if own, err = tx.LockReady("relay", queue, 1+rand.IntN(10)); err != nil {
					return err
				}
				for _, j := range own {
					j.Phase, j.State, j.Attempts, j.Worker, j.LeaseUntil = job.Leased, "running",
						j.Attempts+1, worker, start.Add(time.Minute)
				}
				return tx.Apply(updates(store.StateFields, own...))
			})
			if err != nil {
				return err
			}
			if len(own) == 0 {
				idle++
				continue
			}
			mu.Lock()
			for _, j := range own {
				claimed[j.ID.Key]++
				if string(j.Payload) != j.ID.Key {
					w.Errorf("%s has the body %q", j.ID.Key, j.Payload)
				}
			}
			mu.Unlock()
			if err := w.finish(own, worker); err != nil {
				return err
			}
		}
		return nil
	})
	for i := range jobs {
		if n := claimed[fmt.Sprint(i)]; n != 1 {
			w.Errorf("job %d was claimed %d times", i, n)
		}
	}
}

// finish ends the attempts of one claim, half of the jobs by an update with a result and half by a
// delete, and fails if one of the jobs is no longer with the worker in its first attempt.
func (w *world) finish(own []*job.Job, worker string) error {
	return w.store.Update(w.context(), func(tx store.Tx) error {
		locked, err := tx.Load(locked(own...))
		if err != nil {
			return err
		}
		if len(locked) != len(own) {
			return fmt.Errorf("%d of %d claimed jobs are left", len(locked), len(own))
		}
		for _, j := range locked {
			if j.Worker != worker || j.Attempts != 1 {
				return fmt.Errorf("%s is with %s, run %d", j.ID.Key, j.Worker, j.Attempts)
			}
			j.Phase, j.State, j.Result = job.Done, "done", []byte("ok")
		}
		// Relay deletes a job that is done, the other job types keep it.
		half := len(locked) / 2
		changes := updates(store.StateFields|store.BodyField(job.Result), locked[:half]...)
		changes.Delete = locked[half:]
		return tx.Apply(changes)
	})
}

// overlapping proves that Load with Lock loses no update and never deadlocks: 16 members increment
// a counter in sets of five of the same 20 jobs, named in random order, and the sum is exact. Rows
// are locked by Seq ascending, so no two transactions wait for each other.
func overlapping(w *world) {
	var jobs []*job.Job
	for i := range 20 {
		jobs = append(jobs, newJob(fmt.Sprint(i)))
	}
	w.insert(jobs...)
	const members, rounds, each = 16, 10, 5
	w.crowd(members, func(i int) error {
		for range rounds {
			ids := make([]job.ID, each)
			// The order of the selector is random; that of the locks must not be.
			for k, at := range rand.Perm(len(jobs))[:each] {
				ids[k] = jobs[at].ID
			}
			if err := w.store.Update(w.context(), func(tx store.Tx) error {
				locked, err := tx.Load(store.Selector{IDs: ids, Lock: true})
				for _, j := range locked {
					j.Attempts++
				}
				return cmp.Or(err, tx.Apply(updates(store.StateFields, locked...)))
			}); err != nil {
				return err
			}
		}
		return nil
	})
	sum := 0
	for _, j := range w.load(bySeq(jobs...)) {
		sum += j.Attempts
	}
	equal(w, "increments", sum, members*rounds*each)
}

// movingJobs proves that a lock shows a job where the transaction before has moved it. A crowd
// moves the same few jobs around, from ready to leased by LockReady and further by Load with Lock;
// whoever waited for a lock, or found a job in an index that was moved meanwhile, must see its
// phase and its counter as they are. Each move counts up, and the sums are exact.
func movingJobs(w *world) {
	const members, rounds, few = 16, 40, 6
	var jobs []*job.Job
	for i := range few {
		jobs = append(jobs, newJob(fmt.Sprint(i)))
	}
	w.insert(jobs...)
	var claims, moves atomic.Int64
	w.crowd(members, func(i int) error {
		for range rounds {
			claimed, moved := 0, 0
			if err := w.store.Update(w.context(), func(tx store.Tx) error {
				claimed, moved = 0, 0
				if i%2 == 0 {
					ready, err := tx.LockReady("relay", "q", 1+rand.IntN(few))
					claimed = len(ready)
					return cmp.Or(err, moveOn(tx, ready))
				}
				some := rand.Perm(few)[:1+rand.IntN(few)]
				var of []*job.Job
				for _, at := range some {
					of = append(of, jobs[at])
				}
				all, err := tx.Load(locked(of...))
				if len(all) != len(some) {
					return cmp.Or(err, fmt.Errorf("%d jobs of %d", len(all), len(some)))
				}
				others := slices.DeleteFunc(all,
					func(j *job.Job) bool { return j.Phase == job.Ready })
				moved = len(others)
				return moveOn(tx, others)
			}); err != nil {
				return err
			}
			claims.Add(int64(claimed))
			moves.Add(int64(moved))
		}
		return nil
	})
	var attempts, failed int64
	for _, j := range w.load(bySeq(jobs...)) {
		attempts += int64(j.Attempts)
		failed += int64(j.FailedAttempts)
	}
	equal(w, "claims", attempts, claims.Load())
	equal(w, "other moves", failed, moves.Load())
	listed := read(w, func(r store.Reader) ([]*job.Job, error) { return Listed(r, store.Filter{}) })
	equal(w, "jobs", len(listed), few) // none is in two phases
}

// moveOn moves jobs to the phase after their own and counts the move.
func moveOn(tx store.Tx, jobs []*job.Job) error {
	for _, j := range jobs {
		switch j.Phase {
		case job.Ready:
			j.Attempts++
		default:
			j.FailedAttempts++
		}
		j.Phase = (j.Phase + 1) % (job.Done + 1)
		j.FinishedAt = start
	}
	return tx.Apply(updates(store.StateFields, jobs...))
}

// submitOnce proves that concurrent inserts of the same identities, in random order, store each of
// them once and never deadlock: those who come later wait, and their job is taken.
func submitOnce(w *world) {
	var mu sync.Mutex
	stored := map[string]int{}
	w.crowd(20, func(i int) error {
		for round := range 5 {
			var set []*job.Job
			// The same identities in another order: without an order of its own for the rows of an
			// insert, two of these sets would deadlock.
			for _, k := range rand.Perm(10) {
				set = append(set, newJob(fmt.Sprint(round, "-", k)))
			}
			var existing []int
			if err := w.store.Update(w.context(), func(tx store.Tx) (err error) {
				existing, err = insert(tx, set...)
				return err
			}); err != nil {
				return err
			}
			mu.Lock()
			for _, j := range set {
				stored[j.ID.Key]++
			}
			for _, at := range existing {
				stored[set[at].ID.Key]--
			}
			mu.Unlock()
		}
		return nil
	})
	for key, n := range stored {
		if n != 1 {
			w.Errorf("%s was stored %d times", key, n)
		}
	}
	equal(w, "stored", len(stored), 50)
}
