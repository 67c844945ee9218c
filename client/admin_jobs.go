package client

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"time"
)

// AdminJob is a job as operators see it, with the words of its contract. Members that have no
// meaning for the job are nil.
type AdminJob struct {
	// Number is the place of the job in the store. It is unique over all contracts.
	Number   int64  `json:"number"`
	Contract string `json:"contract"`
	Queue    string `json:"queue"`
	// ID is the contract's id of the job.
	ID string `json:"id"`
	// Kind is the contract's word for what kind of job it is, such as "manifest".
	Kind *string `json:"kind"`
	// State is the contract's word for the state of the job.
	State string `json:"state"`
	// Phase is waiting, ready, leased, done or dead: with a dead letter that was not replayed.
	Phase string `json:"phase"`
	// Priority is higher for jobs that are claimed first.
	Priority *int `json:"priority"`
	// Attempts is how often the job was claimed, Failures how many of the attempts have failed, and
	// MaxAttempts the failures after which it is given up.
	Attempts    int  `json:"attempts"`
	Failures    int  `json:"failures"`
	MaxAttempts *int `json:"run_limit"`
	// CreatedAt is when the job was submitted, in UTC as are all times, UpdatedAt when it changed
	// last. It is not claimed before DueAt. StartedAt is when the present or the last attempt
	// began, and SettledAt when the job was over.
	CreatedAt time.Time  `json:"created_at"`
	UpdatedAt time.Time  `json:"updated_at"`
	DueAt     *time.Time `json:"due_at"`
	StartedAt *time.Time `json:"started_at"`
	SettledAt *time.Time `json:"settled_at"`
	// LeaseUntil is when the attempt is lost without a heartbeat, and Worker that of the present or
	// the last attempt.
	LeaseUntil *time.Time `json:"lease_until"`
	Worker     *string    `json:"worker"`
	// Owner is the client, tenant or file that the job belongs to.
	Owner *string `json:"owner"`
	// Parent is the number of the job that this one is a part of, and Children how many are parts
	// of this one. OpenDependencies are how many jobs it still waits for.
	Parent           *int64 `json:"parent"`
	Children         *int   `json:"children"`
	OpenDependencies *int   `json:"open_dependencies"`
	// Error is the first line of the failure, of 200 characters at most.
	Error *string `json:"error"`
	// Size is the bytes of the job, as its contract counts them.
	Size *int64 `json:"size"`
}

// AdminJobDetail is a job with its bodies (AD-013).
type AdminJobDetail struct {
	AdminJob
	// Payload is what was submitted, Definition what its contract keeps of it, Progress the latest
	// progress, Result what the work has left and Failure why it failed. Each is JSON as it is, an
	// object {"encoding":"base64","data":…} where it is not JSON, and null where there is none or
	// the token may not see it. Of one that is longer than 64 KiB it is the begin, as a string;
	// [Admin.JobBody] has all of it.
	Payload    json.RawMessage `json:"payload"`
	Definition json.RawMessage `json:"definition"`
	Progress   json.RawMessage `json:"progress"`
	Result     json.RawMessage `json:"result"`
	Failure    json.RawMessage `json:"failure"`
	// The members down to FailureTruncated say which of the bodies are longer than 64 KiB.
	PayloadTruncated    bool `json:"payload_truncated"`
	DefinitionTruncated bool `json:"definition_truncated"`
	ProgressTruncated   bool `json:"progress_truncated"`
	ResultTruncated     bool `json:"result_truncated"`
	FailureTruncated    bool `json:"failure_truncated"`
	// Actions are those that the job allows now.
	Actions []AdminAction `json:"actions"`
	// DeadLetter is the id of its latest dead letter, and ReplayedAs the number of the job that
	// this was replayed as.
	DeadLetter *int64 `json:"dead_letter"`
	ReplayedAs *int64 `json:"replayed_as"`
	// Links are paths of what is known elsewhere.
	Links AdminJobLinks `json:"links"`
}

// AdminJobLinks are paths of what is known of a job elsewhere on the server.
type AdminJobLinks struct {
	// Contract is the contract's own route of the job.
	Contract *string `json:"contract"`
	Why      string  `json:"why"`
	Timeline string  `json:"timeline"`
	// Parent is the job that it is a part of.
	Parent *string `json:"parent"`
}

// AdminJobPart names a body of a job.
type AdminJobPart string

// The bodies.
const (
	// AdminPayload is what was submitted.
	AdminPayload AdminJobPart = "payload"
	// AdminDefinition is what the contract keeps of a job.
	AdminDefinition AdminJobPart = "definition"
	// AdminProgress is the latest progress.
	AdminProgress AdminJobPart = "progress"
	// AdminResult is what the work has left.
	AdminResult AdminJobPart = "result"
	// AdminFailure is why a job failed.
	AdminFailure AdminJobPart = "failure"
)

// Job returns the job with a number (AD-013). One that is gone is as its dead letter has it.
//
// Errors: [ErrNotFound] where there is no such job and no dead letter of it; [ErrUnauthorized].
func (a *Admin) Job(ctx context.Context, number int64) (AdminJobDetail, error) {
	return adminCall[AdminJobDetail](ctx, a, call{op: "admin job", path: adminJobPath(number)})
}

// JobBody returns a body of the job with a number as it was sent, whole (AD-013).
//
// Errors: [ErrNotFound] where the job has none, or there is no such job; [ErrUnauthorized], also
// where the token may not see it.
func (a *Admin) JobBody(ctx context.Context, number int64, part AdminJobPart) ([]byte, error) {
	got, err := a.client.doWithRetries(ctx, call{
		op:       "admin job " + string(part),
		method:   http.MethodGet,
		path:     adminJobPath(number) + "/" + string(part),
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
