package main

import (
	"bytes"
	"context"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptrace"
	"time"
)

// requestTimeout ends a request to a node that hangs; its outcome is unknown then.
const requestTimeout = 5 * time.Second

// actor is one load generator or worker. What it does follows from its random numbers.
type actor struct {
	*run
	name   string
	random *rand.Rand
}

// newActor makes an actor whose choices follow from the seed and its number.
func (r *run) newActor(name string) *actor {
	r.actors++
	return &actor{run: r, name: name, random: rand.New(rand.NewPCG(r.plan.Seed, r.actors))}
}

// fork makes an actor for something that goes on beside the actor.
func (a *actor) fork(name string) *actor {
	return &actor{run: a.run, name: a.name + name,
		random: rand.New(rand.NewPCG(a.random.Uint64(), 1))}
}

// request is one HTTP request to any node.
type request struct {
	method, path string
	body         []byte
	header       map[string]string
	// read takes what it needs from an answer that is 2xx, into the op. An error says that the
	// answer is not what the contract says.
	read func(o *op, body []byte) error
}

// send sends a request to a node drawn at random and records it.
func (a *actor) send(ctx context.Context, o *op, q request) { a.sendAll(ctx, []*op{o}, q) }

// sendAll sends a request that has an op for each of several runs. What becomes of the first
// becomes of all, unless the answer is read and distinguishes them. The limit of the load is
// waited for before the request is in the ledger, as it is no time of the server. Where ctx ends
// that wait, it ends the request too.
func (a *actor) sendAll(ctx context.Context, all []*op, q request) {
	o, node := all[0], a.random.IntN(len(a.nodes))
	for _, each := range all {
		each.Actor, each.Node = a.name, node
	}
	_ = a.limit.Wait(ctx)
	a.ledger.begin(all...)
	defer a.ledger.end(all...)
	answer, err := a.ask(ctx, o, q)
	for _, other := range all[1:] {
		other.Class, other.Status = o.Class, o.Status
	}
	if err != nil || o.Class != classOK || q.read == nil {
		return
	}
	if err := q.read(o, answer); err != nil {
		o.Note = err.Error() + " in " + string(answer)
	}
}

// ask sends a request and returns the body of its answer.
func (a *actor) ask(ctx context.Context, o *op, q request) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, q.method, a.nodes[o.Node].url+q.path,
		bytes.NewReader(q.body))
	if err != nil {
		o.Class, o.Note = classFailed, err.Error()
		return nil, err
	}
	if len(q.body) > 0 {
		req.Header.Set("Content-Type", "application/json")
	}
	for name, value := range q.header {
		req.Header.Set(name, value)
	}
	answer, err := a.exchange(o, req)
	if err != nil {
		return nil, err
	}
	o.Class = classOf(o.Status)
	if o.Contract == forgerun && o.Status == http.StatusTooManyRequests {
		o.Class = classFailed // a client that has sent too many is refused before anything is done
	}
	return answer, nil
}

// repeat sends a request under an idempotency key until its outcome is known, or load ends.
func (a *actor) repeat(load context.Context, send func() *op) *op {
	o := send()
	for o.Class != classOK && a.pause(load, 200*time.Millisecond) {
		o = send()
	}
	return o
}

// exchange returns the body of an answer that came as a whole. A request that never had a
// connection has failed, all others are unknown until there is an answer. The transport must not
// repeat one by itself, as it does with those that have an idempotency key: it would return the
// error of the last try alone.
func (a *actor) exchange(o *op, req *http.Request) ([]byte, error) {
	o.Class = classFailed
	req.GetBody = nil
	req = req.WithContext(httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { o.Class = classUnknown }}))
	resp, err := a.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	o.Status = resp.StatusCode
	if resp.StatusCode == http.StatusInternalServerError && !a.namesOutage(o, body) {
		o.Note = "500: " + string(body)
	}
	return body, nil
}

// namesOutage reports whether an answer of 500 says that something is unavailable that the server
// needs. FetchBox has no other status for that. Where streams are lost, a node that is started then
// has others than the database for a while.
func (a *actor) namesOutage(o *op, body []byte) bool {
	isRefused := a.plan.Only == faultStreamsWiped &&
		bytes.Contains(body, []byte("the streams of this node are not those of the other nodes"))
	return o.Contract == fetchbox &&
		(isRefused || bytes.Contains(body, []byte("unavailable; try again")))
}

// classOf says what a status makes certain. 429 of Relay and 5xx leave open what has happened.
func classOf(status int) class {
	switch {
	case status/100 == 2:
		return classOK
	case status == http.StatusTooManyRequests || status >= 500:
		return classUnknown
	}
	return classFailed
}

// pause waits up to a time drawn at random, and reports whether the load goes on.
func (a *actor) pause(ctx context.Context, upTo time.Duration) bool {
	return sleep(ctx, time.Duration(1+a.random.Int64N(int64(upTo))))
}

// sleep waits, and reports whether ctx goes on.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
