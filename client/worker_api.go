package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"
)

// The contracts whose jobs are run through the worker API.
const (
	ContractTaskFlow = "taskflow"
	ContractForgeRun = "forgerun"
	ContractImages   = "images"
)

// WorkerAPI speaks the worker API, by which jobs of any contract but Relay are
// run from outside the server. [JobWorker] does with it what there is to do;
// the calls are for those who need them one by one. Every error is an
// [*Error]. Safe for concurrent use.
//
// Its token is Config.Token, the setting worker.token of the server.
type WorkerAPI struct{ client *Client }

// WorkerAPI gives the worker API on this client.
func (c *Client) WorkerAPI() *WorkerAPI { return &WorkerAPI{client: c} }

// ClaimedJob is a job as it is handed out: one run of it, under a lease.
type ClaimedJob struct {
	// ID is what the contract calls the job by.
	ID       string
	Contract string
	Queue    string
	// RunID names this run in all that is said of it.
	RunID string
	// Attempt counts the tries of the job, this one included: from 1 on.
	Attempt int
	// Payload is the job's input, byte for byte.
	Payload json.RawMessage
	// State is what an earlier run left by its heartbeats; nil for none.
	State json.RawMessage
	// Lease is how long the run is held after the claim and after each
	// heartbeat.
	Lease time.Duration
}

type claimedWire struct {
	ID       string          `json:"job_id"`
	Contract string          `json:"contract"`
	Queue    string          `json:"queue"`
	RunID    string          `json:"run_id"`
	Attempt  int             `json:"attempt"`
	Payload  json.RawMessage `json:"payload"`
	State    json.RawMessage `json:"state"`
	Lease    float64         `json:"lease_seconds"`
}

func (w claimedWire) job() ClaimedJob {
	job := ClaimedJob{ID: w.ID, Contract: w.Contract, Queue: w.Queue, RunID: w.RunID,
		Attempt: w.Attempt,
		Payload: w.Payload, State: w.State, Lease: time.Duration(w.Lease * float64(time.Second))}
	if string(w.State) == "null" {
		job.State = nil
	}
	return job
}

// ClaimQuery says which jobs are asked for. Contract is needed.
type ClaimQuery struct {
	Contract string
	// Queues are those to take jobs from; none means all that no handler in the
	// server serves.
	Queues []string
	// Max is how many jobs to take at most, up to 1000; 0 means 1.
	Max int
	// Worker names who asks; empty means the caller's address.
	Worker string
}

// Claim takes jobs, waiting up to wait, at most 30 s, for the first one
// (G-X-20). None is no error.
//
// Errors: [ErrInvalid] for an unknown contract and for queues that handlers in
// the server serve; [ErrUnauthorized]; [ErrRetryable].
//
// Jobs in an answer that was lost return when their lease is over.
func (w *WorkerAPI) Claim(ctx context.Context, query ClaimQuery, wait time.Duration) ([]ClaimedJob,
	error) {
	return w.claim(ctx, query, wait, false)
}

func (w *WorkerAPI) claim(ctx context.Context, query ClaimQuery, wait time.Duration,
	noRetry bool) ([]ClaimedJob, error) {
	request := struct {
		Contract string   `json:"contract"`
		Queues   []string `json:"queues,omitempty"`
		Max      int      `json:"max"`
		Wait     int64    `json:"wait_seconds"`
		Worker   string   `json:"worker,omitempty"`
	}{query.Contract, query.Queues, orDefault(query.Max, 1), wholeSeconds(max(wait, 0)),
		query.Worker}
	answer, err := doJSON[struct {
		Jobs []claimedWire `json:"jobs"`
	}](ctx, w.client, call{op: "worker claim", method: http.MethodPost, path: "/worker/v1/claims",
		body: encodeBody(request), wait: max(wait, 0), noRetry: noRetry,
		accept: []int{http.StatusOK}})
	if err != nil {
		return nil, err
	}
	jobs := make([]ClaimedJob, len(answer.Jobs))
	for i, job := range answer.Jobs {
		jobs[i] = job.job()
	}
	return jobs, nil
}

// ClaimJob takes one job by its id; worker names who asks, as in [ClaimQuery].
//
// Errors: [ErrNotFound]; [ErrConflict] when the job cannot run now, because it
// is not ready or no slot is free (G-X-20); [ErrInvalid]; [ErrUnauthorized].
//
// A job in an answer that was lost returns when its lease is over; until then
// a repeat is an [ErrConflict] that is Uncertain.
func (w *WorkerAPI) ClaimJob(ctx context.Context, contract, jobID, worker string) (ClaimedJob,
	error) {
	const op = "worker claim"
	if err := checkName("job id", jobID); err != nil {
		return ClaimedJob{}, invalid(op, "%v", err)
	}
	request := struct {
		Contract string `json:"contract"`
		Worker   string `json:"worker,omitempty"`
	}{contract, worker}
	wire, err := doJSON[claimedWire](ctx, w.client, call{op: op, method: http.MethodPost,
		path: "/worker/v1/jobs/" + escape(jobID) + "/claim", body: encodeBody(request),
		accept: []int{http.StatusOK}})
	if err != nil {
		return ClaimedJob{}, err
	}
	return wire.job(), nil
}

