package client

import "time"

// ForgeRunType is the type that a job is submitted as (FR-058).
type ForgeRunType string

// The types of a job.
const (
	// ForgeRunTypeExecute is a job that runs at once, or at its time if it has one (G-FR-19).
	ForgeRunTypeExecute ForgeRunType = "EXECUTE"
	// ForgeRunTypeDeferred is a job that must have a time (FR-063).
	ForgeRunTypeDeferred ForgeRunType = "DEFERRED"
	// ForgeRunTypeEmitEvent is a job whose purpose is its sequence of events (G-FR-05).
	ForgeRunTypeEmitEvent ForgeRunType = "EMIT_EVENT"
)

// ForgeRunState is the state of a job (FR-154).
type ForgeRunState string

// The states of a job. Of the final ones, a job can leave only FAILED, by a retry.
const (
	ForgeRunStateCreated   ForgeRunState = "CREATED"
	ForgeRunStateQueued    ForgeRunState = "QUEUED"
	ForgeRunStateAssigned  ForgeRunState = "ASSIGNED"
	ForgeRunStateRunning   ForgeRunState = "RUNNING"
	ForgeRunStateSucceeded ForgeRunState = "SUCCEEDED"
	ForgeRunStateFailed    ForgeRunState = "FAILED"
	ForgeRunStateCanceled  ForgeRunState = "CANCELED"
)

// Final reports whether the job has finished: it has an outcome and a report then.
func (s ForgeRunState) Final() bool {
	return s == ForgeRunStateSucceeded || s == ForgeRunStateFailed || s == ForgeRunStateCanceled
}

// ForgeRunOutcome is how a job ended; empty for a job that has not (FR-121).
type ForgeRunOutcome string

// The outcomes of a job.
const (
	ForgeRunOutcomeSuccess  ForgeRunOutcome = "SUCCESS"
	ForgeRunOutcomeFailed   ForgeRunOutcome = "FAILED"
	ForgeRunOutcomeCanceled ForgeRunOutcome = "CANCELED"
)

// ForgeRunEventName is the name of an event: of a change of a job's state (FR-153).
type ForgeRunEventName string

// The names of events.
const (
	ForgeRunEventJobCreated  ForgeRunEventName = "job_created"
	ForgeRunEventJobQueued   ForgeRunEventName = "job_queued" // also after a retry
	ForgeRunEventJobAssigned ForgeRunEventName = "job_assigned"
	// ForgeRunEventJobRequeued says that the lease expired before the job ran (G-FR-01).
	ForgeRunEventJobRequeued  ForgeRunEventName = "job_requeued"
	ForgeRunEventJobStarted   ForgeRunEventName = "job_started"
	ForgeRunEventJobSucceeded ForgeRunEventName = "job_succeeded"
	ForgeRunEventJobFailed    ForgeRunEventName = "job_failed"
	ForgeRunEventJobCanceled  ForgeRunEventName = "job_canceled"
)

// ForgeRunEvents returns all names of events, in the order of a job's life.
func ForgeRunEvents() []ForgeRunEventName {
	return []ForgeRunEventName{ForgeRunEventJobCreated, ForgeRunEventJobQueued,
		ForgeRunEventJobAssigned, ForgeRunEventJobRequeued,
		ForgeRunEventJobStarted, ForgeRunEventJobSucceeded, ForgeRunEventJobFailed,
		ForgeRunEventJobCanceled}
}

// ForgeRunSpec is a job as it is submitted.
type ForgeRunSpec struct {
	// Type is required.
	Type ForgeRunType
	// Kind is the scenario to simulate; empty lets the server choose (FR-074).
	Kind ForgeRunWorkKind
	// ExecutionAt is when the job may start, to the microsecond; zero means now (FR-064). A time
	// more than a second in the past is refused (FR-062).
	ExecutionAt time.Time
	// Callback is an http or https URL that gets every state change of this job (FR-189); empty
	// for none.
	Callback string
	// IdempotencyKey makes a submit repeatable as long as its job exists: the same key with the
	// same content returns the same job, with other content it is refused (FR-067, FR-068,
	// FR-071). Empty means a random one.
	IdempotencyKey string
}

// ForgeRunReceipt is the answer to a submitted job, which the server has stored durably.
type ForgeRunReceipt struct {
	// JobID is a UUID.
	JobID string `json:"job_id"`
	// State is CREATED for a new job, and the present state of a job that was submitted before
	// under the same key (FR-057).
	State ForgeRunState `json:"state"`
	// CreatedAt is when the job was created, in UTC.
	CreatedAt time.Time `json:"created_at"`
	// IdempotencyKey is the key that was sent. It is also set beside an error: submit again under
	// the same key to learn whether the job exists.
	IdempotencyKey string `json:"-"`
}

