package client

import (
	"context"
	"net/url"
	"time"
)

// The metrics of [Admin.Series] (AD-060).
const (
	// AdminMetricSubmitted counts new jobs.
	AdminMetricSubmitted = "submitted"
	// AdminMetricStarted counts attempts that began, AdminMetricSucceeded those that succeeded, and
	// AdminMetricFailed those that failed or were lost.
	AdminMetricStarted   = "started"
	AdminMetricSucceeded = "succeeded"
	AdminMetricFailed    = "failed"
	// AdminMetricDepth is the most jobs that were ready at a time, and AdminMetricOldest the
	// longest that one of them had been ready, in seconds.
	AdminMetricDepth  = "depth"
	AdminMetricOldest = "oldest"
	// AdminMetricWaitP50 and AdminMetricWaitP95 are percentiles of how long jobs were ready before
	// an attempt, AdminMetricRunP50 and AdminMetricRunP95 of how long attempts took, in seconds, as
	// they are estimated in [AdminQueue].
	AdminMetricWaitP50 = "wait_p50"
	AdminMetricWaitP95 = "wait_p95"
	AdminMetricRunP50  = "run_p50"
	AdminMetricRunP95  = "run_p95"
	// AdminMetricRequests counts the HTTP requests of a contract, and AdminMetricErrors those that
	// were answered with a status of 500 or above.
	AdminMetricRequests = "requests"
	AdminMetricErrors   = "errors"
)

// AdminSeriesQuery selects a series. Its zero value selects all contracts and the last hour.
type AdminSeriesQuery struct {
	// Contract and, within that contract, Queue select whose figures are returned; empty means all.
	Contract string
	Queue    string
	// From is inclusive; the zero time is an hour before To.
	From time.Time
	// To is exclusive; the zero time is now.
	To time.Time
	// Step is the duration of each point: a multiple of 10 seconds, which the server keeps for 2
	// hours, of 1 minute, kept for 48 hours, or of 1 hour, kept for 90 days. Zero leaves it to the
	// server.
	Step time.Duration
}

// AdminSeries has the values of a metric over time.
type AdminSeries struct {
	Metric   string `json:"metric"`
	Contract string `json:"contract"`
	Queue    string `json:"queue"`
	// From is when the first step begins, and To the time before which all steps begin, in UTC.
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
	// Step is the duration of each point, such as "10s".
	Step   string             `json:"step"`
	Points []AdminSeriesPoint `json:"points"`
}

// AdminSeriesPoint is the value of a metric in one step.
type AdminSeriesPoint struct {
	// At is when the step begins, in UTC.
	At time.Time `json:"at"`
	// Value is nil where there is none, such as a percentile of nothing, and where the server had
	// too many active queues in the step to count each.
	Value *float64 `json:"value"`
	// Partial reports whether the step has not ended, or not all nodes have written their part.
	Partial bool `json:"partial"`
}

// Series returns a metric over time, of all nodes together (AD-060). A node writes what it has
// counted every ten seconds.
//
// Errors: an [*Error] with the status 400 names the problem of the query, such as a step that is
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
