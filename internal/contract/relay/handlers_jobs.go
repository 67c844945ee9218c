package relay

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/job"
)

// Each handler reads its parameters, makes one call of the engine and counts what the call has
// changed. The engine returns after its commit is on stable storage, so what was answered with a
// status 2xx survives a crash (RL-034). What a handler answers when the job does not exist, or the
// run is not its current one:
//
//	route        engine        no such job or run
//	enqueue      Submit        –
//	next         Claim         204 after the wait, if there was one
//	heartbeat    Heartbeat     404: the worker should stop (RL-054)
//	heartbeats   HeartbeatAll  200 with known false in the entry (G-RL-32)
//	requeue      Requeue       202, and nothing is stored (G-RL-02)
//	complete     Finish        200 (G-RL-03)
//	completions  FinishAll     200 with known false in the entry (G-RL-32); with next, as next
//	delete       Remove        200 (G-RL-03)
//	exists       Exists        404 (RL-080)
//	get          Get           404 (RL-082)

// unescapeMember decodes a queue, id or run id in a path. A path with a value that cannot name a
// job does not exist (G-RL-14, G-RL-27). A name has at most as many characters as bytes, so only a
// long one is counted.
func unescapeMember(escaped string) (string, bool) {
	m, ok := httpapi.DecodePathValue(escaped)
	return m, ok && (len(m) <= maxName || utf8.RuneCountInString(m) <= maxName)
}

// unescapeMemberV1 also decodes a plus as a space: the public Go client escapes values in a path as
// if they stood in a query (G-RL-29).
func unescapeMemberV1(escaped string) (string, bool) {
	return unescapeMember(strings.ReplaceAll(escaped, "+", "%20"))
}

// pathJobID returns the identity of the job in the path: its queue is the scope (RL-001).
func pathJobID(c *httpapi.Call) job.ID {
	return job.ID{JobType: Name, Scope: c.PathValue("queue"), Key: c.PathValue("id")}
}

// pathRun reads the attempt in the path. A run id that is no UUID is malformed (RL-096).
func pathRun(c *httpapi.Call) (engine.Run, error) {
	run, err := job.ParseRunID(c.PathValue("run_id"))
	if err != nil {
		return engine.Run{}, malformed("the run id in the path is not a UUID")
	}
	return engine.Run{ID: pathJobID(c), Run: run}, nil
}

// queryMode reads the query's mode, which is unique by default. An unknown mode is refused, so that
// a misspelt one has no other effect than meant (RL-021).
func queryMode(c *httpapi.Call) (engine.Mode, error) {
	text, given, err := c.Query("mode")
	switch {
	case err != nil:
		return 0, err
	case !given || text == "unique":
		return engine.Unique, nil
	case text == "ignore":
		return engine.Ignore, nil
	case text == "replace":
		return engine.Replace, nil
	}
	return 0, malformed("mode must be unique, ignore or replace, not %q", text)
}

// numJobs reads how many jobs the parameter of a claim asks for, at most MaxNumJobs, and missing
// where it is not given (RL-046, RL-047). A number above MaxNumJobs is no error, since fewer jobs
// than asked for are always allowed (G-RL-11).
func (r *Relay) numJobs(c *httpapi.Call, parameter string, missing int) (int, error) {
	text, given, err := c.Query(parameter)
	if err != nil || !given {
		return missing, err
	}
	n, ok := httpapi.ParseDigits(text)
	if !ok || n == 0 {
		return 0, malformed("%s must be a whole number of 1 or more, not %q", parameter, text)
	}
	return min(n, r.MaxNumJobs), nil
}

// POST /v2/queues/jobs?mode= stores the jobs of an array in one transaction, all of them or none
// (RL-024). An empty array changes nothing and is accepted as well (RL-025).
func (r *Relay) enqueue(c *httpapi.Call) error {
	mode, err := queryMode(c)
	if err != nil {
		return err
	}
	batch, err := r.readJobs(c, v2)
	if err != nil {
		return err
	}
	return r.submit(c, mode, batch)
}

