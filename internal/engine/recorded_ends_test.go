package engine_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
)

// TX-006: what a worker has recorded is what an end over the engine would be, with its history,
// counters, dependents, retry policy and dead letters.
func TestRecordedEnds(t *testing.T) {
	onPostgres(t, func(w *workerWorld) {
		w.submit(sub("graph/a"))
		a := w.run("graph/a")
		w.submit(sub("graph/b", after("graph/a")), sub("brief/gone"), sub("phased/fresh"))
		gone := w.run("brief/gone")
		fresh := w.run("phased/fresh")
		w.submit(sub("locked/retried"))
		retried := w.run("locked/retried")
		w.submit(sub("locked/dead"))
		dead := w.run("locked/dead")
		w.completed(a)
		w.completed(gone)
		w.completed(fresh)
		w.failed(retried, "once more", true)
		w.failed(dead, "never again", false)
		w.clock.Advance(time.Second)
		w.carryOut(5)
		w.wantSnapshot(`graph/a: completed done runs=1 result={"sent": 1.0} [submitted>pending satisfied>ready claimed>running succeeded>completed]
			graph/b: ready ready [submitted>pending satisfied>ready]
			locked/dead: failed done runs=1 failure=: never again [submitted>queued claimed>processing failed_for_good>failed]
			locked/retried: failed_retryable waiting runs=1 failures=1 due=10s failure=: once more [submitted>queued claimed>processing failed>failed_retryable]
			phased/fresh: succeeded done runs=1 result={"sent": 1.0} [submitted>created due>queued claimed>assigned started>running succeeded>succeeded]
			graph q: 0 waiting 1 ready 0 leased
			locked q: 1 waiting 0 ready 0 leased
			dead locked/dead failed_for_good payload= failure=: never again`)
		want := []string{"brief/gone true", "graph/a true", "locked/dead false",
			"locked/retried false", "phased/fresh true"}
		if slices.Sort(w.ended); !slices.Equal(w.ended, want) {
			w.Errorf("ended were %v, want %v", w.ended, want)
		}
		w.carryOut(0)
		for _, r := range []engine.Run{a, gone, fresh, retried, dead} {
			w.wantLost(r)
		}
	})
}

// verb is a verb that may end a run of graph, or take the job from it.
type verb struct {
	name string
	do   func(w *workerWorld, r engine.Run) error
	// waits says that the verb waits for a transaction of the worker.
	waits bool
	// ended is the error of the verb after the run has ended by its worker.
	ended job.Kind
	// open is the error of the verb before, Internal for none. An end is not open any longer then.
	open job.Kind
}

// none is the kind of no error.
const none = job.Internal

