package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"
)

// queueFloor is empty net/http answers, as many as a job needs: one for its submission, and one for
// each of the methods of its work.
type queueFloor struct {
	*floorHTTP
	work               []string
	submitted, claimed atomic.Int64
}

func setupQueueFloor(work ...string) func(context.Context, *Env) (Runner, error) {
	return func(_ context.Context, env *Env) (Runner, error) {
		f, err := newFloorHTTP(env.Clients)
		if err != nil {
			return nil, err
		}
		return &queueRunner{queueSystem: &queueFloor{floorHTTP: f, work: work},
			conns: env.Clients, batch: 1}, nil
	}
}

func (f *queueFloor) Reset(context.Context) error {
	f.submitted.Store(0)
	f.claimed.Store(0)
	return nil
}

func (f *queueFloor) Dial(ctx context.Context) (queueConn, error) {
	c, err := dialRaw(ctx, f.addr)
	if err != nil {
		return nil, err
	}
	c.bind(ctx)
	return &floorConn{rawConn: c, f: f}, nil
}

type floorConn struct {
	*rawConn
	f *queueFloor
}

func (c *floorConn) Submit(_ context.Context, num, _ int) error {
	c.f.submitted.Add(1)
	_, err := c.Expect(httpRequest(http.MethodPost, "/", c.f.addr, appendPayload(nil, num)),
		http.StatusNoContent)
	return err
}

func (c *floorConn) Work(ctx context.Context, finished func(int)) error {
	num := c.f.claimed.Add(1) - 1
	if num >= c.f.submitted.Load() {
		<-ctx.Done() // there is no job any more
		return nil
	}
	for _, method := range c.f.work {
		var body []byte
		if method == http.MethodPost {
			body = appendPayload(nil, int(num))
		}
		if _, err := c.Expect(httpRequest(method, "/", c.f.addr, body),
			http.StatusNoContent); err != nil {
			return err
		}
	}
	finished(int(num))
	return nil
}

// httpRequest is a request as bytes; no body is none.
func httpRequest(method, path, host string, body []byte) []byte {
	head := fmt.Appendf(nil, "%s %s HTTP/1.1\r\nHost: %s\r\n", method, path, host)
	if body != nil {
		head = fmt.Appendf(head, "Content-Type: application/json\r\nContent-Length: %d\r\n",
			len(body))
	}
	return append(append(head, "\r\n"...), body...)
}

// relayQueue is the real binary, used through Relay.
type relayQueue struct {
	env     *Env
	binary  string
	dir     string
	pg      *Postgres // nil: SQLite
	store   string    // the setting, where it is not the URL of pg
	batch   int       // jobs of one enqueue and of one claim
	whole   bool      // the jobs of a claim are completed in one request
	next    bool      // which also claims the next ones; the jobs are of one queue then
	queues  int       // over which the jobs are spread
	payload int       // bytes of a body, 0 for the usual one
	nodes   int       // servers on one database
	flags   []string  // of the servers, beside those that follow from the above

	servers []*millraceServer
	dialed  atomic.Int64
	worked  atomic.Int64 // calls of Work
}

// newRelayQueue builds the binary for jobs that are submitted, claimed and finished one by one, in
// one queue.
func newRelayQueue(ctx context.Context, env *Env, onPostgres bool) (*relayQueue, error) {
	r := &relayQueue{env: env, batch: 1, queues: 1, nodes: 1}
	var err error
	if onPostgres {
		if r.pg, err = env.Postgres(ctx, "relay"); err != nil {
			return nil, err
		}
	}
	if r.dir, err = os.MkdirTemp(env.Dir, "relay-"); err != nil {
		return nil, err
	}
	r.binary, err = millrace.build(ctx)
	return r, err
}

