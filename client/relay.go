package client

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// RelayMode decides what happens to a submitted job whose queue and id exist already. The empty
// mode is the server's default, unique (RL-021).
type RelayMode string

// The modes of Enqueue and Requeue.
const (
	// RelayUnique stores all jobs of the batch or, when one of them exists, none: [ErrConflict]
	// (RL-017).
	RelayUnique RelayMode = "unique"
	// RelayIgnore leaves existing jobs as they are, also in flight, and stores the others
	// (RL-018).
	RelayIgnore RelayMode = "ignore"
	// RelayReplace gives an existing job the new definition and makes it due again; a run that
	// was in flight is lost (RL-019, RL-020).
	RelayReplace RelayMode = "replace"
)

// RelaySpec is a job as it is submitted.
type RelaySpec struct {
	// Queue and ID identify the job together. Each has 1 to 1024 characters, which may be any
	// (RL-001 to RL-003).
	Queue string
	ID    string
	// Timeout is how long a run lasts without a heartbeat: 0 to 2147483647 s (RL-004). It has no
	// default. A run that has failed ends with it too: the job comes back then, and not before. The
	// wire has whole seconds; fractions are rounded up.
	Timeout time.Duration
	// MaxRetries is how often a run may fail or time out before the job is given up, 0 to 32767:
	// the job runs at most MaxRetries+1 times (RL-087). Nil, the default, is no limit (RL-005).
	MaxRetries *int
	// Payload is any JSON value. It never changes (RL-007). Nil is sent as null.
	Payload json.RawMessage
	// State is any JSON value from which the first run starts; nil for none (RL-008).
	State json.RawMessage
	// RunAt is when the job may first be claimed; zero means now (RL-011).
	RunAt time.Time
	// CallbackURL receives a request when the job is completed, given up or deleted (WH-005); empty
	// for none. Requests are signed with the secret that `millrace operator secret relay` prints;
	// [VerifyWebhook] checks them.
	CallbackURL string
}

// RelayJob is a job as the server has it.
type RelayJob struct {
	// RelaySpec is the definition. Its State is the latest stored one, nil for none. Enqueueing
	// it again makes an equal job.
	RelaySpec
	// RetriesRemaining is reduced by each timeout; nil means without limit (RL-006, RL-086).
	RetriesRemaining *int
	// RunID is the run id of a job in flight, else empty (RL-010).
	RunID string
	// UpdatedAt is when the job was last changed or sent a heartbeat (RL-012).
	UpdatedAt time.Time
	// CreatedAt is when the job was enqueued or requeued (RL-013).
	CreatedAt time.Time
}

// Run identifies the run that the job is in flight with.
func (j RelayJob) Run() RelayRun { return RelayRun{Queue: j.Queue, ID: j.ID, RunID: j.RunID} }

// RelayRun identifies one run of a job. Every claim makes a fresh RunID (RL-045).
type RelayRun struct {
	Queue string
	ID    string
	RunID string
}

// Relay is version 2 of the Relay contract. Every error is an [*Error]. A Relay is safe for
// concurrent use.
type Relay struct {
	client *Client
}

// Relay returns the Relay contract on this client.
func (c *Client) Relay() *Relay { return &Relay{client: c} }

// The names of calls that a [Worker] makes in batches too.
const (
	opHeartbeat = "relay heartbeat"
	opComplete  = "relay complete"
)

// Enqueue stores jobs of one or several queues, all or none (RL-023, RL-024). When it returns nil
// they survive a crash of the server (RL-034). An empty list is no error (RL-025).
//
// Errors: [ErrConflict] in mode unique (RL-027); [ErrInvalid].
//
// Repeating: in mode unique a repeat can conflict with the jobs of an earlier try whose answer
// was lost; [Error.Uncertain] is then true, and [Relay.Get] shows the stored job. In mode ignore
// a repeat changes nothing. In mode replace it replaces the jobs once more, and a run that began
// in between is lost.
func (r *Relay) Enqueue(ctx context.Context, jobs []RelaySpec, mode RelayMode) error {
	const op = "relay enqueue"
	body, err := encodeSpecs(jobs)
	if err != nil {
		return invalid(op, "%v", err)
	}
	_, err = r.client.doWithRetries(ctx, call{
		op:     op,
		method: http.MethodPost,
		path:   "/v2/queues/jobs",
		query:  modeParam(mode),
		body:   body,
		accept: []int{http.StatusAccepted},
	})
	return err
}

