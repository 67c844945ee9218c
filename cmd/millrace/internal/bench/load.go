package bench

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/cmd/millrace/internal/cli"
)

// load is a number of jobs that go through one queue. All connections share it.
type load struct {
	b     *bench
	queue string
	jobs  int
	// batch is the number of jobs that one request enqueues or claims.
	batch int
	// completesBatches completes the jobs of a claim in one request.
	completesBatches bool
	bar              *cli.Progress

	// enqueues are the requests that enqueue, each for one batch.
	enqueues [][]byte
	// next is the request that claims a batch.
	next []byte
	// completeHead is the request that completes, up to the id of the job.
	completeHead string
	// completeTail is what follows the run id.
	completeTail string

	// enqueued counts the enqueues that were sent.
	enqueued atomic.Int64
	// remaining counts the jobs that are not completed.
	remaining atomic.Int64

	mu sync.Mutex
	// times are how long requests took, by verb.
	times requestTimes
}

// requestTimes is how long each request took, by verb.
type requestTimes [verbCount][]time.Duration

// prepare encodes the requests, so that nothing is encoded while the clock runs.
func (l *load) prepare() {
	l.remaining.Store(int64(l.jobs))
	payload := `"` + strings.Repeat("x", max(0, l.b.flags.payload-2)) + `"`
	for from := 0; from < l.jobs; from += l.batch {
		var body strings.Builder
		body.WriteByte('[')
		for i := from; i < min(from+l.batch, l.jobs); i++ {
			if i > from {
				body.WriteByte(',')
			}
			fmt.Fprintf(&body, `{"queue":%q,"id":"%010d","timeout":600,"payload":%s}`, l.queue, i,
				payload)
		}
		body.WriteByte(']')
		l.enqueues = append(l.enqueues, encodeRequest(l.b.target, l.b.token, http.MethodPost,
			"/v2/queues/jobs", []byte(body.String())))
	}
	l.next = encodeRequest(l.b.target, l.b.token, http.MethodGet,
		fmt.Sprintf("/v2/queues/%s/jobs?num_jobs=%d", l.queue, l.batch), nil)
	// A queue name has letters, digits and a hyphen: it cannot contain {id}.
	l.completeHead, l.completeTail, _ = strings.Cut(string(encodeRequest(l.b.target, l.b.token,
		http.MethodDelete, "/v2/queues/"+l.queue+"/jobs/{id}", nil)), "{id}")
}

// drive uses one connection until every job is completed, by this connection or by others: it
// enqueues a batch as long as there are any, claims a batch, and completes the jobs of it. A
// connection may claim jobs that another has enqueued, and near the end it may find none: it then
// claims again until the others have completed theirs.
func (l *load) drive(ctx context.Context, c *conn) error {
	var times requestTimes // kept apart, so that connections do not share a lock
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		for i := range times {
			l.times[i] = append(l.times[i], times[i]...)
		}
	}()
	for ctx.Err() == nil && l.remaining.Load() > 0 {
		if i := l.enqueued.Add(1) - 1; i < int64(len(l.enqueues)) {
			_, err := l.send(c, verbEnqueue, &times, l.enqueues[i], http.StatusAccepted)
			if err != nil {
				return err
			}
		}
		body, err := l.send(c, verbNext, &times, l.next, http.StatusOK, http.StatusNoContent)
		if err != nil {
			return err
		}
		complete := l.completeEach
		if l.completesBatches {
			complete = l.completeAll
		}
		if err := complete(c, &times, body); err != nil {
			return err
		}
	}
	return nil
}

// completeEach completes the jobs of a claim one by one.
func (l *load) completeEach(c *conn, times *requestTimes, claimed []byte) error {
	for id, run := range claimedJobs(claimed) {
		request := []byte(l.completeHead + id + "/run-id/" + run + l.completeTail)
		if _, err := l.send(c, verbComplete, times, request, http.StatusOK); err != nil {
			return err
		}
		l.countCompleted(1)
	}
	return nil
}

// completeAll completes the jobs of a claim in one request. All runs must be known to the server.
func (l *load) completeAll(c *conn, times *requestTimes, claimed []byte) error {
	body, jobs := l.completionsBody(claimed)
	if jobs == 0 {
		return nil
	}
	request := encodeRequest(l.b.target, l.b.token, http.MethodPost, "/v2/queues/completions", body)
	answer, err := l.send(c, verbComplete, times, request, http.StatusOK)
	if err != nil {
		return err
	}
	if known := bytes.Count(answer, []byte(`"known":true`)); known != jobs {
		return fmt.Errorf("of %d jobs that were completed the server knew %d", jobs, known)
	}
	l.countCompleted(jobs)
	return nil
}

// completionsBody makes the body of a request that completes the jobs of a claim.
func (l *load) completionsBody(claimed []byte) (body []byte, jobs int) {
	body = []byte{'['}
	for id, run := range claimedJobs(claimed) {
		if jobs > 0 {
			body = append(body, ',')
		}
		body = append(append(body, `{"queue":"`...), l.queue...)
		body = append(append(body, `","id":"`...), id...)
		body = append(append(body, `","run_id":"`...), run...)
		body = append(body, `"}`...)
		jobs++
	}
	return append(body, ']'), jobs
}

func (l *load) countCompleted(jobs int) {
	left := l.remaining.Add(-int64(jobs))
	l.bar.Add(int64(jobs), fmt.Sprintf("%d jobs left", left))
}

// send sends a request, adds how long it took to times, and returns the body of the answer. A
// status that is not one of want is an error.
func (l *load) send(c *conn, v verb, times *requestTimes, request []byte,
	want ...int) ([]byte, error) {
	start := l.b.p.Elapsed()
	status, body, err := c.do(request)
	times[v] = append(times[v], l.b.p.Elapsed()-start)
	if err != nil {
		return nil, err
	}
	if !slices.Contains(want, status) {
		return nil, statusError(v, status, body)
	}
	return body, nil
}

// claimedJobs yields the id and the run id of each job in an answer. It searches for the two
// members instead of decoding the answer: the jobs are the bench's own, and none of their texts
// contains a quote.
func claimedJobs(body []byte) iter.Seq2[string, string] {
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

// jsonMember finds a member by its name, which includes the quotes, the colon and the first quote
// of the value. It returns the value and what follows it.
func jsonMember(body []byte, name string) (value string, rest []byte, ok bool) {
	_, after, found := bytes.Cut(body, []byte(name))
	text, rest, closed := bytes.Cut(after, []byte{'"'})
	return string(text), rest, found && closed
}