// HeartbeatReply is the answer to a heartbeat.
type HeartbeatReply struct {
	// LeaseUntil is when the lease now ends, by the server's clock.
	LeaseUntil time.Time `json:"lease_until"`
	// Cancel asks the run to end.
	Cancel bool `json:"cancel"`
}

// Heartbeat prolongs the lease of a run and stores its state, any JSON; nil
// keeps the state there is.
//
// Errors: [ErrRunLost]; [ErrInvalid]; [ErrUnauthorized]; [ErrRetryable].
// Repeating is safe.
func (w *WorkerAPI) Heartbeat(ctx context.Context, runID string,
	state json.RawMessage) (HeartbeatReply, error) {
	const op = "worker heartbeat"
	request, err := objectOf("state", state)
	if err != nil {
		return HeartbeatReply{}, invalid(op, "%v", err)
	}
	return runCall[HeartbeatReply](ctx, w, op, runID, "heartbeat", request)
}

// Start says that a claimed run has begun, which ForgeRun asks for (G-FR-01).
//
// Errors: [ErrRunLost]; [ErrConflict] in a contract that knows no such step.
func (w *WorkerAPI) Start(ctx context.Context, runID string) error {
	return w.postOutcome(ctx, "worker start", runID, "start", []byte("{}"))
}

// Complete ends a run with success and its result, any JSON; nil for none.
//
// Errors: [ErrRunLost], which after a try whose answer was lost is Uncertain:
// the run may have been completed by that; [ErrInvalid]; [ErrRetryable].
func (w *WorkerAPI) Complete(ctx context.Context, runID string, result json.RawMessage) error {
	const op = "worker complete"
	request, err := objectOf("result", result)
	if err != nil {
		return invalid(op, "%v", err)
	}
	return w.postOutcome(ctx, op, runID, "complete", request)
}

// JobFailure is what is said of a run that failed.
type JobFailure struct {
	// Error is the explanation.
	Error string `json:"error"`
	// Type is a word for the kind of failure, of up to 255 characters; empty
	// for none.
	Type string `json:"error_type,omitempty"`
	// Retryable says that another run may succeed. If not, the job fails for
	// good at once (G-TF-30).
	Retryable bool `json:"retryable"`
}

// Fail ends a run with a failure.
//
// Errors: as of [WorkerAPI.Complete].
func (w *WorkerAPI) Fail(ctx context.Context, runID string, failure JobFailure) error {
	return w.postOutcome(ctx, "worker fail", runID, "fail", encodeBody(failure))
}

// Release gives a run back: the job is handed out anew, and nothing is counted
// against it where the contract allows that (G-X-18).
//
// Errors: as of [WorkerAPI.Complete].
func (w *WorkerAPI) Release(ctx context.Context, runID string) error {
	return w.postOutcome(ctx, "worker release", runID, "release", []byte("{}"))
}

func (w *WorkerAPI) postOutcome(ctx context.Context, op, runID, verb string, request []byte) error {
	_, err := runCall[struct{}](ctx, w, op, runID, verb, request)
	return err
}

// RunOutcome is how a run ended: with Failure it failed, with Released it is
// given back, with neither it was completed.
type RunOutcome struct {
	RunID string
	// Result is what a completed run leaves, any JSON; nil for none.
	Result json.RawMessage
	// Failure is what is said of a run that failed, as in [WorkerAPI.Fail].
	Failure *JobFailure
	// Released gives the run back, as [WorkerAPI.Release] does.
	Released bool
}

// FinishResult is what became of a [RunOutcome].
type FinishResult struct {
	RunID string
	// JobID is what the contract calls the job by, and Status where it stands
	// now, in its contract's word. Both are empty with Err.
	JobID  string
	Status string
	// Err says why the outcome did not count; nil if it did. It is the [*Error]
	// of a call for this run alone: [ErrRunLost]; [ErrConflict] where the job's
	// state forbids it; [ErrInvalid] for a result that its contract refuses.
	// With the last two the run goes on.
	Err error
}

