package client

import (
	"context"
	"encoding/json"
	"net/http"
)

// AdminAction is what an operator may do with a job (AD-016). Which of them a job allows depends on
// its contract and state: [AdminActionResult.Actions].
type AdminAction string

// The actions.
const (
	// AdminActionRetry makes a failed job ready once more; it stays the same job.
	AdminActionRetry AdminAction = "retry"
	// AdminActionRerun submits a copy of a finished job as a new one.
	AdminActionRerun AdminAction = "rerun"
	// AdminActionRunNow makes a job that was submitted for later, or waits for a retry, due now.
	AdminActionRunNow AdminAction = "run-now"
	// AdminActionCancel cancels a job.
	AdminActionCancel AdminAction = "cancel"
	// AdminActionRelease gives a leased job back to its queue. Its run is lost.
	AdminActionRelease AdminAction = "release"
	// AdminActionDelete deletes a job.
	AdminActionDelete AdminAction = "delete"
)

// AdminActionResult is the job that an action of an operator has changed or submitted, as it was
// right after that.
type AdminActionResult struct {
	// AdminJob is the job. Its state is "gone" for a job that was deleted.
	AdminJob
	// SourceNumber is the number of the job to which the action was applied, where it submitted
	// this one in addition; nil otherwise.
	SourceNumber *int64 `json:"made_from"`
	// Actions are the actions that the job allows now.
	Actions []AdminAction `json:"actions"`
}

// AdminSubmission is a job to be submitted by an operator (AD-017).
type AdminSubmission struct {
	// Contract is the contract, such as "taskflow".
	Contract string `json:"contract"`
	// Request is the body that the contract's own route would take, a JSON object.
	Request json.RawMessage `json:"request"`
	// Owner is the client of ForgeRun, which needs one, or the tenant of FetchBox.
	Owner string `json:"owner,omitempty"`
	// JobType is the job type of FetchBox.
	JobType string `json:"job_type,omitempty"`
	// CallbackURL, for FetchBox alone, receives a request when the job is finished. Requests to
	// other contracts have a URL of their own.
	CallbackURL string `json:"callback_url,omitempty"`
	// IdempotencyKey makes repeating safe: several submissions with the same key make one job.
	IdempotencyKey string `json:"idempotency_key,omitempty"`
}

// ActOnJob applies an action to the job with a number and returns the job as it is then, or the new
// job that the action has submitted (AD-016). It has the events and other consequences that the
// contract's own route has.
//
// Errors: [ErrConflict], whose code is [AdminCodeNotAllowed] where the state of the job does not
// allow the action, and [AdminCodeConflict] where the contract refuses it; [ErrNotFound];
// [ErrUnauthorized]. It is repeated only while no try can have taken effect.
func (a *Admin) ActOnJob(ctx context.Context, number int64,
	action AdminAction) (AdminActionResult, error) {
	return adminCall[AdminActionResult](ctx, a, call{
		op:            "admin " + string(action) + " job",
		method:        http.MethodPost,
		path:          adminJobPath(number) + "/" + string(action),
		notIdempotent: true,
	})
}

// SubmitJob submits a job as the contract's own route would (AD-017).
//
// Errors: [ErrInvalid] with the message of the contract; [ErrConflict] where the job exists;
// [ErrUnauthorized]. Without an idempotency key it is repeated only while no try can have taken
// effect.
func (a *Admin) SubmitJob(ctx context.Context, s AdminSubmission) (AdminActionResult, error) {
	body, err := json.Marshal(s)
	if err != nil {
		return AdminActionResult{}, err
	}
	return adminCall[AdminActionResult](ctx, a, call{
		op:            "admin submit job",
		method:        http.MethodPost,
		path:          "/admin/v1/jobs",
		body:          body,
		accept:        []int{http.StatusCreated},
		notIdempotent: s.IdempotencyKey == "",
	})
}