// verbs are all verbs of the engine that may end a run.
var verbs = []verb{
	{"complete", finishVerb(job.Succeeded), true, job.RunLost, none},
	{"fail", finishVerb(job.Failed), true, job.RunLost, none},
	{"fail for good", finishVerb(job.FailedForGood), true, job.RunLost, none},
	{"release", finishVerb(job.Released), true, job.RunLost, none},
	{"decide", func(w *workerWorld, r engine.Run) error {
		_, err := w.engine.FinishBy(w.ctx, r, func(*job.Job) (engine.Outcome, error) {
			return engine.Outcome{On: job.Succeeded}, nil
		})
		return err
	}, true, job.RunLost, none},
	{"requeue", func(w *workerWorld, r engine.Run) error {
		return w.engine.Requeue(w.ctx, r, engine.Unique, subs(sub("brief/"+r.ID.Key)))
	}, true, job.RunLost, none},
	{"requeue by name", func(w *workerWorld, r engine.Run) error {
		return w.engine.RequeueJob(w.ctx, r.ID, engine.Unique, subs(sub("brief/"+r.ID.Key)))
	}, true, job.RunLost, none},
	{"submit and end", func(w *workerWorld, r engine.Run) error {
		_, err := w.engine.Submit(w.withFinish(r, "note"), engine.Unique,
			subs(sub("brief/"+r.ID.Key)))
		return err
	}, true, job.RunLost, none},
	{"cancel", func(w *workerWorld, r engine.Run) error {
		return errOf(w.engine.Cancel(w.ctx, r.ID))
	}, true, job.Conflict, none},
	{"operator's release", func(w *workerWorld, r engine.Run) error {
		return errOf(w.engine.Change(w.ctx, r.ID, job.Released, nil))
	}, true, job.Conflict, none},
	{"expire by hand", func(w *workerWorld, r engine.Run) error {
		return errOf(w.engine.Change(w.ctx, r.ID, job.ExpiredForGood, nil))
	}, true, job.Conflict, none},
	{"run now", func(w *workerWorld, r engine.Run) error {
		return errOf(w.engine.RunNow(w.ctx, r.ID))
	}, true, job.Conflict, job.Conflict},
	{"retry", func(w *workerWorld, r engine.Run) error {
		return errOf(w.engine.Retry(w.ctx, r.ID, 0))
	}, true, job.Conflict, job.Conflict},
	{"edit", func(w *workerWorld, r engine.Run) error {
		return errOf(w.engine.Change(w.ctx, r.ID, job.Replaced,
			func(j *job.Job, _ time.Time) error {
				if j.State != "running" {
					return &job.Error{Kind: job.Conflict, Msg: "it is " + string(j.State)}
				}
				return nil
			}))
	}, true, job.Conflict, none},
	{"claim by name after the lease", func(w *workerWorld, r engine.Run) error {
		w.clock.Advance(time.Minute)
		return errOf(w.engine.ClaimJob(w.ctx, r.ID, "other"))
	}, true, job.Conflict, none},
	{"expire after the lease", func(w *workerWorld, r engine.Run) error {
		w.clock.Advance(time.Minute)
		return errOf(w.engine.Expire(w.ctx))
	}, false, none, none},
	{"claim after the lease", func(w *workerWorld, r engine.Run) error {
		w.clock.Advance(time.Minute)
		jobs, err := w.engine.Claim(w.ctx, engine.ClaimRequest{JobType: r.ID.JobType,
			Max: 100})
		for _, j := range jobs {
			if j.ID == r.ID {
				return nil
			}
		}
		return errors.Join(err, &job.Error{Kind: job.NotFound})
	}, false, job.NotFound, none},
	{"remove", func(w *workerWorld, r engine.Run) error {
		return w.engine.Remove(w.ctx, r.ID)
	}, true, none, none},
	{"remove with dependents", func(w *workerWorld, r engine.Run) error {
		return errOf(w.engine.RemoveWithDependents(w.ctx, r.ID, 10))
	}, true, none, job.Conflict},
	{"replace", func(w *workerWorld, r engine.Run) error {
		return errOf(w.engine.Submit(w.ctx, engine.Replace, subs(sub(name(r.ID)))))
	}, true, none, none},
}

func finishVerb(on job.Cause) func(w *workerWorld, r engine.Run) error {
	return func(w *workerWorld, r engine.Run) error {
		return errOf(w.engine.Finish(w.ctx, r, engine.Outcome{On: on}))
	}
}

// everything is a machine that allows all that may end a run, and keeps the job.
var everything = job.MustMachine(map[job.State]job.Phase{"queued": job.Ready,
	"running": job.Leased, "done": job.Done, "over": job.Done}, []job.Transition{
	{From: job.StateNone, On: job.Submitted, To: "queued"},
	{From: "queued", On: job.Claimed, To: "running"},
	{From: "queued", On: job.Removed, To: job.StateNone},
	{From: "running", On: job.Succeeded, To: "done"},
	{From: "running", On: job.Failed, To: "queued", CountsFailed: true},
	{From: "running", On: job.FailedForGood, To: "over"},
	{From: "running", On: job.Expired, To: "queued", CountsFailed: true},
	{From: "running", On: job.ExpiredForGood, To: "over"},
	{From: "running", On: job.Released, To: "queued"},
	{From: "running", On: job.Requeued, To: job.StateNone},
	{From: "running", On: job.Canceled, To: "over"},
	{From: "running", On: job.Removed, To: job.StateNone},
	{From: "running", On: job.Replaced, To: "queued"},
	{From: "done", On: job.Removed, To: job.StateNone},
	{From: "done", On: job.Replaced, To: "queued"},
})

// onEachVerb runs a test for each verb, on a job of its own that runs.
func onEachVerb(t *testing.T, test func(w *workerWorld, v verb, r engine.Run)) {
	t.Helper()
	t.Parallel()
	newWorkerWorld(t, func(c *engine.JobType) {
		if c.Name == "graph" {
			c.Machine, c.Graph = everything, false
		}
	}, func(w *workerWorld) {
		for i, v := range verbs {
			t.Run(v.name, func(t *testing.T) {
				w.TB, w.ended = t, nil
				text := fmt.Sprint("graph/", i)
				w.submit(sub(text, with(func(j *job.Job) { j.Retry = job.RetryPolicy{} })))
				j, err := w.engine.ClaimJob(w.ctx, id(text), "w")
				w.noError(err)
				test(w, v, engine.Run{ID: j.ID, Run: j.Run})
			})
		}
	})
}

