package engine_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/testkit"
)

// remoteClaim is a claim of a remote worker of the queue q of brief.
func remoteClaim(worker string, wait time.Duration) engine.ClaimRequest {
	return engine.ClaimRequest{JobType: "brief", Queues: []string{"q"}, Max: 1, Worker: worker,
		Wait: wait}
}

// drain begins or ends a drain and returns whether it was in force before.
func (w *world) drain(kind engine.DrainKind, name string, draining bool) (was bool) {
	w.Helper()
	w.noError(w.engine.SetDrain(w.ctx, kind, name, draining,
		func(_ engine.RecordWriter, before bool) error { was = before; return nil }))
	return was
}

// TestDrainOfAWorker (AD-041): on all nodes a worker that is drained gets nothing more, a claim of
// it that waits ends, and others get its jobs; a drain ends when it is taken back, or after a day.
func TestDrainOfAWorker(t *testing.T) {
	onEveryStore(t, testJobTypes(), func(w *world) {
		other := w.node(testJobTypes())
		type answer struct {
			jobs     int
			draining bool
			err      error
		}
		lastPoll := func(e *engine.Engine, worker string, wait time.Duration) (a answer) {
			jobs, draining, err := e.ClaimRemote(w.ctx, remoteClaim(worker, wait), "sdk")
			return answer{len(jobs), draining, err}
		}
		waiting := make(chan answer, 1)
		go func() { waiting <- lastPoll(w.engine, "a", time.Hour) }()
		testkit.WaitUntil(t, "the claim to wait",
			func() bool { return len(w.engine.Workers()) == 1 })
		if w.drain(engine.DrainWorker, "a", true) {
			t.Error("it was drained before")
		}
		drained := answer{draining: true}
		if got := testkit.Receive(t, "the claim that waits", waiting); got != drained {
			t.Errorf("the claim that waited got %+v", got)
		}
		w.submit(sub("brief/1"), sub("brief/2"),
			sub("brief/3"))
		w.noError(other.Refresh(w.ctx))
		for _, e := range []*engine.Engine{w.engine, other} {
			if got := lastPoll(e, "a", 0); got != drained {
				t.Errorf("drained, got %+v", got)
			}
		}
		if got := lastPoll(other, "b", 0); got != (answer{jobs: 1}) {
			t.Errorf("another worker got %+v", got)
		}
		if !w.drain(engine.DrainWorker, "a", false) {
			t.Error("it was not drained before")
		}
		if got := lastPoll(w.engine, "a", 0); got != (answer{jobs: 1}) {
			t.Errorf("resumed, got %+v", got)
		}
		w.drain(engine.DrainWorker, "a", true)
		w.clock.Advance(24 * time.Hour)
		w.noError(w.engine.Refresh(w.ctx))
		if got := lastPoll(w.engine, "a", 0); got != (answer{jobs: 1}) {
			t.Errorf("G-AD-13 after a day, got %+v", got)
		}
	})
}

// TestDrainOfANode (AD-042): the local workers of one node stop, those of the other go on, and the
// drain is in force for a node that has just started.
func TestDrainOfANode(t *testing.T) {
	onEveryStore(t, testJobTypes(), func(w *world) {
		other := w.node(testJobTypes())
		serving, stop := w.engine.AwaitServing(w.ctx, "n/1")
		defer stop()
		elsewhere, stopElsewhere := other.AwaitServing(w.ctx, "n/1")
		defer stopElsewhere()
		w.drain(engine.DrainNode, w.engine.Node(), true)
		w.noError(other.Refresh(w.ctx))
		if serving.Err() == nil || !w.engine.IsNodeDraining() {
			t.Error("a worker of the node is still serving")
		}
		if elsewhere.Err() != nil || other.IsNodeDraining() {
			t.Error("the other node is drained")
		}
		resumed := make(chan context.Context, 1)
		go func() {
			again, stopAgain := w.engine.AwaitServing(w.ctx, "n/1")
			defer stopAgain()
			resumed <- again
		}()
		w.drain(engine.DrainNode, w.engine.Node(), false)
		testkit.Receive(t, "the worker to serve again", resumed)
		w.drain(engine.DrainWorker, "n/2", true)
		ctx, cancel := context.WithCancel(w.ctx)
		cancel()
		late, stopLate := w.node(testJobTypes()).AwaitServing(ctx, "n/2")
		defer stopLate()
		if late.Err() == nil {
			t.Error("a node that has just started does not know the drain")
		}
	})
}

