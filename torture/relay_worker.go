package main

import (
	"context"
	"fmt"
	"net/http"
	"time"
)

// relayWorker claims jobs of one queue. An honest one completes each.
type relayWorker struct {
	*actor
	load   *relayLoad
	queue  string
	max    int
	honest bool
}

// startWorker has a worker claim until drained ends. It is honest once load has ended.
func (l *relayLoad) startWorker(load, drained context.Context, w *relayWorker) {
	l.actorsRunning.Go(func() {
		for drained.Err() == nil {
			claimed := w.claim(drained)
			if len(claimed) == 0 && !w.pause(drained, 50*time.Millisecond) {
				return
			}
			for _, g := range claimed {
				if w.honest || load.Err() != nil {
					w.complete(g)
					continue
				}
				w.behave(load, g)
			}
		}
	})
}

// claim asks for some jobs, and waits up to a second for the first one. A claim whose answer is
// lost may have leased jobs: they come back when their leases end.
func (w *relayWorker) claim(ctx context.Context) []claimedJob {
	o := &op{Contract: relay, Verb: "claim", Queue: w.queue, Asked: 1 + w.random.IntN(w.max)}
	w.send(ctx, o, request{method: http.MethodGet,
		path:   fmt.Sprintf("/v2/queues/%s/jobs?num_jobs=%d", w.queue, o.Asked),
		header: map[string]string{"Prefer": "wait=1"}, read: readRelayGrants})
	return o.Claimed
}

// behave does with a run the action that is drawn, and now and then reads the job before and after
// that.
func (w *relayWorker) behave(load context.Context, g claimedJob) {
	if w.random.IntN(4) == 0 {
		w.load.read(w.actor, g.Queue, g.Job)
		defer w.load.read(w.actor, g.Queue, g.Job)
	}
	switch n := w.random.IntN(100); {
	case n < 40:
		w.complete(g)
	case n < 50 && w.load.plan.Older == "": // a version that is older may not have that
		for _, next := range w.completeAndClaim(g) {
			w.behave(load, next)
		}
	case n < 60:
		w.heartbeat(g)
		w.completeSilently(g)
	case n < 68: // a worker that makes up runs
		invented := g
		invented.Run = inventRun(g.Run, w.random.IntN(16))
		w.heartbeat(invented)
		w.complete(invented)
		w.complete(g)
	case n < 76: // one that stalls past its lease and goes on
		w.afterLease(load, g, func(other *relayWorker) {
			other.heartbeat(g)
			other.complete(g)
		})
	case n < 80: // the same, and its complete has no answer that says anything
		w.afterLease(load, g, func(other *relayWorker) { other.completeSilently(g) })
	case n < 84: // one that keeps its run by heartbeats for longer than the lease
		w.keep(load, g)
	case n < 90: // one that ends twice
		w.complete(g)
		w.complete(g)
	case n < 95:
		w.requeue(g)
	} // all others die
}

// afterLease does something once the lease of a run has ended, while the worker goes on.
func (w *relayWorker) afterLease(load context.Context, g claimedJob, fn func(*relayWorker)) {
	other := &relayWorker{w.fork("-stalled"), w.load, w.queue, w.max, false}
	stall := time.Duration(g.Lease)*time.Microsecond +
		time.Duration(w.random.IntN(2500))*time.Millisecond
	w.actorsRunning.Go(func() {
		if sleep(load, stall) {
			fn(other)
		}
	})
}

// keep sends heartbeats for twice the lease, and completes the run then.
func (w *relayWorker) keep(load context.Context, g claimedJob) {
	other := &relayWorker{w.fork("-keeping"), w.load, w.queue, w.max, false}
	pause := time.Duration(g.Lease) * time.Microsecond / 4
	w.actorsRunning.Go(func() {
		for range 8 {
			if !sleep(load, pause) {
				break
			}
			other.heartbeat(g)
		}
		other.complete(g)
	})
}

// runPath is the path of a run in the API of Relay.
func runPath(g claimedJob) string {
	return fmt.Sprintf("/v2/queues/%s/jobs/%s/run-id/%s", g.Queue, g.Job, g.Run)
}

// heartbeat sends a heartbeat with a state.
func (w *relayWorker) heartbeat(g claimedJob) {
	state := fmt.Sprintf(`{"at":%d}`, w.ledger.now())
	w.send(context.Background(), &op{Contract: relay, Verb: "heartbeat", Job: g.Job, Run: g.Run,
		Body: state}, request{method: http.MethodPatch, path: runPath(g), body: []byte(state)})
}

// complete completes a run by the route that says whether it was current.
// Now and then it does so in a transaction of its own.
func (w *relayWorker) complete(g claimedJob) {
	if w.callers != nil && w.random.IntN(10) == 0 {
		w.callers.complete(w.actor, relay, g, "")
		return
	}
	w.sendRuns("complete", []claimedJob{g})
}

// completeSilently completes a run by the route that answers 200 either way (G-RL-03).
func (w *relayWorker) completeSilently(g claimedJob) {
	w.send(context.Background(), &op{Contract: relay, Verb: "complete", Job: g.Job, Run: g.Run,
		Silent: true}, request{method: http.MethodDelete, path: runPath(g)})
}

// completeAndClaim completes a run and claims a job of its queue in one request, which answers as a
// claim does whether the run was current or not. In the ledger it is both.
func (w *relayWorker) completeAndClaim(g claimedJob) []claimedJob {
	end := &op{Contract: relay, Verb: "complete", Job: g.Job, Run: g.Run, Silent: true}
	claim := &op{Actor: w.name, Contract: relay, Verb: "claim", Queue: g.Queue, Asked: 1}
	w.ledger.begin(claim)
	defer w.ledger.end(claim)
	body := encode([]map[string]string{{"queue": g.Queue, "id": g.Job, "run_id": g.Run}})
	w.send(context.Background(), end, request{method: http.MethodPost,
		path: "/v2/queues/completions?next=1", body: body,
		read: func(o *op, body []byte) error {
			claim.Status = o.Status
			return readRelayGrants(claim, body)
		}})
	claim.Node, claim.Status, claim.Class, claim.Note = end.Node, end.Status, end.Class, end.Note
	return claim.Claimed
}

// requeue puts new jobs in the place of the run's job. It is answered 202 either way (G-RL-02).
func (w *relayWorker) requeue(g claimedJob) {
	o := &op{Contract: relay, Verb: "requeue", Job: g.Job, Run: g.Run, Silent: true}
	batch := []relayJob{}
	for range 1 + w.random.IntN(2) {
		j, m := w.load.newJob(w.actor, g.Queue)
		batch, o.Made = append(batch, j), append(o.Made, m)
	}
	w.send(context.Background(), o, request{method: http.MethodPut, path: runPath(g),
		body: encode(batch)})
}

// inventRun returns a run id that differs from one that was claimed in one digit.
func inventRun(run string, draw int) string {
	const digits = "0123456789abcdef"
	last := run[len(run)-1]
	if digits[draw] == last {
		draw = (draw + 1) % len(digits)
	}
	return run[:len(run)-1] + string(digits[draw])
}
