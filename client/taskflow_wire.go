package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// TaskFlowStatus is the status of a job (TF-022).
type TaskFlowStatus string

// The statuses of a job.
const (
	TaskFlowStatusPending   TaskFlowStatus = "PENDING" // waits for its dependencies
	TaskFlowStatusReady     TaskFlowStatus = "READY"   // can be claimed, or waits for a retry
	TaskFlowStatusRunning   TaskFlowStatus = "RUNNING"
	TaskFlowStatusCompleted TaskFlowStatus = "COMPLETED"
	TaskFlowStatusFailed    TaskFlowStatus = "FAILED"  // no attempt is left, or a failure was final
	TaskFlowStatusBlocked   TaskFlowStatus = "BLOCKED" // a dependency has failed or is blocked
)

// Final reports whether the job has finished (TF-031).
func (s TaskFlowStatus) Final() bool {
	return s == TaskFlowStatusCompleted || s == TaskFlowStatusFailed || s == TaskFlowStatusBlocked
}

// TaskFlowBackoffStrategy is how the backoff grows from attempt to attempt (TF-019).
type TaskFlowBackoffStrategy string

// The strategies, with the delay after the n-th failed attempt (TF-060, TF-061, TF-062).
const (
	TaskFlowBackoffFixed       TaskFlowBackoffStrategy = "FIXED"       // the base delay
	TaskFlowBackoffLinear      TaskFlowBackoffStrategy = "LINEAR"      // n times the base delay
	TaskFlowBackoffExponential TaskFlowBackoffStrategy = "EXPONENTIAL" // doubled with each failure
)

// TaskFlowRetryPolicy is a retry policy. A zero field means TaskFlow's default (TF-020).
type TaskFlowRetryPolicy struct {
	// MaxAttempts limits the failed attempts, from 1 to 10. Zero means 3 (TF-014).
	MaxAttempts int
	// Strategy is how the delay grows. Empty means [TaskFlowBackoffExponential].
	Strategy TaskFlowBackoffStrategy
	// BaseDelay is the first delay, from 1 s to 300 s. The wire has whole seconds; fractions are
	// rounded up. Zero means 10 s (TF-016).
	BaseDelay time.Duration
	// MaxDelay limits the delay, from BaseDelay to 3600 s, rounded like it. Zero means 300 s
	// (TF-017).
	MaxDelay time.Duration
}

// append appends the policy as JSON, without the fields that are zero.
func (r TaskFlowRetryPolicy) append(b []byte) []byte {
	b = append(b, '{')
	first := true
	member := func(name, value string) {
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(b, `"`+name+`":`+value...)
	}
	if r.MaxAttempts != 0 {
		member("max_attempts", strconv.Itoa(r.MaxAttempts))
	}
	if r.Strategy != "" {
		member("backoff_strategy", string(appendString(nil, string(r.Strategy))))
	}
	if r.BaseDelay != 0 {
		member("base_delay_seconds", strconv.FormatInt(wholeSeconds(r.BaseDelay), 10))
	}
	if r.MaxDelay != 0 {
		member("max_delay_seconds", strconv.FormatInt(wholeSeconds(r.MaxDelay), 10))
	}
	return append(b, '}')
}

// TaskFlowSpec is a job as it is created. Name and Queue are required (TF-013).
type TaskFlowSpec struct {
	// Name has 1 to 255 characters (TF-002).
	Name string
	// Queue has 1 to 64 letters, digits and underscores (TF-003).
	Queue string
	// Payload is any JSON of up to 65,536 bytes, which travels byte for byte (TF-004). Nil means
	// {}.
	Payload json.RawMessage
	// Priority is from 1 to 10; a job of higher priority is claimed first. Zero means 5 (G-TF-14).
	Priority int
	// Dependencies are the ids of at most 50 jobs that must be COMPLETED before this one runs
	// (TF-008).
	Dependencies []string
	// Retry is the retry policy; the zero value is TaskFlow's default.
	Retry TaskFlowRetryPolicy
	// Callback receives requests about events of the job (WH-005); nil for none.
	Callback *TaskFlowCallback
}