// TestListedWorkers (AD-040): a worker that claims, sends a heartbeat or finishes is listed for
// five minutes, with what it has done on this node.
func TestListedWorkers(t *testing.T) {
	onEveryStore(t, testJobTypes(), func(w *world) {
		other := w.node(testJobTypes())
		w.submit(sub("brief/1"))
		jobs, _, err := w.engine.ClaimRemote(w.ctx, remoteClaim("a", 0), "sdk/1")
		w.noError(err)
		w.clock.Advance(4 * time.Minute)
		run := engine.Run{ID: jobs[0].ID, Run: jobs[0].Run}
		_, err = other.Heartbeat(w.ctx, run, nil)
		w.noError(err)
		known := w.engine.Workers()
		if len(known) != 1 || known[0].Name != "a" || known[0].Agent != "sdk/1" ||
			known[0].Queues[0] != "q" || known[0].LastSeen != 4*time.Minute || known[0].Local {
			t.Errorf("got %+v", known)
		}
		left, leave := context.WithCancel(w.ctx)
		leave()
		_, _, err = w.engine.ClaimRemote(left, remoteClaim("b", time.Hour), "sdk/1")
		w.noError(err)
		for _, known := range w.engine.Workers() {
			if known.HasLeft != (known.Name == "b") {
				t.Errorf("of a worker that gives up its claim and one that does not: %+v", known)
			}
		}
		_, _, err = w.engine.ClaimRemote(w.ctx, remoteClaim("b", 0), "sdk/1")
		w.noError(err)
		if slices.ContainsFunc(w.engine.Workers(),
			func(k engine.Worker) bool { return k.HasLeft }) {
			t.Errorf("a worker that claims again has left: %+v", w.engine.Workers())
		}
		w.clock.Advance(time.Minute)
		remove := w.engine.AddLocalWorker("brief", "n/1", nil, 3)
		_, err = other.Finish(w.ctx, run, engine.Outcome{On: job.Succeeded})
		w.noError(err)
		w.clock.Advance(4 * time.Minute)
		if known := w.engine.Workers(); len(known) != 1 || !known[0].Local || known[0].Slots != 3 {
			t.Errorf("five minutes later there is %+v", known)
		}
		remove()
		if known := w.engine.Workers(); len(known) != 0 {
			t.Errorf("there is still %+v", known)
		}
		if known := other.Workers(); len(known) != 1 || known[0].Succeeded != 1 ||
			known[0].Failed != 0 || known[0].FirstSeen != 5*time.Minute ||
			known[0].LastSeen != 4*time.Minute {
			t.Errorf("the other node knows %+v", known)
		}
		if known := other.Workers(); !known[0].HasLeft {
			t.Errorf("a worker that has asked for nothing since its run ended: %+v", known)
		}
		_, _, err = other.ClaimRemote(w.ctx, remoteClaim("a", 0), "sdk/1")
		w.noError(err)
		if known := other.Workers(); known[0].HasLeft {
			t.Errorf("a worker that claims again has left: %+v", known)
		}
	})
}

// TestRemoteEndsWithNext: a worker that ends its run and claims in one call goes on, also while it
// works on the job for long. One that is drained ends its run and gets nothing. What is claimed for
// a caller that has left is released without an attempt.
func TestRemoteEndsWithNext(t *testing.T) {
	onEveryStore(t, testJobTypes(), func(w *world) {
		w.submit(sub("brief/1"), sub("brief/2"), sub("brief/3"))
		jobs, _, err := w.engine.ClaimRemote(w.ctx, remoteClaim("a", 0), "sdk/1")
		w.noError(err)
		end := func(ctx context.Context, j *job.Job) (next []*job.Job, draining bool) {
			w.Helper()
			results, next, draining := w.engine.FinishAllRemote(ctx, []engine.FinishRequest{{
				Run:     engine.Run{ID: j.ID, Run: j.Run},
				Outcome: engine.Outcome{On: job.Succeeded}}}, remoteClaim("a", 0), "sdk/2")
			w.noError(results[0].Err)
			return next, draining
		}
		next, draining := end(w.ctx, jobs[0])
		if len(next) != 1 || next[0].Worker != "a" || next[0].Attempts != 1 || draining {
			t.Fatalf("the end brought %v, draining %v", names(next), draining)
		}
		w.clock.Advance(time.Minute - time.Second)
		if known := w.engine.Workers(); len(known) != 1 || known[0].HasLeft ||
			known[0].Agent != "sdk/2" || known[0].Succeeded != 1 {
			t.Errorf("a worker that works on the next job: %+v", known)
		}
		if polled := w.engine.PolledQueues(); len(polled) != 1 || !polled[0].ByRemote ||
			polled[0].RemoteAgo != time.Minute-time.Second {
			t.Errorf("polled %+v", polled)
		}
		left, leave := context.WithCancel(w.ctx)
		leave()
		if gone, _ := end(left, next[0]); len(gone) != 0 {
			t.Errorf("a caller that left got %v", names(gone))
		}
		w.drain(engine.DrainWorker, "a", true)
		again := w.claim("brief", 1, "q")
		if len(again) != 1 || again[0].ID.Key != "3" || again[0].Attempts != 1 {
			t.Fatalf("claimed %v", names(again))
		}
		w.submit(sub("brief/4"))
		if next, draining := end(w.ctx, again[0]); len(next) != 0 || !draining {
			t.Errorf("a worker that is drained got %v, draining %v", names(next), draining)
		}
		if got := names(w.claim("brief", 9, "q")); len(got) != 1 {
			t.Errorf("what is left is %v", got)
		}
		w.checkInvariants()
	})
}
