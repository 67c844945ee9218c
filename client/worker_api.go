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

// The contracts whose jobs workers outside the server can execute.
const (
	ContractTaskFlow = "taskflow"
	ContractForgeRun = "forgerun"
	ContractImages   = "images"
	// ContractFetchBox is FetchBox, whose queues are its job types and whose payloads are task
	// messages (G-FB-35), see [FetchBoxTask].
	ContractFetchBox = "fetchbox"
)

// WorkerAPI is the worker API, by which programs outside the server execute the jobs of any
// contract but Relay. A run goes through these calls:
//
//	Claim, ClaimJob ──▶ Start (ForgeRun only) ──▶ Heartbeat … ──▶ Complete, Fail or Release
//
// [JobWorker] makes all of them for a handler. Every error is an [*Error]. A WorkerAPI is safe
// for concurrent use.
//
// Config.Token is its token, the setting worker.token of the server.
type WorkerAPI struct{ client *Client }

// WorkerAPI returns the worker API on this client.
func (c *Client) WorkerAPI() *WorkerAPI { return &WorkerAPI{client: c} }

// ClaimedJob is a job as it was claimed: one run of it, under a lease.
type ClaimedJob struct {
	// ID is the job's id in its contract.
	ID       string
	Contract string
	Queue    string
	// RunID identifies this run in every later call about it.
	RunID string
	// Attempt is the number of this attempt of the job, from 1 on.
	Attempt int
	// Payload is the job's input, byte for byte.
	Payload json.RawMessage
	// State is what an earlier run stored with its heartbeats; nil for none.
	State json.RawMessage
	// Lease is how long the lease lasts after the claim and after each heartbeat.
	Lease time.Duration
}

// claimedWire is a claimed job in an answer.

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
	job := ClaimedJob{
		ID:       w.ID,
		Contract: w.Contract,
		Queue:    w.Queue,
		RunID:    w.RunID,
		Attempt:  w.Attempt,
		Payload:  w.Payload,
		State:    w.State,
		Lease:    time.Duration(w.Lease * float64(time.Second)),
	}
	if string(w.State) == "null" {
		job.State = nil
	}
	return job
}

// ClaimQuery selects the jobs of a claim. Contract is required.
type ClaimQuery struct {
	Contract string
	// Queues are the queues to claim from. Empty means all that no handler in the server serves.
	Queues []string
	// Max is the most jobs to claim, up to 1000; 0 means 1.
	Max int
	// Worker identifies the caller in the server; empty means the caller's address.
	Worker string
}

// Claim claims jobs and waits up to wait, at most 30 s, for the first one (G-X-20). The wire has
// whole seconds; fractions are rounded up. When there are none it returns no jobs and no error.
//
// Errors: [ErrInvalid] for an unknown contract and for queues that handlers in the server serve;
// [ErrUnauthorized]; [ErrRetryable].
//
// Repeating: jobs in a lost answer return when their leases expire; a repeat claims others.
func (w *WorkerAPI) Claim(ctx context.Context, query ClaimQuery,
	wait time.Duration) ([]ClaimedJob, error) {
	jobs, err := w.claim(ctx, query, wait, false)
	if errors.Is(err, errDrained) { // the caller decides when to stop
		return nil, nil
	}
	return jobs, err
}

func (w *WorkerAPI) claim(ctx context.Context, query ClaimQuery, wait time.Duration,
	singleTry bool) ([]ClaimedJob, error) {
	request := struct {
		Contract string   `json:"contract"`
		Queues   []string `json:"queues,omitempty"`
		Max      int      `json:"max"`
		Wait     int64    `json:"wait_seconds"`
		Worker   string   `json:"worker,omitempty"`
	}{
		Contract: query.Contract,
		Queues:   query.Queues,
		Max:      orDefault(query.Max, 1),
		Wait:     wholeSeconds(max(wait, 0)),
		Worker:   query.Worker,
	}
	drained := false
	answer, err := doJSON[struct {
		Jobs []claimedWire `json:"jobs"`
	}](ctx, w.client, call{
		op:        "worker claim",
		drained:   &drained,
		method:    http.MethodPost,
		path:      "/worker/v1/claims",
		body:      encodeBody(request),
		wait:      max(wait, 0),
		singleTry: singleTry,
		accept:    []int{http.StatusOK},
	})
	if err != nil {
		return nil, err
	}
	if drained {
		return nil, errDrained
	}
	jobs := make([]ClaimedJob, len(answer.Jobs))
	for i, job := range answer.Jobs {
		jobs[i] = job.job()
	}
	return jobs, nil
}

