package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"
)

// relayLoad is the load on Relay: producers of batches, workers that behave and others that do
// not, a queue of which the order is audited, and jobs that are left alone until the end.
type relayLoad struct {
	*run
	made   atomic.Int64
	prefix string // of ids, where it is not r
}

// The queues. Jobs of parkedQueue are not due within the run; orderedQueue has one producer and
// one worker.
const (
	parkedQueue  = "parked"
	orderedQueue = "ordered"
)

var relayQueues = []string{"relay_a", "relay_b"}

const relay = "relay"

// relayJob is a job as it is sent and received.
type relayJob struct {
	Queue      string          `json:"queue"`
	ID         string          `json:"id"`
	Timeout    int             `json:"timeout"`
	MaxRetries *int            `json:"max_retries"`
	Left       *int            `json:"retries_remaining,omitempty"`
	RunAt      *time.Time      `json:"run_at,omitempty"`
	Run        string          `json:"run_id,omitempty"`
	State      json.RawMessage `json:"state,omitempty"`
	Payload    json.RawMessage `json:"payload"`
}

// load starts all actors. They make new jobs until load ends, and work until drained ends.
func (l *relayLoad) load(load, drained context.Context) {
	for i := range 3 {
		l.startProducer(load, l.newActor(fmt.Sprint("relay-producer-", i)), "", 60*time.Millisecond)
	}
	l.startProducer(load, l.newActor("relay-ordered-producer"), orderedQueue,
		200*time.Millisecond)
	for i := range 6 {
		queue := relayQueues[i%len(relayQueues)]
		l.startWorker(load, drained, &relayWorker{l.newActor(fmt.Sprint("relay-worker-", i)), l,
			queue, 5, false})
	}
	l.startWorker(load, drained, &relayWorker{l.newActor("relay-ordered-worker"), l, orderedQueue,
		1, true})
	l.startBatches(load, drained)
}

// startProducer has an actor send batches, with pauses of up to a time between them.
func (l *relayLoad) startProducer(load context.Context, a *actor, queue string,
	pause time.Duration) {
	l.producersRunning.Go(func() {
		for a.pause(load, pause) {
			l.create(a, queue)
		}
	})
}

// create sends a batch. Its jobs go to a queue, or each to one that is drawn.
func (l *relayLoad) create(a *actor, queue string) {
	o, batch := l.newBatch(a, queue, 1+a.random.IntN(4))
	l.enqueue(a, o, batch)
	for i, j := range batch {
		if j.Queue == parkedQueue && a.random.IntN(2) == 0 { // it is there unless it was never stored
			l.enqueue(a, &op{Contract: relay, Verb: "submit-again", Made: o.Made[i : i+1]},
				[]relayJob{j})
		}
		if a.random.IntN(8) == 0 {
			l.read(a, j.Queue, j.ID)
		}
	}
}

// newBatch draws the jobs of a create.
func (l *relayLoad) newBatch(a *actor, queue string, jobs int) (o *op, batch []relayJob) {
	o = &op{Contract: relay, Verb: "submit"}
	for range jobs {
		j, m := l.newJob(a, queue)
		batch, o.Made = append(batch, j), append(o.Made, m)
	}
	return o, batch
}

// enqueue sends a batch, which stores all of its jobs or none.
func (l *relayLoad) enqueue(a *actor, o *op, batch []relayJob) {
	a.send(context.Background(), o, request{method: http.MethodPost,
		path: "/v2/queues/jobs?mode=unique", body: encode(batch)})
}

// read reads a job, which may be there or not.
func (l *relayLoad) read(a *actor, queue, id string) {
	a.send(context.Background(), &op{Contract: relay, Verb: "read", Job: id},
		request{method: http.MethodGet, path: "/v2/queues/" + queue + "/jobs/" + id,
			read: func(o *op, body []byte) error {
				var j relayJob
				err := json.Unmarshal(body, &j)
				o.Seen = &seen{j.Run, string(j.State)}
				return err
			}})
}

// newJob draws a job.
func (l *relayLoad) newJob(a *actor, queue string) (relayJob, made) {
	j := relayJob{Queue: queue, ID: fmt.Sprint(cmp.Or(l.prefix, "r"), l.made.Add(1)), Timeout: 2}
	now := time.UnixMicro(l.ledger.now()).UTC()
	draw := a.random.IntN(20)
	switch {
	case queue == orderedQueue:
		at, limit := now.Add(-time.Duration(a.random.IntN(3600))*time.Second), 100
		j.RunAt, j.MaxRetries = &at, &limit // a limit shows whether there was an attempt before
	case queue != "":
	case draw == 0:
		at := now.Add(time.Hour)
		j.Queue, j.RunAt = parkedQueue, &at
	default:
		j.Queue = relayQueues[a.random.IntN(len(relayQueues))]
		if draw < 5 {
			at := now.Add(time.Duration(a.random.IntN(3000)) * time.Millisecond)
			j.RunAt = &at
		}
		if draw%2 == 0 {
			limit := 1 + a.random.IntN(4)
			j.MaxRetries = &limit
		}
		j.Timeout = 1 + a.random.IntN(3)
	}
	j.Payload = encode(map[string]any{"of": j.ID, "number": a.random.Uint64()})
	m := made{Job: j.ID, Queue: j.Queue, Payload: string(j.Payload)}
	if j.MaxRetries != nil {
		m.Limit = *j.MaxRetries + 1
	}
	if j.RunAt != nil {
		m.DueAt = j.RunAt.UnixMicro()
	}
	return j, m
}

// encode returns the JSON of a value that is known to have one.
func encode(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return text
}

// readRelayGrants takes the jobs of an answer to a claim.
func readRelayGrants(o *op, body []byte) error {
	if o.Status == http.StatusNoContent {
		return nil
	}
	var jobs []relayJob
	if err := json.Unmarshal(body, &jobs); err != nil {
		return err
	}
	for _, j := range jobs {
		g := claimedJob{Job: j.ID, Run: j.Run, Queue: j.Queue, State: string(j.State),
			Payload: string(j.Payload), Lease: int64(j.Timeout) * 1_000_000, Fresh: true}
		if j.MaxRetries != nil && j.Left != nil {
			g.Fresh = *j.MaxRetries == *j.Left
		}
		o.Claimed = append(o.Claimed, g)
	}
	return nil
}
