package client

import "time"

// AdminJob is a job as operators see it, with the words of its contract. Members that have no
// meaning for the job are nil.
type AdminJob struct {
	// Number is the place of the job in the store. It is unique over all contracts.
	Number   int64  `json:"number"`
	Contract string `json:"contract"`
	Queue    string `json:"queue"`
	// ID is the contract's id of the job.
	ID string `json:"id"`
	// Kind is the contract's word for what sort of job it is, such as "manifest".
	Kind *string `json:"kind"`
	// State is the contract's word for where the job stands.
	State string `json:"state"`
	// Phase is waiting, ready, leased, done or dead: with a dead letter that was not replayed.
	Phase string `json:"phase"`
	// Priority is higher for jobs that are claimed first.
	Priority *int `json:"priority"`
	// Attempts is how often the job was claimed, Failures how many of the attempts have failed, and
	// RunLimit the failures after which it is given up.
	Attempts int  `json:"attempts"`
	Failures int  `json:"failures"`
	RunLimit *int `json:"run_limit"`
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
