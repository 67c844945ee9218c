package engine_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
)

// FR-154 ff.: assigned and running lose their runs in different ways.
func TestTwoPhases(t *testing.T) {
	onEveryStore(t, testJobTypes(), func(w *world) {
		w.submit(sub("phased/a", limit(2)))
		r := w.run("phased/a")
		// not started
		w.wantKind(errOf(w.engine.Finish(w.ctx, r, engine.Outcome{On: job.Succeeded})),
			job.Conflict)
		w.clock.Advance(20 * time.Second)
		j, err := w.engine.Start(w.ctx, r)
		w.noError(err)
		if j.State != "running" || !j.LeaseUntil.Equal(w.clock.Now().Add(30*time.Second)) ||
			!j.StartedAt.Equal(w.clock.Now()) {
			w.Errorf("started: %+v", j)
		}
		// another job's run
		w.wantKind(errOf(w.engine.Start(w.ctx, engine.Run{ID: id("phased/b"), Run: r.Run})),
			job.RunLost)
		w.clock.Advance(30 * time.Second)
		// a running job that is lost fails, FR-175
		if n, err := w.engine.Expire(w.ctx); n != 1 || err != nil {
			w.Fatal(n, err)
		}
		w.wantSnapshot(`phased/a: failed done runs=1 failures=1 [submitted>created due>queued claimed>assigned started>running expired>failed]`)
		for _, err := range w.writes(r) {
			w.wantKind(err, job.RunLost)
		}
		w.noError(errOf(w.engine.Retry(w.ctx, id("phased/a"), time.Second)))
		w.wantKind(errOf(w.engine.Retry(w.ctx, id("phased/a"), 0)), job.Conflict)
		w.clock.Advance(time.Second)
		r = w.run("phased/a")
		w.clock.Advance(30 * time.Second)
		r = w.run("phased/a") // an assignment that is lost does no harm, FR-173
		w.noError(errOf(w.engine.Start(w.ctx, r)))
		w.noError(errOf(w.engine.Finish(w.ctx, r, engine.Outcome{On: job.Failed,
			Failure: []byte("boom")})))
		w.wantSnapshot(`phased/a: failed done runs=3 failures=2 failure=boom [submitted>created due>queued claimed>assigned started>running expired>failed retried>queued claimed>assigned expired>queued claimed>assigned started>running failed_for_good>failed]
			dead phased/a failed_for_good payload= failure=boom`)
	})
}

// Decide gets the job of a current run and may refuse with an error of its own, which concerns no
// other run.
func TestFinishBy(t *testing.T) {
	onEveryStore(t, testJobTypes(), func(w *world) {
		w.submit(sub("brief/a"), sub("brief/b"))
		a, b := w.run("brief/a"), w.run("brief/b")
		refusal := errors.New("not yet")
		refuse := func(*job.Job) (engine.Outcome, error) { return engine.Outcome{}, refusal }
		results := w.engine.FinishAll(w.ctx, []engine.FinishRequest{{Run: a, Decide: refuse},
			{Run: b, Outcome: engine.Outcome{On: job.Succeeded}}})
		if results[0].Err != refusal || results[1].Err != nil {
			w.Fatal(results)
		}
		w.wantSnapshot(`brief/a: running leased runs=1 until=30s
			brief q: 0 waiting 0 ready 1 leased`)
		j, err := w.engine.FinishBy(w.ctx, engine.Run{Run: a.Run},
			func(j *job.Job) (engine.Outcome, error) {
				if j.ID != id("brief/a") || j.Run != a.Run || j.Attempts != 1 {
					w.Errorf("Decide got %+v", j)
				}
				return engine.Outcome{On: job.Released}, nil
			})
		w.noError(err)
		if j.Phase != job.Ready {
			w.Errorf("released: %+v", j)
		}
		none := func(*job.Job) (engine.Outcome, error) {
			w.Error("Decide was called for a lost run")
			return engine.Outcome{}, nil
		}
		w.wantKind(errOf(w.engine.FinishBy(w.ctx, a, none)), job.RunLost)
	})
}