// ForgeRunDefinition is the run that the server simulates (FR-075).
type ForgeRunDefinition struct {
	// Kind is the scenario.
	Kind ForgeRunWorkKind `json:"work_kind"`
	// DurationMS is how long a run takes, in milliseconds.
	DurationMS int64 `json:"duration_ms"`
	// ShouldFail says that the first run fails (FR-114).
	ShouldFail bool `json:"should_fail"`
	// PayloadSize is in bytes (G-FR-60).
	PayloadSize int64 `json:"payload_size"`
	// ExecutionAt is set for scheduled jobs, in UTC (FR-077).
	ExecutionAt *time.Time `json:"execution_at"`
	// Seed is the time of the request in milliseconds since 1970. Values that the request left
	// open were drawn from it (G-FR-36).
	Seed int64 `json:"seed"`
}

// ForgeRunFailure is why a job failed (G-FR-62).
type ForgeRunFailure struct {
	// Code is [ForgeRunCodeTimeout] for a run that took too long (FR-025), or another code such as
	// "runner_lost" (G-FR-35).
	Code string `json:"code"`
	// Message is the explanation.
	Message string `json:"message"`
	// Retryable says that a retry may help (FR-088).
	Retryable bool `json:"retryable"`
}

// ForgeRunJob is a job as the server has it (FR-120, G-FR-38).
type ForgeRunJob struct {
	ID    string           `json:"job_id"`
	Type  ForgeRunType     `json:"type"`
	Kind  ForgeRunWorkKind `json:"work_kind"`
	State ForgeRunState    `json:"state"`
	// Outcome is empty until the state is final, and again while a retry runs.
	Outcome   ForgeRunOutcome `json:"outcome"`
	CreatedAt time.Time       `json:"created_at"`
	UpdatedAt time.Time       `json:"updated_at"`
	// Attempt is 0 for the first run (G-FR-20).
	Attempt    int                `json:"attempt"`
	Definition ForgeRunDefinition `json:"definition"`
	// ExecutionAt is nil for a job without a time.
	ExecutionAt *time.Time `json:"execution_at"`
	// Callback is empty for a job without one.
	Callback string `json:"callback"`
	// Failure is nil unless the last run failed.
	Failure *ForgeRunFailure `json:"failure"`
}

// ForgeRunEvent is one state change of a job, in its report (FR-149).
type ForgeRunEvent struct {
	// ID is a UUID. It is the webhook-id of the deliveries of the event.
	ID    string            `json:"event_id"`
	JobID string            `json:"job_id"`
	Name  ForgeRunEventName `json:"event_name"`
	// Prev is empty for the first event (G-FR-62).
	Prev ForgeRunState `json:"prev_state"`
	Next ForgeRunState `json:"next_state"`
	// At strictly increases within a job, in UTC with microseconds (G-FR-40).
	At       time.Time        `json:"timestamp"`
	Scenario ForgeRunWorkKind `json:"scenario"`
	// Reason is set where the name does not say why: "lease_expired" or "released" of a requeued
	// job, "runner_lost", a timeout (FR-152).
	Reason string `json:"reason"`
	// Final says that this failure used up the retries (G-FR-08).
	Final bool `json:"final"`
}

// ForgeRunReport is the history of a job that has finished (FR-125).
type ForgeRunReport struct {
	JobID   string          `json:"job_id"`
	Outcome ForgeRunOutcome `json:"outcome"`
	// Events are the events of all attempts, in order (G-FR-09).
	Events []ForgeRunEvent `json:"events"`
	// StartedAt is when the last run started; nil for a job canceled before it started (FR-131).
	StartedAt  *time.Time `json:"started_at"`
	FinishedAt time.Time  `json:"finished_at"`
	// DurationMS is FinishedAt − StartedAt in milliseconds (FR-128).
	DurationMS int64 `json:"duration_ms"`
	// Attempt, Kind and Failure are as in the job.
	Attempt int              `json:"attempt"`
	Kind    ForgeRunWorkKind `json:"work_kind"`
	Failure *ForgeRunFailure `json:"failure"`
}

// ForgeRunActionResult is the answer to a cancel or a retry.
type ForgeRunActionResult struct {
	JobID     string        `json:"job_id"`
	State     ForgeRunState `json:"state"`
	UpdatedAt time.Time     `json:"updated_at"`
	Attempt   int           `json:"attempt"` // of a retry only
}
