package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// forgeLoad is the load on ForgeRun: two clients, each with a webhook, submit jobs, cancel and
// retry them, and ask for those of the other. A third one submits more than it may.
type forgeLoad struct {
	*run
	made atomic.Int64
}

const forgerun = "forgerun"

// webhookTimeout is how long a receiver may take, by the settings of the nodes.
const webhookTimeout = time.Second

// limitedClient is the client of ForgeRun that may send clientRate requests a minute. limitedActors
// send as it, so that it exceeds its rate even beside slow nodes.
const (
	limitedClient = "client-limited"
	clientRate    = 20
	limitedActors = 4
)

// forgeClient is one client, whose API key no other request carries.
type forgeClient struct {
	id   string
	path string // of the client, for operators
	key  string
	sink *sink

	mu   sync.Mutex
	jobs []string
}

// add remembers a job that was acknowledged, so that it is changed later.
func (c *forgeClient) add(job string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.jobs = append(c.jobs, job)
}

// draw returns a job of the client, "" while it has none.
func (c *forgeClient) draw(a *actor) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.jobs) == 0 {
		return ""
	}
	return c.jobs[a.random.IntN(len(c.jobs))]
}

// addForgeClients makes the clients, with a key and a webhook each, before there is any load.
func (r *run) addForgeClients(ctx context.Context) error {
	for i, id := range []string{"client-0", "client-1", limitedClient} {
		s, err := newSink(r.plan.Seed+uint64(i), r.origin.canary.url)
		if err != nil {
			return err
		}
		c := &forgeClient{id: id, sink: s}
		r.forge = append(r.forge, c)
		var made struct {
			ClientID string `json:"client_id"`
			APIKey   string `json:"api_key"`
			Secret   string
		}
		if err := r.write(ctx, http.MethodPost, "/v1/clients", map[string]any{},
			&made); err != nil {
			return err
		}
		if err := r.write(ctx, http.MethodPost, "/v1/clients/"+made.ClientID+"/keys",
			map[string]any{}, &made); err != nil {
			return err
		}
		c.key, c.path = made.APIKey, operatorPath+"/clients/"+made.ClientID
		if id == limitedClient { // before it sends anything, which would be counted otherwise
			if err := r.limitClient(ctx, c, clientRate); err != nil {
				return err
			}
		}
		if err := r.write(ctx, http.MethodPost, "/v1/webhooks", map[string]any{"url": s.url,
			"events": []string{"job_created", "job_queued", "job_assigned", "job_requeued",
				"job_started", "job_succeeded", "job_failed", "job_canceled"}},
			&made, c.key); err != nil {
			return err
		}
		s.secret = made.Secret
	}
	return nil
}

// limitClient sets how many requests a minute a client may send.
func (r *run) limitClient(ctx context.Context, c *forgeClient, perMinute int) error {
	return r.write(ctx, http.MethodPatch, c.path,
		map[string]any{"rate_limit_per_minute": perMinute}, &struct{}{}, operatorToken)
}

// load starts the actors of the clients. The server runs the jobs itself, so there are no workers.
func (l *forgeLoad) load(load context.Context) {
	start := func(name string, act func(a *actor)) {
		a := l.newActor(name)
		l.producersRunning.Go(func() {
			for a.pause(load, 150*time.Millisecond) {
				act(a)
			}
		})
	}
	for i, c := range l.forge[:2] {
		start(fmt.Sprint("forge-client-", i), func(a *actor) { l.act(load, a, c, l.forge[1-i]) })
	}
	for i := range limitedActors {
		start(fmt.Sprint("forge-limited-", i), func(a *actor) { l.submit(load, a, l.forge[2]) })
	}
}

// act does the action that is drawn.
func (l *forgeLoad) act(load context.Context, a *actor, c, other *forgeClient) {
	draw, own := a.random.IntN(100), c.draw(a)
	switch {
	case draw < 60 || own == "":
		l.submit(load, a, c)
	case draw < 75:
		l.change(a, c, "cancel", own)
	case draw < 90:
		l.change(a, c, "retry", own)
	default:
		if foreign := other.draw(a); foreign != "" {
			l.change(a, c, "cancel", foreign)
			a.send(context.Background(), &op{Contract: forgerun, Verb: "foreign", Job: foreign},
				request{method: http.MethodGet, path: "/v1/jobs/" + foreign, header: c.header()})
		}
	}
}

// header returns the header with the API key of the client.
func (c *forgeClient) header() map[string]string {
	return map[string]string{"Authorization": "Bearer " + c.key}
}

// submit sends a job under a key until its outcome is known. The limited client sends each once, so
// that nothing may be there of what its limit has refused.
func (l *forgeLoad) submit(load context.Context, a *actor, c *forgeClient) {
	kinds := []string{"SUCCESS_FAST", "SUCCESS_NORMAL", "FAIL_IMMEDIATE", "RETRY_ON_FAIL"}
	name := fmt.Sprint("g", l.made.Add(1))
	body := map[string]any{"type": "EXECUTE", "idempotency_key": name,
		"work_kind": kinds[a.random.IntN(len(kinds))]}
	m := made{Name: name, Queue: c.id}
	if a.random.IntN(4) == 0 {
		at := time.UnixMicro(l.ledger.now()).Add(time.Duration(a.random.IntN(3000)) *
			time.Millisecond).UTC()
		m.DueAt = at.UnixMicro()
		body["execution_at"] = at.Format("2006-01-02T15:04:05.000000Z")
	}
	send := func() *op {
		o := &op{Contract: forgerun, Verb: "submit", Key: name, Made: []made{m}}
		a.send(context.Background(), o, request{method: http.MethodPost, path: "/v1/jobs",
			body: encode(body), header: c.header(), read: readForgeJob})
		return o
	}
	if c.id == limitedClient {
		send()
		return
	}
	o := a.repeat(load, send)
	if o.Made[0].Job != "" {
		c.add(o.Made[0].Job)
	}
}

// readForgeJob takes id and state of the job from an answer.
func readForgeJob(o *op, body []byte) error {
	var j struct {
		JobID string `json:"job_id"`
		State string
	}
	if err := json.Unmarshal(body, &j); err != nil {
		return err
	}
	if j.JobID == "" {
		return fmt.Errorf("the answer has no job_id")
	}
	o.Body = j.State
	if len(o.Made) > 0 {
		o.Made[0].Job = j.JobID
	}
	return nil
}

// change cancels or retries a job, which may be one of the other client.
func (l *forgeLoad) change(a *actor, c *forgeClient, verb, job string) {
	a.send(context.Background(), &op{Contract: forgerun, Verb: verb, Job: job, Queue: c.id},
		request{method: http.MethodPost, path: "/v1/jobs/" + job + "/" + verb, header: c.header(),
			read: readForgeJob})
}

// write makes a request before there is any load, or after it. What it needs was acknowledged, so
// a refusal is a violation, and the request is repeated until that is there.
func (r *run) write(ctx context.Context, method, path string, body, into any,
	key ...string) error {
	for began := time.Now(); ; {
		status, answer, err := r.exchangeRaw(ctx, method, r.nodes[0], path, encode(body), key...)
		if err != nil {
			return err
		}
		if status/100 == 2 {
			return json.Unmarshal(answer, into)
		}
		isOpen := classOf(status) == classUnknown || time.Since(began) > readyTimeout
		if isOpen || !sleep(ctx, 20*time.Millisecond) {
			return fmt.Errorf("%s %s: status %d", method, path, status)
		}
		r.violations.add("I1 no acknowledged loss", "%s %s is answered %d: what was made for "+
			"it is not there", method, path, status)
	}
}
