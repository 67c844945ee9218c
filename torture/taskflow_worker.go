package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

// taskflowWorker claims jobs of one queue over the worker API.
type taskflowWorker struct {
	*actor
	queue  string
	max    int
	honest bool
}

// startWorker has a worker claim until drained ends. It is honest once load has ended.
func (l *taskflowLoad) startWorker(load, drained context.Context, w *taskflowWorker) {
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

// claim asks for some jobs, and waits up to a second for the first one.
func (w *taskflowWorker) claim(ctx context.Context) []claimedJob {
	o := &op{Contract: taskflow, Verb: "claim", Queue: w.queue, Asked: 1 + w.random.IntN(w.max)}
	w.send(ctx, o, request{method: http.MethodPost, path: "/worker/v1/claims",
		body: encode(map[string]any{"contract": taskflow, "queues": []string{w.queue},
			"max": o.Asked, "wait_seconds": 1, "worker": w.name}), read: readTaskflowGrants})
	return o.Claimed
}

// readTaskflowGrants takes the jobs of an answer to a claim.
func readTaskflowGrants(o *op, body []byte) error {
	var answer struct {
		Jobs []struct {
			JobID   string          `json:"job_id"`
			Queue   string          `json:"queue"`
			RunID   string          `json:"run_id"`
			Attempt int             `json:"attempt"`
			Payload json.RawMessage `json:"payload"`
			Lease   float64         `json:"lease_seconds"`
		}
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return err
	}
	for _, j := range answer.Jobs {
		o.Claimed = append(o.Claimed, claimedJob{Job: j.JobID, Run: j.RunID, Queue: j.Queue,
			Lease: int64(j.Lease * 1e6), Fresh: j.Attempt == 1, Payload: string(j.Payload)})
	}
	return nil
}

// behave does with a run the action that is drawn.
func (w *taskflowWorker) behave(load context.Context, g claimedJob) {
	switch n := w.random.IntN(100); {
	case n < 50:
		w.complete(g)
	case n < 58:
		w.heartbeat(g)
		w.complete(g)
	case n < 72:
		w.fail(g, true)
	case n < 75:
		w.fail(g, false)
	case n < 79:
		w.end("release", g, map[string]any{})
	case n < 84: // a worker that makes up runs
		invented := g
		invented.Run = inventRun(g.Run, w.random.IntN(16))
		w.complete(invented)
		w.complete(g)
	case n < 90: // one that stalls past its lease and goes on
		other := &taskflowWorker{w.fork("-stalled"), w.queue, 1, false}
		stall := time.Duration(g.Lease)*time.Microsecond +
			time.Duration(w.random.IntN(2500))*time.Millisecond
		w.actorsRunning.Go(func() {
			if sleep(load, stall) {
				other.heartbeat(g)
				other.complete(g)
			}
		})
	case n < 96: // one that ends twice
		w.complete(g)
		if w.random.IntN(2) == 0 {
			w.complete(g)
		} else {
			w.fail(g, true)
		}
	} // all others die
}

// heartbeat extends the lease of a run.
func (w *taskflowWorker) heartbeat(g claimedJob) { w.end("heartbeat", g, map[string]any{}) }

// complete completes a run, with a result that names it: so the audit sees whose result is kept.
// Now and then it does so in a transaction of its own.
func (w *taskflowWorker) complete(g claimedJob) {
	result := fmt.Sprintf(`{"run":%q}`, g.Run)
	if w.callers != nil && w.random.IntN(10) == 0 {
		w.callers.complete(w.actor, taskflow, g, result)
		return
	}
	w.end("complete", g, map[string]any{"result": json.RawMessage(result)})
}

// fail fails a run, for good where it is not to be retried.
func (w *taskflowWorker) fail(g claimedJob, retryable bool) {
	w.end("fail", g, map[string]any{"error": "drawn", "error_type": "torture",
		"retryable": retryable})
}

// end sends what ends a run or extends its lease.
func (w *taskflowWorker) end(verb string, g claimedJob, body map[string]any) {
	o := &op{Contract: taskflow, Verb: verb, Job: g.Job, Run: g.Run,
		Final: body["retryable"] == false}
	w.send(context.Background(), o, request{method: http.MethodPost,
		path: "/worker/v1/runs/" + g.Run + "/" + verb, body: encode(body)})
}
