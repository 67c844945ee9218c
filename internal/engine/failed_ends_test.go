package engine_test

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/testkit"
)

// failingEnds are the job types of newWorkerWorld with ends that fail while isBad: those of graph
// in the database, which takes no such reason, and that of phased by a panic.
type failingEnds struct {
	isBad    atomic.Bool
	tries    atomic.Int64 // of ends that are bad
	jobTypes []engine.JobType
}

// badKeys are the keys of the jobs whose ends fail: two neighbours, and two of the next page.
var badKeys = []string{"7", "8", "499", "510"}

func (f *failingEnds) change(c *engine.JobType) {
	isBad := func(j *job.Job) bool {
		is := f.isBad.Load() && slices.Contains(badKeys, j.ID.Key)
		if is {
			f.tries.Add(1)
		}
		return is
	}
	switch c.Name {
	case "graph":
		c.RecordedEnds.Complete = func(j *job.Job, result []byte) engine.Outcome {
			o := succeededWith(j, result)
			if isBad(j) {
				o.Reason = "\x00"
			}
			return o
		}
	case "phased":
		c.MessageBody = func(j *job.Job, ev job.Event) []byte {
			if ev.Cause == job.Succeeded && isBad(j) {
				panic("it has no body")
			}
			return bodyOf(j, ev)
		}
	}
	f.jobTypes = append(f.jobTypes, *c)
}

// TX-006: an end whose transaction fails holds up no other, neither of its page nor of others, nor
// one that is recorded later. It is tried again after a pause; until then the run has not ended,
// and what would move the job is a conflict that changes nothing.
func TestEndsThatFail(t *testing.T) {
	t.Parallel()
	f := &failingEnds{}
	f.isBad.Store(true)
	newWorkerWorld(t, f.change, func(w *workerWorld) {
		const graphs, phased = 520, 9 // more than a page
		bad := int64(len(badKeys) + 2)
		w.completedMany("phased", phased)
		w.completedMany("graph", graphs)
		w.carryOutSome(graphs + phased - int(bad))
		tries := f.tries.Load()
		w.submit(sub("locked/later"))
		w.completed(w.run("locked/later"))
		w.carryOutSome(1)
		if n := f.tries.Load(); n != tries {
			t.Errorf("TX-006 what has failed was tried %d times more at once", n-tries)
		}
		for i, pause := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second} {
			w.clock.Advance(pause - time.Millisecond)
			w.carryOutSome(0)
			if n := f.tries.Load(); n != tries {
				t.Errorf("TX-006 it was tried before pause %d is over", i)
			}
			w.clock.Advance(time.Millisecond)
			w.carryOutSome(0)
			if n := f.tries.Load(); n < tries+bad {
				t.Errorf("TX-006 %d tries after pause %d, want %d or more", n-tries, i, bad)
			}
			tries = f.tries.Load()
		}
		w.clock.Advance(time.Hour)
		w.noError(errOf(w.engine.Expire(w.ctx)))
		w.wantKind(w.engine.Remove(w.ctx, id("graph/7")), job.Conflict)
		w.wantKind(errOf(w.engine.Change(w.ctx, id("graph/7"), job.Replaced, nil)), job.Conflict)
		if j := w.get("graph/7"); j.State != "running" {
			t.Errorf("TX-006 the job is %s", j.State)
		}
		f.isBad.Store(false)
		w.clock.Advance(time.Hour)
		w.carryOut(int(bad))
		w.wantResult("graph/7", `{"sent": 1.0}`)
	})
}

// uncommitted is a store whose updates fail after their work, as long as fails says so.
type uncommitted struct {
	store.Store
	updates int
	fails   func() bool
}

func (s *uncommitted) Update(ctx context.Context, fn func(store.Tx) error) error {
	s.updates++
	return s.Store.Update(ctx, func(tx store.Tx) error {
		if err := fn(tx); err != nil || !s.fails() {
			return err
		}
		return &job.Error{Kind: job.Unavailable, Op: "test", Msg: "the store is busy"}
	})
}

// TX-006: where the store fails with some ends alone, as another session has locked what follows
// from them, the others are carried out, however many of these are neighbours. Where it fails with
// all, no end is taken for the reason, and all are carried out as soon as it is back.
func TestEndsWhileTheStoreFails(t *testing.T) {
	t.Parallel()
	f := &failingEnds{}
	isTouched := false
	newWorkerWorld(t, func(c *engine.JobType) {
		c.RecordedEnds.Complete = func(j *job.Job, result []byte) engine.Outcome {
			isTouched = isTouched || len(j.ID.Key) == 1 // the first ten
			return succeededWith(j, result)
		}
		f.jobTypes = append(f.jobTypes, *c)
	}, func(w *workerWorld) {
		const n, bad = 100, 10
		w.completedMany("graph", n)
		isUnavailable := true
		s := &uncommitted{Store: w.store, fails: func() bool {
			fails := isUnavailable || isTouched
			isTouched = false
			return fails
		}}
		e := testkit.NewEngine(w, s, w.clock, f.jobTypes...)
		_, err := e.CarryOutEnds(w.ctx)
		w.wantKind(err, job.Unavailable)
		if s.updates > 2 {
			t.Errorf("TX-006 %d updates were tried while the store fails", s.updates)
		}
		isUnavailable = false
		if done, err := e.CarryOutEnds(w.ctx); done != n-bad || err != nil {
			t.Errorf("TX-006 %d ends were carried out, want %d: %v", done, n-bad, err)
		}
		w.clock.Advance(time.Second)
		s.fails = func() bool { return false }
		if done, err := e.CarryOutEnds(w.ctx); done != bad || err != nil {
			t.Errorf("TX-006 %d ends were carried out then, want %d: %v", done, bad, err)
		}
	})
}