// submit stores a batch and answers 202 without a body, in either version of the API. Jobs that
// mode ignore has left as they were are not counted.
func (r *Relay) submit(c *httpapi.Call, mode engine.Mode, batch []engine.Submission) error {
	receipt, err := r.Engine.Submit(c.Context(), mode, batch)
	if err != nil {
		return err
	}
	r.metrics.countSubmitted(batch, receipt.Existing)
	c.WriteHeader(http.StatusAccepted)
	return nil
}

// maxWait is the longest time that a poll waits, in seconds (G-RL-30). A longer wait is shortened,
// and the header Preference-Applied has the number that applies.
const maxWait = 30

// GET /v2/queues/{queue}/jobs?num_jobs=
func (r *Relay) next(c *httpapi.Call) error { return r.sendClaimed(c, appendJob) }

// sendClaimed claims up to num_jobs jobs of the queue and answers with them in claim order, or
// with 204. With the preference wait=N it waits for the first job, and then returns those there
// are without waiting for more (RL-039, G-RL-30). The engine releases the jobs that it has claimed
// for a caller who has left meanwhile; if only the answer is lost, their leases expire (G-RL-20).
//
// The worker is the one that the header Millrace-Worker names, else the address of the caller. An
// empty answer to one that is drained says so (AD-041).
func (r *Relay) sendClaimed(c *httpapi.Call, write func([]byte, *job.Job) []byte) error {
	n, err := r.numJobs(c, "num_jobs", 1) // RL-037
	if err != nil {
		return err
	}
	seconds, wait := httpapi.PreferWait(c.Request.Header)
	seconds = min(seconds, maxWait)
	if wait {
		c.Header().Set("Preference-Applied", "wait="+strconv.Itoa(seconds))
	}
	request, err := claimRequest(c, c.PathValue("queue"), n)
	if err != nil {
		return err
	}
	request.Wait = time.Duration(seconds) * time.Second
	jobs, draining, err := r.Engine.ClaimRemote(c.Context(), request, c.Request.UserAgent())
	if err != nil {
		return err
	}
	r.answerClaimed(c, request.Queues[0], jobs, draining, write)
	return nil
}

// claimRequest returns the claim of up to n jobs of a queue for the worker that sends a request.
func claimRequest(c *httpapi.Call, queue string, n int) (req engine.ClaimRequest, err error) {
	worker, err := httpapi.WorkerName(c.Request)
	if err != nil {
		return req, invalid("%v", err)
	}
	return engine.ClaimRequest{JobType: Name, Queues: []string{queue}, Max: n, Worker: worker}, nil
}

// answerClaimed counts claimed jobs of a queue and answers with them, or with 204.
func (r *Relay) answerClaimed(c *httpapi.Call, queue string, jobs []*job.Job, draining bool,
	write func([]byte, *job.Job) []byte) {
	if len(jobs) == 0 {
		httpapi.SetDrain(c.Header(), draining)
		c.WriteHeader(http.StatusNoContent)
		return
	}
	r.metrics.countClaimed(queue, jobs)
	sendJobs(c, jobs, write)
}

// PATCH /v2/queues/{queue}/jobs/{id}/run-id/{run_id} extends the lease by the job's timeout from
// now on (RL-051). That of a run that has timed out is accepted as long as the timeout was not
// processed (G-RL-18).
func (r *Relay) heartbeat(c *httpapi.Call) error {
	run, err := pathRun(c)
	if err != nil {
		return err
	}
	state, err := readState(c)
	if err != nil {
		return err
	}
	if _, err := r.Engine.Heartbeat(c.Context(), run, state); err != nil {
		return err
	}
	r.metrics.existingQueue(run.ID.Scope).heartbeats.Inc()
	c.WriteHeader(http.StatusAccepted)
	return nil
}

// readState reads a heartbeat's body. An empty body returns nil, which keeps the job's state
// (G-RL-05). A body that is not JSON is invalid, status 422 (G-RL-06).
func readState(c *httpapi.Call) ([]byte, error) {
	state, err := c.OptionalJSONBody()
	if err != nil {
		return nil, err
	}
	if len(state) == 0 {
		return nil, nil
	}
	if err := strictjson.Check(state); err != nil {
		return nil, invalid("the state is not JSON: %v", err)
	}
	return state, nil
}