// Every verb of a worker is refused under every run that is not the current one.
func TestStaleRunsChangeNothing(t *testing.T) {
	onEveryStore(t, testJobTypes(), func(w *world) {
		w.submit(sub("brief/a"), sub("brief/other", priority(-1)))
		released := w.run("brief/a")
		w.finish(released, job.Released)
		expired := w.run("brief/a")
		w.clock.Advance(time.Minute)
		w.noError(errOf(w.engine.Expire(w.ctx)))
		current := w.run("brief/a")
		made := engine.Run{Run: job.NewRunID(current.Run.Seq(), [16]byte{1})}
		nowhere := engine.Run{Run: job.NewRunID(1<<40, [16]byte{1})}
		w.noError(errOf(w.engine.Heartbeat(w.ctx, current, []byte("mine"))))
		before := w.snapshot()
		for what, r := range map[string]engine.Run{"released": released, "expired": expired,
			"made up": made, "of no job": nowhere,
			"zero": {}, "of another job": {ID: id("brief/other"), Run: current.Run}} {
			for i, err := range w.writes(r) {
				if !job.IsKind(err, job.RunLost) {
					w.Errorf("%s, write %d: got %v, want run lost", what, i, err)
				}
			}
		}
		w.wantSnapshot(before)
		w.wantKind(w.engine.HeartbeatJob(w.ctx, id("brief/other"), nil), job.RunLost)
		w.wantKind(w.engine.RequeueJob(w.ctx, id("brief/none"), engine.Unique, nil), job.RunLost)
		w.finish(current, job.Succeeded)
		// I4
		w.wantKind(errOf(w.engine.Finish(w.ctx, current, engine.Outcome{On: job.Succeeded})),
			job.RunLost)
		w.wantSnapshot("brief/other: queued ready priority=-1\nbrief q: 0 waiting 1 ready 0 leased")
	})
}

func TestHeartbeat(t *testing.T) {
	onEveryStore(t, testJobTypes(), func(w *world) {
		big := bytes.Repeat([]byte{0, 0xff}, 5<<10)
		w.submit(sub("brief/a"))
		r := w.run("brief/a")
		heartbeat := func(progress []byte, want []byte) {
			w.Helper()
			w.clock.Advance(20 * time.Second)
			until, err := w.engine.Heartbeat(w.ctx, r, progress)
			j := w.get("brief/a")
			if err != nil || !until.Equal(w.clock.Now().Add(30*time.Second)) ||
				!j.LeaseUntil.Equal(until) || !bytes.Equal(j.Progress, want) ||
				!j.UpdatedAt.Equal(w.clock.Now()) {
				w.Fatalf("heartbeat until %v, %v; the job is %+v", until, err, j)
			}
		}
		heartbeat(nil, nil)
		heartbeat([]byte("1"), []byte("1"))
		heartbeat(nil, []byte("1")) // RL-053, G-RL-05
		heartbeat(big, big)         // kept apart
		heartbeat(nil, big)         //
		heartbeat([]byte{}, nil)    // empty is not the same as left alone
		heartbeat([]byte("2"), []byte("2"))
		// G-RL-18: a late heartbeat counts as long as nobody noticed.
		w.clock.Advance(time.Hour)
		heartbeat(nil, []byte("2"))
		w.noError(w.engine.HeartbeatJob(w.ctx, id("brief/a"), []byte("3")))
		w.clock.Advance(30 * time.Second)
		jobs := w.claim("brief", 1)
		if string(jobs[0].Progress) != "3" { // RL-057
			w.Errorf("claimed with progress %q", jobs[0].Progress)
		}
	})
}