// ClaimJob claims one job by its id. worker identifies the caller, as in [ClaimQuery].
//
// Errors: [ErrNotFound]; [ErrConflict] when the job cannot run now, because it is not ready or a
// limit leaves no slot (G-X-20); [ErrInvalid]; [ErrUnauthorized].
//
// Repeating: a job in a lost answer returns when its lease expires. Until then a repeat is an
// [ErrConflict] that is Uncertain.
func (w *WorkerAPI) ClaimJob(ctx context.Context, contract, jobID,
	worker string) (ClaimedJob, error) {
	const op = "worker claim"
	if err := checkName("job id", jobID); err != nil {
		return ClaimedJob{}, invalid(op, "%v", err)
	}
	request := struct {
		Contract string `json:"contract"`
		Worker   string `json:"worker,omitempty"`
	}{contract, worker}
	wire, err := doJSON[claimedWire](ctx, w.client, call{
		op:     op,
		method: http.MethodPost,
		path:   "/worker/v1/jobs/" + escape(jobID) + "/claim",
		body:   encodeBody(request),
		accept: []int{http.StatusOK},
	})
	if err != nil {
		return ClaimedJob{}, err
	}
	return wire.job(), nil
}

// HeartbeatReply is the answer to a heartbeat.
type HeartbeatReply struct {
	// LeaseUntil is when the lease ends now, by the server's clock.
	LeaseUntil time.Time `json:"lease_until"`
	// Cancel is true when the server asks the run to end.
	Cancel bool `json:"cancel"`
}

// Heartbeat extends the lease of a run to its whole length and stores the run's state, any JSON.
// A nil state keeps the stored one.
//
// Errors: [ErrRunLost]; [ErrInvalid]; [ErrUnauthorized]; [ErrRetryable]. Repeating is safe.
func (w *WorkerAPI) Heartbeat(ctx context.Context, runID string,
	state json.RawMessage) (HeartbeatReply, error) {
	const op = "worker heartbeat"
	request, err := objectOf("state", state)
	if err != nil {
		return HeartbeatReply{}, invalid(op, "%v", err)
	}
	return runCall[HeartbeatReply](ctx, w, op, runID, "heartbeat", request)
}

// Start marks a claimed run as started. ForgeRun requires it before an outcome (G-FR-01).
//
// Errors: [ErrRunLost]; [ErrConflict] in a contract whose jobs have no such state.
func (w *WorkerAPI) Start(ctx context.Context, runID string) error {
	return w.postOutcome(ctx, "worker start", runID, "start", []byte("{}"))
}

// Complete ends a run with success. The job keeps the result, which is any JSON or nil.
//
// Errors: [ErrRunLost], which is Uncertain after a try whose answer was lost, because that try
// may have completed the run; [ErrInvalid]; [ErrRetryable].
func (w *WorkerAPI) Complete(ctx context.Context, runID string, result json.RawMessage) error {
	const op = "worker complete"
	request, err := objectOf("result", result)
	if err != nil {
		return invalid(op, "%v", err)
	}
	return w.postOutcome(ctx, op, runID, "complete", request)
}

// JobFailure is the report of a run that failed.
type JobFailure struct {
	// Error is the explanation.
	Error string `json:"error"`
	// Type names the kind of failure in up to 255 characters; empty for none.
	Type string `json:"error_type,omitempty"`
	// Retryable says that another run may succeed. If it is false, the job fails without another
	// attempt (G-TF-30).
	Retryable bool `json:"retryable"`
}

// Fail ends a run without success. The contract decides by its policy whether the job is retried.
//
// Errors: those of [WorkerAPI.Complete].
func (w *WorkerAPI) Fail(ctx context.Context, runID string, failure JobFailure) error {
	return w.postOutcome(ctx, "worker fail", runID, "fail", encodeBody(failure))
}

// Release ends a run and gives its job back to the queue, without counting an attempt where the
// contract allows that (G-X-18).
//
// Errors: those of [WorkerAPI.Complete].
func (w *WorkerAPI) Release(ctx context.Context, runID string) error {
	return w.postOutcome(ctx, "worker release", runID, "release", []byte("{}"))
}

func (w *WorkerAPI) postOutcome(ctx context.Context, op, runID, verb string, request []byte) error {
	_, err := runCall[struct{}](ctx, w, op, runID, verb, request)
	return err
}

// RunOutcome is the outcome of a run for [WorkerAPI.Finish]: with Failure the run failed, with
// Released its job is given back, and with neither it is completed.
type RunOutcome struct {
	RunID string
	// Result is the result of a completed run, any JSON; nil for none.
	Result json.RawMessage
	// Failure is the report of a failed run, as in [WorkerAPI.Fail].
	Failure *JobFailure
	// Released gives the job back, as [WorkerAPI.Release] does.
	Released bool
}

// FinishResult is the server's answer to one [RunOutcome].
type FinishResult struct {
	RunID string
	// JobID is the job's id in its contract, and Status its state now, in the contract's word.
	// Both are empty when Err is set.
	JobID  string
	Status string
	// Err is why the outcome was not accepted; nil if it was. It is the [*Error] that a call for
	// this run alone would have had: [ErrRunLost]; [ErrConflict] when the job's state forbids the
	// outcome; [ErrInvalid] for a result that the contract refuses. After the last two the run
	// continues.
	Err error
}

