package engine_test

import (
	"context"
	"crypto/rand"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/store/storetest/pgtest"
	"github.com/millrace/millrace/internal/testkit"
)

// observeCounts returns a store that calls counted in each update that has read how many runs there
// are.
func observeCounts(s store.Store, counted func()) store.Store {
	return &wrappedStore{s, func(tx store.Tx) store.Tx { return &countingTx{tx, counted} }}
}

type countingTx struct {
	store.Tx
	counted func()
}

func (t *countingTx) Counts(s store.QueueSelector) ([]job.QueueCount, error) {
	counts, err := t.Tx.Counts(s)
	t.counted()
	return counts, err
}

// claimVerbs are the verbs that claim jobs of brief's queue q, which holds a and b. The job x of
// another queue is at work already.
var claimVerbs = map[string]func(w *world, e *engine.Engine, x engine.Run) []*job.Job{
	"Claim": func(w *world, e *engine.Engine, _ engine.Run) []*job.Job {
		jobs, err := e.Claim(w.ctx, engine.ClaimRequest{JobType: "brief", Queues: []string{"q"},
			Max: 2, Worker: "b"})
		if err != nil {
			w.Error(err)
		}
		return jobs
	},
	"ClaimJob": func(w *world, e *engine.Engine, _ engine.Run) []*job.Job {
		j, err := e.ClaimJob(w.ctx, id("brief/b"), "b")
		if job.IsKind(err, job.Conflict) {
			return nil
		}
		if err != nil {
			w.Error(err)
		}
		return []*job.Job{j}
	},
	"FinishAll": func(w *world, e *engine.Engine, x engine.Run) []*job.Job {
		next := &engine.ClaimRequest{JobType: "brief", Queues: []string{"q"}, Max: 1, Worker: "b"}
		results := e.FinishAll(w.ctx, []engine.FinishRequest{{Run: x,
			Outcome: engine.Outcome{On: job.Succeeded}, Next: next}})[0]
		if results.Err != nil {
			w.Error(results.Err)
		}
		return results.Next
	},
}

// pair is two nodes, each with a store of its own on the same database.
type pair struct {
	*world
	first, second *engine.Engine
	x             engine.Run
	stopped       chan struct{} // signals that the first has counted, and waits for release
	release       func()
	counted       chan struct{} // signals that the second has counted
}

// newPair makes two nodes. Queue q may have one run, or all queues two, with that of x.
func newPair(tb testing.TB, limited string, clock *testkit.Clock, first, second store.Store) *pair {
	tb.Helper()
	jobTypes := testJobTypesWith("brief", func(c *engine.JobType) {
		if limited == "contract" {
			c.MaxRunning = 2
		}
	})
	let := make(chan struct{})
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	tb.Cleanup(cancel)
	p := &pair{world: &world{TB: tb, clock: clock, ctx: ctx}, stopped: make(chan struct{}),
		counted: make(chan struct{}, 10)}
	p.release = sync.OnceFunc(func() { close(let) })
	tb.Cleanup(p.release)
	stop := sync.OnceFunc(func() { close(p.stopped); <-let })
	p.store = first
	p.engine = testkit.NewEngine(tb, first, clock, jobTypes...)
	p.submit(sub("brief/x", in("r")))
	p.x = p.run("brief/x")
	p.submit(sub("brief/a"), sub("brief/b"))
	if limited == "queue" {
		p.noError(p.engine.SetQueue(ctx, job.QueueSettings{JobType: "brief", Queue: "q",
			MaxRunning: 1}))
	}
	p.first = testkit.NewEngine(tb, observeCounts(first, stop), clock, jobTypes...)
	signal := func() { p.counted <- struct{}{} }
	p.second = testkit.NewEngine(tb, observeCounts(second, signal), clock, jobTypes...)
	p.noError(p.first.LoadQueues(ctx))
	p.noError(p.second.LoadQueues(ctx))
	return p
}

// exclude stops the first node in a claim after it has counted, and has the second node begin
// meanwhile. waits returns once the second node waits for the first. Both together claim the one
// job that the limit allows.
func (p *pair) exclude(verb string, waits func()) {
	var byFirst, bySecond []*job.Job
	var both sync.WaitGroup
	both.Go(func() {
		jobs, err := p.first.Claim(p.ctx,
			engine.ClaimRequest{JobType: "brief", Queues: []string{"q"}, Max: 2, Worker: "a"})
		if err != nil {
			p.Error(err)
		}
		byFirst = jobs
	})
	defer both.Wait()
	defer p.release()
	testkit.Receive(p, "the first node to count", p.stopped)
	both.Go(func() { bySecond = claimVerbs[verb](p.world, p.second, p.x) })
	waits()
	p.release()
	both.Wait()
	if len(byFirst) != 1 || len(bySecond) != 0 {
		p.Errorf("the first node has %v, the second %v; the limit leaves one", names(byFirst),
			names(bySecond))
	}
	p.checkInvariants()
}

// eachVerb runs a test for every verb that claims jobs, under a limit of its queue and of its
// job type.
func eachVerb(t *testing.T, test func(t *testing.T, verb, limited string)) {
	t.Helper()
	t.Parallel()
	for verb := range claimVerbs {
		for _, limited := range []string{"queue", "contract"} {
			if verb == "FinishAll" && limited == "contract" {
				continue // the run that ends frees the slot that its own next claim takes
			}
			t.Run(verb+" under the limit of a "+limited, func(t *testing.T) {
				t.Parallel()
				test(t, verb, limited)
			})
		}
	}
}

// A transaction that claims under a limit waits for another one that has counted under it and not
// yet committed, and counts after it.
func TestLimitsExcludeOnPostgres(t *testing.T) {
	eachVerb(t, func(t *testing.T, verb, limited string) {
		clock, url, application := testkit.NewClock(), pgtest.URL(t), rand.Text()
		db := pgtest.DB(t, url)
		withTimeouts := url + "&lock_timeout=60s&idle_in_transaction_session_timeout=60s"
		p := newPair(t, limited, clock, openPostgresURL(t, withTimeouts, clock.Now),
			openPostgresURL(t, withTimeouts+"&application_name="+application, clock.Now))
		p.exclude(verb, func() {
			testkit.WaitUntil(t, "the second node to wait for the name of the limit", func() bool {
				if len(p.counted) > 0 {
					t.Error("the second node has counted while the first had not committed")
					return true
				}
				var waiting int
				if err := db.QueryRow(
					`SELECT count(*) FROM pg_locks JOIN pg_stat_activity USING (pid)
					WHERE locktype='advisory' AND NOT granted AND application_name=$1`, application).Scan(&waiting); err != nil {
					t.Fatal(err)
				}
				return waiting == 1
			})
		})
	})
}

// SQLite has one writer: while a node that has counted has not committed, no other update begins.
func TestLimitsExcludeOnSQLite(t *testing.T) {
	eachVerb(t, func(t *testing.T, verb, limited string) {
		clock := testkit.NewClock()
		s := openFile(t, filepath.Join(t.TempDir(), "m.db"), clock.Now)
		p := newPair(t, limited, clock, s, s)
		p.exclude(verb, func() {
			hurried, cancel := context.WithTimeout(p.ctx, 200*time.Millisecond)
			defer cancel()
			err := s.Update(hurried, func(store.Tx) error {
				t.Error("an update began while the first node had not committed")
				return nil
			})
			p.wantKind(err, job.Unavailable)
			if len(p.counted) > 0 {
				t.Error("the second node has counted while the first had not committed")
			}
		})
	})
}