// Each finish has an outcome of its own, also within one call and when two callers end the same
// run.
func TestFinishAllKeepsOutcomesApart(t *testing.T) {
	onEveryStore(t, testJobTypes(), func(w *world) {
		w.submit(sub("graph/a"), sub("graph/b", limit(1)), sub("graph/c"), sub("graph/d"))
		var runs []engine.Run
		for _, j := range w.claim("graph", 9) {
			runs = append(runs, engine.Run{ID: j.ID, Run: j.Run})
		}
		end := func(r engine.Run, on job.Cause) engine.FinishRequest {
			return engine.FinishRequest{Run: r,
				Outcome: engine.Outcome{On: on, Result: []byte(on), Failure: []byte(on)}}
		}
		got := ""
		for _, e := range w.engine.FinishAll(w.ctx,
			[]engine.FinishRequest{end(runs[0], job.Succeeded), end(runs[0], job.Failed),
				end(runs[1], job.Failed),
				end(engine.Run{}, job.Succeeded), end(runs[2], job.Canceled),
				end(runs[2], job.Started),
				end(runs[2], job.Failed), end(runs[3], job.Released)}) {
			if e.Err != nil {
				got += job.KindOf(e.Err).String() + ", "
				continue
			}
			got += string(e.Job.State) + ", "
		}
		if want := "completed, run lost, failed, run lost, conflict, running, ready, ready, "; got != want {
			w.Errorf("got  %s\nwant %s", got, want)
		}
		w.wantSnapshot(`graph/a: completed done runs=1 result=succeeded failure=succeeded [submitted>pending satisfied>ready claimed>running succeeded>completed]
			graph/b: failed done runs=1 failures=1 result=failed failure=failed [submitted>pending satisfied>ready claimed>running failed_for_good>failed]
			graph/c: ready waiting runs=1 failures=1 due=10s result=failed failure=failed [submitted>pending satisfied>ready claimed>running failed>ready]
			graph/d: ready ready runs=1 result=released failure=released [submitted>pending satisfied>ready claimed>running released>ready]
			graph q: 1 waiting 1 ready 0 leased
			dead graph/b failed_for_good payload= failure=failed`)
		if got := w.engine.FinishAll(w.ctx, nil); got != nil {
			w.Error(got)
		}
	})
}

// Heartbeats of one call have answers of their own, in order: a lost run does no harm to others,
// and of a run that is named twice the last progress stays.
func TestHeartbeatAllKeepsRunsApart(t *testing.T) {
	onEveryStore(t, testJobTypes(), func(w *world) {
		w.submit(sub("brief/a"), sub("brief/b"), sub("brief/c"), sub("brief/d"))
		var runs []engine.Run
		for _, j := range w.claim("brief", 9) {
			runs = append(runs, engine.Run{ID: j.ID, Run: j.Run})
		}
		w.finish(runs[3], job.Succeeded)
		w.noError(errOf(w.engine.Heartbeat(w.ctx, runs[1], []byte("kept"))))
		w.clock.Advance(20 * time.Second)
		got := ""
		for _, h := range w.engine.HeartbeatAll(w.ctx, []engine.HeartbeatRequest{
			{Run: runs[0], Progress: []byte("first")}, {Run: runs[3], Progress: []byte("late")},
			{Run: runs[1]}, {Run: engine.Run{}}, {Run: runs[0], Progress: []byte("last")},
			{Run: engine.Run{ID: runs[1].ID, Run: runs[2].Run}, Progress: []byte("crossed")}}) {
			switch {
			case h.Err != nil:
				got += job.KindOf(h.Err).String() + ", "
			case h.Until.Equal(w.clock.Now().Add(30 * time.Second)):
				got += "extended, "
			default:
				got += h.Until.String()
			}
		}
		if want := "extended, run lost, extended, run lost, extended, run lost, "; got != want {
			w.Errorf("got  %s\nwant %s", got, want)
		}
		w.wantSnapshot(`brief/a: running leased runs=1 until=30s progress=last
			brief/b: running leased runs=1 until=30s progress=kept
			brief/c: running leased runs=1 until=10s
			brief q: 0 waiting 0 ready 3 leased`)
		if got := w.engine.HeartbeatAll(w.ctx, nil); got != nil {
			w.Error(got)
		}
	})
}

