package engine_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/testkit"
)

// TX-006: an end that the machine of the job type does not have becomes a failure that says so, and
// where there is no failure either the run goes on as if nothing had been recorded.
func TestEndsThatTheJobTypeDoesNotHave(t *testing.T) {
	t.Parallel()
	newWorkerWorld(t, func(c *engine.JobType) {
		c.RecordedEnds.Complete = func(*job.Job, []byte) engine.Outcome {
			return engine.Outcome{On: job.Canceled} // which neither graph nor brief has
		}
		if c.Name == "locked" {
			c.RecordedEnds = nil
		}
	}, func(w *workerWorld) {
		w.submit(sub("graph/a"), sub("brief/b"), sub("locked/c"))
		runs := []engine.Run{w.run("graph/a"), w.run("brief/b"), w.run("locked/c")}
		for _, r := range runs {
			w.completed(r)
		}
		w.carryOut(3)
		w.wantSnapshot(`brief/b: running leased runs=1 until=30s
			graph/a: failed done runs=1 failure=end_refu…113 [submitted>pending satisfied>ready claimed>running failed_for_good>failed]
			locked/c: processing leased runs=1 until=30s [submitted>queued claimed>processing]
			brief q: 0 waiting 0 ready 1 leased
			locked q: 0 waiting 0 ready 1 leased
			dead graph/a failed_for_good payload= failure=end_refu…113`)
		const why = "end_refused: the end that the worker has recorded was refused: " +
			"the job is running, in which it cannot be canceled"
		if got := string(w.get("graph/a").Failure); got != why {
			t.Errorf("the failure is %q", got)
		}
		w.finish(runs[1], job.Succeeded)
		w.finish(runs[2], job.Succeeded)
	})
}

// TX-006: an end that is dropped is an error in the log: its worker has committed, and the run goes
// on.
func TestDroppedEndIsAnError(t *testing.T) {
	onPostgres(t, func(w *workerWorld) {
		w.submit(sub("locked/a"))
		w.completed(w.run("locked/a"))
		log := &testkit.LogBuffer{}
		e, err := engine.New(engine.Config{Store: w.store, Node: "b", Random: testkit.RandomBytes,
			Monotonic: w.clock.Monotonic, Log: slog.New(slog.NewTextHandler(log, nil))})
		w.noError(err)
		defer e.Close()
		testkit.Register(w, e, testJobTypes()...) // of which none takes recorded ends
		n, err := e.CarryOutEnds(w.ctx)
		w.noError(err)
		text := log.String()
		if n != 1 || !strings.Contains(text, "level=ERROR") ||
			!strings.Contains(text, "which goes on") {
			t.Errorf("%d ends were carried out; the log is %q", n, text)
		}
	})
}

// TX-006: a result that its job type verifies is verified outside of the transaction. While that
// fails for a reason that passes, or this node must not do it, the end stays recorded, holds up no
// other end, and what would move the job gets the answer to try again.
func TestEndsToVerify(t *testing.T) {
	t.Parallel()
	var verify, check error
	newWorkerWorld(t, func(c *engine.JobType) {
		if c.Name != "graph" {
			return
		}
		c.RecordedEnds.Complete = nil
		c.RecordedEnds.Verify = func(_ context.Context, j *job.Job, result []byte) (engine.Outcome,
			error) {
			if string(j.Definition) != "definition" {
				return engine.Outcome{}, fmt.Errorf("the definition is %q", j.Definition)
			}
			return engine.Outcome{On: job.Succeeded, Result: append(result, '!')}, verify
		}
		c.RecordedEnds.Check = func() error { return check }
	}, func(w *workerWorld) {
		defined := with(func(j *job.Job) { j.Definition = []byte("definition") })
		w.submit(sub("graph/a", defined), sub("locked/b"))
		r := w.run("graph/a")
		pending := func() {
			t.Helper()
			w.clock.Advance(time.Hour)
			w.noError(errOf(w.engine.Expire(w.ctx)))
			w.wantKind(w.engine.Remove(w.ctx, r.ID), job.Unavailable)
			w.wantKind(errOf(w.engine.Finish(w.ctx, r, engine.Outcome{On: job.Failed})),
				job.RunLost)
			if j := w.get("graph/a"); j.State != "running" {
				t.Errorf("it is %s", j.State)
			}
		}
		w.completed(r)
		w.completed(w.run("locked/b"))
		check = errors.New("not on this node")
		w.carryOutSome(1)
		pending()
		check, verify = nil, &job.Error{Kind: job.Unavailable, Msg: "the objects are unavailable"}
		for range 2 {
			w.carryOutSome(0)
			<-w.engine.EndsToVerify()
			w.wantKind(errOf(w.engine.VerifyEnds(w.ctx)), job.Unavailable)
			pending()
		}
		verify = nil
		w.noError(w.engine.Remove(w.ctx, r.ID))
		w.carryOut(0)

		w.submit(sub("graph/refused", defined))
		w.completed(w.run("graph/refused"))
		verify = &job.Error{Kind: job.NotFound, Msg: "no such object"}
		w.carryOutSome(0)
		if n, err := w.engine.VerifyEnds(w.ctx); n != 1 || err != nil {
			t.Errorf("%d ends were verified: %v", n, err)
		}
		if j := w.get("graph/refused"); j.State != "failed" || string(j.Failure) !=
			"end_refused: the end that the worker has recorded was refused: no such object" {
			t.Errorf("it is %s with failure %q", j.State, j.Failure)
		}
	})
}

