package pgtx

import (
	"context"
	"encoding/json"
	"errors"
	"strings"

	"github.com/millrace/millrace/client"
)

// CompleteTx completes a run in a transaction: the commit ends the run, and its completion is
// recorded. result is any JSON, or nil for none; Relay keeps no result. run is the run id that the
// claim has returned. Of all runs of a job at most one commits so.
//
// It is best called last, in the outermost transaction. Until the end of the transaction no other
// run gets the job, even if the lease of this one ends meanwhile, and PostgreSQL ends a session
// that is idle in the transaction for ten seconds. After the commit the server answers a heartbeat
// of the run with [ErrRunLost], as it does for any run that has ended.
//
// Errors: [ErrRunLost]; [client.ErrInvalid] for a result that is too large; those of the database.
// After any of them the transaction cannot commit, but for a savepoint that is rolled back. A
// result that the contract of the job refuses fails the job after the commit, with the reason: the
// server checks it only then.
func CompleteTx(ctx context.Context, tx Tx, run string, result json.RawMessage) error {
	var text *string
	if result != nil {
		s := string(result)
		text = &s
	}
	var void any
	return tx.call(ctx, "complete", "$1::text::uuid, $2::text::json", &void, run, text)
}

// FailTx fails a run in a transaction: the run has failed by the commit. cause explains why; the
// failure has the Type of a [client.JobError] in it. retryable says whether another run may
// succeed; whether there is one, and when, the contract of the job decides, as after
// [client.WorkerAPI.Fail]. In Relay the failure costs one of the job's retries, and the job is a
// dead letter if there is none left or if the failure is not retryable.
//
// Errors: those of [CompleteTx]. A message above 16 KiB and a type above 255 bytes are cut.
func FailTx(ctx context.Context, tx Tx, run string, cause error, retryable bool) error {
	kind, message := "", "the worker gave no reason"
	if cause != nil {
		message = cause.Error()
	}
	if jobErr, ok := errors.AsType[*client.JobError](cause); ok {
		kind = jobErr.Type
	}
	var void any
	return tx.call(ctx, "fail", "$1::text::uuid, $2::text, $3::bool, $4::text", &void, run,
		storable(message, maxMessage), retryable, storable(kind, maxKind))
}

// How much the server keeps of a message and of a type, in bytes.
const (
	maxMessage = 16 << 10
	maxKind    = 255
)

// storable returns the beginning of a text as PostgreSQL can keep it: what an error says must not
// be what keeps its run from failing.
func storable(text string, maxBytes int) string {
	if len(text) > maxBytes {
		text = text[:maxBytes]
	}
	return strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
}