// Claim claims up to numJobs due jobs of a queue, those with the earliest RunAt first, and gives
// each a fresh RunID (RL-036, RL-041). There may be fewer (RL-039); when there are none the
// result is empty without an error (RL-038).
//
// With a wait above zero the server waits for a job before it answers that there is none, in
// whole seconds, rounded up, and at most 30 (G-RL-30).
//
// Errors: [ErrInvalid], also for numJobs below 1 (RL-046).
//
// Repeating: jobs in a lost answer are in flight without a worker. They return after their
// timeout with one retry less. A repeat claims others (G-RL-20).
func (r *Relay) Claim(ctx context.Context, queue string, numJobs int,
	wait time.Duration) ([]RelayJob, error) {
	jobs, err := r.claim(ctx, queue, numJobs, wait, "", false)
	if errors.Is(err, errDrained) { // the caller decides when to stop
		return nil, nil
	}
	return jobs, err
}

func (r *Relay) claim(ctx context.Context, queue string, numJobs int, wait time.Duration,
	worker string, singleTry bool) ([]RelayJob, error) {
	const op = "relay claim"
	if err := checkName("queue", queue); err != nil {
		return nil, invalid(op, "%v", err)
	}
	header := http.Header{}
	if seconds := wholeSeconds(wait); seconds > 0 {
		header.Set("Prefer", "wait="+strconv.FormatInt(seconds, 10))
	}
	if worker != "" {
		header.Set("Millrace-Worker", worker)
	}
	drained := false
	call := call{
		op:        op,
		drained:   &drained,
		method:    http.MethodGet,
		path:      "/v2/queues/" + escape(queue) + "/jobs",
		query:     url.Values{"num_jobs": {strconv.Itoa(numJobs)}}.Encode(),
		header:    header,
		wait:      max(wait, 0),
		singleTry: singleTry,
		wantBody:  true,
		accept:    []int{http.StatusOK, http.StatusNoContent},
	}
	got, err := r.client.doWithRetries(ctx, call)
	switch {
	case err != nil:
		return nil, err
	case drained:
		return nil, errDrained
	case got.status == http.StatusNoContent:
		return nil, nil
	}
	jobs, err := decodeJobs(got.body)
	if err != nil {
		return nil, unreadable(call, got, err)
	}
	return jobs, nil
}

// Heartbeat extends the lease of a run to a whole timeout. A state that is not nil, any JSON
// value, is stored as the job's state (RL-051, RL-052). A nil state keeps the stored one; a JSON
// null removes it (G-RL-05).
//
// Errors: [ErrRunLost] when the run is not the job's current one (RL-054); [ErrInvalid].
//
// Repeating is safe: it stores the same state again.
func (r *Relay) Heartbeat(ctx context.Context, run RelayRun, state json.RawMessage) error {
	path, err := run.path()
	if err != nil {
		return invalid(opHeartbeat, "%v", err)
	}
	if state != nil && !json.Valid(state) {
		return invalid(opHeartbeat, "state is not JSON")
	}
	_, err = r.client.doWithRetries(ctx, call{
		op:     opHeartbeat,
		method: http.MethodPatch,
		path:   path,
		body:   state,
		accept: []int{http.StatusAccepted},
	})
	var fail *Error
	if errors.As(err, &fail) && fail.Status == http.StatusNotFound {
		fail.Err = ErrRunLost
	}
	return err
}

// Requeue removes the job of a run and stores the given jobs, in one transaction (RL-059,
// RL-060). The given jobs may have the same queue and id, also in mode unique (RL-061), and are
// new in every respect (RL-068). With an empty list Requeue is [Relay.Complete] (RL-067).
//
// When the run is lost the server answers with success and does nothing (G-RL-02). [Run.Requeue],
// of a [Worker], fails with [ErrRunLost] then.
//
// Errors: [ErrConflict] in mode unique, after which the run continues (G-RL-01); [ErrInvalid].
//
// Repeating is safe: a success ends the run, and a request for a run that has ended removes and
// stores nothing (RL-066).
func (r *Relay) Requeue(ctx context.Context, run RelayRun, jobs []RelaySpec, mode RelayMode) error {
	return withoutRunLost(r.requeue(ctx, run, jobs, mode))
}