// Finish ends up to 1000 runs, of one contract or several, in one request and
// one transaction: for those who claim many jobs at a time. What became of each
// comes back in the order of outcomes; one that does not count holds up none of
// the others. Of a run that is named twice the first outcome counts. None is no
// request and no error.
//
// Errors: [ErrInvalid] when one of the outcomes breaks a rule, which Message
// names by its index, when there are more than 1000, or when they have more than
// 4 MiB together; [ErrUnauthorized]; [ErrRetryable]. No run has ended then,
// unless it is Uncertain.
//
// After a try whose answer was lost an [ErrRunLost] is Uncertain: the run may
// have been ended by that.
func (w *WorkerAPI) Finish(ctx context.Context, outcomes []RunOutcome) ([]FinishResult, error) {
	const op = "worker finish"
	if len(outcomes) == 0 {
		return nil, nil
	}
	request := []byte(`{"outcomes":[`)
	for i, outcome := range outcomes {
		if i > 0 {
			request = append(request, ',')
		}
		var err error
		if request, err = outcome.append(request); err != nil {
			return nil, invalid(op, "outcomes[%d]: %v", i, err)
		}
	}
	return w.finish(ctx, call{op: op, method: http.MethodPost, path: "/worker/v1/outcomes",
		body: append(request, "]}"...), accept: []int{http.StatusOK}, wantBody: true}, outcomes)
}

func (o RunOutcome) append(request []byte) ([]byte, error) {
	if err := checkName("run id", o.RunID); err != nil {
		return nil, err
	}
	verb, reqBody := "complete", []byte("{}")
	var err error
	switch {
	case (o.Failure != nil && o.Released) || (o.Result != nil && (o.Failure != nil || o.Released)):
		err = errors.New("there is more than one of Result, Failure and Released")
	case o.Failure != nil:
		verb, reqBody = "fail", encodeBody(o.Failure)
	case o.Released:
		verb = "release"
	default:
		reqBody, err = objectOf("result", o.Result)
	}
	return fmt.Appendf(request, `{"run_id":%s,%q:%s}`, encodeBody(o.RunID), verb, reqBody), err
}

// drainBody is ask for a call whose answer reads differently after a try that may
// have taken effect.
func (w *WorkerAPI) finish(ctx context.Context, call call, outcomes []RunOutcome) ([]FinishResult,
	error) {
	var got answer
	uncertain := false
	fail := w.client.retryCall(ctx, call, func() (fail *Error) {
		got, fail = w.client.doOnce(ctx, call)
		uncertain = uncertain || (fail != nil && fail.Uncertain)
		return fail
	})
	if fail != nil {
		return nil, fail
	}
	var reply struct {
		Outcomes []finishWire `json:"outcomes"`
	}
	err := json.Unmarshal(got.body, &reply)
	if err == nil && !slices.EqualFunc(reply.Outcomes, outcomes,
		func(w finishWire, o RunOutcome) bool {
			return w.RunID == o.RunID
		}) {
		err = errors.New("it is not of these runs")
	}
	if err != nil {
		return nil, &Error{Op: call.op, Uncertain: true, Err: fmt.Errorf("answer: %w", err)}
	}
	ends := make([]FinishResult, len(outcomes))
	for i, wire := range reply.Outcomes {
		ends[i] = wire.result(call.op, uncertain)
	}
	return ends, nil
}

type finishWire struct {
	RunID  string `json:"run_id"`
	JobID  string `json:"job_id"`
	Status string `json:"status"`
	Code   string `json:"code"`
	Detail string `json:"detail"`
}

func (w finishWire) result(op string, uncertain bool) FinishResult {
	end := FinishResult{RunID: w.RunID, JobID: w.JobID, Status: w.Status}
	if w.Code == "" {
		return end
	}
	fail := &Error{Op: op, Status: http.StatusConflict, Code: w.Code, Message: w.Detail}
	switch w.Code {
	case codeRunLost:
		fail.Err, fail.Uncertain = ErrRunLost, uncertain
	case codeInvalid:
		fail.Status = http.StatusBadRequest
	}
	end.Err = fail
	return end
}

// codeInvalid is how the worker API calls what breaks a rule, a result that a
// contract refuses included.
const codeInvalid = "VALIDATION_ERROR"

// runCall makes a call about a run. An [ErrRunLost] is one however it is
// looked at.
func runCall[T any](ctx context.Context, w *WorkerAPI, op, runID, verb string, request []byte) (T,
	error) {
	if err := checkName("run id", runID); err != nil {
		var none T
		return none, invalid(op, "%v", err)
	}
	value, err := doJSON[T](ctx, w.client, call{op: op, method: http.MethodPost,
		path: "/worker/v1/runs/" + escape(runID) + "/" + verb, body: request,
		accept: []int{http.StatusOK}})
	var fail *Error
	if errors.As(err, &fail) && fail.Code == codeRunLost {
		fail.Err = ErrRunLost
	}
	return value, err
}

// objectOf is an object of one member, or of none if the value is nil; the value
// stays byte for byte.
func objectOf(name string, value json.RawMessage) ([]byte, error) {
	if value == nil {
		return []byte("{}"), nil
	}
	if err := checkJSON(name, value); err != nil {
		return nil, err
	}
	return append(append([]byte("{"+strconv.Quote(name)+":"), value...), '}'), nil
}
