package engine_test

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/testkit"
)

// watchedStore checks that each transaction locks in the one order that cannot end in a deadlock:
// the limits of runs before any row. It keeps what the last one locked.
type watchedStore struct {
	wrappedStore

	mu   sync.Mutex
	last *watchedTx
}

func newWatchedStore(tb testing.TB, s store.Store) *watchedStore {
	w := &watchedStore{}
	w.wrappedStore = wrappedStore{s, func(tx store.Tx) store.Tx {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.last = &watchedTx{Tx: tx, tb: tb}
		return w.last
	}}
	return w
}

// rows are the jobs that the last transaction locked, in the order it did.
func (s *watchedStore) rows() []int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last.rows
}

type watchedTx struct {
	store.Tx
	tb   testing.TB
	rows []int64
}

func (t *watchedTx) LockName(name string) error {
	if strings.HasPrefix(name, "runs:") && len(t.rows) > 0 {
		t.tb.Errorf("%s is locked after the rows %v", name, t.rows)
	}
	return t.Tx.LockName(name)
}

func (t *watchedTx) saw(jobs []*job.Job, err error) ([]*job.Job, error) {
	for _, j := range jobs {
		if !slices.Contains(t.rows, j.Seq) {
			t.rows = append(t.rows, j.Seq)
		}
	}
	return jobs, err
}

func (t *watchedTx) Load(s store.Selector) ([]*job.Job, error) {
	if !s.Lock {
		return t.Tx.Load(s)
	}
	return t.saw(t.Tx.Load(s))
}
func (t *watchedTx) LockReady(jobType, queue string, n int) ([]*job.Job, error) {
	return t.saw(t.Tx.LockReady(jobType, queue, n))
}

// A job that is claimed by its identity while a late worker ends a run of it, and asks for the next
// one under the same limit, is locked after that limit too.
func TestClaimJobLocksItsLimitsFirst(t *testing.T) {
	onEveryStore(t, testJobTypesWith("graph", func(c *engine.JobType) { c.MaxRunning = 1 }), func(w *world) {
		w.noError(w.engine.SetQueue(w.ctx, job.QueueSettings{JobType: "graph", Queue: "q",
			MaxRunning: 1}))
		w.submit(sub("graph/a"))
		// the store reports a wrong order
		if _, err := w.engine.ClaimJob(w.ctx, id("graph/a"), "w"); err != nil {
			w.Fatal(err)
		}
		w.wantKind(errOf(w.engine.ClaimJob(w.ctx, id("graph/a"), "w")), job.Conflict)
		w.wantKind(errOf(w.engine.ClaimJob(w.ctx, id("graph/none"), "w")), job.NotFound)
	})
}

// Parents are locked in the order of their numbers, whatever has become of their children: a child
// that failed is applied first, but its parent is not locked first.
func TestParentsAreLockedInOneOrder(t *testing.T) {
	onEveryStore(t, testJobTypes(), func(w *world) {
		w.submit(sub("family/p"), sub("family/q"), sub("part/a", childOf("family/p")),
			sub("part/b", childOf("family/q"), limit(3)))
		runs := map[string]engine.Run{}
		for _, j := range w.claim("part", 2, "q") {
			runs[name(j.ID)] = engine.Run{ID: j.ID, Run: j.Run}
		}
		for _, results := range w.engine.FinishAll(w.ctx, []engine.FinishRequest{
			{Run: runs["part/a"], Outcome: engine.Outcome{On: job.Succeeded}},
			{Run: runs["part/b"], Outcome: engine.Outcome{On: job.Failed, Failure: []byte("why")}},
		}) {
			w.noError(results.Err)
		}
		p, q := w.get("family/p").Seq, w.get("family/q").Seq
		rows := w.watch.rows()
		if at, then := slices.Index(rows, p), slices.Index(rows, q); at < 0 || then < at {
			w.Errorf("locked %v, and the parents are %d and %d", rows, p, q)
		}
	})
}

// A claim of a child changes nothing in a parent that has started, and does not lock it: claims of
// the many children of one job do not wait for each other.
func TestParentThatHasStartedIsNotLocked(t *testing.T) {
	onEveryStore(t, testJobTypes(), func(w *world) {
		w.submit(sub("family/p"), sub("part/a", childOf("family/p")),
			sub("part/b", childOf("family/p")))
		p := w.get("family/p").Seq
		for i, want := range []bool{true, false} {
			w.claim("part", 1, "q")
			if rows := w.watch.rows(); slices.Contains(rows, p) != want {
				w.Errorf("claim %d locked %v, and the parent is %d", i+1, rows, p)
			}
		}
	})
}

// slowNamesTx locks limits that others hold for a while.
type slowNamesTx struct {
	store.Tx
	wait func()
}

func (t *slowNamesTx) LockName(name string) error {
	t.wait()
	return t.Tx.LockName(name)
}

// A claim that had to wait for a limit gives whole leases: they count from when it got the lock.
func TestLeaseBeginsAfterTheWait(t *testing.T) {
	onEveryStore(t, testJobTypes(), func(w *world) {
		w.noError(w.engine.SetQueue(w.ctx, job.QueueSettings{JobType: "brief", Queue: "q",
			MaxRunning: 5}))
		w.submit(sub("brief/a"), sub("brief/b"))
		slow := &wrappedStore{w.store, func(tx store.Tx) store.Tx {
			return &slowNamesTx{tx, func() { w.clock.Advance(20 * time.Second) }}
		}}
		w.engine = testkit.NewEngine(w, slow, w.clock, testJobTypes()...)
		for _, claim := range []func() (*job.Job, error){
			func() (*job.Job, error) { return w.claim("brief", 1, "q")[0], nil },
			func() (*job.Job, error) { return w.engine.ClaimJob(w.ctx, id("brief/b"), "w") },
		} {
			j, err := claim()
			w.noError(err)
			if left := j.LeaseUntil.Sub(w.clock.Now()); left != 30*time.Second {
				w.Errorf("%s is leased for %v more", name(j.ID), left)
			}
		}
	})
}
