// Package storetest is the conformance suite of the storage port: every promise in the comments of
// package store has its test here, and every implementation runs all of them.
//
//	sqlite, postgres: TestStore... ──> Run(open) ──> newWorld ──> open(clock): an empty store
//	                                      |
//	                  jobs fields bodies apply locks history records queues updates search crowds
//
// A test is a function of a world: a store of its own, a clock that stands still until the test
// moves it, and the testing.TB. Tests run in parallel, see the store through the port alone and
// share nothing, so each of them holds for every store, whether it has one writer or many.
//
// A new promise of the port gets a function here and a line in the list of its file, with the
// promise as its name. A test that needs to look beneath the port, at a plan, a file or a
// connection, belongs to the package of its database.
//
// Beside the suite stand RunFaulty, which makes the database fail, RunMigrations and RunLayout,
// which open what an older version has written, and Bench. FilledJob and DifferentFields serve
// other tests that must not miss a field of a job.
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

// Run runs the suite on the stores that open opens. Every test has a store of its own and is the
// subtest "group/name", so one promise can be tested alone with -run.
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

// test is one promise of the port. Its name is that promise as a sentence.
type test struct {
	name string
	run  func(w *world)
}

// start is the time of a world until a test moves it. It has microseconds, the precision that a
// store keeps, and no nanoseconds.
var start = time.Date(2026, 3, 29, 12, 0, 0, 123456000, time.UTC)

// world is a store, its clock and the test. Its methods fail the test where the store fails, so
// that a test shows only what it is about. The clock may be read by any goroutine of the store
// while the test moves it.
type world struct {
	testing.TB
	store store.Store
	mu    sync.Mutex
	now   time.Time
}

// newWorld opens an empty store whose clock shows start.
func newWorld(tb testing.TB, open Open) *world {
	w := &world{TB: tb, now: start}
	w.store = open(tb, func() time.Time {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.now
	})
	return w
}

// at moves the clock to start+d, which may be back, and returns that time.
func (w *world) at(d time.Duration) time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = start.Add(d)
	return w.now
}

// context returns a context for one call. It ends after a minute, so a store that hangs fails the
// test by name, long before the time limit of the test binary would end all of them.
func (w *world) context() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	w.Cleanup(cancel)
	return ctx
}

// update runs fn in an update, which must succeed. fn may run on another goroutine, as that of
// SQLite's writer does, so it returns errors and must not end the test itself; and it may run more
// than once, as the port says.
func (w *world) update(fn func(store.Tx) error) {
	w.Helper()
	if err := w.store.Update(w.context(), fn); err != nil {
		w.Fatalf("update: %v", err)
	}
}

// view runs fn in a view, which must succeed. What update says of fn holds here too.
func (w *world) view(fn func(store.Reader) error) {
	w.Helper()
	if err := w.store.View(w.context(), fn); err != nil {
		w.Fatalf("view: %v", err)
	}
}

// insert stores jobs of which none may be taken. It sets their Seq.
func (w *world) insert(jobs ...*job.Job) {
	w.Helper()
	var existing []int
	w.update(func(tx store.Tx) (err error) {
		existing, err = insert(tx, jobs...)
		return err
	})
	if len(existing) > 0 {
		w.Fatalf("taken: %v", existing)
	}
}

// insert stores jobs and returns the indexes of those whose identity or alias is taken.
func insert(tx store.Tx, jobs ...*job.Job) (existing []int, err error) {
	c := store.Changes{Insert: jobs}
	if err := tx.Apply(c); err != nil {
		return nil, err
	}
	return c.Existing(), nil
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

// change returns what fn returns in an update. It serves verbs of Tx of which the test wants the
// result.
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

// byID selects jobs by their identity, with all bodies.
func byID(ids ...job.ID) store.Selector {
	return store.Selector{IDs: ids, Bodies: store.AllBodies}
}

// bySeq selects jobs that were inserted by their number, with all bodies.
func bySeq(jobs ...*job.Job) store.Selector {
	return store.Selector{Seqs: seqs(jobs...), Bodies: store.AllBodies}
}

// locked selects jobs that were inserted by their number and locks them, without bodies.
func locked(jobs ...*job.Job) store.Selector {
	return store.Selector{Seqs: seqs(jobs...), Lock: true}
}

// get returns the one job that is stored under the identity of j, with all bodies. The test ends if
// there is none.
func (w *world) get(j *job.Job) *job.Job {
	w.Helper()
	all := w.load(byID(j.ID))
	if len(all) != 1 {
		w.Fatalf("get %v: %d jobs", j.ID.Key, len(all))
	}
	return all[0]
}

// newJob returns a ready job of queue q of the contract relay, as with changes it. It has no bodies
// and no alias: fullJob returns a job with a value in every field, as does FilledJob.
func newJob(key string, with ...func(*job.Job)) *job.Job {
	j := &job.Job{
		ID: job.ID{JobType: "relay", Scope: "q", Key: key}, Queue: "q", Owner: "owner",
		State: "queued", Phase: job.Ready, OrderTime: start, DueAt: start,
		Lease: time.Minute, CreatedAt: start, UpdatedAt: start,
	}
	for _, f := range with {
		f(j)
	}
	return j
}

// in puts a job into a queue of a job type.
func in(jobType, queue string) func(*job.Job) {
	return func(j *job.Job) { j.ID.JobType, j.ID.Scope, j.Queue = jobType, queue, queue }
}

// waiting makes a job wait for its due time and for dependencies.
func waiting(due time.Time, openDeps int) func(*job.Job) {
	return func(j *job.Job) {
		j.Phase, j.State, j.DueAt, j.OpenDeps = job.Waiting, "waiting", due, openDeps
	}
}

// leased gives a job a lease until a time, and the last sign of its worker at updated.
func leased(updated, until time.Time) func(*job.Job) {
	return func(j *job.Job) {
		j.Phase, j.State, j.UpdatedAt, j.LeaseUntil = job.Leased, "running", updated, until
	}
}

// finished makes a job one of a job type that finished at a time.
func finished(jobType string, at time.Time) func(*job.Job) {
	return func(j *job.Job) {
		j.Phase, j.State, j.ID.JobType, j.FinishedAt = job.Done, "done", jobType, at
	}
}

// keys returns the keys of jobs in their order; never nil, so that it compares equal to an empty
// list of wanted keys.
func keys(jobs []*job.Job) []string {
	all := []string{}
	for _, j := range jobs {
		all = append(all, j.ID.Key)
	}
	return all
}

// seqs returns the numbers of jobs, which the insert has set.
func seqs(jobs ...*job.Job) []int64 {
	all := make([]int64, len(jobs))
	for i, j := range jobs {
		all[i] = j.Seq
	}
	return all
}

// equal fails the test, without ending it, if got differs from want. It compares deeply: nil and
// empty differ, since a body that is missing is not the same as an empty one. It may be called in
// an update.
func equal(tb testing.TB, what string, got, want any) {
	tb.Helper()
	if reflect.DeepEqual(got, want) {
		return
	}
	g, _ := json.Marshal(got)
	x, _ := json.Marshal(want)
	const limit = 2000
	tb.Errorf("%s\n got %.*s\nwant %.*s", what, limit, g, limit, x)
}

// Listed returns the jobs of a List.
func Listed(r store.Reader, f store.Filter) ([]*job.Job, error) {
	page, err := r.List(f)
	return page.Jobs, err
}