// TX-006: one call carries out more ends than one transaction takes, and those behind ends that
// cannot be carried out; a second node finds nothing left.
func TestManyEnds(t *testing.T) {
	t.Parallel()
	const n = 1100
	newWorkerWorld(t, func(c *engine.JobType) {
		if c.Name == "locked" {
			c.RecordedEnds.Check = func() error { return errors.New("not on this node") }
		}
	}, func(w *workerWorld) {
		for _, jobType := range []string{"locked", "graph"} {
			w.completedMany(jobType, n)
		}
		if done, err := w.engine.CarryOutEnds(w.ctx); done != n || err != nil {
			t.Errorf("%d ends were carried out, want %d: %v", done, n, err)
		}
		if done, err := w.server().CarryOutEnds(w.ctx); done != 0 || err != nil {
			t.Errorf("another node has carried out %d: %v", done, err)
		}
	})
}

// TX-006: leases that have ended are found behind those whose ends are recorded.
func TestExpireBehindRecordedEnds(t *testing.T) {
	t.Parallel()
	const n = 600 // more than a sweep takes
	newWorkerWorld(t, func(c *engine.JobType) {
		c.RecordedEnds.Check = func() error { return errors.New("not on this node") }
	}, func(w *workerWorld) {
		w.completedMany("brief", n)
		w.submit(sub("graph/a"))
		w.clock.Advance(time.Second)
		w.run("graph/a")
		w.clock.Advance(time.Minute)
		if expired, err := w.engine.Expire(w.ctx); expired != 1 || err != nil {
			t.Errorf("%d runs have expired, want 1: %v", expired, err)
		}
	})
}

// TX-006: results are carried out together only as far as they fit into memory.
func TestLargeResults(t *testing.T) {
	onPostgres(t, func(w *workerWorld) {
		const n = 20 // 80 MiB
		w.completedMany("graph", n)
		_, err := w.db.Exec("UPDATE run_ends SET result=convert_to(repeat('9',4<<20),'UTF8')")
		w.noError(err)
		w.carryOut(n)
		if last := len(w.watch.rows()); last == 0 || last >= n {
			t.Errorf("the last transaction has carried out %d", last)
		}
	})
}

// TX-006: an end that a node of an older version has ignored is removed, and holds up no other.
func TestStaleEnds(t *testing.T) {
	onPostgres(t, func(w *workerWorld) {
		w.submit(sub("graph/a"), sub("brief/b"))
		w.run("graph/a")
		gone := w.run("brief/b")
		w.finish(gone, job.Succeeded)
		for _, seq := range []int64{w.get("graph/a").Seq, gone.Run.Seq(), 1_000_000} {
			_, err := w.db.Exec("INSERT INTO run_ends (seq,run_id,recorded_at,succeeded) "+
				"VALUES ($1,uuid_send($2::text::uuid),0,true)", seq,
				job.NewRunID(seq, [16]byte{1}).String())
			w.noError(err)
		}
		w.submit(sub("graph/c"))
		w.completed(w.run("graph/c"))
		w.carryOut(1)
		if j := w.get("graph/a"); j.State != "running" {
			t.Errorf("it is %s", j.State)
		}
	})
}

// completedMany submits jobs, claims them, and records that their runs have succeeded.
func (w *workerWorld) completedMany(jobType string, n int) {
	w.Helper()
	var batch []engine.Submission
	for i := range n {
		batch = append(batch, sub(fmt.Sprint(jobType, "/", i)))
	}
	w.submit(batch...)
	tx := w.begin()
	for _, j := range w.claim(jobType, n) {
		w.complete(tx, engine.Run{ID: j.ID, Run: j.Run})
	}
	w.noError(tx.Commit())
}

// TX-006: an end for which the contract panics fails its run, says why, and holds up no other.
func TestEndThatPanics(t *testing.T) {
	t.Parallel()
	newWorkerWorld(t, func(c *engine.JobType) {
		complete := c.RecordedEnds.Complete
		c.RecordedEnds.Complete = func(j *job.Job, result []byte) engine.Outcome {
			if j.ID.Key == "bad" {
				panic("no such field")
			}
			return complete(j, result)
		}
	}, func(w *workerWorld) {
		w.submit(sub("graph/good"), sub("graph/bad"), sub("graph/better"))
		for _, name := range []string{"graph/good", "graph/bad", "graph/better"} {
			w.completed(w.run(name))
		}
		w.carryOut(3)
		const why = "end_refused: the end that the worker has recorded was refused: " +
			"panic: no such field"
		if j := w.get("graph/bad"); j.State != "failed" || string(j.Failure) != why {
			t.Errorf("it is %s with failure %q", j.State, j.Failure)
		}
		for _, name := range []string{"graph/good", "graph/better"} {
			if j := w.get(name); j.State != "completed" {
				t.Errorf("%s is %s", name, j.State)
			}
		}
	})
}
