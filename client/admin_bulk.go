package client

import (
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"net/url"
	"time"
)

// AdminActionReplay is the action of a bulk operation on dead letters. A bulk operation on jobs has
// one of the other actions, such as [AdminActionRetry].
const AdminActionReplay AdminAction = "replay"

// AdminFilter selects jobs or dead letters, for a bulk operation or a list. Empty fields select
// all. A bulk operation needs at least one, or [AdminBulkRequest.Everything].
type AdminFilter struct {
	Contract string `json:"contract,omitempty"`
	Queue    string `json:"queue,omitempty"`

	// The fields down to BodyContains are for jobs. States are the contract's own words; Phases are
	// waiting, ready, leased, done and dead.
	States []string `json:"state,omitempty"`
	Phases []string `json:"phase,omitempty"`
	Owner  string   `json:"owner,omitempty"`
	Kind   string   `json:"kind,omitempty"`
	ID     string   `json:"id,omitempty"` // the contract's id, exactly
	// Numbers are the numbers of some jobs, at most 1,000. ParentNumber is the number of their
	// parent.
	Numbers      []int64 `json:"number,omitempty"`
	ParentNumber int64   `json:"parent,omitempty"`
	Worker       string  `json:"worker,omitempty"`
	// From is inclusive, Before is exclusive.
	CreatedFrom    time.Time `json:"created_from,omitzero"`
	CreatedBefore  time.Time `json:"created_before,omitzero"`
	FinishedFrom   time.Time `json:"settled_from,omitzero"`
	FinishedBefore time.Time `json:"settled_before,omitzero"`
	// MinAge and MaxAge are durations since the creation, such as "90m".
	MinAge      string `json:"min_age,omitempty"`
	MaxAge      string `json:"max_age,omitempty"`
	MinAttempts int    `json:"min_attempts,omitempty"`
	// ErrorContains is a text in the failure, also of dead letters, and BodyContains one in
	// definition, payload or result, without case.
	ErrorContains string `json:"error,omitempty"`
	BodyContains  string `json:"text,omitempty"`

	// Fingerprint, FailedFrom (inclusive) and FailedBefore (exclusive) are for dead letters.
	// FailedFrom and FailedBefore limit when the job was given up.
	Fingerprint  string    `json:"fingerprint,omitempty"`
	FailedFrom   time.Time `json:"from,omitzero"`
	FailedBefore time.Time `json:"to,omitzero"`
}

// AdminBulkRequest describes a bulk operation: an action on all that a filter selects (AD-020).
type AdminBulkRequest struct {
	Action AdminAction `json:"action"`
	Filter AdminFilter `json:"filter"`
	// Everything allows an empty filter.
	Everything bool `json:"everything,omitempty"`
	// RatePerSecond is the most items that are changed in a second, and Limit the most that are
	// changed at all; 0 is no limit.
	RatePerSecond int `json:"rate,omitempty"`
	Limit         int `json:"limit,omitempty"`
	// Canary is how many jobs are changed first. The others follow when these have succeeded; the
	// operation stays paused when one of them has failed (AD-022). 0 is none.
	Canary int `json:"canary,omitempty"`
	// AsOf is the time of a preview. What was created after it is not touched, and what has changed
	// after it is skipped. The zero time means the start of the operation.
	AsOf time.Time `json:"as_of,omitzero"`
}

// AdminBulkPreview says what a bulk operation would change.
type AdminBulkPreview struct {
	// Matching is how many match the filter, at most 100,000. More reports whether there may be
	// more, because not all were read.
	Matching int  `json:"matching"`
	More     bool `json:"more"`
	// SearchedTo is when the last job that was read was created, in UTC, where a search by
	// ErrorContains or BodyContains has ended before it had read all jobs; nil otherwise.
	SearchedTo *time.Time `json:"searched_to"`
	// AsOf is the time of the preview, for [AdminBulkRequest.AsOf].
	AsOf time.Time `json:"as_of"`
	// Refused is how many of those that match do not allow the action now.
	Refused int `json:"refused"`
	// Sample has up to ten of those that match, jobs or dead letters, as JSON.
	Sample []json.RawMessage `json:"sample"`
}

// AdminBulkOperation is a bulk operation, which applies an action to many jobs or dead letters in
// the background (AD-021).
type AdminBulkOperation struct {
	ID     string      `json:"bulk_id"`
	Action AdminAction `json:"action"`
	// State is "running", "paused", "done" or "canceled". Reason says why an operation is paused:
	// "operator", "canary" while its canaries are not finished, or which canary has failed. Of one
	// that runs, it names the contracts that a node must serve before the operation can continue.
	// It is empty otherwise.
	State  string `json:"state"`
	Reason string `json:"reason"`
	// Done is how many were changed, Failed how many were refused with an error, and Skipped how
	// many did not allow the action or had changed since the operation began.
	Done    int64 `json:"done"`
	Failed  int64 `json:"failed"`
	Skipped int64 `json:"skipped"`
	// Total is how many matched at the beginning, exact below 100,000; nil while they are being
	// counted.
	Total *int64 `json:"total"`
	// RatePerSecond, Limit and Canary are as in the request; 0 is none.
	RatePerSecond int `json:"rate"`
	Limit         int `json:"limit"`
	Canary        int `json:"canary"`
	// StartedAt is when the operation began, and EndedAt when it ended; nil if it has not. ETA is
	// when it will end at its present speed; nil where that is not known. All are in UTC.
	StartedAt time.Time  `json:"started_at"`
	EndedAt   *time.Time `json:"ended_at"`
	ETA       *time.Time `json:"eta"`
	// Errors are the first twenty errors.
	Errors []AdminBulkError `json:"errors"`
}

