// Package storetest is the conformance suite of the storage port: every promise
// in the comments of package store has its test here, and every implementation
// runs all of them.
package storetest

import (
	"context"
	"encoding/json"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
)

// Open opens an empty store on the clock and closes it when the test is over.
type Open func(tb testing.TB, clock func() time.Time) store.Store

// Run runs the suite on the stores that open opens.
func Run(t *testing.T, open func(tb testing.TB, clock func() time.Time) store.Store) {
	for _, group := range []struct {
		name  string
		tests []test
	}{
		{"jobs", jobTests},
		{"fields", fieldTests},
		{"bodies", bodyTests},
		{"apply", applyTests},
		{"locks", lockTests},
		{"history", historyTests},
		{"records", recordTests},
		{"queues", queueTests},
		{"updates", updateTests},
		{"search", searchTests},
		{"crowds", crowdTests},
	} {
		for _, test := range group.tests {
			t.Run(group.name+"/"+test.name, func(t *testing.T) {
				t.Parallel()
				test.run(newWorld(t, open))
			})
		}
	}
}

type test struct {
	name string
	run  func(w *world)
}

// start is the time of a world until a test moves it.
var start = time.Date(2026, 3, 29, 12, 0, 0, 123456000, time.UTC)

// world is a store, its clock and the test.
type world struct {
	testing.TB
	store.Store
	mu  sync.Mutex
	now time.Time
}

func newWorld(tb testing.TB, open Open) *world {
	w := &world{TB: tb, now: start}
	w.Store = open(tb, func() time.Time {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.now
	})
	return w
}

// at moves the clock to start+d.
func (w *world) at(d time.Duration) time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = start.Add(d)
	return w.now
}

// context ends before the test binary would.
func (w *world) context() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	w.Cleanup(cancel)
	return ctx
}

// update runs fn, which must succeed. It may be on another goroutine, so it
// returns errors and never ends the test itself.
func (w *world) update(fn func(store.Tx) error) {
	w.Helper()
	if err := w.Update(w.context(), fn); err != nil {
		w.Fatalf("update: %v", err)
	}
}

func (w *world) view(fn func(store.Reader) error) {
	w.Helper()
	if err := w.View(w.context(), fn); err != nil {
		w.Fatalf("view: %v", err)
	}
}

// insert stores jobs of which none may be taken.
func (w *world) insert(jobs ...*job.Job) {
	w.Helper()
	var taken []int
	w.update(func(tx store.Tx) (err error) {
		taken, err = insert(tx, jobs...)
		return err
	})
	if len(taken) > 0 {
		w.Fatalf("taken: %v", taken)
	}
}

// insert stores jobs and returns the indexes of those that are taken.
func insert(tx store.Tx, jobs ...*job.Job) (taken []int, err error) {
	c := store.Changes{Insert: jobs}
	if err := tx.Apply(c); err != nil {
		return nil, err
	}
	return c.Taken(), nil
}

// updates returns changes that write the same fields of jobs.
func updates(fields store.Fields, jobs ...*job.Job) (c store.Changes) {
	for _, j := range jobs {
		c.Update = append(c.Update, store.JobUpdate{Job: j, Fields: fields})
	}
	return c
}

// apply writes changes in an update of their own.
func (w *world) apply(c store.Changes) {
	w.Helper()
	w.update(func(tx store.Tx) error { return tx.Apply(c) })
}

// change returns what fn returns in an update.
func change[T any](w *world, fn func(store.Tx) (T, error)) (got T) {
	w.Helper()
	w.update(func(tx store.Tx) (err error) {
		got, err = fn(tx)
		return err
	})
	return got
}

// read returns what fn returns in a view.
func read[T any](w *world, fn func(store.Reader) (T, error)) (got T) {
	w.Helper()
	w.view(func(r store.Reader) (err error) {
		got, err = fn(r)
		return err
	})
	return got
}

// load returns the selected jobs.
func (w *world) load(s store.Selector) []*job.Job {
	w.Helper()
	return read(w, func(r store.Reader) ([]*job.Job, error) { return r.Load(s) })
}

// byID, bySeq and locked select jobs: with all bodies, or locked and without.
func byID(ids ...job.ID) store.Selector {
	return store.Selector{IDs: ids, Bodies: store.AllBodies}
}

func bySeq(jobs ...*job.Job) store.Selector {
	return store.Selector{Seqs: seqs(jobs...), Bodies: store.AllBodies}
}

func locked(jobs ...*job.Job) store.Selector {
	return store.Selector{Seqs: seqs(jobs...), Lock: true}
}

// get returns the one job with the key.
func (w *world) get(j *job.Job) *job.Job {
	w.Helper()
	all := w.load(byID(j.ID))
	if len(all) != 1 {
		w.Fatalf("get %v: %d jobs", j.ID.Key, len(all))
	}
	return all[0]
}

// newJob is a ready job of queue q with something in every field.
func newJob(key string, with ...func(*job.Job)) *job.Job {
	j := &job.Job{
		ID: job.ID{Contract: "relay", Scope: "q", Key: key}, Queue: "q", Owner: "owner",
		State: "queued", Phase: job.Ready, OrderTime: start, DueAt: start,
		Lease: time.Minute, CreatedAt: start, UpdatedAt: start,
	}
	for _, f := range with {
		f(j)
	}
	return j
}

// in puts a job into a queue of a contract.
func in(contract, queue string) func(*job.Job) {
	return func(j *job.Job) { j.ID.Contract, j.ID.Scope, j.Queue = contract, queue, queue }
}

func waiting(due time.Time, openDeps int) func(*job.Job) {
	return func(j *job.Job) {
		j.Phase, j.State, j.DueAt, j.OpenDeps = job.Waiting, "waiting", due, openDeps
	}
}

func leased(updated, until time.Time) func(*job.Job) {
	return func(j *job.Job) {
		j.Phase, j.State, j.UpdatedAt, j.LeaseUntil = job.Leased, "running", updated, until
	}
}

func settled(contract string, at time.Time) func(*job.Job) {
	return func(j *job.Job) {
		j.Phase, j.State, j.ID.Contract, j.FinishedAt = job.Done, "done", contract, at
	}
}

func keys(jobs []*job.Job) []string {
	all := []string{}
	for _, j := range jobs {
		all = append(all, j.ID.Key)
	}
	return all
}

func seqs(jobs ...*job.Job) []int64 {
	all := make([]int64, len(jobs))
	for i, j := range jobs {
		all[i] = j.Seq
	}
	return all
}

// equal compares deeply: nil and empty differ.
func equal(tb testing.TB, what string, got, want any) {
	tb.Helper()
	if reflect.DeepEqual(got, want) {
		return
	}
	g, _ := json.Marshal(got)
	x, _ := json.Marshal(want)
	const most = 2000
	tb.Errorf("%s\n got %.*s\nwant %.*s", what, most, g, most, x)
}
