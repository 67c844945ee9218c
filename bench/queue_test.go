package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// memoryQueue is a system in memory, which may give a job out twice or lose one.
type memoryQueue struct {
	mu        sync.Mutex
	waiting   []int
	twice     int   // the job that is given out again, -1 for none
	finishErr error // of awaitFinished
}

func (m *memoryQueue) Durability() string { return "none" }
func (m *memoryQueue) Close() error       { return nil }
func (m *memoryQueue) Reset(context.Context) error {
	m.waiting = nil
	return nil
}
func (m *memoryQueue) Dial(context.Context) (queueConn, error) { return memoryConn{m}, nil }

func (m *memoryQueue) awaitFinished(context.Context, []queueConn) error { return m.finishErr }

type memoryConn struct{ m *memoryQueue }

func (c memoryConn) Close() error { return nil }

func (c memoryConn) Submit(_ context.Context, from, to int) error {
	c.m.mu.Lock()
	defer c.m.mu.Unlock()
	for num := from; num < to; num++ {
		c.m.waiting = append(c.m.waiting, num)
		if num == c.m.twice {
			c.m.waiting = append(c.m.waiting, num)
		}
	}
	return nil
}

// Work waits for a job when there is none.
func (c memoryConn) Work(ctx context.Context, finished func(int)) error {
	c.m.mu.Lock()
	if len(c.m.waiting) == 0 {
		c.m.mu.Unlock()
		<-ctx.Done()
		return ctx.Err()
	}
	num := c.m.waiting[0]
	c.m.waiting = c.m.waiting[1:]
	c.m.mu.Unlock()
	finished(num)
	return nil
}

func TestQueueRunner(t *testing.T) {
	t.Parallel()
	run := func(m *memoryQueue) ([]Phase, error) {
		r := &queueRunner{queueSystem: m, conns: 4, batch: 3, awaitFinished: m.awaitFinished}
		return r.Run(t.Context(), 10)
	}
	phases, err := run(&memoryQueue{twice: -1})
	if err != nil {
		t.Fatal(err)
	}
	if len(phases) != 3 || phases[0].Name != phaseInsert || phases[1].Name != phaseWork ||
		phases[2].Name != phaseTotal || phases[2].Took != phases[0].Took+phases[1].Took {
		t.Errorf("phases = %+v, want insert, work and their sum", phases)
	}
	if got := len(phases[0].Latency); got != 4 {
		t.Errorf("%d submissions were timed, want those of 4 batches", got)
	}
	if got := len(phases[1].Latency); got != 10 {
		t.Errorf("%d claims were timed, want 10", got)
	}
	if _, err := run(&memoryQueue{twice: 2}); err == nil ||
		!strings.Contains(err.Error(), "more than once") {
		t.Errorf("err = %v, want that a job was worked twice", err)
	}
	broken := errors.New("7 messages are left")
	if _, err := run(&memoryQueue{twice: -1, finishErr: broken}); !errors.Is(err, broken) {
		t.Errorf("err = %v, want that of awaitFinished", err)
	}
}

func TestQueueRunnerEndsWhenAJobIsLost(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	r := &queueRunner{queueSystem: &losingQueue{&memoryQueue{twice: -1}}, conns: 2, batch: 1}
	if _, err := r.Run(ctx, 5); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("err = %v, want the end of the time", err)
	}
}

// losingQueue forgets the first job.
type losingQueue struct{ *memoryQueue }

func (l *losingQueue) Dial(context.Context) (queueConn, error) {
	return losingConn{memoryConn{l.memoryQueue}}, nil
}

type losingConn struct{ memoryConn }

func (c losingConn) Submit(ctx context.Context, from, to int) error {
	if from == 0 {
		return nil
	}
	return c.memoryConn.Submit(ctx, from, to)
}