// TaskFlowCallback is a URL that gets events of one job. Requests are signed with the secret that
// `millrace operator secret taskflow` prints; [VerifyWebhook] checks them.
type TaskFlowCallback struct {
	URL string `json:"url"`
	// Events are types, or patterns with *, such as "taskflow.job.started". Nil means those that
	// end the job.
	Events []string `json:"events,omitempty"`
}

func (s TaskFlowSpec) encode() ([]byte, error) {
	b, err := s.appendMembers([]byte{'{'})
	if err != nil {
		return nil, err
	}
	if len(s.Dependencies) > 0 {
		b = appendStrings(append(b, `,"dependencies":`...), s.Dependencies)
	}
	return append(b, '}'), nil
}

// appendMembers appends all members but the dependencies. It does not use encoding/json for the
// payload, which must come back byte for byte (TF-005).
func (s TaskFlowSpec) appendMembers(b []byte) ([]byte, error) {
	if err := errors.Join(checkName("name", s.Name), checkName("queue", s.Queue)); err != nil {
		return nil, err
	}
	b = appendString(append(b, `"name":`...), s.Name)
	b = appendString(append(b, `,"queue":`...), s.Queue)
	if s.Priority != 0 {
		b = strconv.AppendInt(append(b, `,"priority":`...), int64(s.Priority), 10)
	}
	if s.Retry != (TaskFlowRetryPolicy{}) {
		b = s.Retry.append(append(b, `,"retry_policy":`...))
	}
	if s.Payload != nil {
		if err := checkJSON("payload", s.Payload); err != nil {
			return nil, err
		}
		b = append(append(b, `,"payload":`...), s.Payload...)
	}
	if s.Callback != nil {
		callback, err := json.Marshal(s.Callback)
		if err != nil {
			return nil, err
		}
		b = append(append(b, `,"callback":`...), callback...)
	}
	return b, nil
}

// TaskFlowPatch is a change of a job; nil fields stay as they are (TF-078).
type TaskFlowPatch struct {
	Name     *string
	Queue    *string
	Priority *int
	// Payload replaces the whole payload.
	Payload json.RawMessage
	// Dependencies replace all dependencies.
	Dependencies *[]string
	// Retry replaces the whole policy: its zero fields mean TaskFlow's defaults, not the present
	// values (G-TF-06).
	Retry *TaskFlowRetryPolicy
}

func (p TaskFlowPatch) encode() ([]byte, error) {
	b := []byte{'{'}
	member := func(name string) {
		if len(b) > 1 {
			b = append(b, ',')
		}
		b = append(b, `"`+name+`":`...)
	}
	if p.Name != nil {
		member("name")
		b = appendString(b, *p.Name)
	}
	if p.Queue != nil {
		member("queue")
		b = appendString(b, *p.Queue)
	}
	if p.Priority != nil {
		member("priority")
		b = strconv.AppendInt(b, int64(*p.Priority), 10)
	}
	if p.Payload != nil {
		if err := checkJSON("payload", p.Payload); err != nil {
			return nil, err
		}
		member("payload")
		b = append(b, p.Payload...)
	}
	if p.Dependencies != nil {
		member("dependencies")
		b = appendStrings(b, *p.Dependencies)
	}
	if p.Retry != nil {
		member("retry_policy")
		b = p.Retry.append(b)
	}
	return append(b, '}'), nil
}

// TaskFlowJob is a job as the server has it (1.1 of the document).
type TaskFlowJob struct {
	// ID is a UUID.
	ID string
	// TaskFlowSpec is the job's definition, with the defaults filled in.
	TaskFlowSpec
	Status TaskFlowStatus
	// CreatedAt and UpdatedAt are in UTC.
	CreatedAt, UpdatedAt time.Time
	// FailedAttempts is the number of failed attempts (G-TF-01).
	FailedAttempts int
	// NextRunAt is when a READY job that waits for its next attempt can be claimed, in UTC
	// (G-TF-13); zero for all others.
	NextRunAt time.Time
	// Result is the result of the attempt that completed the job, as JSON; nil for none. Only
	// TaskFlow.Get returns it and LastError.
	Result json.RawMessage
	// LastError is the latest failure that a worker reported; nil if there was none.
	LastError *TaskFlowFailure
	// RerunOf is the id of the job of which this one is a copy, and RerunAs that of the last copy
	// that was made of this one (RT-001); empty where there is none.
	RerunOf, RerunAs string
}