// TX-006: a run that was lost never commits. A lease ends, and another worker claims the job,
// within the transaction of the first worker, before it records the end: then its transaction fails
// and that of the second commits, although both were open at once. Or after it has recorded the
// end: then the second gets the job if the first rolls back, and never if it commits.
func TestLeaseEndsWithinATransaction(t *testing.T) {
	for _, level := range []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead,
		sql.LevelSerializable} {
		t.Run(level.String(), func(t *testing.T) {
			onPostgres(t, func(w *workerWorld) {
				w.noError(errOf(w.db.Exec("CREATE TABLE written (run text)")))
				lost := w.lostBeforeItsEnd(level)
				committed := w.lostAfterItsEnd(level, true)
				again := w.lostAfterItsEnd(level, false)
				var got []string
				rows, err := w.db.Query("SELECT run FROM written")
				w.noError(err)
				defer rows.Close()
				for rows.Next() {
					var run string
					w.noError(rows.Scan(&run))
					got = append(got, run)
				}
				w.noError(rows.Err())
				want := []string{lost, committed, again}
				if slices.Sort(got); !slices.Equal(got, slices.Sorted(slices.Values(want))) {
					t.Errorf("TX-006 the runs that have committed are %v, want %v", got, want)
				}
			})
		})
	}
}

// beginWriting begins a transaction of a worker with a row of its own.
func (w *workerWorld) beginWriting(level sql.IsolationLevel, r engine.Run) *sql.Tx {
	w.Helper()
	tx, err := w.db.BeginTx(w.ctx, &sql.TxOptions{Isolation: level})
	w.noError(err)
	w.Cleanup(func() { _ = tx.Rollback() })
	w.noError(errOf(tx.Exec("INSERT INTO written VALUES ($1)", r.Run.String())))
	return tx
}

// lostBeforeItsEnd lets the lease of a run end in its transaction, and returns the run that has
// committed instead.
func (w *workerWorld) lostBeforeItsEnd(level sql.IsolationLevel) string {
	w.Helper()
	w.submit(sub("graph/before"))
	first := w.run("graph/before")
	one := w.beginWriting(level, first)
	w.clock.Advance(time.Minute)
	w.noError(errOf(w.engine.Expire(w.ctx)))
	w.clock.Advance(time.Minute)
	second := w.run("graph/before")
	two := w.beginWriting(level, second)
	w.complete(two, second)
	want := "MR001"
	if level != sql.LevelReadCommitted {
		want = "40001" // the row of the job is another one than in the snapshot
	}
	_, err := one.Exec(completeSQL, first.Run.String(), nil)
	w.wantState(err, want)
	if one.Commit() == nil {
		w.Error("TX-006 the transaction of a run that was lost has committed")
	}
	w.noError(two.Commit())
	w.carryOut(1)
	w.wantLost(first)
	return second.Run.String()
}

// lostAfterItsEnd lets the lease of a run end between its record and the end of its transaction,
// and returns the run that has committed.
func (w *workerWorld) lostAfterItsEnd(level sql.IsolationLevel, commits bool) string {
	w.Helper()
	text := fmt.Sprint("graph/", commits)
	w.submit(sub(text, with(func(j *job.Job) { j.Retry = job.RetryPolicy{} })))
	first := w.run(text)
	one := w.beginWriting(level, first)
	w.complete(one, first)
	w.clock.Advance(time.Minute)
	if n, err := w.engine.Expire(w.ctx); n != 0 || err != nil {
		w.Errorf("TX-006 %d runs have expired within their transactions: %v", n, err)
	}
	var second *job.Job
	claimed, returned := make(chan error, 1), make(chan error)
	go func() {
		var err error
		second, err = w.engine.ClaimJob(w.ctx, id(text), "second")
		claimed <- err
		close(returned)
	}()
	if !w.awaitBlocked(w.backend(one), returned) {
		w.Error("TX-006 the job was claimed within the transaction of its worker")
	}
	if commits {
		w.noError(one.Commit())
		w.wantKind(<-claimed, job.Conflict)
		w.engine.CarryOutEnds(w.ctx)
		w.wantLost(first)
		return first.Run.String()
	}
	w.noError(one.Rollback())
	w.noError(<-claimed)
	run := engine.Run{ID: second.ID, Run: second.Run}
	two := w.beginWriting(level, run)
	w.complete(two, run)
	w.wantLost(first)
	w.noError(two.Commit())
	w.carryOut(1)
	return run.Run.String()
}
