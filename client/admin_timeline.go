package client

import (
	"context"
	"time"
)

// AdminTimeline is what happened to a job.
type AdminTimeline struct {
	// Entries are in the order of their times.
	Entries []AdminTimelineEntry `json:"entries"`
	// Truncated says that there is more than these entries, of which there are 2,000 at most.
	Truncated bool `json:"truncated"`
}

// AdminTimelineEntry is one thing that happened to a job. Members without meaning for its kind are
// nil.
type AdminTimelineEntry struct {
	At   time.Time         `json:"at"`
	Kind AdminTimelineKind `json:"kind"`
	// Text is for people; nil where the token may not see what jobs carry.
	Text *string `json:"text"`
	// Lasted is how long it lasted, in seconds; nil while it lasts.
	Lasted *float64 `json:"lasted"`
	// State is the contract's word for the state that was entered, and Cause why; of a dependency,
	// a child and a delivery State is the present one.
	State *string `json:"state"`
	Cause *string `json:"cause"`
	// The members down to Error are those of an attempt: its worker where it is known, its run id,
	// from when to when it lasted, how it ended, and why it failed.
	Worker  *string    `json:"worker"`
	RunID   *string    `json:"run_id"`
	From    *time.Time `json:"from"`
	To      *time.Time `json:"to"`
	Outcome *string    `json:"outcome"`
	Error   *string    `json:"error"`
	// Number is that of the dependency, child or delivery, and ID its contract's id.
	Number *int64  `json:"number"`
	ID     *string `json:"id"`
	// Actor is who has done Action, as the audit has it.
	Actor  *string `json:"actor"`
	Action *string `json:"action"`
}

// AdminTimelineKind says what an entry is about. Later servers may have further ones.
type AdminTimelineKind string

// The kinds.
const (
	// AdminTimelineSubmitted: the job was submitted.
	AdminTimelineSubmitted AdminTimelineKind = "submitted"
	// AdminTimelineState: it entered a state.
	AdminTimelineState AdminTimelineKind = "state"
	// AdminTimelineAttempt: an attempt began.
	AdminTimelineAttempt AdminTimelineKind = "attempt"
	// AdminTimelineProgress: a worker reported its latest progress.
	AdminTimelineProgress AdminTimelineKind = "progress"
	// AdminTimelineLog: the log of a manifest has a line.
	AdminTimelineLog AdminTimelineKind = "log"
	// AdminTimelineMessage: a message of a change waits to be sent since then.
	AdminTimelineMessage AdminTimelineKind = "message"
	// AdminTimelineDelivery: the delivery of an event to a webhook was made.
	AdminTimelineDelivery AdminTimelineKind = "delivery"
	// AdminTimelineDependency: the job waits for another one since then.
	AdminTimelineDependency AdminTimelineKind = "dependency"
	// AdminTimelineChild: a part of the job was submitted.
	AdminTimelineChild AdminTimelineKind = "child"
	// AdminTimelineOperator: an operator has done something to it.
	AdminTimelineOperator AdminTimelineKind = "operator"
)

// Timeline returns what happened to the job with a number (AD-014).
//
// Errors: [ErrNotFound] where there is no such job and no dead letter of it; [ErrUnauthorized].
func (a *Admin) Timeline(ctx context.Context, number int64) (AdminTimeline, error) {
	return adminCall[AdminTimeline](ctx, a, call{
		op:   "admin timeline",
		path: adminJobPath(number) + "/timeline",
	})
}
