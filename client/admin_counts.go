package client

import (
	"context"
	"iter"
	"net/url"
)

// AdminCount is how many jobs have one value, of [AdminCountQuery.By]. The fields that were not
// asked for are nil.
type AdminCount struct {
	// Contract is nil where phases are counted.
	Contract *string `json:"contract"`
	Queue    *string `json:"queue"`
	// Phase is waiting, ready, leased, done or dead, where dead jobs are those with a dead letter
	// that was not replayed.
	Phase *string `json:"phase"`
	// State is the contract's word for the state of jobs.
	State *string `json:"state"`
	// Kind is nil for jobs that have none, and Worker is nil for jobs that were never claimed.
	Kind   *string `json:"kind"`
	Worker *string `json:"worker"`
	// Count is how many there are. Where there are more than the server counts one by one, Count is
	// nil and AtLeast is set.
	Count   *int64 `json:"count"`
	AtLeast *int64 `json:"at_least"`
}

// AdminCountQuery selects counts. Contract and Queue are filters; an empty one selects all.
type AdminCountQuery struct {
	By       string // "contract", "queue", "phase", "state", "kind" or "worker"
	Contract string
	Queue    string
	PageSize int // counts that one request reads; 0 is the server's default
}

// Counts iterates over how many jobs are stored, by contract and value (AD-018). The counts by
// contract, queue and phase are exact. It ends with the first error.
//
// Errors: [ErrInvalid], [ErrUnauthorized].
func (a *Admin) Counts(ctx context.Context, q AdminCountQuery) iter.Seq2[AdminCount, error] {
	query := url.Values{"by": {q.By}}
	setText(query, "contract", q.Contract)
	setText(query, "queue", q.Queue)
	return adminPages[AdminCount](ctx, a, "admin counts", "/admin/v1/counts", query, q.PageSize)
}
