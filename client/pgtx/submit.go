package pgtx

import (
	"context"
	"encoding/json"
)

// Submission is a job to be submitted.
type Submission struct {
	// Contract is the name of the contract that gets the job, such as "relay".
	Contract string
	// Request is what the contract's own route takes for one job: a JSON object of at most 16 MiB.
	Request json.RawMessage
	// IdempotencyKey, of at most 255 characters, makes a repetition harmless: the same contract and
	// key give the id of the first request, and nothing more is submitted.
	IdempotencyKey string
	// Owner is the client of ForgeRun, which needs one, or the tenant of FetchBox.
	Owner string
	// JobType is the job type of FetchBox.
	JobType string
}

// SubmitTx submits a job in a transaction and returns the id of the request: after the commit a
// node makes one job of it, or refuses it, and nothing is left of it if the transaction is rolled
// back. The requests of a transaction are submitted in their order. What has become of one is in
// the view millrace.submissions.
//
// A connection needs the role millrace_producer and nothing else of Millrace.
//
// Errors: [client.ErrInvalid] for a submission that is incomplete or too large; those of the
// database, such as that of a request that is no JSON. After any of them the transaction cannot
// commit. Whether the contract takes the request is found out after the commit.
func SubmitTx(ctx context.Context, tx Tx, s Submission) (id string, err error) {
	const parameters = "$1::text, $2::text::json, $3::text, $4::text, $5::text"
	err = tx.call(ctx, "submit", parameters, &id, s.Contract, string(s.Request),
		optional(s.IdempotencyKey), optional(s.Owner), optional(s.JobType))
	return id, err
}

// optional is NULL for an empty text.
func optional(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}