// requeue is Requeue, which fails with ErrRunLost when the run is lost.
func (r *Relay) requeue(ctx context.Context, run RelayRun, jobs []RelaySpec, mode RelayMode) error {
	const op = "relay requeue"
	path, err := run.path()
	if err != nil {
		return invalid(op, "%v", err)
	}
	body, err := encodeSpecs(jobs)
	if err != nil {
		return invalid(op, "%v", err)
	}
	got, err := r.client.doWithRetries(ctx, call{
		op:     op,
		method: http.MethodPut,
		path:   path,
		query:  modeParam(mode),
		body:   body,
		accept: []int{http.StatusAccepted},
	})
	if err != nil {
		return err
	}
	return got.runLost(op)
}

// Complete removes the job if this run is its current one (RL-075). If it is not, nothing is
// removed, and that is no error (G-RL-03).
//
// Errors: [ErrInvalid]. Repeating is safe, because the run id must match (RL-077, RL-078).
func (r *Relay) Complete(ctx context.Context, run RelayRun) error {
	return withoutRunLost(r.complete(ctx, run))
}

// complete is Complete, which fails with ErrRunLost when the run is lost.
func (r *Relay) complete(ctx context.Context, run RelayRun) error {
	path, err := run.path()
	if err != nil {
		return invalid(opComplete, "%v", err)
	}
	got, err := r.remove(ctx, opComplete, path)
	if err != nil {
		return err
	}
	return got.runLost(opComplete)
}

// withoutRunLost returns no error in the place of ErrRunLost (G-RL-02, G-RL-03).
func withoutRunLost(err error) error {
	if errors.Is(err, ErrRunLost) {
		return nil
	}
	return err
}

// Delete removes a job, in flight or not (RL-071). Deleting a job that does not exist is no error
// (RL-072).
//
// Errors: [ErrInvalid]. Repeating: a repeat also removes a job that was enqueued with the same
// queue and id in between.
func (r *Relay) Delete(ctx context.Context, queue, id string) error {
	const op = "relay delete"
	path, err := jobPath(queue, id)
	if err != nil {
		return invalid(op, "%v", err)
	}
	_, err = r.remove(ctx, op, path)
	return err
}

func (r *Relay) remove(ctx context.Context, op, path string) (answer, error) {
	return r.client.doWithRetries(ctx, call{
		op:     op,
		method: http.MethodDelete,
		path:   path,
		accept: []int{http.StatusOK},
	})
}

// Exists reports whether a job exists, due or not, in flight or not (RL-035, RL-080).
//
// Errors: [ErrInvalid]. Repeating is safe.
func (r *Relay) Exists(ctx context.Context, queue, id string) (bool, error) {
	const op = "relay exists"
	path, err := jobPath(queue, id)
	if err != nil {
		return false, invalid(op, "%v", err)
	}
	got, err := r.client.doWithRetries(ctx, call{
		op:       op,
		method:   http.MethodHead,
		path:     path,
		readOnly: true,
		accept:   []int{http.StatusOK, http.StatusNotFound},
	})
	if err != nil {
		return false, err
	}
	return got.status == http.StatusOK, nil
}

// Get reads a job without claiming it (RL-082).
//
// Errors: [ErrNotFound]; [ErrInvalid]. Repeating is safe.
func (r *Relay) Get(ctx context.Context, queue, id string) (RelayJob, error) {
	const op = "relay get"
	path, err := jobPath(queue, id)
	if err != nil {
		return RelayJob{}, invalid(op, "%v", err)
	}
	call := call{
		op:       op,
		method:   http.MethodGet,
		path:     path,
		readOnly: true,
		wantBody: true,
		accept:   []int{http.StatusOK},
	}
	got, err := r.client.doWithRetries(ctx, call)
	if err != nil {
		return RelayJob{}, err
	}
	job, err := decodeJob(got.body)
	if err != nil {
		return RelayJob{}, unreadable(call, got, err)
	}
	return job, nil
}

func modeParam(mode RelayMode) string {
	if mode == "" {
		return ""
	}
	return url.Values{"mode": {string(mode)}}.Encode()
}

func jobPath(queue, id string) (string, error) {
	if err := errors.Join(checkName("queue", queue), checkName("id", id)); err != nil {
		return "", err
	}
	return "/v2/queues/" + escape(queue) + "/jobs/" + escape(id), nil
}

func (r RelayRun) path() (string, error) {
	path, err := jobPath(r.Queue, r.ID)
	if err := errors.Join(err, checkName("run id", r.RunID)); err != nil {
		return "", err
	}
	return path + "/run-id/" + escape(r.RunID), nil
}
