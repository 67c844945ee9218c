package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

// batchActors is how many actors send batches to Relay, where the plan has them. Together they make
// up to batchRate jobs a second, as the audit has to have all of them in memory. batchPause is how
// long one of them pauses at the most after a round.
const (
	batchActors = 12
	batchRate   = 3000
	batchPause  = 50 * time.Millisecond
)

// startBatches starts the actors that make as many jobs as the plan says with one request, claim
// about as many, and end them with one request. So one that dies takes many jobs with it, and a
// run acknowledges thousands of operations a second.
func (l *relayLoad) startBatches(load, drained context.Context) {
	if l.plan.Batch == 0 {
		return
	}
	next := time.Tick(time.Second * time.Duration(l.plan.Batch) / batchRate)
	for i := range batchActors {
		w := &relayWorker{l.newActor(fmt.Sprint("relay-batch-", i)), l,
			relayQueues[i%len(relayQueues)], 3 * l.plan.Batch, false}
		l.startActor(load, drained, func() {
			select {
			case <-next:
				l.createBatch(w.actor)
			case <-load.Done():
			}
		}, func() {
			w.endAll(load, w.claim(drained))
			w.pause(drained, batchPause)
		})
	}
}

// createBatch makes jobs of both queues, and reads one of them.
func (l *relayLoad) createBatch(a *actor) {
	o, batch := l.newBatch(a, "", l.plan.Batch)
	l.enqueue(a, o, batch)
	j := batch[a.random.IntN(len(batch))]
	l.read(a, j.Queue, j.ID)
}

// endAll does with each run what is drawn: heartbeats first, in one request, then all ends. Some
// runs are made up, some end twice in one request, some long after their leases, and the workers of
// the rest die. Once load has ended all are completed.
func (w *relayWorker) endAll(load context.Context, claimed []claimedJob) {
	var running, ends, late []claimedJob
	for _, g := range claimed {
		switch n := w.random.IntN(100); {
		case load.Err() != nil || n < 70:
			ends = append(ends, g)
		case n < 80:
			running, ends = append(running, g), append(ends, g)
		case n < 84:
			invented := g
			invented.Run = inventRun(g.Run, w.random.IntN(16))
			running, ends = append(running, invented), append(ends, invented, g)
		case n < 88:
			ends = append(ends, g, g)
		case n < 94:
			late = append(late, g)
		}
	}
	w.sendRuns("heartbeat", running)
	if w.sendRuns("complete", ends) == classUnknown && w.pause(load, batchPause) {
		w.sendRuns("complete", ends) // as a client does that had no answer
	}
	if len(late) > 0 {
		w.afterLease(load, late[0], func(other *relayWorker) {
			other.sendRuns("heartbeat", late)
			other.sendRuns("complete", late)
		})
	}
}

// runRoutes are the routes about several runs.
var runRoutes = map[string]string{"complete": "/v2/queues/completions",
	"heartbeat": "/v2/queues/heartbeats"}

// sendRuns sends a heartbeat with a state, or the end, of several runs, and returns what is certain
// about the request.
func (w *relayWorker) sendRuns(verb string, jobs []claimedJob) class {
	type entry struct {
		Queue string          `json:"queue"`
		ID    string          `json:"id"`
		Run   string          `json:"run_id"`
		State json.RawMessage `json:"state,omitempty"`
	}
	if len(jobs) == 0 {
		return classOK
	}
	var all []*op
	var entries []entry
	for _, g := range jobs {
		o, e := &op{Contract: relay, Verb: verb, Job: g.Job, Run: g.Run}, entry{g.Queue, g.Job,
			g.Run, nil}
		if verb == "heartbeat" {
			o.Body = fmt.Sprintf(`{"at":%d}`, w.ledger.now())
			e.State = json.RawMessage(o.Body)
		}
		all, entries = append(all, o), append(entries, e)
	}
	w.sendAll(context.Background(), all, request{method: http.MethodPost,
		path: runRoutes[verb], body: encode(entries), read: readKnown(all)})
	return classOfAll(all)
}

// readKnown returns a reader that marks the ops whose runs were not current as refused.
func readKnown(all []*op) func(*op, []byte) error {
	return func(_ *op, body []byte) error {
		var answers []struct{ Known *bool }
		if err := json.Unmarshal(body, &answers); err != nil {
			return err
		}
		if len(answers) != len(all) {
			return fmt.Errorf("%d answers to %d runs", len(answers), len(all))
		}
		for i, answer := range answers {
			if answer.Known == nil {
				return fmt.Errorf("answer %d does not say whether its run was known", i)
			}
			if !*answer.Known {
				all[i].Class = classFailed
			}
		}
		return nil
	}
}
