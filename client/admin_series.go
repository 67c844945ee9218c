package client

import (
	"context"
	"net/url"
	"time"
)

// The metrics of [Admin.Series] (AD-060).
const (
	// MetricSubmitted counts new jobs.
	MetricSubmitted = "submitted"
	// MetricStarted counts attempts that began, MetricSucceeded those that succeeded, and
	// MetricFailed those that failed or were lost.
	MetricStarted   = "started"
	MetricSucceeded = "succeeded"
	MetricFailed    = "failed"
	// MetricDepth is the most jobs that were ready, and MetricOldest the longest that one of them
	// had been ready, in seconds.
	MetricDepth  = "depth"
	MetricOldest = "oldest"
	// MetricWaitP50 and MetricWaitP95 are percentiles of how long jobs were ready before an
	// attempt, MetricRunP50 and MetricRunP95 of how long attempts took, in seconds, as they are
	// estimated in [AdminQueue].
	MetricWaitP50 = "wait_p50"
	MetricWaitP95 = "wait_p95"
	MetricRunP50  = "run_p50"
	MetricRunP95  = "run_p95"
	// MetricRequests counts the HTTP requests of a contract, and MetricErrors those that were
	// answered with a status of 500 or above.
	MetricRequests = "requests"
	MetricErrors   = "errors"
)

// AdminSeriesQuery selects a series. Its zero value is that of all contracts in the last hour.
type AdminSeriesQuery struct {
	// Contract and, of that contract, Queue select what is counted; empty means all.
	Contract string
	Queue    string
	// From is inclusive; the zero time is an hour before To.
	From time.Time
	// To is exclusive; the zero time is now.
	To time.Time
	// Step is the time of each point, a multiple of 10 seconds, 1 minute or 1 hour, which the
	// server keeps for 2 hours, 48 hours and 90 days; zero leaves it to the server.
	Step time.Duration
}

// AdminSeries is what was counted over time.
type AdminSeries struct {
	Metric   string `json:"metric"`
	Contract string `json:"contract"`
	Queue    string `json:"queue"`
	// From is when the first step begins, and To before when all of them begin, in UTC.
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
	// Step is the time of each point, such as "10s".
	Step   string             `json:"step"`
	Points []AdminSeriesPoint `json:"points"`
}

// AdminSeriesPoint is a step of a series.
type AdminSeriesPoint struct {
	// At is when the step begins, in UTC.
	At time.Time `json:"at"`
	// Value is the number; nil where there is none, such as a percentile of nothing, and where the
	// server had too many active queues in the step to count each.
	Value *float64 `json:"value"`
	// Partial says that the step is not over, or not written by all nodes.
	Partial bool `json:"partial"`
}

// Series returns what all nodes have counted over time (AD-060). A node writes what it has counted
// every ten seconds.
//
// Errors: an [*Error] with the status 400 names what is wrong in the query, such as a step that is
// not kept for so long.
func (a *Admin) Series(ctx context.Context, metric string,
	q AdminSeriesQuery) (AdminSeries, error) {
	query := url.Values{"metric": {metric}}
	setText(query, "contract", q.Contract)
	setText(query, "queue", q.Queue)
	setTime(query, "from", q.From)
	setTime(query, "to", q.To)
	if q.Step > 0 {
		query.Set("step", q.Step.String())
	}
	return adminCall[AdminSeries](ctx, a, call{op: "admin series", path: "/admin/v1/series",
		query: query.Encode()})
}
