package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/cmd/millrace/internal/cli"
)

// benchRun is one load on its way: its requests are made before the clock runs.
type benchRun struct {
	b     *bench
	queue string
	jobs  int
	batch int
	bar   *cli.Progress

	enqueues [][]byte
	next     []byte
	head     string // of a complete request, up to the id
	tail     string

	enqueued  atomic.Int64 // index into enqueues
	remaining atomic.Int64 // jobs not completed

	mu    sync.Mutex
	times [3][]time.Duration // as benchVerbs
}

func (f *benchRun) prepare() {
	f.remaining.Store(int64(f.jobs))
	payload := `"` + strings.Repeat("x", max(0, f.b.flags.payload-2)) + `"`
	for from := 0; from < f.jobs; from += f.batch {
		var body strings.Builder
		for i := from; i < min(from+f.batch, f.jobs); i++ {
			body.WriteByte("[,"[min(i-from, 1)])
			fmt.Fprintf(&body, `{"queue":%q,"id":"%010d","timeout":600,"payload":%s}`, f.queue, i,
				payload)
		}
		body.WriteByte(']')
		f.enqueues = append(f.enqueues, benchRequest(f.b.target, f.b.token, http.MethodPost,
			"/v2/queues/jobs", []byte(body.String())))
	}
	f.next = benchRequest(f.b.target, f.b.token, http.MethodGet,
		fmt.Sprintf("/v2/queues/%s/jobs?num_jobs=%d", f.queue, f.batch), nil)
	f.head, f.tail, _ = strings.Cut(string(benchRequest(f.b.target, f.b.token, http.MethodDelete,
		// The braces, as the name of the queue may hold any letters.
		"/v2/queues/"+f.queue+"/jobs/{id}", nil)), "{id}")
}

// drive is what one connection does until every job is completed, by it or by
// others.
func (f *benchRun) drive(ctx context.Context, c *benchConn) error {
	var times [3][]time.Duration
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		for i := range times {
			f.times[i] = append(f.times[i], times[i]...)
		}
	}()
	for ctx.Err() == nil && f.remaining.Load() > 0 {
		if i := f.enqueued.Add(1) - 1; i < int64(len(f.enqueues)) {
			if _, err := f.send(c, 0, &times, f.enqueues[i], http.StatusAccepted); err != nil {
				return err
			}
		}
		body, err := f.send(c, 1, &times, f.next, http.StatusOK, http.StatusNoContent)
		if err != nil {
			return err
		}
		for id, run := range claimedJobs(body) {
			request := f.head + id + "/run-id/" + run + f.tail
			if _, err := f.send(c, 2, &times, []byte(request), http.StatusOK); err != nil {
				return err
			}
			f.remaining.Add(-1)
			f.bar.Add(1, fmt.Sprintf("%d jobs left", f.remaining.Load()))
		}
	}
	return nil
}

func (f *benchRun) send(c *benchConn, verb int, times *[3][]time.Duration, request []byte,
	want ...int) ([]byte, error) {
	start := f.b.p.Elapsed()
	status, body, err := c.do(request)
	times[verb] = append(times[verb], f.b.p.Elapsed()-start)
	if err != nil {
		return nil, err
	}
	for _, w := range want {
		if status == w {
			return body, nil
		}
	}
	return nil, statusError(benchVerbs[verb], status, body)
}

// claimedJobs yields id and run id of the jobs of an answer, which the bench made
// itself: reading them plainly keeps the client from being what is measured.
func claimedJobs(body []byte) func(yield func(id, run string) bool) {
	return func(yield func(id, run string) bool) {
		for {
			id, rest, ok := jsonMember(body, `"id":"`)
			run, afterRun, hasRun := jsonMember(rest, `"run_id":"`)
			if !ok || !hasRun || !yield(id, run) {
				return
			}
			body = afterRun
		}
	}
}

func jsonMember(body []byte, name string) (value string, rest []byte, ok bool) {
	_, after, found := bytes.Cut(body, []byte(name))
	text, rest, closed := bytes.Cut(after, []byte{'"'})
	return string(text), rest, found && closed
}
