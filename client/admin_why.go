package client

import (
	"context"
	"encoding/json"
	"time"
)

// AdminWhy says why a job does not run, or that it runs (AD-015).
type AdminWhy struct {
	// Number, Contract and Queue identify the job. The contract is as in [AdminQueue].
	Number   int64  `json:"number"`
	Contract string `json:"contract"`
	Queue    string `json:"queue"`
	// Summary is the answer for people, the text of the first reason.
	Summary string `json:"sentence"`
	// Reasons are all reasons that apply, first the one that holds the job longest. There is none
	// where the next claim of its queue takes the job.
	Reasons []AdminReason `json:"reasons"`
	// Next is the earliest time at which the reasons may change by themselves, in UTC; nil if there
	// is no such time.
	Next *time.Time `json:"next"`
}

// AdminReason is one reason.
type AdminReason struct {
	Code AdminReasonCode `json:"code"`
	// Text is the reason for people.
	Text string `json:"text"`
	// Facts are the values in the text, by name. Each code has its own; the OpenAPI document of the
	// admin API describes them.
	Facts map[string]json.RawMessage `json:"facts"`
}

// AdminReasonCode names a reason. Later servers may have further ones.
type AdminReasonCode string

// The codes.
const (
	// AdminReasonRunning: a worker has the job.
	AdminReasonRunning AdminReasonCode = "running"
	// AdminReasonNotDue: it was submitted for a later time.
	AdminReasonNotDue AdminReasonCode = "not_due"
	// AdminReasonBackingOff: it waits for its next attempt, after one that failed.
	AdminReasonBackingOff AdminReasonCode = "backing_off"
	// AdminReasonWaitsForDependencies: jobs that it depends on are not finished.
	AdminReasonWaitsForDependencies AdminReasonCode = "waits_for_dependencies"
	// AdminReasonWaitsForChildren: its children are not finished.
	AdminReasonWaitsForChildren AdminReasonCode = "waits_for_children"
	// AdminReasonDependencyFailed: it is finished because a job that it depends on has failed.
	AdminReasonDependencyFailed AdminReasonCode = "dependency_failed"
	// AdminReasonQueuePaused: an operator has paused its queue; see [Admin.SetQueue].
	AdminReasonQueuePaused AdminReasonCode = "queue_paused"
	// AdminReasonQueueLimit: its queue has as many running jobs as its limit allows.
	AdminReasonQueueLimit AdminReasonCode = "queue_limit"
	// AdminReasonContractLimit: its contract has as many running or ready jobs as its limit allows.
	AdminReasonContractLimit AdminReasonCode = "contract_limit"
	// AdminReasonRateLimited: the rate limit of its queue allows no start now.
	AdminReasonRateLimited AdminReasonCode = "rate_limited"
	// AdminReasonBehindOtherJobs: other jobs of its queue are claimed first.
	AdminReasonBehindOtherJobs AdminReasonCode = "behind"
	// AdminReasonNoWorkers: no worker has tried to claim from its queue for half a minute or
	// longer.
	AdminReasonNoWorkers AdminReasonCode = "nobody_asks"
	// AdminReasonNodeDraining: the workers of its queue are on nodes that are drained.
	AdminReasonNodeDraining AdminReasonCode = "node_draining"
	// AdminReasonMessagePending: the message that brings it to a worker was not published yet.
	AdminReasonMessagePending AdminReasonCode = "message_pending"
	// AdminReasonDone: it is finished, or was given up and replayed as another job.
	AdminReasonDone AdminReasonCode = "done"
	// AdminReasonDead: it was given up and is a dead letter.
	AdminReasonDead AdminReasonCode = "dead"
)

// Why says why the job with a number does not run, or that it runs. The reasons are of one moment,
// over all nodes, but claims on other nodes may appear up to five seconds late.
//
// Errors: [ErrNotFound] where there is no such job and no dead letter of it; [ErrUnauthorized].
func (a *Admin) Why(ctx context.Context, number int64) (AdminWhy, error) {
	return adminCall[AdminWhy](ctx, a, call{
		op:   "admin why",
		path: adminJobPath(number) + "/why",
	})
}
