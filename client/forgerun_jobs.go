package client

import (
	"context"
	"crypto/rand"
	"iter"
	"net/http"
	"net/url"
	"time"
)

// Submit stores a job. When it returns nil the job survives a crash of the server (FR-249).
//
// Errors: [ErrInvalid]; [ErrUnauthorized]; [ErrConflict] with Code
// [ForgeRunCodeIdempotencyConflict] when a different job was submitted under the same key;
// [ErrRetryable] when the server's queue is full or this client exceeds a limit.
//
// Repeating under the same idempotency key returns the same job (FR-067). Submit does that itself
// after lost answers. When it gives up, the receipt beside the error has the key.
func (f *ForgeRun) Submit(ctx context.Context, spec ForgeRunSpec) (ForgeRunReceipt, error) {
	const op = "forgerun submit"
	wire := struct {
		Type        ForgeRunType     `json:"type"`
		Kind        ForgeRunWorkKind `json:"work_kind,omitempty"`
		ExecutionAt *time.Time       `json:"execution_at,omitempty"`
		Callback    string           `json:"callback,omitempty"`
		Key         string           `json:"idempotency_key"`
	}{
		Type:     spec.Type,
		Kind:     spec.Kind,
		Callback: spec.Callback,
		Key:      orDefault(spec.IdempotencyKey, rand.Text()),
	}
	if at := spec.ExecutionAt.UTC(); !at.IsZero() {
		if at.Year() < 1 || at.Year() > 9999 {
			return ForgeRunReceipt{}, invalid(op, "execution time %v is in no four-digit year", at)
		}
		at = at.Truncate(time.Microsecond)
		wire.ExecutionAt = &at
	}
	got, err := forgeCall[ForgeRunReceipt](ctx, f, call{
		op:     op,
		method: http.MethodPost,
		path:   "/v1/jobs",
		body:   encodeBody(wire),
		accept: []int{http.StatusAccepted},
	})
	got.IdempotencyKey = wire.Key
	return got, err
}

// Get reads a job of this client (FR-120).
//
// Errors: [ErrNotFound]; [ErrUnauthorized], with Code [ForgeRunCodeForbidden] for a job of another
// client (G-FR-10). Repeating is safe (FR-123).
func (f *ForgeRun) Get(ctx context.Context, jobID string) (ForgeRunJob, error) {
	return forgeJob[ForgeRunJob](ctx, f, "forgerun get", http.MethodGet, jobID)
}

// Report reads the report of a job that has finished (FR-125).
//
// Errors: [ErrNotFound], also for a job that has not ended (FR-126); [ErrUnauthorized]. Repeating
// is safe.
func (f *ForgeRun) Report(ctx context.Context, jobID string) (ForgeRunReport, error) {
	return forgeJob[ForgeRunReport](ctx, f, "forgerun report", http.MethodGet, jobID, "report")
}

// Cancel cancels a job that has not ended (FR-134) and returns its state. A job that ended in
// between with another outcome stays as it is (FR-137, FR-138).
//
// Errors: [ErrNotFound]; [ErrUnauthorized]; [ErrConflict] (G-FR-52). Repeating is safe.
func (f *ForgeRun) Cancel(ctx context.Context, jobID string) (ForgeRunActionResult, error) {
	return forgeJob[ForgeRunActionResult](ctx, f, "forgerun cancel", http.MethodPost, jobID,
		"cancel")
}

// Retry makes a failed job run once more, after a delay that grows with each retry (FR-140,
// FR-144).
//
// Errors: [ErrConflict] when the job has not failed or its retries are used up (FR-142);
// [ErrNotFound]; [ErrUnauthorized].
//
// Repeating before the retried run has ended returns the job's state (FR-145). A repeat after that
// run has failed too is another retry.
func (f *ForgeRun) Retry(ctx context.Context, jobID string) (ForgeRunActionResult, error) {
	return forgeJob[ForgeRunActionResult](ctx, f, "forgerun retry", http.MethodPost, jobID, "retry")
}

// forgeJob makes a call about one job.
func forgeJob[T any](ctx context.Context, f *ForgeRun, op, method, jobID string,
	rest ...string) (T, error) {
	if err := checkName("job id", jobID); err != nil {
		var none T
		return none, invalid(op, "%v", err)
	}
	return forgeCall[T](ctx, f, call{
		op:       op,
		method:   method,
		path:     forgePath(append([]string{"jobs", jobID}, rest...)...),
		readOnly: method == http.MethodGet,
		accept:   []int{http.StatusOK},
	})
}

// ForgeRunFilter selects the jobs of a list.
type ForgeRunFilter struct {
	// State keeps only the jobs in this state; empty keeps all.
	State ForgeRunState
	// PageSize is how many jobs each request asks for; 0 leaves it to the server.
	PageSize int
}

// Jobs iterates over the jobs of this client (FR-250, G-FR-43). It ends with the first error. With
// a State, a job that changes its state meanwhile may be missed.
func (f *ForgeRun) Jobs(ctx context.Context, filter ForgeRunFilter) iter.Seq2[ForgeRunJob, error] {
	query := url.Values{}
	if filter.State != "" {
		query.Set("state", string(filter.State))
	}
	return forgePages[ForgeRunJob](ctx, f, "forgerun jobs", "/v1/jobs", query, filter.PageSize)
}

// Wait polls a job until it has finished, and returns it. It polls after growing pauses of up to
// two seconds, and continues while the server is unavailable or limits requests. A failed job has
// finished, even when it can be retried.
//
// Errors: those of [ForgeRun.Get] except [ErrRetryable]; that of the context when it ends first.
func (f *ForgeRun) Wait(ctx context.Context, jobID string) (ForgeRunJob, error) {
	return watch(ctx, f.client, "forgerun wait",
		func() (ForgeRunJob, error) { return f.Get(ctx, jobID) },
		func(job ForgeRunJob) bool { return job.State.Final() })
}