// Finish ends up to 1000 runs, of one contract or several, in one request and one transaction. It
// is for programs that claim many jobs at a time. The results are in the order of outcomes. An
// outcome that is not accepted does not affect the others; when two outcomes have the same run
// id, the first counts. Without outcomes Finish sends nothing.
//
// Errors: [ErrInvalid] when an outcome breaks a rule, which Message names by its index, and for
// more than 1000 outcomes or 4 MiB; [ErrUnauthorized]; [ErrRetryable]. No run has ended then,
// unless the error is Uncertain.
//
// Repeating: after a try whose answer was lost, an [ErrRunLost] of a result is Uncertain, because
// that try may have ended the run.
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
	return w.finish(ctx, call{
		op:       op,
		method:   http.MethodPost,
		path:     "/worker/v1/outcomes",
		body:     append(request, "]}"...),
		accept:   []int{http.StatusOK},
		wantBody: true,
	}, outcomes)
}

// append appends the outcome as it is on the wire.

func (o RunOutcome) append(request []byte) ([]byte, error) {
	if err := checkName("run id", o.RunID); err != nil {
		return nil, err
	}
	verb, reqBody := "complete", []byte("{}")
	var err error
	failedAndReleased := o.Failure != nil && o.Released
	resultAndOther := o.Result != nil && (o.Failure != nil || o.Released)
	switch {
	case failedAndReleased || resultAndOther:
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

// finish makes the request of Finish. It needs to know whether an earlier try may have taken
// effect, which doJSON does not return: the results of the runs depend on it.
func (w *WorkerAPI) finish(ctx context.Context, call call,
	outcomes []RunOutcome) ([]FinishResult, error) {
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
	wires, err := decodeOutcomes(got.body, outcomes)
	if err != nil {
		err = fmt.Errorf("answer: %w", err)
		return nil, &Error{Op: call.op, Uncertain: true, Err: err}
	}
	results := make([]FinishResult, len(wires))
	for i, wire := range wires {
		results[i] = wire.result(call.op, uncertain)
	}
	return results, nil
}

// decodeOutcomes reads the answer to Finish, which must be about these outcomes in their order.
func decodeOutcomes(body []byte, outcomes []RunOutcome) ([]finishWire, error) {
	var reply struct {
		Outcomes []finishWire `json:"outcomes"`
	}
	if err := json.Unmarshal(body, &reply); err != nil {
		return nil, err
	}
	sameRun := func(w finishWire, o RunOutcome) bool { return w.RunID == o.RunID }
	if !slices.EqualFunc(reply.Outcomes, outcomes, sameRun) {
		return nil, errors.New("it is about other runs")
	}
	return reply.Outcomes, nil
}

// finishWire is the result of one outcome in an answer.
type finishWire struct {
	RunID  string `json:"run_id"`
	JobID  string `json:"job_id"`
	Status string `json:"status"`
	Code   string `json:"code"`
	Detail string `json:"detail"`
}

func (w finishWire) result(op string, uncertain bool) FinishResult {
	result := FinishResult{RunID: w.RunID, JobID: w.JobID, Status: w.Status}
	if w.Code == "" {
		return result
	}
	fail := &Error{Op: op, Status: http.StatusConflict, Code: w.Code, Message: w.Detail}
	switch w.Code {
	case codeRunLost:
		fail.Err, fail.Uncertain = ErrRunLost, uncertain
	case codeInvalid:
		fail.Status = http.StatusBadRequest
	}
	result.Err = fail
	return result
}

// runCall makes a call about a run. A lost run has ErrRunLost as the cause of its error, so that
// it stays one when the caller unwraps it.
func runCall[T any](ctx context.Context, w *WorkerAPI, op, runID, verb string,
	request []byte) (T, error) {
	if err := checkName("run id", runID); err != nil {
		var none T
		return none, invalid(op, "%v", err)
	}
	value, err := doJSON[T](ctx, w.client, call{
		op:     op,
		method: http.MethodPost,
		path:   "/worker/v1/runs/" + escape(runID) + "/" + verb,
		body:   request,
		accept: []int{http.StatusOK},
	})
	var fail *Error
	if errors.As(err, &fail) && fail.Code == codeRunLost {
		fail.Err = ErrRunLost
	}
	return value, err
}

// objectOf encodes an object with one member, or {} if the value is nil. The value stays byte for
// byte.
func objectOf(name string, value json.RawMessage) ([]byte, error) {
	if value == nil {
		return []byte("{}"), nil
	}
	if err := checkJSON(name, value); err != nil {
		return nil, err
	}
	return append(append([]byte("{"+strconv.Quote(name)+":"), value...), '}'), nil
}
