package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"
)

// taskflowLoad is the load on TaskFlow: single jobs and graphs, all of them with idempotency keys,
// and workers of the worker API. A create of which the outcome is unknown is repeated with its key
// until it is known, so that a key that is not kept shows as a second job.
type taskflowLoad struct {
	*run
	made atomic.Int64
}

const taskflow = "taskflow"

var taskflowQueues = []string{"flow_a", "flow_b"}

// parkedFlow has no worker. Jobs of orderedFlow are single ones, which one honest worker claims one
// by one.
const (
	parkedFlow  = "flow_parked"
	orderedFlow = "flow_ordered"
)

// taskflowJob is a job as it is sent, in a create or, with a ref, in a graph.
type taskflowJob struct {
	Ref       string          `json:"ref,omitempty"`
	Name      string          `json:"name"`
	Queue     string          `json:"queue"`
	Priority  int             `json:"priority"`
	DependsOn []string        `json:"depends_on,omitempty"`
	Payload   json.RawMessage `json:"payload"`
	Retry     retryPolicy     `json:"retry_policy"`
}

// retryPolicy has delays of one second, which the audit of early starts relies on.
type retryPolicy struct {
	MaxAttempts int    `json:"max_attempts"`
	Strategy    string `json:"backoff_strategy"`
	Base        int    `json:"base_delay_seconds"`
}

const retryDelay = time.Second

// load starts all actors. They make new jobs until load ends, and work until drained ends.
func (l *taskflowLoad) load(load, drained context.Context) {
	for i := range 2 {
		a := l.newActor(fmt.Sprint("flow-producer-", i))
		l.startProducer(load, a, "")
	}
	l.startProducer(load, l.newActor("flow-ordered-producer"), orderedFlow)
	graphs := l.newActor("flow-graphs")
	l.producersRunning.Go(func() {
		for graphs.pause(load, 250*time.Millisecond) {
			l.createGraph(load, graphs, 2+graphs.random.IntN(linkedJobs-1))
		}
	})
	for i := range 6 {
		l.startWorker(load, drained, &taskflowWorker{l.newActor(fmt.Sprint("flow-worker-", i)),
			taskflowQueues[i%len(taskflowQueues)], 5, false})
	}
	l.startWorker(load, drained, &taskflowWorker{l.newActor("flow-ordered-worker"), orderedFlow, 1,
		true})
	l.startBatches(load, drained)
}

// startProducer has an actor create single jobs, in a queue or in those that are drawn.
func (l *taskflowLoad) startProducer(load context.Context, a *actor, queue string) {
	l.producersRunning.Go(func() {
		for a.pause(load, 80*time.Millisecond) {
			l.createJob(load, a, queue)
		}
	})
}

// createJob creates a single job, in a queue or in one that is drawn.
func (l *taskflowLoad) createJob(load context.Context, a *actor, queue string) {
	j, m := l.newJob(a)
	switch {
	case queue != "":
		j.Queue = queue
	case a.random.IntN(20) == 0:
		j.Queue = parkedFlow
	}
	m.Queue = j.Queue
	l.createOnce(load, a, "/api/v1/jobs", encode(j), []made{m}, readCreated)
}

// linkedJobs is how many jobs of a graph are linked with each other at the most.
const linkedJobs = 8

// createGraph sends a graph in which each job depends on up to three of those before it, among
// those that it is linked with.
func (l *taskflowLoad) createGraph(load context.Context, a *actor, size int) {
	var jobs []taskflowJob
	var all []made
	for i := range size {
		j, m := l.newJob(a)
		j.Ref = fmt.Sprint("j", i)
		for _, at := range a.random.Perm(i % linkedJobs)[:min(i%linkedJobs, a.random.IntN(4))] {
			at += i - i%linkedJobs
			j.DependsOn = append(j.DependsOn, jobs[at].Ref)
			m.Deps = append(m.Deps, all[at].Name)
		}
		jobs, all = append(jobs, j), append(all, m)
	}
	body := encode(map[string]any{"jobs": jobs})
	l.createOnce(load, a, "/api/v1/graphs", body, all, readCreatedGraph)
}

// newJob draws a job. Its name is its label: the server gives it another id.
func (l *taskflowLoad) newJob(a *actor) (taskflowJob, made) {
	name := fmt.Sprint("f", l.made.Add(1))
	j := taskflowJob{Name: name, Queue: taskflowQueues[a.random.IntN(len(taskflowQueues))],
		Priority: 1 + a.random.IntN(10),
		Payload:  encode(map[string]any{"of": name, "number": a.random.Uint64()}),
		Retry:    retryPolicy{1 + a.random.IntN(4), "FIXED", int(retryDelay.Seconds())}}
	return j, made{Name: name, Queue: j.Queue, Priority: j.Priority, Limit: j.Retry.MaxAttempts,
		Payload: string(j.Payload)}
}

// createOnce sends a create under a new key until its outcome is known. Now and then it repeats a
// create that is known to be carried out, and sends another body under its key, which is refused.
func (l *taskflowLoad) createOnce(load context.Context, a *actor, path string, body []byte,
	jobs []made, read func(*op, []byte) error) {
	key := "key-" + jobs[0].Name
	send := func(verb string, body []byte) *op {
		o := &op{Contract: taskflow, Verb: verb, Key: key, Made: append([]made(nil), jobs...)}
		a.send(context.Background(), o, request{method: http.MethodPost, path: path, body: body,
			header: map[string]string{"Idempotency-Key": key}, read: read})
		return o
	}
	o := a.repeat(load, func() *op { return send("submit", body) })
	if o.Class != classOK || a.random.IntN(10) > 0 {
		return
	}
	send("submit", body)
	other := append([]byte(nil), body...)
	other[len(other)-1] = ' ' // white space around a body does not count, so another member comes
	send("submit-other", append(other, []byte(`,"torture":1}`)...))
}

// readCreated takes the id of the job from the answer to a create, whether it is new or was made
// before.
func readCreated(o *op, body []byte) error {
	var j struct{ ID, Name string }
	if err := json.Unmarshal(body, &j); err != nil {
		return err
	}
	if j.ID == "" || j.Name != o.Made[0].Name {
		return fmt.Errorf("the answer is about %q", j.Name)
	}
	o.Made[0].Job = j.ID
	return nil
}

// readCreatedGraph takes the ids of all jobs of a graph, by their refs.
func readCreatedGraph(o *op, body []byte) error {
	var answer struct{ Jobs map[string]string }
	if err := json.Unmarshal(body, &answer); err != nil {
		return err
	}
	for i := range o.Made {
		o.Made[i].Job = answer.Jobs[fmt.Sprint("j", i)]
		if o.Made[i].Job == "" {
			return fmt.Errorf("the answer lacks job %d", i)
		}
	}
	return nil
}