// setupQueueMillrace makes a case of the real binary with batches of so many jobs.
func setupQueueMillrace(onPostgres bool, batch int, whole bool) func(context.Context,
	*Env) (Runner, error) {
	return func(ctx context.Context, env *Env) (Runner, error) {
		r, err := newRelayQueue(ctx, env, onPostgres)
		if err != nil {
			return nil, err
		}
		r.batch, r.whole = batch, whole
		return &queueRunner{queueSystem: r, conns: env.Clients, batch: batch}, nil
	}
}

// setupQueueMillraceNext makes a case of the real binary whose completions claim the next job. Jobs
// are submitted in batches of that size.
func setupQueueMillraceNext(onPostgres bool, batch int) func(context.Context, *Env) (Runner,
	error) {
	return func(ctx context.Context, env *Env) (Runner, error) {
		r, err := newRelayQueue(ctx, env, onPostgres)
		if err != nil {
			return nil, err
		}
		r.next = true
		return &queueRunner{queueSystem: r, conns: env.Clients, batch: batch}, nil
	}
}

func (r *relayQueue) Durability() string {
	if r.pg != nil {
		return r.pg.Durability()
	}
	return "SQLite WAL synchronous=FULL: an fsync before every answer"
}

func (r *relayQueue) Close() error {
	var errs []error
	for _, s := range r.servers {
		errs = append(errs, s.Stop())
	}
	r.servers = nil
	return errors.Join(errs...)
}

// Reset starts servers on an empty database.
func (r *relayQueue) Reset(ctx context.Context) error {
	if err := r.Close(); err != nil {
		return err
	}
	if err := r.clear(ctx); err != nil {
		return err
	}
	return r.serve(ctx)
}

// clear removes what the database holds.
func (r *relayQueue) clear(ctx context.Context) error {
	for i := range r.nodes {
		if err := os.RemoveAll(r.data(i)); err != nil {
			return err
		}
	}
	if r.pg != nil {
		return r.pg.Recreate(ctx)
	}
	return nil
}

// data is the data directory of a node.
func (r *relayQueue) data(node int) string {
	return filepath.Join(r.dir, "data"+strconv.Itoa(node))
}

// serve starts the servers on what the database holds.
func (r *relayQueue) serve(ctx context.Context) error {
	r.dialed.Store(0)
	r.worked.Store(0)
	flags := slices.Clone(r.flags)
	if r.pg != nil {
		flags = append(flags, "--set", "store="+cmp.Or(r.store, r.pg.URL()))
	}
	for i := range r.nodes {
		log, err := os.Create(filepath.Join(r.dir, "log"+strconv.Itoa(i)))
		if err != nil {
			return err
		}
		s, err := serveMillrace(ctx, r.binary, r.data(i), log, flags...)
		log.Close() // the process has its own
		if err != nil {
			return err
		}
		r.env.addChild(s.Child) // which is stopped even if the run does not end
		r.servers = append(r.servers, s)
	}
	return nil
}

// Dial connects to the servers in turn.
func (r *relayQueue) Dial(ctx context.Context) (queueConn, error) {
	s := r.servers[int(r.dialed.Add(1)-1)%len(r.servers)]
	c, err := dialRaw(ctx, s.addr)
	if err != nil {
		return nil, err
	}
	c.bind(ctx)
	return &relayConn{rawConn: c, r: r, host: s.addr}, nil
}

type relayConn struct {
	*rawConn
	r       *relayQueue
	host    string
	claimed []byte // the answer with the jobs that a completion has claimed
}

// queueName is the queue of job num.
func (r *relayQueue) queueName(num int) string { return "q" + strconv.Itoa(num%r.queues) }

func (c *relayConn) Submit(_ context.Context, from, to int) error {
	body := []byte{'['}
	for num := from; num < to; num++ {
		if num > from {
			body = append(body, ',')
		}
		body = fmt.Appendf(body, `{"queue":"%s","id":"%d","timeout":600,"payload":`,
			c.r.queueName(num), num)
		body = append(appendSizedPayload(body, num, c.r.payload), '}')
	}
	_, err := c.Expect(httpRequest(http.MethodPost, "/v2/queues/jobs", c.host, append(body, ']')),
		http.StatusAccepted)
	return err
}

