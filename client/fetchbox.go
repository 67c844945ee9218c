package client

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/rand"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"
)

// FetchBox is the FetchBox contract: the server downloads the URLs of a manifest to object
// storage. Every error is an [*Error] whose Code, when the server answered, is one of the
// FetchBoxCode constants. A FetchBox is safe for concurrent use.
//
// [FetchBox.Submit] is a call for clients. All others are for operators, who may have a token of
// their own (G-FB-31).
type FetchBox struct {
	client        *Client
	operatorToken string // empty means Config.Token
}

// FetchBox returns the FetchBox contract on this client. Config.Token is the token of both clients
// and operators, unless [FetchBox.WithOperatorToken] sets another for operators.
func (c *Client) FetchBox() *FetchBox { return &FetchBox{client: c} }

// WithOperatorToken returns the contract with another token for the calls of operators. It shares
// the connections of f.
func (f *FetchBox) WithOperatorToken(token string) *FetchBox {
	return &FetchBox{client: f.client, operatorToken: token}
}

// The codes of FetchBox's errors (FB-039 to FB-044, G-FB-19).
const (
	FetchBoxCodeInvalidPayload     = "INVALID_PAYLOAD"
	FetchBoxCodeUnauthorized       = "UNAUTHORIZED"
	FetchBoxCodeUnsupportedJobType = "UNSUPPORTED_JOB_TYPE"
	FetchBoxCodePayloadTooLarge    = "PAYLOAD_TOO_LARGE"
	FetchBoxCodeRateLimited        = "RATE_LIMITED"
	FetchBoxCodeInternal           = "INTERNAL_ERROR"
	FetchBoxCodeNotFound           = "NOT_FOUND"
	FetchBoxCodeConflict           = "CONFLICT"
)

// FetchBoxCodeCanceled is the code of the failure of downloads that an operator canceled (RT-003).
const FetchBoxCodeCanceled = "CANCELED"

// compressFrom is the size in bytes from which a manifest is sent compressed.
const compressFrom = 16 << 10

// Submit submits a manifest. When it returns nil the manifest is stored and its downloads are
// queued; they survive a crash of the server (FB-034).
//
// Errors: [ErrInvalid], with Code [FetchBoxCodeUnsupportedJobType] for a job type that is not
// registered; [ErrUnauthorized]. After an error of the server no part of the job is stored
// (FB-035), and the same key may be used again (FB-049).
//
// Repeating under the same idempotency key returns the first job, whatever the manifest is
// (FB-046, G-FB-05). Submit does that itself after lost answers. When it gives up, the receipt
// beside the error has the key.
func (f *FetchBox) Submit(ctx context.Context, spec FetchBoxSpec) (FetchBoxReceipt, error) {
	const op = "fetchbox submit"
	spec.IdempotencyKey = orDefault(spec.IdempotencyKey, rand.Text())
	receipt := FetchBoxReceipt{IdempotencyKey: spec.IdempotencyKey}
	header, err := spec.header()
	if err != nil {
		return receipt, invalid(op, "%v", err)
	}
	if err := checkJSON("manifest", spec.Manifest); err != nil {
		return receipt, invalid(op, "%v", err)
	}
	body := []byte(spec.Manifest)
	if len(body) >= compressFrom {
		body = compress(body)
		header.Set("Content-Encoding", "gzip") // FB-006
	}
	got, err := doJSON[FetchBoxReceipt](ctx, f.client, call{
		op:     op,
		method: http.MethodPost,
		path:   "/jobs",
		header: header,
		body:   body,
		accept: []int{http.StatusAccepted},
	})
	got.IdempotencyKey = spec.IdempotencyKey
	return got, err
}

func (s *FetchBoxSpec) header() (http.Header, error) {
	header := http.Header{}
	for _, h := range []struct{ what, name, value string }{
		{"job type", "X-Fetchbox-Job-Type", s.Type},
		{"tenant", "X-Fetchbox-Tenant", s.Tenant},
		{"idempotency key", "X-Fetchbox-Idempotency-Key", s.IdempotencyKey},
		{"callback URL", "X-Fetchbox-Callback-Url", s.CallbackURL},
	} {
		if h.value == "" {
			continue
		}
		if err := checkHeader(h.what, h.value); err != nil {
			return nil, err
		}
		header.Set(h.name, h.value)
	}
	return header, checkName("job type", s.Type)
}

// checkHeader refuses a value that a header would change or cannot hold.
func checkHeader(what, value string) error {
	isControl := func(r rune) bool { return r < ' ' || r == 0x7f }
	if !utf8.ValidString(value) || strings.TrimSpace(value) != value ||
		strings.ContainsFunc(value, isControl) {
		return fmt.Errorf("%s %q cannot be sent in a header", what, value)
	}
	return nil
}

func compress(text []byte) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = z.Write(text) // a bytes.Buffer returns no error
	_ = z.Close()
	return b.Bytes()
}

// Job reads a job from the ledger (FB-052).
//
// Errors: [ErrNotFound], also after the ledger has pruned the job (FB-088); [ErrUnauthorized].
// Repeating is safe.
func (f *FetchBox) Job(ctx context.Context, jobID string) (FetchBoxJob, error) {
	const op = "fetchbox job"
	if err := checkName("job id", jobID); err != nil {
		return FetchBoxJob{}, invalid(op, "%v", err)
	}
	return fetchCall[FetchBoxJob](ctx, f, call{op: op, path: fetchJobsPath + "/" + escape(jobID)})
}

// FetchBoxFilter selects the jobs of a list.
type FetchBoxFilter struct {
	// Status keeps only the jobs in this status; empty keeps all.
	Status FetchBoxStatus
	// PageSize is how many jobs each request asks for, from 1 to 100; 0 leaves it to the server.
	PageSize int
}

