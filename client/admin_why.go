package client

import (
	"context"
	"encoding/json"
	"time"
)

// AdminWhy says why a job does not run, or that it does (AD-015).
type AdminWhy struct {
	// Number, Contract and Queue are those of the job, the contract as the list of queues has it.
	Number   int64  `json:"number"`
	Contract string `json:"contract"`
	Queue    string `json:"queue"`
	// Sentence is the answer for people: the text of the first reason.
	Sentence string `json:"sentence"`
	// Reasons are all that hold, the one that holds the job longest first. There are none where a
	// job is given to the next worker that asks.
	Reasons []AdminReason `json:"reasons"`
	// Next is the earliest time at which that may change by itself, in UTC; nil if no reason has
	// one.
	Next *time.Time `json:"next"`
}

// AdminReason is one reason.
type AdminReason struct {
	Code AdminReasonCode `json:"code"`
	// Text is the reason for people.
	Text string `json:"text"`
	// Facts are what the text was made of, by name. Each code has its own; the OpenAPI document of
	// the admin API describes them.
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
	// AdminReasonBackingOff: it waits for its next attempt.
	AdminReasonBackingOff AdminReasonCode = "backing_off"
	// AdminReasonWaitsForDependencies: jobs that it depends on are not over.
	AdminReasonWaitsForDependencies AdminReasonCode = "waits_for_dependencies"
	// AdminReasonWaitsForChildren: its children are not over.
	AdminReasonWaitsForChildren AdminReasonCode = "waits_for_children"
	// AdminReasonDependencyFailed: it is over because a job that it depends on has failed.
	AdminReasonDependencyFailed AdminReasonCode = "dependency_failed"
	// AdminReasonQueuePaused: an operator has paused its queue; see [Admin.SetQueue].
	AdminReasonQueuePaused AdminReasonCode = "queue_paused"
	// AdminReasonQueueLimit: its queue runs as many jobs as it may.
	AdminReasonQueueLimit AdminReasonCode = "queue_limit"
	// AdminReasonContractLimit: its contract runs, or has ready, as many jobs as it may.
	AdminReasonContractLimit AdminReasonCode = "contract_limit"
	// AdminReasonRateLimited: the rate of its queue allows no start now.
	AdminReasonRateLimited AdminReasonCode = "rate_limited"
	// AdminReasonBehind: other jobs of its queue are claimed first.
	AdminReasonBehind AdminReasonCode = "behind"
	// AdminReasonNobodyAsks: no worker has asked for its queue for half a minute or longer.
	AdminReasonNobodyAsks AdminReasonCode = "nobody_asks"
	// AdminReasonNodeDraining: the workers of its queue are on nodes that are drained.
	AdminReasonNodeDraining AdminReasonCode = "node_draining"
	// AdminReasonMessagePending: the message that hands it to a worker has not been sent.
	AdminReasonMessagePending AdminReasonCode = "message_pending"
	// AdminReasonDone: it is over.
	AdminReasonDone AdminReasonCode = "done"
	// AdminReasonDead: it was given up and is a dead letter.
	AdminReasonDead AdminReasonCode = "dead"
)

// Why says why the job with a number does not run, or that it does. The reasons are of one moment,
// over all nodes; when a queue was last asked for on another node is up to five seconds old.
//
// Errors: [ErrNotFound] where there is no such job and no dead letter of it; [ErrUnauthorized].
func (a *Admin) Why(ctx context.Context, number int64) (AdminWhy, error) {
	return adminCall[AdminWhy](ctx, a, call{
		op:   "admin why",
		path: adminJobPath(number) + "/why",
	})
}
