package client

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"time"
)

// AdminJob is a job as operators see it, in the words of its contract. Fields that have no meaning
// for the job are nil.
type AdminJob struct {
	// Number identifies the job in the store. It is unique over all contracts.
	Number   int64  `json:"number"`
	Contract string `json:"contract"`
	Queue    string `json:"queue"`
	// ID is the id that the contract gave the job.
	ID string `json:"id"`
	// Kind is the contract's word for what kind of job it is, such as "manifest".
	Kind *string `json:"kind"`
	// State is the contract's word for the state of the job.
	State string `json:"state"`
	// Phase is waiting, ready, leased, done or dead, where dead jobs are those with a dead letter
	// that was not replayed.
	Phase string `json:"phase"`
	// Priority is higher for jobs that are claimed first.
	Priority *int `json:"priority"`
	// Attempts is how often the job was claimed, Failures how many of its attempts have failed, and
	// MaxAttempts after how many failed attempts it is given up.
	Attempts    int  `json:"attempts"`
	Failures    int  `json:"failures"`
	MaxAttempts *int `json:"run_limit"`
	// CreatedAt is when the job was submitted, in UTC as are all times, and UpdatedAt when it
	// changed last. The job is not claimed before DueAt. StartedAt is when the current or last
	// attempt began, and FinishedAt when the job was finished.
	CreatedAt  time.Time  `json:"created_at"`
	UpdatedAt  time.Time  `json:"updated_at"`
	DueAt      *time.Time `json:"due_at"`
	StartedAt  *time.Time `json:"started_at"`
	FinishedAt *time.Time `json:"settled_at"`
	// LeaseUntil is when the lease expires if the worker sends no heartbeat, and Worker is the
	// worker of the current or last attempt.
	LeaseUntil *time.Time `json:"lease_until"`
	Worker     *string    `json:"worker"`
	// Owner is the client, tenant or file that the job belongs to.
	Owner *string `json:"owner"`
	// ParentNumber is the number of the job that this one is a child of, and Children how many
	// children it has. OpenDependencies is how many dependencies it still waits for.
	ParentNumber     *int64 `json:"parent"`
	Children         *int   `json:"children"`
	OpenDependencies *int   `json:"open_dependencies"`
	// Error is the first line of the failure, at most 200 characters.
	Error *string `json:"error"`
	// Size is the size of the job in bytes, as its contract counts them.
	Size *int64 `json:"size"`
}

// AdminJobDetail is a job with its bodies (AD-013).
type AdminJobDetail struct {
	AdminJob
	// Payload is what was submitted, Definition what the contract stores of that, Progress the
	// latest progress, Result the result, and Failure why the job failed. A body that is JSON is as
	// it was sent; any other body is an object {"encoding":"base64","data":…}. A body is null if
	// there is none, or if the token may not see it. A body longer than 64 KiB is a string with its
	// beginning; [Admin.JobBody] returns all of it.
	Payload    json.RawMessage `json:"payload"`
	Definition json.RawMessage `json:"definition"`
	Progress   json.RawMessage `json:"progress"`
	Result     json.RawMessage `json:"result"`
	Failure    json.RawMessage `json:"failure"`
	// The fields down to FailureTruncated say which of the bodies are longer than 64 KiB.
	PayloadTruncated    bool `json:"payload_truncated"`
	DefinitionTruncated bool `json:"definition_truncated"`
	ProgressTruncated   bool `json:"progress_truncated"`
	ResultTruncated     bool `json:"result_truncated"`
	FailureTruncated    bool `json:"failure_truncated"`
	// Actions are the actions that the job allows now.
	Actions []AdminAction `json:"actions"`
	// DeadLetterID is the id of the job's latest dead letter. If that was replayed, ReplayedAs is
	// the number of the job that the replay submitted.
	DeadLetterID *int64 `json:"dead_letter"`
	ReplayedAs   *int64 `json:"replayed_as"`
	// Links are paths to more about the job.
	Links AdminJobLinks `json:"links"`
}

// AdminJobLinks are paths on the server to more about a job.
type AdminJobLinks struct {
	// Contract is the job's route in its contract.
	Contract *string `json:"contract"`
	Why      string  `json:"why"`
	Timeline string  `json:"timeline"`
	// Parent is the job that it is a child of.
	Parent *string `json:"parent"`
}

// AdminBody names a body of a job.
type AdminBody string

// The bodies.
const (
	// AdminBodyPayload is what was submitted.
	AdminBodyPayload AdminBody = "payload"
	// AdminBodyDefinition is what the contract stores of what was submitted.
	AdminBodyDefinition AdminBody = "definition"
	// AdminBodyProgress is the latest progress.
	AdminBodyProgress AdminBody = "progress"
	// AdminBodyResult is the result of a job.
	AdminBodyResult AdminBody = "result"
	// AdminBodyFailure is why a job failed.
	AdminBodyFailure AdminBody = "failure"
)

// Job returns the job with a number (AD-013). If the job was deleted and left a dead letter, Job
// returns it as it was when it was given up.
//
// Errors: [ErrNotFound] where there is no such job and no dead letter of it; [ErrUnauthorized].
func (a *Admin) Job(ctx context.Context, number int64) (AdminJobDetail, error) {
	return adminCall[AdminJobDetail](ctx, a, call{op: "admin job", path: adminJobPath(number)})
}

// JobBody returns a complete body of the job with a number, byte for byte (AD-013).
//
// Errors: [ErrNotFound] where there is no such job or it has no such body; [ErrUnauthorized], also
// where the token may not see it.
func (a *Admin) JobBody(ctx context.Context, number int64, body AdminBody) ([]byte, error) {
	got, err := a.client.doWithRetries(ctx, call{
		op:       "admin job " + string(body),
		method:   http.MethodGet,
		path:     adminJobPath(number) + "/" + string(body),
		readOnly: true,
		accept:   []int{http.StatusOK},
		header:   a.header(),
		wantBody: true,
	})
	return got.body, err
}

// adminJobPath is the path of the job with a number.
func adminJobPath(number int64) string {
	return "/admin/v1/jobs/" + strconv.FormatInt(number, 10)
}
