package client

import (
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"net/url"
	"time"
)

// AdminQueue is a queue with its counts and what is in force for it (AD-030).
type AdminQueue struct {
	Contract string `json:"contract"`
	Queue    string `json:"queue"`
	// Waiting are the jobs that wait for others or for their time, Delayed those that wait for a
	// retry, Ready those that may be claimed and Leased those that are.
	Waiting int64 `json:"waiting"`
	Delayed int64 `json:"delayed"`
	Ready   int64 `json:"ready"`
	Leased  int64 `json:"leased"`
	// Dead are the dead letters that were not replayed.
	Dead int64 `json:"dead"`
	// Workers are those that ask for it, over all nodes, without those that are drained.
	Workers int `json:"workers"`
	// LastAskedAt is when a claim last asked for it, on any node, in UTC; nil is never within a
	// week.
	LastAskedAt *time.Time `json:"last_asked_at"`
	// OldestReadyAt is since when the first job is ready, of any priority; nil where none is.
	OldestReadyAt *time.Time `json:"oldest_ready_at"`
	// SubmittedPerMinute counts new jobs, StartedPerMinute attempts that began, SucceededPerMinute
	// those that succeeded and FailedPerMinute those that failed or were lost, over five minutes on
	// all nodes, or since the queue had its first, at least one minute. They are nil where the
	// server has too many active queues to count each.
	SubmittedPerMinute *float64 `json:"submitted_per_minute"`
	StartedPerMinute   *float64 `json:"started_per_minute"`
	SucceededPerMinute *float64 `json:"succeeded_per_minute"`
	FailedPerMinute    *float64 `json:"failed_per_minute"`
	// WaitP50 and WaitP95 are percentiles of how long jobs were ready before an attempt, RunP50 and
	// RunP95 of how long attempts took, in seconds, over five minutes; nil where there was none.
	// They are estimates: lengths are counted by ranges such as 1 to 2.5 s, and 6 h is the longest.
	WaitP50 *float64 `json:"wait_p50"`
	WaitP95 *float64 `json:"wait_p95"`
	RunP50  *float64 `json:"run_p50"`
	RunP95  *float64 `json:"run_p95"`
	Paused  bool     `json:"paused"`
	// MaxRunning is how many jobs run at a time, over all nodes; 0 is no limit.
	MaxRunning int `json:"run_limit"`
	// Rate is how many jobs start in every RatePeriod, over all nodes; 0 is no rate.
	Rate int `json:"rate"`
	// RatePeriod is a duration such as "1m", empty without a rate.
	RatePeriod string `json:"rate_period"`
}

// AdminQueueFilter selects queues. Empty members select all.
type AdminQueueFilter struct {
	Contract string
	Text     string // in the name
	Order    string // "name", "depth", "age" or "failures"; empty is by contract and name
	Internal bool   // also those of the server's own jobs: bulk operations and schedules
	PageSize int    // queues a request; 0 is the server's default
}

// AdminQueueChange is what to set for a queue. Members that are nil stay as they are.
type AdminQueueChange struct {
	Paused     *bool   `json:"paused,omitempty"`
	MaxRunning *int    `json:"run_limit,omitempty"`   // 0 is no limit
	Rate       *int    `json:"rate,omitempty"`        // 0 is no rate
	RatePeriod *string `json:"rate_period,omitempty"` // such as "1m"; needed with a first rate
}

// Queues iterates over the queues in the order of the filter (AD-030). A queue is listed while it
// has jobs that are not over or settings, and for a week after it had either. It ends with the
// first error.
func (a *Admin) Queues(ctx context.Context, f AdminQueueFilter) iter.Seq2[AdminQueue, error] {
	query := url.Values{}
	setText(query, "contract", f.Contract)
	setText(query, "text", f.Text)
	setText(query, "order", f.Order)
	if f.Internal {
		query.Set("internal", "true")
	}
	return adminPages[AdminQueue](ctx, a, "admin queues", "/admin/v1/queues", query, f.PageSize)
}

// SetQueue pauses, resumes or limits a queue and returns it as it is then (AD-031). It is in force
// on all nodes within two seconds. From a paused queue nothing is claimed, and it takes new jobs;
// running jobs go on. What is set takes the place of the server's settings until
// [Admin.ResetQueue].
//
// Errors: [ErrNotFound] for a contract that there is not; an [*Error] with the status 400 names the
// member that is wrong. A repeat changes nothing more.
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

// ResetQueue takes back what operators have set for a queue and returns it as it is then: the
// limits of the server's settings are in force, and the queue is not paused (AD-031).
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