// AdminBulkError is why a bulk operation could not change a job or a dead letter.
type AdminBulkError struct {
	Number int64  `json:"number"` // the number of the job, or the id of the dead letter
	Error  string `json:"error"`
}

// PreviewBulkOperation returns what a bulk operation would change, and changes nothing (AD-020).
// The read token is enough.
//
// Errors: [ErrInvalid] if the request is wrong; [ErrUnauthorized].
func (a *Admin) PreviewBulkOperation(ctx context.Context,
	r AdminBulkRequest) (AdminBulkPreview, error) {
	body, err := json.Marshal(struct {
		AdminBulkRequest
		DryRun bool `json:"dry_run"`
	}{r, true})
	if err != nil {
		return AdminBulkPreview{}, err
	}
	return adminCall[AdminBulkPreview](ctx, a, call{
		op:       "admin preview bulk operation",
		method:   http.MethodPost,
		path:     "/admin/v1/bulk",
		body:     body,
		readOnly: true,
	})
}

// bulkStarted is the answer to the start of an operation.
type bulkStarted struct {
	ID string `json:"bulk_id"`
}

// StartBulkOperation starts a bulk operation and returns its id (AD-020). The operation runs in the
// background, continues after a restart of the server, and changes nothing twice. It changes what
// matches the filter now, or at the time of AsOf, and nothing that is created later.
//
// Errors: [ErrInvalid] if the request is wrong; [ErrUnauthorized]. It is repeated only while no try
// can have taken effect.
func (a *Admin) StartBulkOperation(ctx context.Context, r AdminBulkRequest) (id string, err error) {
	body, err := json.Marshal(r)
	if err != nil {
		return "", err
	}
	return a.startBulkOperation(ctx, "admin start bulk operation", "/admin/v1/bulk", body)
}

// ClearQueue starts a bulk operation that deletes the jobs of a queue that are neither running nor
// finished, and returns its id (AD-033).
//
// Errors: [ErrNotFound] for an unknown contract; [ErrConflict] for one whose jobs cannot be
// deleted; [ErrUnauthorized]. It is repeated only while no try can have taken effect.
func (a *Admin) ClearQueue(ctx context.Context, contract, queue string) (id string, err error) {
	return a.startBulkOperation(ctx, "admin clear queue", queuePath(contract, queue)+"/clear", nil)
}

func (a *Admin) startBulkOperation(ctx context.Context, op, path string,
	body []byte) (string, error) {
	started, err := adminCall[bulkStarted](ctx, a, call{
		op:            op,
		method:        http.MethodPost,
		path:          path,
		body:          body,
		accept:        []int{http.StatusAccepted},
		notIdempotent: true,
	})
	return started.ID, err
}

// BulkOperations iterates over the bulk operations, the newest first. One that has ended is listed
// for 30 days. pageSize is how many operations one request reads; 0 is the server's default. It
// ends with the first error.
func (a *Admin) BulkOperations(ctx context.Context,
	pageSize int) iter.Seq2[AdminBulkOperation, error] {
	return adminPages[AdminBulkOperation](ctx, a, "admin bulk operations", "/admin/v1/bulk",
		url.Values{}, pageSize)
}

// BulkOperation returns a bulk operation.
//
// Errors: [ErrNotFound]; [ErrUnauthorized].
func (a *Admin) BulkOperation(ctx context.Context, id string) (AdminBulkOperation, error) {
	return adminCall[AdminBulkOperation](ctx, a, call{
		op:   "admin bulk operation",
		path: bulkPath(id),
	})
}

// PauseBulkOperation pauses a bulk operation and returns it as it is then. The changes that are
// being made at that moment are completed.
//
// Errors: [ErrConflict] where it does not run; [ErrNotFound]; [ErrUnauthorized]. It is repeated
// only while no try can have taken effect, as are the other methods that change an operation.
func (a *Admin) PauseBulkOperation(ctx context.Context, id string) (AdminBulkOperation, error) {
	return a.changeBulkOperation(ctx, id, "pause")
}

// ResumeBulkOperation resumes a paused bulk operation, also one that waits for its canaries and one
// of whose canaries has failed.
//
// Errors: [ErrConflict] where it is not paused; [ErrNotFound]; [ErrUnauthorized].
func (a *Admin) ResumeBulkOperation(ctx context.Context, id string) (AdminBulkOperation, error) {
	return a.changeBulkOperation(ctx, id, "resume")
}

// CancelBulkOperation ends a bulk operation. What it has changed stays changed.
//
// Errors: [ErrConflict] where it has ended; [ErrNotFound]; [ErrUnauthorized].
func (a *Admin) CancelBulkOperation(ctx context.Context, id string) (AdminBulkOperation, error) {
	return a.changeBulkOperation(ctx, id, "cancel")
}

func (a *Admin) changeBulkOperation(ctx context.Context, id,
	action string) (AdminBulkOperation, error) {
	return adminCall[AdminBulkOperation](ctx, a, call{
		op:            "admin " + action + " bulk operation",
		method:        http.MethodPost,
		path:          bulkPath(id) + "/" + action,
		notIdempotent: true,
	})
}

func bulkPath(id string) string { return "/admin/v1/bulk/" + escape(id) }
