package client

import (
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// AdminDeadLetter is a job that was given up, kept so that it can be replayed (AD-050).
type AdminDeadLetter struct {
	// ID is unique over all contracts. It is not the number of the job.
	ID int64 `json:"id"`
	// Fingerprint is the same for dead letters with one reason. It is derived from contract, queue,
	// type and text of the error, without numbers, paths and other text that varies.
	Fingerprint string `json:"fingerprint"`
	Contract    string `json:"contract"`
	Queue       string `json:"queue"`
	// Number is the number of the job, and JobID the id that its contract gave it.
	Number int64  `json:"number"`
	JobID  string `json:"job_id"`
	// Attempts is how often the job was claimed, and Worker the worker of the last attempt.
	Attempts int    `json:"attempts"`
	Worker   string `json:"worker"`
	// ErrorType is the type or code of the failure; of a job without one, why it was given up.
	ErrorType string `json:"error_type"`
	// Error is the text of the failure, at most 4 KiB; empty where there is none. Of a job whose
	// lease expired it is what its worker reported last.
	Error string `json:"error"`
	// FailedAt is when the job was given up, in UTC.
	FailedAt time.Time `json:"at"`
	// ReplayedAt is when it was last replayed, in UTC, and ReplayedAs the number of the job that
	// was submitted then. Both are nil for one that was not replayed.
	ReplayedAt *time.Time `json:"replayed_at"`
	ReplayedAs *int64     `json:"replayed_as"`
}

// AdminDeadLetterGroup is a group of dead letters with the same fingerprint that were not replayed
// (AD-050).
type AdminDeadLetterGroup struct {
	Fingerprint string `json:"fingerprint"`
	Contract    string `json:"contract"`
	Queue       string `json:"queue"`
	// ErrorType and Error are taken from the newest dead letter.
	ErrorType string `json:"error_type"`
	Error     string `json:"error"`
	// Count is how many there are, given up from FirstAt to LastAt, in UTC.
	Count   int64     `json:"count"`
	FirstAt time.Time `json:"first_at"`
	LastAt  time.Time `json:"last_at"`
}

// AdminDeadLetterFilter selects dead letters. Empty fields select all.
type AdminDeadLetterFilter struct {
	Contract      string
	Queue         string
	Fingerprint   string
	JobID         string    // the contract's id of the job, exactly
	ErrorContains string    // a text in the type or text of the error, without case
	FailedFrom    time.Time // inclusive
	FailedBefore  time.Time // exclusive
	PageSize      int       // dead letters that one request reads; 0 is the server's default
}

// DeadLetters iterates over the dead letters of all contracts, the oldest first (AD-050). It ends
// with the first error.
//
// Errors: [ErrInvalid] for an unknown contract; [ErrUnauthorized].
func (a *Admin) DeadLetters(ctx context.Context,
	f AdminDeadLetterFilter) iter.Seq2[AdminDeadLetter, error] {
	query := url.Values{}
	setText(query, "contract", f.Contract)
	setText(query, "queue", f.Queue)
	setText(query, "fingerprint", f.Fingerprint)
	setText(query, "job_id", f.JobID)
	setText(query, "error", f.ErrorContains)
	setTime(query, "from", f.FailedFrom)
	setTime(query, "to", f.FailedBefore)
	return adminPages[AdminDeadLetter](ctx, a, "admin dead letters", "/admin/v1/dead-letters",
		query, f.PageSize)
}

// DeadLetterGroups iterates over the groups of dead letters that were not replayed, the largest
// first; an empty contract means all (AD-050). The server groups the newest 100,000 dead letters of
// each job type. pageSize is how many groups one request reads; 0 is the server's default. It ends
// with the first error.
//
// Errors: [ErrInvalid] for an unknown contract; [ErrUnauthorized].
func (a *Admin) DeadLetterGroups(ctx context.Context, contract string,
	pageSize int) iter.Seq2[AdminDeadLetterGroup, error] {
	query := url.Values{}
	setText(query, "contract", contract)
	return adminPages[AdminDeadLetterGroup](ctx, a, "admin dead letter groups",
		"/admin/v1/dead-letters/groups", query, pageSize)
}

// DeadLetter returns a dead letter.
//
// Errors: [ErrNotFound]; [ErrUnauthorized].
func (a *Admin) DeadLetter(ctx context.Context, id int64) (AdminDeadLetter, error) {
	return adminCall[AdminDeadLetter](ctx, a, call{
		op:   "admin dead letter",
		path: deadLetterPath(id),
	})
}

// ReplayDeadLetter replays a dead letter and returns the job that was submitted: the same job or a
// new one, depending on its contract (AD-051). With again, it also replays one that was replayed
// before.
//
// Errors: [ErrConflict] where it was replayed before and again is false, and where the contract
// refuses it; [ErrNotFound]; [ErrUnauthorized]. It is repeated only while no try can have taken
// effect.
func (a *Admin) ReplayDeadLetter(ctx context.Context, id int64,
	again bool) (AdminActionResult, error) {
	body, err := json.Marshal(struct {
		Again bool `json:"again"`
	}{again})
	if err != nil {
		return AdminActionResult{}, err
	}
	return adminCall[AdminActionResult](ctx, a, call{
		op:            "admin replay dead letter",
		method:        http.MethodPost,
		path:          deadLetterPath(id) + "/replay",
		body:          body,
		notIdempotent: true,
	})
}

// DiscardDeadLetter deletes a dead letter (AD-051).
//
// Errors: [ErrNotFound]; [ErrUnauthorized]. Repeating is safe: when a dead letter is not found
// after a try whose answer was lost, DiscardDeadLetter returns nil.
func (a *Admin) DiscardDeadLetter(ctx context.Context, id int64) error {
	return a.client.deleteOnce(ctx, call{op: "admin discard dead letter", path: deadLetterPath(id),
		header: a.header()})
}

func deadLetterPath(id int64) string {
	return "/admin/v1/dead-letters/" + strconv.FormatInt(id, 10)
}
