package client

import (
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"net/url"
	"time"
)

// AdminQueue is a queue with its counts, rates and limits (AD-030).
type AdminQueue struct {
	Contract string `json:"contract"`
	Queue    string `json:"queue"`
	// Waiting is how many jobs wait for others or are not due, Delayed how many wait for a retry,
	// Ready how many may be claimed, and Leased how many are claimed.
	Waiting int64 `json:"waiting"`
	Delayed int64 `json:"delayed"`
	Ready   int64 `json:"ready"`
	Leased  int64 `json:"leased"`
	// Dead is how many dead letters were not replayed.
	Dead int64 `json:"dead"`
	// Workers is how many workers claim from it, over all nodes, without those that are drained. A
	// remote worker counts for a minute after its last request, unless it has left.
	Workers int `json:"workers"`
	// LastClaimAt is when a worker last tried to claim from it, on any node, in UTC; nil if none
	// has within a week.
	LastClaimAt *time.Time `json:"last_asked_at"`
	// OldestReadyAt is when the oldest ready job became ready, of any priority; nil where none is.
	OldestReadyAt *time.Time `json:"oldest_ready_at"`
	// SubmittedPerMinute counts new jobs, StartedPerMinute attempts that began, SucceededPerMinute
	// those that succeeded and FailedPerMinute those that failed or were lost. They are averages
	// over the last five minutes and all nodes; of a new queue, over the time since its first job,
	// at least a minute. They are nil where the server has too many active queues to count each.
	SubmittedPerMinute *float64 `json:"submitted_per_minute"`
	StartedPerMinute   *float64 `json:"started_per_minute"`
	SucceededPerMinute *float64 `json:"succeeded_per_minute"`
	FailedPerMinute    *float64 `json:"failed_per_minute"`
	// WaitP50 and WaitP95 are percentiles of how long jobs were ready before an attempt, RunP50 and
	// RunP95 of how long attempts took, in seconds, over the last five minutes; nil where there was
	// none. They are estimates: durations are counted by ranges such as 1 to 2.5 s, up to 6 h.
	WaitP50 *float64 `json:"wait_p50"`
	WaitP95 *float64 `json:"wait_p95"`
	RunP50  *float64 `json:"run_p50"`
	RunP95  *float64 `json:"run_p95"`
	Paused  bool     `json:"paused"`
	// MaxRunning is the most jobs that run at a time, over all nodes; 0 is no limit.
	MaxRunning int `json:"run_limit"`
	// RateLimit is the most jobs that start in every RatePeriod, over all nodes; 0 is no limit.
	RateLimit int `json:"rate"`
	// RatePeriod is a duration such as "1m", empty without a rate limit.
	RatePeriod string `json:"rate_period"`
}

// AdminQueueFilter selects queues. Empty fields select all.
type AdminQueueFilter struct {
	Contract        string
	NameContains    string
	Order           string // "name", "depth", "age" or "failures"; empty is by contract and name
	IncludeInternal bool   // also queues of the server's own jobs: bulk operations and schedules
	PageSize        int    // queues that one request reads; 0 is the server's default
}

// AdminQueueChange changes a queue. A setting that is nil stays as it is.
type AdminQueueChange struct {
	Paused     *bool   `json:"paused,omitempty"`
	MaxRunning *int    `json:"run_limit,omitempty"`   // 0 is no limit
	RateLimit  *int    `json:"rate,omitempty"`        // 0 is no limit
	RatePeriod *string `json:"rate_period,omitempty"` // such as "1m"; needed with a first rate limit
}

// Queues iterates over the queues, in the order of the filter (AD-030). A queue is listed while it
// has unfinished jobs or settings of its own, and for a week after that. It ends with the first
// error.
func (a *Admin) Queues(ctx context.Context, f AdminQueueFilter) iter.Seq2[AdminQueue, error] {
	query := url.Values{}
	setText(query, "contract", f.Contract)
	setText(query, "text", f.NameContains)
	setText(query, "order", f.Order)
	if f.IncludeInternal {
		query.Set("internal", "true")
	}
	return adminPages[AdminQueue](ctx, a, "admin queues", "/admin/v1/queues", query, f.PageSize)
}

// SetQueue pauses, resumes or limits a queue and returns it as it is then (AD-031). The change is
// in force on all nodes within two seconds. A paused queue accepts new jobs and running jobs
// continue, but nothing is claimed. The change overrides the server's settings until
// [Admin.ResetQueue].
//
// Errors: [ErrNotFound] for an unknown contract; an [*Error] with the status 400 names the field
// that is wrong. A repeat changes nothing more.
func (a *Admin) SetQueue(ctx context.Context, contract, queue string,
	change AdminQueueChange) (AdminQueue, error) {
	body, err := json.Marshal(change)
	if err != nil {
		return AdminQueue{}, err
	}
	return adminCall[AdminQueue](ctx, a, call{
		op:     "admin set queue",
		method: http.MethodPatch,
		path:   queuePath(contract, queue),
		body:   body,
	})
}

// ResetQueue undoes [Admin.SetQueue] and returns the queue as it is then: the limits of the
// server's settings are in force, and the queue is not paused (AD-031).
//
// Errors: as [Admin.SetQueue].
func (a *Admin) ResetQueue(ctx context.Context, contract, queue string) (AdminQueue, error) {
	return adminCall[AdminQueue](ctx, a, call{
		op:     "admin reset queue",
		method: http.MethodDelete,
		path:   queuePath(contract, queue),
	})
}

func queuePath(contract, queue string) string {
	return "/admin/v1/queues/" + escape(contract) + "/" + escape(queue)
}
