package client

import (
	"context"
	"encoding/json"
	"net/http"
)

// AdminAction is what an operator may do with a job (AD-016). Which of them a job allows depends on
// its contract and state: [AdminJobState.Actions].
type AdminAction string

// The actions.
const (
	// AdminRetry makes a failed job ready once more; it stays the same job.
	AdminRetry AdminAction = "retry"
	// AdminRerun makes a new job of one that is over.
	AdminRerun AdminAction = "rerun"
	// AdminRunNow makes a job that waits for its time due now.
	AdminRunNow AdminAction = "run-now"
	// AdminCancel cancels a job.
	AdminCancel AdminAction = "cancel"
	// AdminRelease gives a leased job back. Its run is lost.
	AdminRelease AdminAction = "release"
	// AdminDelete deletes a job.
	AdminDelete AdminAction = "delete"
)

// AdminJobState is a job right after an operator has changed or submitted it.
type AdminJobState struct {
	// AdminJob has the state "gone" for a job that was deleted.
	AdminJob
	// MadeFrom is the number of the job that the action was on, where it made this one.
	MadeFrom *int64 `json:"made_from"`
	// Actions are those that the job allows now.
	Actions []AdminAction `json:"actions"`
}

// AdminSubmission is a job to be submitted in place of a client (AD-017).
type AdminSubmission struct {
	// Contract is the contract, such as "taskflow".
	Contract string `json:"contract"`
	// Request is what the contract's own route would take: a JSON object.
	Request json.RawMessage `json:"request"`
	// Owner is the client of ForgeRun, which needs one, or the tenant of FetchBox.
	Owner string `json:"owner,omitempty"`
	// JobType is the job type of FetchBox.
	JobType string `json:"job_type,omitempty"`
	// CallbackURL is where FetchBox tells the end of the job. Requests of others hold their own.
	CallbackURL string `json:"callback_url,omitempty"`
	// IdempotencyKey makes one job of several submissions with the same key.
	IdempotencyKey string `json:"idempotency_key,omitempty"`
}

// ActOnJob applies an action to the job with a number and returns the job as it is then, or the
// new job that was made (AD-016). What follows, such as events, is that of the contract's route.
//
// Errors: [ErrConflict], whose code is [AdminNotAllowed] where the state of the job does not allow
// the action, and [AdminConflict] where the contract refuses it; [ErrNotFound]; [ErrUnauthorized].
// It is repeated only while no try can have taken effect.
func (a *Admin) ActOnJob(ctx context.Context, number int64,
	action AdminAction) (AdminJobState, error) {
	return adminCall[AdminJobState](ctx, a, call{
		op:            "admin " + string(action) + " job",
		method:        http.MethodPost,
		path:          adminJobPath(number) + "/" + string(action),
		notIdempotent: true,
	})
}

// SubmitJob submits a job as the contract's own route would (AD-017).
//
// Errors: [ErrInvalid] with the contract's words; [ErrConflict] where the job exists;
// [ErrUnauthorized]. Without an idempotency key it is repeated only while no try can have taken
// effect.
func (a *Admin) SubmitJob(ctx context.Context, s AdminSubmission) (AdminJobState, error) {
	body, err := json.Marshal(s)
	if err != nil {
		return AdminJobState{}, err
	}
	return adminCall[AdminJobState](ctx, a, call{
		op:            "admin submit job",
		method:        http.MethodPost,
		path:          "/admin/v1/jobs",
		body:          body,
		accept:        []int{http.StatusCreated},
		notIdempotent: s.IdempotencyKey == "",
	})
}