func TestPayloads(t *testing.T) {
	t.Parallel()
	if got := payloadNum(appendPayload(nil, 4711)); got != 4711 {
		t.Errorf("the number of a payload = %d, want 4711", got)
	}
	if got := payloadNum([]byte("{}")); got != -1 {
		t.Errorf("the number of none = %d, want -1", got)
	}
	if got := len(appendSizedPayload(nil, 1, 1000)); got < 1000 || got > 1050 {
		t.Errorf("a payload of 1000 has %d bytes", got)
	}
	claimed := []byte(`[{"id":"7","queue":"q","run_id":"a-b"},{"id":"8","run_id":"c"}]`)
	var got []string
	for id, run := range claimedRuns(claimed) {
		got = append(got, id+" "+run)
	}
	if want := "7 a-b,8 c"; strings.Join(got, ",") != want {
		t.Errorf("claimed runs = %q, want %q", got, want)
	}
}

func TestQueueFloor(t *testing.T) {
	t.Parallel()
	for _, work := range [][]string{{http.MethodGet, http.MethodDelete}, {http.MethodPost}} {
		r, err := setupQueueFloor(work...)(t.Context(), &Env{Clients: 8})
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		for range 2 {
			if _, err := r.Run(t.Context(), 50); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestQueueNext: a job whose completion claims the next one costs two requests, and none is left.
func TestQueueNext(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	requests := map[string]int{}
	var queued []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		requests[r.Method+" "+r.URL.RequestURI()]++
		if r.URL.RequestURI() == "/v2/queues/jobs" {
			queued = append(queued, strconv.Itoa(len(queued)))
			w.WriteHeader(http.StatusAccepted)
			return
		}
		if len(queued) == 0 {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		fmt.Fprintf(w, `[{"queue":"q0","id":"%s","run_id":"r"}]`, queued[0])
		queued = queued[1:]
	}))
	defer server.Close()
	raw, err := dialRaw(t.Context(), server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	c := relayConn{rawConn: raw, r: &relayQueue{batch: 1, queues: 1, next: true}, host: "h"}
	finished := ""
	for num := range 3 {
		if err := c.Submit(t.Context(), num, num+1); err != nil {
			t.Fatal(err)
		}
	}
	for range 4 {
		if err := c.Work(t.Context(), func(num int) { finished += strconv.Itoa(num) }); err != nil {
			t.Fatal(err)
		}
	}
	want := map[string]int{"POST /v2/queues/jobs": 3, "GET /v2/queues/q0/jobs?num_jobs=1": 2,
		"POST /v2/queues/completions?next=1": 3}
	if finished != "012" || !maps.Equal(requests, want) {
		t.Errorf("finished %s by %v, want 012 by %v", finished, requests, want)
	}
}

// TestMissingPeers: a case whose programs are not there is skipped, and its reason says how to get
// them.
func TestMissingPeers(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	t.Setenv(envFaktory, "")
	t.Setenv(envNode, "")
	for name, want := range map[string]string{
		"queue-beanstalkd":      "apt-get install beanstalkd",
		"queue-rabbitmq":        "apt-get install rabbitmq-server",
		"queue-nats":            "nats-server does not build",
		"queue-faktory":         "github.com/contribsys/faktory",
		"queue-bullmq":          "apt-get install nodejs npm",
		"queue-pg-boss":         "apt-get install nodejs npm",
		"queue-graphile-worker": "apt-get install nodejs npm",
	} {
		assertSkip(t, name, want)
	}
	// Node.js alone is not enough, and neither is a folder without the package.
	node := filepath.Join(os.Getenv("PATH"), "node")
	if err := os.WriteFile(node, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	assertSkip(t, "queue-bullmq", envNode+" is not set")
	t.Setenv(envNode, t.TempDir())
	assertSkip(t, "queue-bullmq", "npm install --prefix")
}

func assertSkip(t *testing.T, name, want string) {
	t.Helper()
	chosen, err := selectCases(cases, []string{name})
	if err != nil {
		t.Fatal(err)
	}
	_, err = chosen[0].Setup(t.Context(), &Env{Dir: t.TempDir(), Clients: 1})
	if !isSkip(err) || !strings.Contains(err.Error(), want) {
		t.Errorf("%s: err = %v, want a skip with %q", name, err, want)
	}
}