func (c *relayConn) Work(_ context.Context, finished func(int)) error {
	queue := c.r.queueName(int(c.r.worked.Add(1) - 1))
	body := c.claimed
	if body == nil {
		var err error
		body, err = c.claim(httpRequest(http.MethodGet,
			"/v2/queues/"+queue+"/jobs?num_jobs="+strconv.Itoa(c.r.batch), c.host, nil))
		if err != nil || body == nil {
			return err
		}
	}
	return c.finish(queue, body, finished)
}

// claim sends a request that claims jobs; the answer is nil where there are none.
func (c *relayConn) claim(request []byte) ([]byte, error) {
	status, body, err := c.Do(request)
	if err != nil || status == http.StatusNoContent {
		return nil, err
	}
	if status != http.StatusOK {
		return nil, fmt.Errorf("a claim was answered %d: %.200s", status, body)
	}
	return body, nil
}

// finish completes the jobs of a claim.
func (c *relayConn) finish(queue string, claimed []byte, finished func(int)) error {
	if c.r.whole || c.r.next {
		return c.completeAll(queue, claimed, finished)
	}
	for id, run := range claimedRuns(claimed) {
		if _, err := c.Expect(httpRequest(http.MethodDelete,
			"/v2/queues/"+queue+"/jobs/"+id+"/run-id/"+run, c.host, nil),
			http.StatusOK); err != nil {
			return err
		}
		markWorked(finished, id)
	}
	return nil
}

// completeAll completes the jobs of a claim in one request, which may claim the next ones.
func (c *relayConn) completeAll(queue string, claimed []byte, finished func(int)) error {
	body, ids := []byte{'['}, []string{}
	for id, run := range claimedRuns(claimed) {
		if len(ids) > 0 {
			body = append(body, ',')
		}
		body = fmt.Appendf(body, `{"queue":"%s","id":"%s","run_id":"%s"}`, queue, id, run)
		ids = append(ids, id)
	}
	const path = "/v2/queues/completions"
	body = append(body, ']')
	var err error
	if c.r.next {
		c.claimed, err = c.claim(httpRequest(http.MethodPost,
			path+"?next="+strconv.Itoa(c.r.batch), c.host, body))
	} else {
		err = c.completeKnown(httpRequest(http.MethodPost, path, c.host, body), len(ids))
	}
	if err != nil {
		return err
	}
	for _, id := range ids {
		markWorked(finished, id)
	}
	return nil
}

// completeKnown sends a request that completes n runs, all of which must be known.
func (c *relayConn) completeKnown(request []byte, n int) error {
	answer, err := c.Expect(request, http.StatusOK)
	if err != nil {
		return err
	}
	if known := bytes.Count(answer, []byte(`"known":true`)); known != n {
		return fmt.Errorf("of %d completions %d were of a known run", n, known)
	}
	return nil
}

// markWorked passes a job's id on as its number; a wrong one counts as worked twice.
func markWorked(finished func(int), id string) {
	num, err := strconv.Atoi(id)
	if err != nil {
		num = -1
	}
	finished(num)
}

// claimedRuns yields the id and the run id of each job in the answer to a claim. The bench's own
// payloads have no member of these names.
func claimedRuns(body []byte) func(yield func(id, run string) bool) {
	return func(yield func(id, run string) bool) {
		for {
			_, after, found := bytes.Cut(body, []byte(`"id":"`))
			id, after, _ := bytes.Cut(after, []byte{'"'})
			_, after, hasRun := bytes.Cut(after, []byte(`"run_id":"`))
			run, after, _ := bytes.Cut(after, []byte{'"'})
			if !found || !hasRun || !yield(string(id), string(run)) {
				return
			}
			body = after
		}
	}
}
