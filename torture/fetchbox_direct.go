package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// directSubject is where producers publish tasks of FetchBox themselves, without a manifest.
const directSubject = "jobs.tasks"

// directHeader marks their messages: nobody sends those again once they are acknowledged.
const directHeader = "Torture-Direct"

// directTask is such a message: a download of a job of its own.
type directTask struct {
	JobID      string            `json:"job_id"`
	JobType    string            `json:"job_type"`
	ResourceID string            `json:"resource_id"`
	URL        string            `json:"url"`
	Tags       map[string]string `json:"tags,omitempty"`
}

// hasDirect reports whether there are producers of messages. Where streams are wiped their messages
// are lost, whatever a server does.
func (p *plan) hasDirect() bool { return p.S3 != "" && p.Only != faultStreamsWiped }

// loadDirect starts a producer, which publishes until load ends.
func (l *fetchLoad) loadDirect(load context.Context) error {
	if !l.plan.hasDirect() {
		return nil
	}
	js, end, err := l.services.nats.connect(nats.MaxReconnects(-1),
		nats.ReconnectWait(backendsPause), nats.ReconnectBufSize(-1))
	if err != nil {
		return err
	}
	a := l.newActor("fetch-direct")
	l.producersRunning.Go(func() {
		defer end()
		for a.pause(load, 400*time.Millisecond) {
			l.publish(load, a, js)
		}
	})
	return nil
}

// publish sends a task until it is acknowledged, or load ends. A task that comes again is the same.
func (l *fetchLoad) publish(load context.Context, a *actor, js jetstream.JetStream) {
	id := fmt.Sprintf("%08x-%04x-7%03x-8%03x-%012x", a.random.Uint32(), a.random.IntN(1<<16),
		a.random.IntN(1<<12), a.random.IntN(1<<12), a.random.Int64N(1<<48))
	r := l.newResource(a, id, 0)
	body := encode(directTask{id, fetchType, r.ID, r.URL, r.Tags})
	a.repeat(load, func() *op {
		o := &op{Actor: a.name, Contract: fetchbox, Verb: "submit", Class: classUnknown,
			Made: []made{{Job: id, Queue: fetchType, Payload: string(body)}}}
		l.ledger.begin(o)
		defer l.ledger.end(o)
		ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
		defer cancel()
		if _, err := js.PublishMsg(ctx, &nats.Msg{Subject: directSubject, Data: body,
			Header: nats.Header{directHeader: {"1"}}}); err != nil {
			return o
		}
		o.Class = classOK
		return o
	})
}

// pendingTasks counts the messages that the nodes have not acknowledged yet.
func (r *run) pendingTasks(ctx context.Context) (n int, err error) {
	if !r.plan.hasDirect() {
		return 0, nil
	}
	js, end, err := r.services.nats.connect()
	if err != nil {
		return 0, err
	}
	defer end()
	consumers, err := sharedConsumers(ctx, js)
	for _, c := range consumers {
		if c.subject == directSubject {
			n += c.pending
		}
	}
	return n, err
}

// checkDirect checks a job that a producer has made without a manifest.
func (a *audit) checkDirect(id string, j fetchJob, s *sent) {
	var t directTask
	if err := json.Unmarshal([]byte(s.Payload), &t); err != nil || j.Manifest != "" {
		a.add("I2 no phantom", "job %s of a message has the manifest %q: %v", id, j.Manifest, err)
		return
	}
	j.Name, j.Manifest = id, string(encode(manifest{Resources: []resource{{t.ResourceID, t.URL,
		t.Tags}}}))
	a.checkResources(id, j, s.by[0].Invoked)
}