// wantEnd checks that the job has come to what its worker has recorded, once.
func (w *workerWorld) wantEnd(v verb, r engine.Run, err error) {
	w.Helper()
	if got := job.KindOf(err); got != v.ended || (err != nil) != (v.ended != none) {
		w.Errorf("got error %v, want kind %s", err, v.ended)
	}
	w.engine.CarryOutEnds(w.ctx)
	if want := []string{name(r.ID) + " true"}; !slices.Equal(w.ended, want) {
		w.Errorf("ended were %v, want %v", w.ended, want)
	}
}

// TX-006: after the commit of the worker its end is what comes of the run, whatever is done before
// a node has carried it out.
func TestRecordedEndComesFirst(t *testing.T) {
	onEachVerb(t, func(w *workerWorld, v verb, r engine.Run) {
		w.completed(r)
		w.wantEnd(v, r, v.do(w, r))
	})
}

// TX-006: a verb that comes while the transaction of the worker is open waits for it, or passes
// over the job; it comes after its commit.
func TestOpenTransactionThatCommits(t *testing.T) {
	onEachVerb(t, func(w *workerWorld, v verb, r engine.Run) {
		tx := w.begin()
		w.complete(tx, r)
		err := w.whileOpen(v, r, tx, tx.Commit)
		w.wantEnd(v, r, err)
	})
}

// TX-006: after a rollback the run goes on, and the verb does what it would have done.
func TestOpenTransactionThatRollsBack(t *testing.T) {
	onEachVerb(t, func(w *workerWorld, v verb, r engine.Run) {
		tx := w.begin()
		w.complete(tx, r)
		err := w.whileOpen(v, r, tx, tx.Rollback)
		if !v.waits { // it has passed over the job
			w.noError(errOf(w.engine.Expire(w.ctx)))
			err = nil
		}
		if got := job.KindOf(err); got != v.open || (err != nil) != (v.open != none) {
			w.Errorf("got error %v, want kind %s", err, v.open)
		}
		w.engine.CarryOutEnds(w.ctx)
		if len(w.ended) > 0 {
			w.Errorf("ended were %v, want none", w.ended)
		}
		if v.open == none {
			w.wantLost(r)
		} else {
			w.completed(r)
			w.carryOut(1)
		}
	})
}

// whileOpen calls a verb while a transaction is open, which end ends once the verb waits or has
// returned.
func (w *workerWorld) whileOpen(v verb, r engine.Run, tx *sql.Tx, end func() error) error {
	w.Helper()
	pid := w.backend(tx)
	done, returned := make(chan error, 1), make(chan error)
	go func() {
		done <- v.do(w, r)
		close(returned)
	}()
	if blocked := w.awaitBlocked(pid, returned); blocked != v.waits {
		w.Errorf("it waits: %v, want %v", blocked, v.waits)
	}
	w.noError(end())
	return <-done
}

// TX-006: heartbeats go on while the transaction of the worker is open. After its commit the run is
// over for them.
func TestHeartbeatsOfOpenTransaction(t *testing.T) {
	onPostgres(t, func(w *workerWorld) {
		w.submit(sub("graph/a"))
		r := w.run("graph/a")
		tx := w.begin()
		w.complete(tx, r)
		w.clock.Advance(20 * time.Second)
		until, err := w.engine.Heartbeat(w.ctx, r, []byte(`"half"`))
		w.noError(err)
		if want := w.clock.Now().Add(30 * time.Second); !until.Equal(want) {
			w.Errorf("the lease lasts until %v, want %v", until, want)
		}
		w.noError(tx.Commit())
		w.wantKind(errOf(w.engine.Heartbeat(w.ctx, r, nil)), job.RunLost)
		w.wantKind(w.engine.HeartbeatJob(w.ctx, r.ID, nil), job.RunLost)
		w.wantKind(errOf(w.engine.Start(w.ctx, r)), job.RunLost)
		w.carryOut(0) // HeartbeatJob has carried it out, to see what run the job has
		w.wantResult("graph/a", `{"sent": 1.0}`)
	})
}

// TX-006: the transaction of one worker holds up the ends of no other run, although they come in
// the same group.
func TestOpenTransactionHoldsUpNoOther(t *testing.T) {
	onPostgres(t, func(w *workerWorld) {
		const others = 50
		w.submit(sub("graph/a"))
		r := w.run("graph/a")
		tx := w.begin()
		w.complete(tx, r)
		var waiting sync.WaitGroup
		lost := make(chan error, 1)
		waiting.Go(func() { lost <- finishVerb(job.Succeeded)(w, r) })
		for i := range others {
			text := "brief/" + string(rune('A'+i))
			w.submit(sub(text))
			w.finish(w.run(text), job.Succeeded)
		}
		select {
		case err := <-lost:
			w.Errorf("the end of the locked run did not wait: %v", err)
		default:
		}
		w.noError(tx.Commit())
		waiting.Wait()
		w.wantKind(<-lost, job.RunLost)
		w.carryOut(1)
	})
}