// Of two requests that end one run at the same time one succeeds; a heartbeat beside them does
// not bring the run back.
func TestOneOfManyFinishesCounts(t *testing.T) {
	onEveryStore(t, testJobTypes(), func(w *world) {
		other := w.node(testJobTypes())
		for round := range 10 {
			key := fmt.Sprint("graph/", round)
			w.submit(sub(key))
			r := w.run(key)
			var wg sync.WaitGroup
			var mu sync.Mutex
			updates := 0
			for i := range 8 {
				e := []*engine.Engine{w.engine, other}[i%2]
				wg.Go(func() {
					var err error
					if i < 2 {
						_, err = e.Heartbeat(w.ctx, r, []byte("late"))
					} else if _, err = e.Finish(w.ctx, r,
						engine.Outcome{On: job.Succeeded}); err == nil {
						mu.Lock()
						updates++
						mu.Unlock()
					}
					if err != nil && !job.IsKind(err, job.RunLost) {
						w.Error(err)
					}
				})
			}
			wg.Wait()
			if updates != 1 {
				w.Errorf("%d finishes were accepted", updates)
			}
		}
		w.checkInvariants()
	})
}

// A dead letter of a job that is gone holds all that is needed to submit it again, large bodies
// included. That of a job that stays stored has its failure, also of the last write, and leaves the
// other bodies to the job.
func TestDeadLetters(t *testing.T) {
	onEveryStore(t, testJobTypes(), func(w *world) {
		body := func(c byte, n int) []byte { return bytes.Repeat([]byte{c, 0}, n) }
		full := with(func(j *job.Job) {
			j.Definition, j.Payload, j.Progress = body('d', 5<<10), body('p', 6<<10), body('s', 10)
		})
		w.submit(sub("graph/a", limit(1), full), sub("brief/a", limit(1), full))
		r := w.run("graph/a")
		w.run("brief/a")
		w.noError(errOf(w.engine.Finish(w.ctx, r, engine.Outcome{On: job.FailedForGood,
			Failure: body('f', 7<<10), Result: []byte("r")})))
		w.clock.Advance(time.Minute)
		w.noError(errOf(w.engine.Expire(w.ctx)))
		deadLetter := func(jobType string) job.DeadLetter {
			w.Helper()
			all, err := w.deadLettersOf(jobType, 0)
			if err != nil || len(all) != 1 {
				w.Fatalf("%v, %v", all, err)
			}
			l := all[0]
			if !bytes.Equal(l.Job.Definition, body('d', 5<<10)) || l.Job.Attempts != 1 {
				w.Errorf("the dead letter is %+v", l)
			}
			return l
		}
		g, b := deadLetter("graph"), deadLetter("brief")
		if g.Cause != job.FailedForGood || !bytes.Equal(g.Job.Failure, body('f', 7<<10)) ||
			g.Job.Payload != nil || g.Job.Result != nil || g.Job.State != "failed" {
			w.Errorf("the dead letter is %+v", g)
		}
		if b.Cause != job.ExpiredForGood || !b.CreatedAt.Equal(w.clock.Now()) ||
			!bytes.Equal(b.Job.Payload, body('p', 6<<10)) ||
			!bytes.Equal(b.Job.Progress, body('s', 10)) || b.Job.FailedAttempts != 1 {
			w.Errorf("the dead letter is %+v", b)
		}
		if is, err := w.engine.Exists(w.ctx, id("brief/a")); is || err != nil {
			w.Error(is, err)
		}
		w.submit(engine.Submission{Job: b.Job}) // replayed
		if j := w.claim("brief", 1); len(j) != 1 || j[0].Attempts != 1 ||
			j[0].FailedAttempts != 0 || !bytes.Equal(j[0].Payload, body('p', 6<<10)) {
			w.Errorf("replayed as %+v", j)
		}
		if after, err := w.deadLettersOf("brief", b.ID); len(after) > 0 || err != nil {
			w.Error(after, err)
		}
	})
}