// Jobs iterates over the jobs of the ledger, the newest first (G-FB-37). A job that exists
// throughout comes exactly once. It ends with the first error. With a Status, a job that changes
// its status meanwhile may be missed.
func (f *FetchBox) Jobs(ctx context.Context, filter FetchBoxFilter) iter.Seq2[FetchBoxJob, error] {
	query := url.Values{}
	if filter.Status != "" {
		query.Set("status", string(filter.Status))
	}
	return fetchPages[FetchBoxJob](ctx, f, "fetchbox jobs", fetchJobsPath, query, filter.PageSize)
}

// Wait polls a job until it has finished, and returns it. It polls after growing pauses of up to
// two seconds, and continues while the server is unavailable or limits requests. A failed job has
// finished; a replay may put it in progress again.
//
// Errors: those of [FetchBox.Job] except [ErrRetryable]; that of the context when it ends first.
func (f *FetchBox) Wait(ctx context.Context, jobID string) (FetchBoxJob, error) {
	return watch(ctx, f.client, "fetchbox wait",
		func() (FetchBoxJob, error) { return f.Job(ctx, jobID) },
		FetchBoxJob.Finished)
}

// Cancel ends the open downloads of a job as failed, with the code [FetchBoxCodeCanceled], and
// returns it (RT-003). The job is failed soon after.
//
// Errors: [ErrNotFound]; [ErrConflict] when no download is open, also when a try whose answer was
// lost has ended them: the error is Uncertain then; [ErrUnauthorized]. After another error some
// downloads of a large job may be canceled, and a repeat cancels the rest.
func (f *FetchBox) Cancel(ctx context.Context, jobID string) (FetchBoxJob, error) {
	return f.postJobAction(ctx, "fetchbox cancel", jobID, "/cancel")
}

// Retry starts all failed downloads of a job again, with all their attempts, and returns the job,
// which is in progress then (RT-003).
//
// Errors: as those of [FetchBox.Cancel], for downloads that have failed.
func (f *FetchBox) Retry(ctx context.Context, jobID string) (FetchBoxJob, error) {
	return f.postJobAction(ctx, "fetchbox retry", jobID, "/retry")
}

// postJobAction makes the call of an action on the downloads of a job.
func (f *FetchBox) postJobAction(ctx context.Context,
	op, jobID, action string) (FetchBoxJob, error) {
	if err := checkName("job id", jobID); err != nil {
		return FetchBoxJob{}, invalid(op, "%v", err)
	}
	return fetchCall[FetchBoxJob](ctx, f, call{op: op, method: http.MethodPost,
		path: fetchJobsPath + "/" + escape(jobID) + action, accept: []int{http.StatusAccepted}})
}

// DeadLetters iterates over the downloads that were given up, the newest first (FB-084), and asks
// for pageSize of them at a time; 0 leaves the size to the server. It ends with the first error. A
// dead letter that was replayed stays in the list until its retention ends (FB-092).
func (f *FetchBox) DeadLetters(ctx context.Context,
	pageSize int) iter.Seq2[FetchBoxDeadLetter, error] {
	return fetchPages[FetchBoxDeadLetter](ctx, f, "fetchbox dead letters", fetchDeadLettersPath,
		url.Values{}, pageSize)
}

// Replay starts the download of a dead letter again, with all its attempts. offset identifies the
// dead letter. The job of the download is in progress again (G-FB-37).
//
// Errors: [ErrNotFound] when there is no such dead letter; [ErrConflict] when its download was
// replayed already, or belongs to no job of the ledger.
//
// Repeating: a repeat before the download has finished is an [ErrConflict], which is Uncertain
// after a lost answer. A repeat after it has failed again is another replay.
func (f *FetchBox) Replay(ctx context.Context, offset uint64) (FetchBoxReplay, error) {
	return fetchCall[FetchBoxReplay](ctx, f, call{
		op:     "fetchbox replay",
		method: http.MethodPost,
		path:   fetchDeadLettersPath + "/" + strconv.FormatUint(offset, 10) + "/replay",
		accept: []int{http.StatusAccepted},
	})
}

// Health reads the health of the server and its parts (FB-065). A part that is down is no error
// (FB-066), unless the server cannot answer without it.
//
// Errors: [ErrUnauthorized]; [ErrRetryable]. Repeating is safe.
func (f *FetchBox) Health(ctx context.Context) (FetchBoxHealth, error) {
	return fetchCall[FetchBoxHealth](ctx, f, call{
		op:     "fetchbox health",
		path:   "/operators/health",
		accept: []int{http.StatusOK, http.StatusServiceUnavailable},
	})
}

// The paths of the operators' lists.
const (
	fetchJobsPath        = "/operators/jobs"
	fetchDeadLettersPath = "/operators/dlq"
)

// fetchCall makes a call of an operator whose answer is JSON. It is a read with one accepted
// status, 200, unless c says otherwise.
func fetchCall[T any](ctx context.Context, f *FetchBox, c call) (T, error) {
	return doJSON[T](ctx, f.client, f.asOperator(c))
}

func (f *FetchBox) asOperator(c call) call {
	if c.method == "" {
		c.method, c.readOnly = http.MethodGet, true
	}
	if c.accept == nil {
		c.accept = []int{http.StatusOK}
	}
	if f.operatorToken != "" {
		if c.header == nil {
			c.header = http.Header{}
		}
		c.header.Set("Authorization", "Bearer "+f.operatorToken)
	}
	return c
}

func fetchPages[T any](ctx context.Context, f *FetchBox, op, path string, query url.Values,
	size int) iter.Seq2[T, error] {
	return pages(query, size, func(query url.Values) (page[T], error) {
		return fetchCall[page[T]](ctx, f, call{op: op, path: path, query: query.Encode()})
	})
}
