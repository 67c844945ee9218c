package engine_test

import (
	"context"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/testkit"
)

// remoteClaim is a claim of a remote worker of the queue q of brief.
func remoteClaim(worker string, wait time.Duration) engine.ClaimRequest {
	return engine.ClaimRequest{Contract: "brief", Queues: []string{"q"}, Max: 1, Worker: worker,
		Wait: wait}
}

// drain begins or ends a drain and returns whether it was in force before.
func (w *world) drain(kind engine.DrainKind, name string, draining bool) (was bool) {
	w.Helper()
	w.ok(w.SetDrain(w.ctx, kind, name, draining,
		func(_ engine.RecordWriter, before bool) error { was = before; return nil }))
	return was
}

// TestDrainOfAWorker (AD-041): on all nodes a worker that is drained gets nothing more, a claim of
// it that waits ends, and others get its jobs; a drain ends when it is taken back, or after a day.
func TestDrainOfAWorker(t *testing.T) {
	everywhere(t, made(), func(w *world) {
		other := w.node(made())
		type answer struct {
			jobs     int
			draining bool
			err      error
		}
		ask := func(e *engine.Engine, worker string, wait time.Duration) (a answer) {
			jobs, draining, err := e.ClaimRemote(w.ctx, remoteClaim(worker, wait), "sdk")
			return answer{len(jobs), draining, err}
		}
		waiting := make(chan answer, 1)
		go func() { waiting <- ask(w.Engine, "a", time.Hour) }()
		testkit.WaitUntil(t, "the claim to wait", func() bool { return len(w.Workers()) == 1 })
		if w.drain(engine.DrainWorker, "a", true) {
			t.Error("it was drained before")
		}
		drained := answer{draining: true}
		if got := testkit.Receive(t, "the claim that waits", waiting); got != drained {
			t.Errorf("the claim that waited got %+v", got)
		}
		w.submit(sub("brief/1"), sub("brief/2"),
			sub("brief/3"))
		w.ok(other.Refresh(w.ctx))
		for _, e := range []*engine.Engine{w.Engine, other} {
			if got := ask(e, "a", 0); got != drained {
				t.Errorf("drained, got %+v", got)
			}
		}
		if got := ask(other, "b", 0); got != (answer{jobs: 1}) {
			t.Errorf("another worker got %+v", got)
		}
		if !w.drain(engine.DrainWorker, "a", false) {
			t.Error("it was not drained before")
		}
		if got := ask(w.Engine, "a", 0); got != (answer{jobs: 1}) {
			t.Errorf("resumed, got %+v", got)
		}
		w.drain(engine.DrainWorker, "a", true)
		w.Advance(24 * time.Hour)
		w.ok(w.Refresh(w.ctx))
		if got := ask(w.Engine, "a", 0); got != (answer{jobs: 1}) {
			t.Errorf("G-AD-13 after a day, got %+v", got)
		}
	})
}

// TestDrainOfANode (AD-042): the local workers of one node stop, those of the other go on, and the
// drain is in force for a node that has just begun.
func TestDrainOfANode(t *testing.T) {
	everywhere(t, made(), func(w *world) {
		other := w.node(made())
		serving, stop := w.WhileServing(w.ctx, "n/1")
		defer stop()
		elsewhere, stopElsewhere := other.WhileServing(w.ctx, "n/1")
		defer stopElsewhere()
		w.drain(engine.DrainNode, w.Node(), true)
		w.ok(other.Refresh(w.ctx))
		if serving.Err() == nil || !w.IsNodeDraining() {
			t.Error("a worker of the node is still serving")
		}
		if elsewhere.Err() != nil || other.IsNodeDraining() {
			t.Error("the other node is drained")
		}
		resumed := make(chan context.Context, 1)
		go func() {
			again, stopAgain := w.WhileServing(w.ctx, "n/1")
			defer stopAgain()
			resumed <- again
		}()
		w.drain(engine.DrainNode, w.Node(), false)
		testkit.Receive(t, "the worker to serve again", resumed)
		w.drain(engine.DrainWorker, "n/2", true)
		ctx, cancel := context.WithCancel(w.ctx)
		cancel()
		late, stopLate := w.node(made()).WhileServing(ctx, "n/2")
		defer stopLate()
		if late.Err() == nil {
			t.Error("a node that has just begun does not know the drain")
		}
	})
}

// TestWorkersThatAreKnown (AD-040): who claims, sends a heartbeat or finishes is known for five
// minutes, with what it has done on this node.
func TestWorkersThatAreKnown(t *testing.T) {
	everywhere(t, made(), func(w *world) {
		other := w.node(made())
		w.submit(sub("brief/1"))
		jobs, _, err := w.ClaimRemote(w.ctx, remoteClaim("a", 0), "sdk/1")
		w.ok(err)
		w.Advance(4 * time.Minute)
		run := engine.Run{ID: jobs[0].ID, Run: jobs[0].Run}
		_, err = other.Heartbeat(w.ctx, run, nil)
		w.ok(err)
		known := w.Workers()
		if len(known) != 1 || known[0].Name != "a" || known[0].Agent != "sdk/1" ||
			known[0].Queues[0] != "q" || known[0].LastSeen != 4*time.Minute || known[0].Local {
			t.Errorf("got %+v", known)
		}
		w.Advance(time.Minute)
		remove := w.AddLocalWorker("brief", "n/1", nil, 3)
		_, err = other.Finish(w.ctx, run, engine.Outcome{On: job.Succeeded})
		w.ok(err)
		if known := w.Workers(); len(known) != 1 || !known[0].Local || known[0].Slots != 3 {
			t.Errorf("five minutes later there is %+v", known)
		}
		remove()
		if known := w.Workers(); len(known) != 0 {
			t.Errorf("there is still %+v", known)
		}
		if known := other.Workers(); len(known) != 1 || known[0].Succeeded != 1 ||
			known[0].Failed != 0 || known[0].FirstSeen != time.Minute || known[0].LastSeen != 0 {
			t.Errorf("the other node knows %+v", known)
		}
	})
}
