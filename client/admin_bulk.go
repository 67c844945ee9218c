package client

import (
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"net/url"
	"time"
)

// AdminReplay is the action of a bulk operation on dead letters. The others are those of jobs, such
// as [AdminRetry].
const AdminReplay AdminAction = "replay"

// AdminBulkFilter selects what a bulk operation is about. Empty members select all; at least one is
// needed, or [AdminBulkRequest.Everything].
type AdminBulkFilter struct {
	Contract string `json:"contract,omitempty"`
	Queue    string `json:"queue,omitempty"`

	// The members down to Text are for jobs. States are the contract's own words; Phases are
	// waiting, ready, leased, done and dead.
	States []string `json:"state,omitempty"`
	Phases []string `json:"phase,omitempty"`
	Owner  string   `json:"owner,omitempty"`
	Kind   string   `json:"kind,omitempty"`
	ID     string   `json:"id,omitempty"` // the contract's id, exactly
	// Numbers are those of some jobs, at most 1,000; Parent is one too.
	Numbers []int64 `json:"number,omitempty"`
	Parent  int64   `json:"parent,omitempty"`
	Worker  string  `json:"worker,omitempty"`
	// From is inclusive, Before exclusive; a job has settled when it is over.
	CreatedFrom   time.Time `json:"created_from,omitzero"`
	CreatedBefore time.Time `json:"created_before,omitzero"`
	SettledFrom   time.Time `json:"settled_from,omitzero"`
	SettledBefore time.Time `json:"settled_before,omitzero"`
	// MinAge and MaxAge are durations since the creation, such as "90m".
	MinAge      string `json:"min_age,omitempty"`
	MaxAge      string `json:"max_age,omitempty"`
	MinAttempts int    `json:"min_attempts,omitempty"`
	Error       string `json:"error,omitempty"` // in the failure, without case; of dead letters too
	Text        string `json:"text,omitempty"`  // in definition, payload and result, without case

	// Fingerprint, From (inclusive) and To (exclusive) are for dead letters.
	Fingerprint string    `json:"fingerprint,omitempty"`
	From        time.Time `json:"from,omitzero"`
	To          time.Time `json:"to,omitzero"`
}

// AdminBulkRequest is what a bulk operation is to do (AD-020).
type AdminBulkRequest struct {
	Action AdminAction     `json:"action"`
	Filter AdminBulkFilter `json:"filter"`
	// Everything allows a filter that names nothing.
	Everything bool `json:"everything,omitempty"`
	// Rate is how many are done a second, and Limit how many at all; 0 is no bound.
	Rate  int `json:"rate,omitempty"`
	Limit int `json:"limit,omitempty"`
	// Canary is how many go first: the others follow when these have ended well, and the operation
	// stays paused when one of them has failed (AD-022). 0 is none.
	Canary int `json:"canary,omitempty"`
	// AsOf is the one of a preview: what was created since is not touched, and what has changed
	// since is skipped. The zero time means the start.
	AsOf time.Time `json:"as_of,omitzero"`
}

// AdminBulkPreview is what a bulk operation would be about.
type AdminBulkPreview struct {
	// Matching is how many match, at most 100,000; More reports whether there may be more, which
	// were not looked at.
	Matching int  `json:"matching"`
	More     bool `json:"more"`
	// SearchedTo is when the last job was created that was looked at, in UTC, where a search of
	// Error or Text has ended before all were; nil where all were.
	SearchedTo *time.Time `json:"searched_to"`
	// AsOf is the time of the preview; [AdminBulkRequest.AsOf] binds an operation to it.
	AsOf time.Time `json:"as_of"`
	// Refused is how many of them do not allow the action now.
	Refused int `json:"refused"`
	// Sample are up to ten of them, jobs or dead letters, as JSON.
	Sample []json.RawMessage `json:"sample"`
}

// AdminBulk is a bulk operation (AD-021).
type AdminBulk struct {
	ID     string      `json:"bulk_id"`
	Action AdminAction `json:"action"`
	// State is "running", "paused", "done" or "canceled". Reason says why it is paused: "operator",
	// "canary" while its canaries have not settled, or which canary has failed; and of one that runs
	// which contracts the node has to serve that it waits for. It is empty otherwise.
	State  string `json:"state"`
	Reason string `json:"reason"`
	// Done were changed, Failed were refused with an error, Skipped did not allow the action or had
	// changed since the operation began.
	Done    int64 `json:"done"`
	Failed  int64 `json:"failed"`
	Skipped int64 `json:"skipped"`
	// Total is how many matched at the beginning, exact below 100,000; nil while they are being
	// counted.
	Total *int64 `json:"total"`
	// Rate, Limit and Canary are those of the request; 0 is none.
	Rate   int `json:"rate"`
	Limit  int `json:"limit"`
	Canary int `json:"canary"`
	// StartedAt is when it began, EndedAt when it had gone through all, and ETA when it will have
	// if it goes on as it did, in UTC. The last two are nil where that is not so, or not known.
	StartedAt time.Time  `json:"started_at"`
	EndedAt   *time.Time `json:"ended_at"`
	ETA       *time.Time `json:"eta"`
	// Errors are the first twenty.
	Errors []AdminBulkError `json:"errors"`
}