// TaskFlowFailure is the failure report of a worker.
type TaskFlowFailure struct {
	Message   string `json:"error"`
	Type      string `json:"error_type"`
	Retryable bool   `json:"retryable"` // what the worker reported
}

// taskFlowWire is a job in an answer.
type taskFlowWire struct {
	ID           string          `json:"id"`
	Name         string          `json:"name"`
	Queue        string          `json:"queue"`
	Payload      json.RawMessage `json:"payload"`
	Priority     int             `json:"priority"`
	Status       TaskFlowStatus  `json:"status"`
	Dependencies []string        `json:"dependencies"`
	Retry        struct {
		MaxAttempts int                     `json:"max_attempts"`
		Strategy    TaskFlowBackoffStrategy `json:"backoff_strategy"`
		BaseDelay   int64                   `json:"base_delay_seconds"`
		MaxDelay    int64                   `json:"max_delay_seconds"`
	} `json:"retry_policy"`
	CreatedAt      time.Time `json:"created_at"`
	UpdatedAt      time.Time `json:"updated_at"`
	FailedAttempts int       `json:"attempt_count"`
	NextRunAt      time.Time `json:"next_run_at"`

	Result    json.RawMessage  `json:"result"`
	LastError *TaskFlowFailure `json:"last_error"`
	RerunOf   string           `json:"rerun_of"`
	RerunAs   string           `json:"rerun_as"`

	Callback *TaskFlowCallback `json:"callback"`
}

func (w taskFlowWire) job() TaskFlowJob {
	return TaskFlowJob{
		ID: w.ID,
		TaskFlowSpec: TaskFlowSpec{
			Name: w.Name, Queue: w.Queue, Payload: w.Payload, Priority: w.Priority,
			Dependencies: w.Dependencies,
			Retry: TaskFlowRetryPolicy{MaxAttempts: w.Retry.MaxAttempts, Strategy: w.Retry.Strategy,
				BaseDelay: time.Duration(w.Retry.BaseDelay) * time.Second,
				MaxDelay:  time.Duration(w.Retry.MaxDelay) * time.Second},
			Callback: w.Callback,
		},
		Status:         w.Status,
		CreatedAt:      w.CreatedAt.UTC(),
		UpdatedAt:      w.UpdatedAt.UTC(),
		FailedAttempts: w.FailedAttempts,
		NextRunAt:      w.NextRunAt.UTC(),
		Result:         w.Result,
		LastError:      w.LastError,
		RerunOf:        w.RerunOf,
		RerunAs:        w.RerunAs,
	}
}

// readTaskFlow takes code, message, cycle and copies from an error of TaskFlow (G-TF-21, RT-001).
func (e *Error) readTaskFlow(body []byte) {
	var wire struct {
		Code    string
		Message string
		Details struct {
			CyclePath []string          `json:"cycle_path"`
			Jobs      map[string]string `json:"jobs"`
		}
	}
	if json.Unmarshal(body, &wire) != nil || wire.Code == "" {
		return
	}
	e.Code, e.Message = wire.Code, wire.Message
	e.Cycle, e.Copies = wire.Details.CyclePath, wire.Details.Jobs
}

func appendStrings(b []byte, values []string) []byte {
	b = append(b, '[')
	for i, v := range values {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendString(b, v)
	}
	return append(b, ']')
}

// cycleError is the error for a cycle that was found before anything was sent.
func cycleError(op string, path []string) *Error {
	return &Error{Op: op, Cycle: path, Err: fmt.Errorf("%w: %w of %d jobs", ErrInvalid, ErrCycle,
		len(path))}
}