// RL-060 ff., G-RL-01: a requeue is all or nothing.
func TestRequeue(t *testing.T) {
	onEveryStore(t, testJobTypes(), func(w *world) {
		w.submit(sub("brief/a"), sub("brief/there"))
		r := w.run("brief/a")
		before := w.snapshot()
		w.wantKind(w.engine.Requeue(w.ctx, r, engine.Unique,
			subs(sub("brief/b"), sub("brief/there"))), job.Conflict)
		w.wantKind(w.engine.Requeue(w.ctx, r, engine.Unique,
			subs(sub("brief/b"), sub("brief/\x00"))), job.Invalid)
		w.wantKind(w.engine.Requeue(w.ctx, r, engine.Unique,
			subs(sub("brief/b"), sub("unknown/b"))), job.NotFound)
		w.wantSnapshot(before)
		w.noError(errOf(w.engine.Heartbeat(w.ctx, r, nil))) // still its run
		// Its own identity is free within the swap; another job type may take over.
		w.noError(w.engine.Requeue(w.ctx, r, engine.Unique,
			subs(sub("brief/a", in("r"), priority(3)), sub("phased/b", due(time.Second)))))
		w.wantSnapshot(`brief/a: queued ready priority=3
			brief/there: queued ready
			phased/b: created waiting due=1s [submitted>created]
			brief q: 0 waiting 1 ready 0 leased
			brief r: 0 waiting 1 ready 0 leased
			phased q: 1 waiting 0 ready 0 leased`)
		w.wantKind(w.engine.Requeue(w.ctx, r, engine.Unique, subs(sub("brief/c"))), job.RunLost)
		w.run("brief/a")
		w.noError(w.engine.RequeueJob(w.ctx, id("brief/a"), engine.Replace,
			subs(sub("brief/there", priority(4)), sub("brief/new"))))
		w.run("brief/there")
		w.noError(w.engine.RequeueJob(w.ctx, id("brief/there"), engine.Ignore,
			subs(sub("brief/new", priority(5)), sub("brief/newer"))))
		w.run("brief/new")
		w.noError(w.engine.RequeueJob(w.ctx, id("brief/new"), engine.Unique, nil)) // for nothing
		w.wantKind(w.engine.RequeueJob(w.ctx, id("brief/newer"), engine.Unique, nil), job.RunLost)
		w.wantSnapshot(`brief/newer: queued ready
			phased/b: created waiting due=1s [submitted>created]
			brief q: 0 waiting 1 ready 0 leased
			phased q: 1 waiting 0 ready 0 leased`)
		w.submit(sub("graph/a")) // where the machine does not know it
		w.run("graph/a")
		w.wantKind(w.engine.RequeueJob(w.ctx, id("graph/a"), engine.Unique, nil), job.Conflict)
	})
}

// Each event of a job type that publishes is a message in the same transaction; its body sees the
// job whole, also where the verb did not need its bodies.
func TestMessages(t *testing.T) {
	onEveryStore(t, testJobTypes(), func(w *world) {
		w.submit(sub("phased/a", limit(1)), sub("brief/a"), sub("family/a"))
		r := w.run("phased/a")
		w.noError(errOf(w.engine.Start(w.ctx, r)))
		w.noError(errOf(w.engine.Finish(w.ctx, r, engine.Outcome{On: job.Failed,
			Result: []byte("why")})))
		got := w.messages()
		want := []string{
			"phased/a submitted >created created runs=0 payload=phased/a result=",
			"phased/a due created>queued queued runs=0 payload=phased/a result=",
			"phased/a claimed queued>assigned assigned runs=1 payload=phased/a result=",
			"phased/a started assigned>running running runs=1 payload=phased/a result=",
			"phased/a failed_for_good running>failed failed runs=1 payload=phased/a result=why",
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			w.Errorf("got  %q\nwant %q", got, want)
		}
		// A message of a job that is removed in the same transaction reports its removal.
		w.submit(sub("graph/a"))
		w.noError(w.engine.Remove(w.ctx, id("graph/a")))
		if got := w.messages(); got[len(got)-1] != "graph/a removed ready> " {
			w.Errorf("got %q", got)
		}
	})
}

