package main

import (
	"context"
	"encoding/json"
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
func (w *relayWorker) claim(ctx context.Context) []grant {
	o := &op{Contract: relay, Verb: "claim", Queue: w.queue, Asked: 1 + w.random.IntN(w.max)}
	w.send(ctx, o, request{method: http.MethodGet,
		path:   fmt.Sprintf("/v2/queues/%s/jobs?num_jobs=%d", w.queue, o.Asked),
		header: map[string]string{"Prefer": "wait=1"}, read: readRelayGrants})
	return o.Grants
}

// behave does with a run what is drawn.
func (w *relayWorker) behave(load context.Context, g grant) {
	switch n := w.random.IntN(100); {
	case n < 50:
		w.complete(g)
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
func (w *relayWorker) afterLease(load context.Context, g grant, fn func(*relayWorker)) {
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
func (w *relayWorker) keep(load context.Context, g grant) {
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
func runPath(g grant) string {
	return fmt.Sprintf("/v2/queues/%s/jobs/%s/run-id/%s", g.Queue, g.Job, g.Run)
}

// heartbeat sends a heartbeat with a state.
func (w *relayWorker) heartbeat(g grant) {
	state := fmt.Sprintf(`{"at":%d}`, w.ledger.now())
	w.send(context.Background(), &op{Contract: relay, Verb: "heartbeat", Job: g.Job, Run: g.Run,
		Body: state}, request{method: http.MethodPatch, path: runPath(g), body: []byte(state)})
}

// complete completes a run by the route that says whether it was current.
func (w *relayWorker) complete(g grant) {
	body := encode([]map[string]string{{"queue": g.Queue, "id": g.Job, "run_id": g.Run}})
	w.send(context.Background(), &op{Contract: relay, Verb: "complete", Job: g.Job, Run: g.Run},
		request{method: http.MethodPost, path: "/v2/queues/completions", body: body,
			read: readKnown})
}

// readKnown makes an op a refused one where the answer says that the run was not current.
func readKnown(o *op, body []byte) error {
	var answers []struct{ Known *bool }
	if err := json.Unmarshal(body, &answers); err != nil {
		return err
	}
	if len(answers) != 1 || answers[0].Known == nil {
		return fmt.Errorf("%d answers to one completion", len(answers))
	}
	if !*answers[0].Known {
		o.Class = classFailed
	}
	return nil
}

// completeSilently completes a run by the route that answers 200 either way (G-RL-03).
func (w *relayWorker) completeSilently(g grant) {
	w.send(context.Background(), &op{Contract: relay, Verb: "complete", Job: g.Job, Run: g.Run,
		Silent: true}, request{method: http.MethodDelete, path: runPath(g)})
}

// requeue puts new jobs in the place of the run's job. It is answered 202 either way (G-RL-02).
func (w *relayWorker) requeue(g grant) {
	o := &op{Contract: relay, Verb: "requeue", Job: g.Job, Run: g.Run, Silent: true}
	batch := []relayJob{}
	for range 1 + w.random.IntN(2) {
		j, m := w.load.newJob(w.actor, g.Queue)
		batch, o.Made = append(batch, j), append(o.Made, m)
	}
	w.send(context.Background(), o, request{method: http.MethodPut, path: runPath(g),
		body: encode(batch)})
}

// inventRun returns a run id that differs from one that was granted in one digit.
func inventRun(run string, draw int) string {
	const digits = "0123456789abcdef"
	last := run[len(run)-1]
	if digits[draw] == last {
		draw = (draw + 1) % len(digits)
	}
	return run[:len(run)-1] + string(digits[draw])
}
