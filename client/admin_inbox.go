package client

import (
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"net/url"
	"time"
)

// The states of a request in the inbox.
const (
	AdminInboxWaiting   = "waiting"
	AdminInboxSubmitted = "submitted"
	AdminInboxRefused   = "refused"
)

// AdminInboxRequest is a request in the inbox: a job that a producer has submitted by SQL, in a
// transaction of its own (TX-003).
type AdminInboxRequest struct {
	// ID is the id that the producer got from SQL.
	ID string `json:"id"`
	// Number is its place in the inbox.
	Number int64 `json:"number"`
	// State is one of [AdminInboxWaiting], [AdminInboxSubmitted] and [AdminInboxRefused].
	State string `json:"state"`
	// Contract, Owner, JobType and IdempotencyKey are as the producer gave them.
	Contract       string `json:"contract"`
	Owner          string `json:"owner"`
	JobType        string `json:"job_type"`
	IdempotencyKey string `json:"idempotency_key"`
	// Producer is the role of the database that submitted it.
	Producer  string    `json:"producer"`
	CreatedAt time.Time `json:"created_at"`
	// FinishedAt is when its job was submitted or refused; nil while it waits.
	FinishedAt *time.Time `json:"finished_at"`
	// JobNumber is the number of its job, 0 if it has none, and JobID the id that the contract gave
	// the job.
	JobNumber int64  `json:"job"`
	JobID     string `json:"job_id"`
	// Error is why it was refused or, while it waits, why its job could not be submitted yet.
	Error string `json:"error"`
}

// AdminInboxDetail is a request in the inbox, with its body.
type AdminInboxDetail struct {
	AdminInboxRequest
	// Request is the body that the producer has submitted; nil once there is a job.
	Request json.RawMessage `json:"request"`
	// Truncated reports whether Request is only the beginning of the body, as a string.
	Truncated bool `json:"truncated"`
}

// AdminInboxFilter selects requests in the inbox. Empty fields select all.
type AdminInboxFilter struct {
	State    string
	Contract string
	PageSize int // how many one call reads; 0 is the server's default
}

// Inbox iterates over the requests in the inbox, the newest first (TX-003). It ends with the first
// error.
//
// Errors: [ErrInvalid] for an unknown state; [ErrUnauthorized].
func (a *Admin) Inbox(ctx context.Context,
	f AdminInboxFilter) iter.Seq2[AdminInboxRequest, error] {
	query := url.Values{}
	setText(query, "state", f.State)
	setText(query, "contract", f.Contract)
	return adminPages[AdminInboxRequest](ctx, a, "admin inbox", "/admin/v1/inbox", query,
		f.PageSize)
}

// InboxRequest returns a request in the inbox.
//
// Errors: [ErrNotFound]; [ErrUnauthorized].
func (a *Admin) InboxRequest(ctx context.Context, id string) (AdminInboxDetail, error) {
	return adminCall[AdminInboxDetail](ctx, a, call{
		op:   "admin inbox request",
		path: inboxPath(id),
	})
}

// RetryInboxRequest has the job of a refused request submitted again, and returns the request.
//
// Errors: [ErrConflict] for a request that was not refused; [ErrNotFound]; [ErrUnauthorized]. It is
// repeated only while no try can have taken effect.
func (a *Admin) RetryInboxRequest(ctx context.Context, id string) (AdminInboxDetail, error) {
	return adminCall[AdminInboxDetail](ctx, a, call{
		op:            "admin retry inbox request",
		method:        http.MethodPost,
		path:          inboxPath(id) + "/retry",
		notIdempotent: true,
	})
}

// DiscardInboxRequest removes a request that waits or was refused. Its job is not submitted any
// more.
//
// Errors: [ErrConflict] for a request that was submitted; [ErrNotFound]; [ErrUnauthorized].
// Repeating is safe: when a request is not found after a try whose answer was lost,
// DiscardInboxRequest returns nil.
func (a *Admin) DiscardInboxRequest(ctx context.Context, id string) error {
	return a.client.deleteOnce(ctx, call{op: "admin discard inbox request", path: inboxPath(id),
		header: a.header()})
}

func inboxPath(id string) string { return "/admin/v1/inbox/" + escape(id) }