// The claim that goes with the end of a run gets what that end has made ready: a job for the
// released slot, the same job again or a dependent, in the order of any claim.
func TestTheEndBringsTheNext(t *testing.T) {
	onEveryStore(t, testJobTypes(), func(w *world) {
		w.noError(w.engine.SetQueue(w.ctx, job.QueueSettings{JobType: "graph", Queue: "q",
			MaxRunning: 1}))
		w.submit(sub("graph/a"), sub("graph/b", after("graph/a")), sub("graph/c"))
		next := &engine.ClaimRequest{JobType: "graph", Queues: []string{"q"}, Max: 3,
			Worker: "next"}
		end := func(r engine.Run, on job.Cause) engine.FinishResult {
			return w.engine.FinishAll(w.ctx, []engine.FinishRequest{{Run: r,
				Outcome: engine.Outcome{On: on, Result: []byte("done")}, Next: next}})[0]
		}
		took := func(what string, results engine.FinishResult, want string) engine.Run {
			w.Helper()
			if got := strings.Join(names(results.Next), " "); got != want {
				w.Errorf("%s claimed %q, want %q", what, got, want)
			}
			if len(results.Next) == 0 {
				return engine.Run{}
			}
			return engine.Run{Run: results.Next[0].Run}
		}
		a := w.run("graph/a")
		results := end(a, job.Succeeded)
		w.noError(results.Err)
		b := took("the end of a, one slot", results, "graph/b")
		results = end(a, job.Succeeded)
		w.wantKind(results.Err, job.RunLost)
		took("a lost run while the slot is taken", results, "")
		results = end(b, job.Released)
		w.noError(results.Err)
		again := took("what was given back", results, "graph/b")
		results = end(again, job.Succeeded)
		w.noError(results.Err)
		c := took("the end of b", results, "graph/c")
		results = end(c, job.Succeeded)
		w.noError(results.Err)
		took("the end of the last", results, "")
		w.submit(sub("graph/z"))
		results = end(c, job.Succeeded)
		w.wantKind(results.Err, job.RunLost)
		z := took("a lost run while the slot is free", results, "graph/z")
		w.noError(end(z, job.Succeeded).Err)
		w.checkInvariants()

		w.submit(sub("graph/d"), sub("graph/e"))
		d := w.run("graph/d")
		waits := engine.ClaimRequest{JobType: "graph", Queues: []string{"q"}, Max: 1,
			Worker: "other", Wait: time.Minute}
		other := make(chan []*job.Job)
		go func() {
			jobs, err := w.engine.Claim(w.ctx, waits)
			if err != nil {
				w.Error(err)
			}
			other <- jobs
		}()
		engine.AwaitWaiting(w.engine, waits, 1)
		results = end(d, job.Succeeded)
		w.noError(results.Err)
		took("an end while others wait for the slot", results, "")
		if jobs := <-other; len(jobs) == 1 {
			d = engine.Run{Run: jobs[0].Run}
		} else {
			w.Errorf("the slot is free and %d got it", len(jobs))
		}
		w.submit(sub("graph/f"))
		w.engine.Close()
		results = end(d, job.Succeeded)
		w.noError(results.Err)
		took("an engine that closes", results, "")
	})
}

// Where queues share a limit, the slot of a run that has ended is for any claim of the job type,
// not only for those of the same queue.
func TestTheEndBringsNothingUnderASharedLimit(t *testing.T) {
	onEveryStore(t, testJobTypesWith("graph", func(c *engine.JobType) { c.MaxRunning = 1 }), func(w *world) {
		w.submit(sub("graph/a"), sub("graph/b"), sub("graph/other", in("other")))
		a := engine.Run{Run: w.claim("graph", 1, "q")[0].Run}
		results := w.engine.FinishAll(w.ctx, []engine.FinishRequest{{Run: a,
			Outcome: engine.Outcome{On: job.Succeeded},
			Next: &engine.ClaimRequest{JobType: "graph", Queues: []string{"q"}, Max: 1,
				Worker: "next"}}})[0]
		w.noError(results.Err)
		if len(results.Next) != 0 {
			w.Errorf("got %v", names(results.Next))
		}
		if got := names(w.claim("graph", 1, "other")); len(got) != 1 {
			w.Errorf("the claim got %v", got)
		}
		if got := names(w.claim("graph", 1, "other")); len(got) != 0 {
			w.Errorf("beyond the limit: got %v", got)
		}
		w.checkInvariants()
	})
}
