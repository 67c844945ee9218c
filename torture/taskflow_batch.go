package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

// flowBatchPause is how long the actor of batches of TaskFlow pauses at the most between two
// rounds. The audit reads each of these jobs at the end, so there are fewer than of Relay.
const flowBatchPause = time.Second

// startBatches starts an actor that submits as many jobs as the plan says in one graph, claims
// about as many, and ends them with one request.
func (l *taskflowLoad) startBatches(load, drained context.Context) {
	if l.plan.Batch == 0 {
		return
	}
	w := &taskflowWorker{l.newActor("flow-batch"), "", 3 * l.plan.Batch, false}
	l.startActor(load, drained, func() { l.createGraph(load, w.actor, l.plan.Batch) }, func() {
		w.queue = taskflowQueues[w.random.IntN(len(taskflowQueues))]
		w.endAll(load, w.claim(drained))
		w.pause(drained, flowBatchPause)
	})
}

// outcome is one entry of a request that ends several runs, with the member that its verb names.
type outcome struct {
	Run      string         `json:"run_id"`
	Complete map[string]any `json:"complete,omitempty"`
	Fail     map[string]any `json:"fail,omitempty"`
	Release  map[string]any `json:"release,omitzero"`
}

// endAll does with each run what is drawn, all in one request: some fail, some are made up, some
// end twice, some long after their leases, and the workers of the rest die. Once load has ended all
// are completed.
func (w *taskflowWorker) endAll(load context.Context, claimed []claimedJob) {
	var now, late ends
	for _, g := range claimed {
		switch n := w.random.IntN(100); {
		case load.Err() != nil || n < 70:
			now.complete(g)
		case n < 78:
			now.fail(g, true)
		case n < 79:
			now.fail(g, false)
		case n < 83:
			now.release(g)
		case n < 87:
			invented := g
			invented.Run = inventRun(g.Run, w.random.IntN(16))
			now.complete(invented)
			now.complete(g)
		case n < 91:
			now.complete(g)
			now.fail(g, true)
		case n < 96:
			late.complete(g)
		}
	}
	if w.sendEnds(now) == classUnknown && w.pause(load, batchPause) {
		w.sendEnds(now.again()) // as a client does that had no answer
	}
	if len(late.ops) > 0 {
		other := &taskflowWorker{w.fork("-stalled"), w.queue, 1, false}
		stall := lease + time.Duration(w.random.IntN(2500))*time.Millisecond
		w.actorsRunning.Go(func() {
			if sleep(load, stall) {
				other.sendEnds(late)
			}
		})
	}
}

// ends are what one request does with several runs, and the op of each.
type ends struct {
	ops      []*op
	outcomes []outcome
}

func (e *ends) add(verb string, g claimedJob, o outcome) *op {
	o.Run = g.Run
	made := &op{Contract: taskflow, Verb: verb, Job: g.Job, Run: g.Run}
	e.ops, e.outcomes = append(e.ops, made), append(e.outcomes, o)
	return made
}

// complete adds a run that is completed, with a result that names it.
func (e *ends) complete(g claimedJob) {
	result := json.RawMessage(fmt.Sprintf(`{"run":%q}`, g.Run))
	e.add("complete", g, outcome{Complete: map[string]any{"result": result}})
}

// fail adds a run that fails, for good where it is not to be retried.
func (e *ends) fail(g claimedJob, retryable bool) {
	e.add("fail", g, outcome{Fail: map[string]any{"error": "drawn", "error_type": "torture",
		"retryable": retryable}}).Final = !retryable
}

// release adds a run that is given back.
func (e *ends) release(g claimedJob) {
	e.add("release", g, outcome{Release: map[string]any{}})
}

// again returns the same for another request.
func (e *ends) again() (other ends) {
	other.outcomes = e.outcomes
	for _, o := range e.ops {
		other.ops = append(other.ops, &op{Contract: o.Contract, Verb: o.Verb, Job: o.Job,
			Run: o.Run, Final: o.Final})
	}
	return other
}

// sendEnds ends several runs with one request, and returns what is certain about it.
func (w *taskflowWorker) sendEnds(e ends) class {
	if len(e.ops) == 0 {
		return classOK
	}
	w.sendAll(context.Background(), e.ops, request{method: http.MethodPost,
		path: "/worker/v1/outcomes", body: encode(map[string]any{"outcomes": e.outcomes}),
		read: readOutcomes(e.ops)})
	return classOfAll(e.ops)
}

// classOfAll says what is certain about a request with several ops. One that was never sent counts
// as unknown.
func classOfAll(all []*op) class {
	if all[0].Status == 0 {
		return classUnknown
	}
	return classOf(all[0].Status)
}

// readOutcomes returns what makes those ops refused ones whose entry of the answer has a code.
func readOutcomes(all []*op) func(*op, []byte) error {
	return func(_ *op, body []byte) error {
		var answer struct {
			Outcomes []struct {
				Run    string `json:"run_id"`
				Status string
				Code   string
			}
		}
		if err := json.Unmarshal(body, &answer); err != nil {
			return err
		}
		if len(answer.Outcomes) != len(all) {
			return fmt.Errorf("%d answers to %d runs", len(answer.Outcomes), len(all))
		}
		for i, o := range answer.Outcomes {
			if o.Run != all[i].Run || (o.Status == "") == (o.Code == "") {
				return fmt.Errorf("answer %d is about run %q", i, o.Run)
			}
			if o.Code != "" {
				all[i].Class = classFailed
			}
		}
		return nil
	}
}