// TX-006: a run that was lost never commits: neither one that has lost its job before, nor one that
// a transaction with an older snapshot still sees, at every isolation level.
func TestLostRunDoesNotCommit(t *testing.T) {
	for _, level := range []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead,
		sql.LevelSerializable} {
		t.Run(level.String(), func(t *testing.T) {
			onPostgres(t, func(w *workerWorld) {
				w.submit(sub("graph/a"))
				r := w.run("graph/a")
				tx, err := w.db.BeginTx(w.ctx, &sql.TxOptions{Isolation: level})
				w.noError(err)
				defer tx.Rollback()
				var leases int
				w.noError(tx.QueryRow("SELECT count(*) FROM leases").Scan(&leases)) // a snapshot
				w.clock.Advance(time.Minute)
				w.noError(errOf(w.engine.Expire(w.ctx)))
				w.clock.Advance(time.Minute)
				again := w.run("graph/a")
				want := "MR001"
				if level != sql.LevelReadCommitted {
					want = "40001" // could not serialize: the row of the lease is another one
				}
				_, err = tx.Exec(completeSQL, r.Run.String(), nil)
				w.wantState(err, want)
				w.completed(again)
				w.carryOut(1)
			})
		})
	}
}

// TX-006: the heartbeats of a run fail no transaction with a snapshot from before them.
func TestHeartbeatUnderSnapshot(t *testing.T) {
	onPostgres(t, func(w *workerWorld) {
		w.submit(sub("graph/a"))
		r := w.run("graph/a")
		tx, err := w.db.BeginTx(w.ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
		w.noError(err)
		defer tx.Rollback()
		var leases int
		w.noError(tx.QueryRow("SELECT count(*) FROM leases").Scan(&leases))
		w.clock.Advance(time.Second)
		w.noError(errOf(w.engine.Heartbeat(w.ctx, r, nil)))
		w.complete(tx, r)
		w.noError(tx.Commit())
		w.carryOut(1)
	})
}

// TX-006: of two transactions of one run that are open at the same time the first one that commits
// has ended it; the second one learns it.
func TestTwoTransactionsOfOneRun(t *testing.T) {
	onPostgres(t, func(w *workerWorld) {
		w.submit(sub("graph/a"))
		r := w.run("graph/a")
		first, second := w.begin(), w.begin()
		w.complete(first, r)
		pid := w.backend(first)
		done, returned := make(chan error, 1), make(chan error)
		go func() {
			_, err := second.Exec(failSQL, r.Run.String(), "too late", true)
			done <- err
			close(returned)
		}()
		if !w.awaitBlocked(pid, returned) {
			w.Error("the second transaction did not wait")
		}
		w.noError(first.Commit())
		w.wantState(<-done, "MR001")
		w.noError(second.Rollback())
		w.carryOut(1)
		w.wantResult("graph/a", `{"sent": 1.0}`)
	})
}

// TX-006: a notification in the worker's transaction wakes the nodes, and the polling of the sweep
// does so too.
func TestEndsAreAnnounced(t *testing.T) {
	onPostgres(t, func(w *workerWorld) {
		ctx, stop := context.WithCancel(w.ctx)
		var listening sync.WaitGroup
		listening.Go(func() { w.engine.Listen(ctx) })
		defer listening.Wait()
		defer stop()
		var listens atomic.Bool
		for !listens.Load() && w.ctx.Err() == nil {
			var n int
			w.noError(w.db.QueryRow("SELECT count(*) FROM pg_stat_activity WHERE query=" +
				"'LISTEN millrace' AND pid IN (SELECT pid FROM pg_stat_activity " +
				"WHERE state='idle')").Scan(&n))
			listens.Store(n > 0)
		}
		w.submit(sub("graph/a"))
		w.completed(w.run("graph/a"))
		<-w.engine.EndsRecorded()
		stop() // other tests use the database, and their ends are announced here too
		listening.Wait()
		select {
		case <-w.engine.EndsRecorded():
		default:
		}
		w.noError(thirdOf(w.engine.NextDue(w.ctx)))
		<-w.engine.EndsRecorded()
		w.carryOut(1)
		w.noError(thirdOf(w.engine.NextDue(w.ctx)))
		select {
		case <-w.engine.EndsRecorded():
			w.Error("an end was announced although none is recorded")
		default:
		}
	})
}

func thirdOf[A, B any](_ A, _ B, err error) error { return err }
