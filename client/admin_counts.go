package client

import (
	"context"
	"iter"
	"net/url"
)

// AdminCount is how many jobs have one value of what is counted by. The other members are nil.
type AdminCount struct {
	// Contract is nil where phases are counted.
	Contract *string `json:"contract"`
	Queue    *string `json:"queue"`
	// Phase is waiting, ready, leased, done or dead: with a dead letter that was not replayed.
	Phase *string `json:"phase"`
	// State is the contract's word for the state of jobs.
	State *string `json:"state"`
	// Kind is nil for jobs without one, Worker for jobs that were never claimed.
	Kind   *string `json:"kind"`
	Worker *string `json:"worker"`
	// Count is how many there are. Where more were counted than the server counts one by one, it is
	// nil, and AtLeast is set.
	Count   *int64 `json:"count"`
	AtLeast *int64 `json:"at_least"`
}

// AdminCountQuery asks for counts. Contract and Queue are filters; empty ones select all.
type AdminCountQuery struct {
	By       string // "contract", "queue", "phase", "state", "kind" or "worker"
	Contract string
	Queue    string
	PageSize int // counts a request; 0 is the server's default
}

// Counts iterates over the numbers of the jobs that are stored, by contract and value (AD-018). By
// contract, queue and phase they are exact. It ends with the first error.
//
// Errors: [ErrInvalid], [ErrUnauthorized].
func (a *Admin) Counts(ctx context.Context, q AdminCountQuery) iter.Seq2[AdminCount, error] {
	query := url.Values{"by": {q.By}}
	setText(query, "contract", q.Contract)
	setText(query, "queue", q.Queue)
	return adminPages[AdminCount](ctx, a, "admin counts", "/admin/v1/counts", query, q.PageSize)
}
