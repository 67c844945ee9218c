package client

import (
	"context"
	"time"
)

// AdminTimeline has what happened to a job.
type AdminTimeline struct {
	// Entries are in the order of their times.
	Entries []AdminTimelineEntry `json:"entries"`
	// Truncated reports whether there are more entries than these, which are at most 2,000.
	Truncated bool `json:"truncated"`
}

// AdminTimelineEntry is one thing that happened to a job. Fields without meaning for its kind are
// nil.
type AdminTimelineEntry struct {
	At   time.Time         `json:"at"`
	Kind AdminTimelineKind `json:"kind"`
	// Text is for people; nil where the token may not see the bodies of jobs.
	Text *string `json:"text"`
	// Duration is how long it lasted, in seconds; nil while it lasts.
	Duration *float64 `json:"lasted"`
	// State is the contract's word for the state that was entered, and Cause why it was. Of a
	// dependency, a child or a delivery, State is its current state.
	State *string `json:"state"`
	Cause *string `json:"cause"`
	// The fields down to Error describe an attempt: its worker where that is known, its run id,
	// from when to when it ran, how it ended, and why it failed.
	Worker  *string    `json:"worker"`
	RunID   *string    `json:"run_id"`
	From    *time.Time `json:"from"`
	To      *time.Time `json:"to"`
	Outcome *string    `json:"outcome"`
	Error   *string    `json:"error"`
	// Number is the number of the dependency, child or delivery, and ID the id that its contract
	// gave it.
	Number *int64  `json:"number"`
	ID     *string `json:"id"`
	// Actor is the operator who did Action, as in the audit.
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
	// AdminTimelineLog: a line was written to the log of a manifest.
	AdminTimelineLog AdminTimelineKind = "log"
	// AdminTimelineMessage: a message about a change has waited since then to be published.
	AdminTimelineMessage AdminTimelineKind = "message"
	// AdminTimelineDelivery: the delivery of an event to a webhook was submitted.
	AdminTimelineDelivery AdminTimelineKind = "delivery"
	// AdminTimelineDependency: the job has waited since then for another one.
	AdminTimelineDependency AdminTimelineKind = "dependency"
	// AdminTimelineChild: a child of the job was submitted.
	AdminTimelineChild AdminTimelineKind = "child"
	// AdminTimelineOperator: an operator applied an action to it.
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