// AdminBulkError is why a bulk operation could not change something.
type AdminBulkError struct {
	Number int64  `json:"number"` // of the job, or the ID of the dead letter
	Error  string `json:"error"`
}

// PreviewBulk returns what a bulk operation would be about, and changes nothing (AD-020). A token
// that only reads is enough.
//
// Errors: [ErrInvalid] for what is wrong with the request; [ErrUnauthorized].
func (a *Admin) PreviewBulk(ctx context.Context, r AdminBulkRequest) (AdminBulkPreview, error) {
	body, err := json.Marshal(struct {
		AdminBulkRequest
		DryRun bool `json:"dry_run"`
	}{r, true})
	if err != nil {
		return AdminBulkPreview{}, err
	}
	return adminCall[AdminBulkPreview](ctx, a, call{
		op:       "admin preview bulk",
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

// StartBulk begins a bulk operation and returns its id; it goes on in the background, also when the
// server is restarted, and changes nothing twice (AD-020). The filter means what matches now, or
// at the time of AsOf: what is created later is left as it is.
//
// Errors: [ErrInvalid] for what is wrong with the request; [ErrUnauthorized]. It is repeated only
// while no try can have taken effect.
func (a *Admin) StartBulk(ctx context.Context, r AdminBulkRequest) (id string, err error) {
	body, err := json.Marshal(r)
	if err != nil {
		return "", err
	}
	return a.startBulk(ctx, "admin start bulk", "/admin/v1/bulk", body)
}

// ClearQueue begins a bulk operation that deletes the jobs of a queue that are not over and do not
// run, and returns its id (AD-033).
//
// Errors: [ErrNotFound] for a contract that there is not; [ErrConflict] for one whose jobs cannot
// be deleted; [ErrUnauthorized]. It is repeated only while no try can have taken effect.
func (a *Admin) ClearQueue(ctx context.Context, contract, queue string) (id string, err error) {
	return a.startBulk(ctx, "admin clear queue", queuePath(contract, queue)+"/clear", nil)
}

func (a *Admin) startBulk(ctx context.Context, op, path string, body []byte) (string, error) {
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

// Bulks iterates over the bulk operations, the newest first. One that has ended is listed for 30
// days. pageSize is how many a request reads; 0 is the server's default. It ends with the first
// error.
func (a *Admin) Bulks(ctx context.Context, pageSize int) iter.Seq2[AdminBulk, error] {
	return adminPages[AdminBulk](ctx, a, "admin bulks", "/admin/v1/bulk", url.Values{}, pageSize)
}

// Bulk returns a bulk operation.
//
// Errors: [ErrNotFound]; [ErrUnauthorized].
func (a *Admin) Bulk(ctx context.Context, id string) (AdminBulk, error) {
	return adminCall[AdminBulk](ctx, a, call{
		op:   "admin bulk",
		path: bulkPath(id),
	})
}

// PauseBulk pauses a bulk operation and returns it as it is then. What is being done at the moment
// is completed.
//
// Errors: [ErrConflict] where it does not run; [ErrNotFound]; [ErrUnauthorized]. It is repeated
// only while no try can have taken effect, as are the others that change an operation.
func (a *Admin) PauseBulk(ctx context.Context, id string) (AdminBulk, error) {
	return a.changeBulk(ctx, id, "pause")
}

// ResumeBulk lets a bulk operation go on that is paused, also one that waits for its canaries or of
// which one has failed.
//
// Errors: [ErrConflict] where it is not paused; [ErrNotFound]; [ErrUnauthorized].
func (a *Admin) ResumeBulk(ctx context.Context, id string) (AdminBulk, error) {
	return a.changeBulk(ctx, id, "resume")
}

// CancelBulk ends a bulk operation. What was done stays done.
//
// Errors: [ErrConflict] where it has ended; [ErrNotFound]; [ErrUnauthorized].
func (a *Admin) CancelBulk(ctx context.Context, id string) (AdminBulk, error) {
	return a.changeBulk(ctx, id, "cancel")
}

func (a *Admin) changeBulk(ctx context.Context, id, what string) (AdminBulk, error) {
	return adminCall[AdminBulk](ctx, a, call{
		op:            "admin " + what + " bulk",
		method:        http.MethodPost,
		path:          bulkPath(id) + "/" + what,
		notIdempotent: true,
	})
}

func bulkPath(id string) string { return "/admin/v1/bulk/" + escape(id) }