// PUT /v2/queues/{queue}/jobs/{id}/run-id/{run_id}?mode=
//
// The job of the run is deleted and the batch is stored in one transaction (RL-059). After a 409
// in mode unique the job is running as before, under the same run id (G-RL-01).
func (r *Relay) requeue(c *httpapi.Call) error {
	run, err := pathRun(c)
	if err != nil {
		return err
	}
	mode, err := queryMode(c)
	if err != nil {
		return err
	}
	batch, err := r.readJobs(c, v2)
	if err != nil {
		return err
	}
	err = r.Engine.Requeue(c.Context(), run, mode, batch)
	if job.IsKind(err, job.RunLost) {
		setLostRuns(c, 0)
	}
	return r.sendRequeued(c, run.ID, batch, err)
}

// sendRequeued answers a requeue with its error. A requeue by an attempt that has lost its lease
// changes nothing and is accepted like any other (G-RL-02).
func (r *Relay) sendRequeued(c *httpapi.Call, id job.ID, batch []engine.Submission,
	err error) error {
	switch {
	case job.IsKind(err, job.RunLost):
	case err != nil:
		return err
	default:
		r.metrics.existingQueue(id.Scope).requeued.Inc()
		r.metrics.countSubmitted(batch, nil)
	}
	c.WriteHeader(http.StatusAccepted)
	return nil
}

// DELETE /v2/queues/{queue}/jobs/{id} deletes a job whether it is queued or running (RL-071). Its
// worker finds out with its next heartbeat, which is answered with 404 (RL-073).
func (r *Relay) deleteJob(c *httpapi.Call) error {
	_, err := r.removeJob(c.Context(), pathJobID(c))
	if err != nil && !job.IsKind(err, job.NotFound) { // G-RL-03
		return err
	}
	c.WriteHeader(http.StatusOK)
	return nil
}

// removeJob deletes a job and counts that.
func (r *Relay) removeJob(ctx context.Context, id job.ID) (*job.Job, error) {
	j, err := r.Engine.Change(ctx, id, job.Removed, nil)
	if err != nil {
		return nil, err
	}
	r.metrics.existingQueue(id.Scope).deleted.Inc()
	return j, nil
}

// succeeded is how a completed run ends.
var succeeded = engine.Outcome{On: job.Succeeded}

// DELETE /v2/queues/{queue}/jobs/{id}/run-id/{run_id} deletes the job of a run that has succeeded
// (RL-075).
func (r *Relay) complete(c *httpapi.Call) error {
	run, err := pathRun(c)
	if err != nil {
		return err
	}
	done, err := r.Engine.Finish(c.Context(), run, succeeded)
	switch {
	case job.IsKind(err, job.RunLost): // G-RL-03
		setLostRuns(c, 0)
	case err != nil:
		return err
	default:
		r.metrics.countCompleted(done)
	}
	c.WriteHeader(http.StatusOK)
	return nil
}

// HEAD /v2/queues/{queue}/jobs/{id}
func (r *Relay) exists(c *httpapi.Call) error {
	id := pathJobID(c)
	exists, err := r.Engine.Exists(c.Context(), id)
	if err != nil {
		return err
	}
	r.metrics.existingQueue(id.Scope).exists.Inc()
	if !exists {
		return notFound("job")
	}
	c.WriteHeader(http.StatusOK)
	return nil
}

// GET /v2/queues/{queue}/jobs/{id} reads a job and claims nothing (RL-082).
func (r *Relay) getJob(c *httpapi.Call) error { return r.sendOne(c, appendJob) }

// sendOne answers with the job in the path, in the form that write gives it.
func (r *Relay) sendOne(c *httpapi.Call, write func([]byte, *job.Job) []byte) error {
	id := pathJobID(c)
	found, err := r.Engine.Get(c.Context(), id)
	if err != nil {
		return err
	}
	r.metrics.existingQueue(id.Scope).read.Inc()
	sendJob(c, found, write)
	return nil
}
