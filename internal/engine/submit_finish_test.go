package engine_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/store/storetest/pgtest"
	"github.com/millrace/millrace/internal/testkit"
)

// withFinish is a context whose next submission completes a run, and leaves a note and the number
// of the job that it made.
func (w *world) withFinish(run engine.Run, note string) context.Context {
	return engine.WithFinish(w.ctx, run, func(made *job.Job, _ time.Time) engine.Outcome {
		return engine.Outcome{On: job.Succeeded, Result: fmt.Append(nil, made.Seq),
			Records: []job.Record{{Kind: "note", Key: note}}}
	})
}

// hasNote reports whether a note is stored.
func (w *world) hasNote(key string) (has bool) {
	w.Helper()
	w.noError(w.engine.ViewRecords(w.ctx, func(r engine.RecordReader) error {
		record, err := r.Record("note", key)
		has = record != nil
		return err
	}))
	return has
}

// A submission ends the run that it goes with, once and only if it stores its jobs. Where the run
// is lost, it stores nothing.
func TestSubmissionThatEndsARun(t *testing.T) {
	onEveryStore(t, testJobTypes(), func(w *world) {
		w.submit(sub("part/run"), sub("part/lost"))
		w.submit(sub("phased/taken"))
		run, lost := w.run("part/run"), w.run("part/lost")

		_, err := w.engine.Submit(w.withFinish(run, "conflict"), engine.Unique,
			subs(sub("phased/taken")))
		w.wantKind(err, job.Conflict)
		if j := w.get("part/run"); j.Phase != job.Leased || w.hasNote("conflict") {
			w.Errorf("a submission that stored nothing left the job %s", j.State)
		}
		ctx := w.withFinish(run, "end")
		r, err := w.engine.Submit(ctx, engine.Unique, subs(sub("phased/a")))
		w.noError(err)
		j := w.get("part/run")
		if j.Phase != job.Done || string(j.Result) != fmt.Sprint(r.Jobs[0].Seq) || !w.hasNote("end") {
			w.Errorf("the run ended as %s with %s", j.State, j.Result)
		}
		_, err = w.engine.Submit(ctx, engine.Unique, subs(sub("phased/b"))) // it is used up
		w.noError(err)
		_, err = w.engine.Finish(w.ctx, run, engine.Outcome{On: job.Succeeded})
		w.wantKind(err, job.RunLost)

		_, err = w.engine.Release(w.ctx, lost)
		w.noError(err)
		for _, s := range [][]engine.Submission{subs(sub("phased/c")),
			subs(sub("graph/d"), sub("graph/e", after("graph/d")))} { // alone and in a group
			_, err = w.engine.Submit(w.withFinish(lost, "lost"), engine.Unique, s)
			w.wantKind(err, job.RunLost)
			if exists, err := w.engine.Exists(w.ctx, s[0].Job.ID); err != nil || exists ||
				w.hasNote("lost") {
				w.Errorf("a lost run has stored %s: %v", name(s[0].Job.ID), err)
			}
		}
		w.checkInvariants()
	})
}

// Submissions that end runs share transactions, and each has its own outcome: of those of lost runs
// nothing is stored, and the others are not held up by them.
func TestSubmissionsThatEndRunsTogether(t *testing.T) {
	onEveryStore(t, testJobTypes(), func(w *world) {
		const n = 60
		runs := make([]engine.Run, n)
		for i := range runs {
			w.submit(sub(fmt.Sprint("part/run", i)))
			runs[i] = w.run(fmt.Sprint("part/run", i))
		}
		for i := 1; i < n; i += 3 {
			_, err := w.engine.Release(w.ctx, runs[i])
			w.noError(err)
		}
		errs := make([]error, n)
		var all sync.WaitGroup
		for i := range n {
			all.Go(func() {
				ctx := w.ctx
				if i%3 != 2 {
					ctx = w.withFinish(runs[i], fmt.Sprint(i))
				}
				_, errs[i] = w.engine.Submit(ctx, engine.Unique,
					subs(sub(fmt.Sprint("phased/made", i))))
			})
		}
		all.Wait()
		for i, err := range errs {
			exists, failed := w.engine.Exists(w.ctx, id(fmt.Sprint("phased/made", i)))
			w.noError(failed)
			if i%3 == 1 {
				w.wantKind(err, job.RunLost)
			} else {
				w.noError(err)
			}
			done := w.get(fmt.Sprint("part/run", i)).State == "done"
			if exists == (i%3 == 1) || done != (i%3 == 0) || w.hasNote(fmt.Sprint(i)) != done {
				w.Errorf("submission %d stored %v and has ended its run: %v", i, exists, done)
			}
		}
		w.checkInvariants()
	})
}

// Where another node has the jobs locked whose runs submissions end, these wait, and no others do.
// SQLite has one writer, so there nothing waits for the lock of a job.
func TestSubmissionsBesideLockedRuns(t *testing.T) {
	t.Parallel()
	url, application := pgtest.URL(t), rand.Text()
	w := &world{TB: t, clock: testkit.NewClock(), ctx: t.Context()}
	w.store = openPostgresURL(t, url+"&lock_timeout=60s&application_name="+application, w.clock.Now)
	w.engine = testkit.NewEngine(t, w.store, w.clock, testJobTypes()...)
	other := openPostgresURL(t, url+"&idle_in_transaction_session_timeout=60s", w.clock.Now)
	runs := make([]engine.Run, engine.MaxGroups(w.engine))
	locked := store.Selector{Bodies: store.NoBodies, Lock: true}
	for i := range runs {
		w.submit(sub(fmt.Sprint("part/run", i)))
		runs[i] = w.run(fmt.Sprint("part/run", i))
		locked.Seqs = append(locked.Seqs, runs[i].Run.Seq())
	}

	var all sync.WaitGroup
	defer all.Wait()
	stalled, release := make(chan struct{}), make(chan struct{})
	goOn := sync.OnceFunc(func() { close(release) })
	defer goOn()
	all.Go(func() {
		if err := other.Update(w.ctx, func(tx store.Tx) error {
			_, err := tx.Load(locked)
			close(stalled)
			<-release
			return err
		}); err != nil {
			w.Error(err)
		}
	})
	testkit.Receive(w, "the jobs to be locked", stalled)
	db := pgtest.DB(t, url)
	for i, run := range runs {
		all.Go(func() {
			if _, err := w.engine.Submit(w.withFinish(run, fmt.Sprint(i)), engine.Unique,
				subs(sub(fmt.Sprint("phased/made", i)))); err != nil {
				w.Error(err)
			}
		})
		testkit.WaitUntil(w, "the submission to wait for the lock", func() bool {
			var waiting int
			w.noError(db.QueryRow(`SELECT count(*) FROM pg_stat_activity WHERE application_name=$1
				AND wait_event_type='Lock'`, application).Scan(&waiting))
			return waiting == i+1
		})
	}
	submitted := make(chan error, 1)
	all.Go(func() {
		_, err := w.engine.Submit(w.ctx, engine.Unique, subs(sub("phased/client")))
		submitted <- err
	})
	w.noError(testkit.Receive(w, "the submission of a client", submitted))
	goOn()
	all.Wait()
	for i := range runs {
		j := w.get(fmt.Sprint("part/run", i))
		if j.State != "done" || !w.hasNote(fmt.Sprint(i)) {
			w.Errorf("run %d is %s", i, j.State)
		}
	}
}
