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

// FetchBox speaks FetchBox: manifests of URLs that the server downloads to
// object storage. Every error is an [*Error] whose Code is one of the Fetch
// constants. Safe for concurrent use.
//
// [FetchBox.Submit] is for clients, the other calls are for operators, who may
// have a token of their own (G-FB-31).
type FetchBox struct {
	client   *Client
	operator string // empty: the token of the Config
}

// FetchBox gives the FetchBox contract on this client. Config.Token is that of
// both clients and operators; [FetchBox.WithOperatorToken] takes another for
// operators.
func (c *Client) FetchBox() *FetchBox { return &FetchBox{client: c} }

// WithOperatorToken gives the contract with another token for what operators
// do, on the same connections.
func (f *FetchBox) WithOperatorToken(token string) *FetchBox {
	return &FetchBox{client: f.client, operator: token}
}

// The codes of FetchBox's errors (FB-039 to FB-044, G-FB-19).
const (
	FetchInvalidPayload     = "INVALID_PAYLOAD"
	FetchUnauthorized       = "UNAUTHORIZED"
	FetchUnsupportedJobType = "UNSUPPORTED_JOB_TYPE"
	FetchPayloadTooLarge    = "PAYLOAD_TOO_LARGE"
	FetchRateLimited        = "RATE_LIMITED"
	FetchInternal           = "INTERNAL_ERROR"
	FetchNotFound           = "NOT_FOUND"
	FetchConflict           = "CONFLICT"
)

// compressFrom is the size from which a manifest is sent compressed.
const compressFrom = 16 << 10

// Submit hands in a manifest. Once it returns nil the manifest is stored and
// its downloads are queued; they survive a crash of the server (FB-034).
//
// Errors: [ErrInvalid], with Code [FetchUnsupportedJobType] for a job type that
// is not registered; [ErrUnauthorized]. After an error of the server there is
// no half job (FB-035): the same key may submit it again (FB-049).
//
// Repeating under the same idempotency key gives the first job, whatever the
// manifest (FB-046, G-FB-05), which this call does by itself after lost
// answers. When it gives up, the key is in the receipt beside the error.
func (f *FetchBox) Submit(ctx context.Context, spec FetchBoxSpec) (FetchBoxReceipt, error) {
	const op = "fetchbox submit"
	spec.IdempotencyKey = orDefault(spec.IdempotencyKey, rand.Text())
	receipt := FetchBoxReceipt{IdempotencyKey: spec.IdempotencyKey}
	header, err := spec.header()
	if err == nil {
		err = checkJSON("manifest", spec.Manifest)
	}
	if err != nil {
		return receipt, invalid(op, "%v", err)
	}
	body := []byte(spec.Manifest)
	if len(body) >= compressFrom {
		body = compress(body)
		header.Set("Content-Encoding", "gzip") // FB-006
	}
	got, err := doJSON[FetchBoxReceipt](ctx, f.client,
		call{op: op, method: http.MethodPost, path: "/jobs", header: header,
			body: body, accept: []int{http.StatusAccepted}})
	got.IdempotencyKey = spec.IdempotencyKey
	return got, err
}

func (s *FetchBoxSpec) header() (http.Header, error) {
	header := http.Header{}
	for _, h := range []struct {
		what, name,
		value string
	}{{"job type", "X-Fetchbox-Job-Type", s.Type},
		{"tenant", "X-Fetchbox-Tenant", s.Tenant},
		{"idempotency key", "X-Fetchbox-Idempotency-Key", s.IdempotencyKey}} {
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

// checkHeader refuses what would arrive as something else, or not at all.
func checkHeader(what, value string) error {
	if !utf8.ValidString(value) || strings.TrimSpace(value) != value ||
		strings.ContainsFunc(value, func(r rune) bool {
			return r < ' ' || r == 0x7f
		}) {
		return fmt.Errorf("%s %q cannot stand in a header", what, value)
	}
	return nil
}

func compress(text []byte) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = z.Write(text) // a buffer takes it
	_ = z.Close()
	return b.Bytes()
}

// Job reads a job of the ledger (FB-052).
//
// Errors: [ErrNotFound], also once the ledger has pruned it (FB-088);
// [ErrUnauthorized]. Repeating is safe.
func (f *FetchBox) Job(ctx context.Context, jobID string) (FetchBoxJob, error) {
	const op = "fetchbox job"
	if err := checkName("job id", jobID); err != nil {
		return FetchBoxJob{}, invalid(op, "%v", err)
	}
	return fetchCall[FetchBoxJob](ctx, f, call{op: op, path: fetchJobs + "/" + escape(jobID)})
}

// FetchBoxFilter says which jobs a list has.
type FetchBoxFilter struct {
	// Status keeps only jobs that have it; empty keeps all.
	Status FetchBoxStatus
	// PageSize is how many jobs a request asks for, from 1 to 100; 0 leaves it
	// to the server.
	PageSize int
}

// Jobs goes through the jobs of the ledger, the newest first (G-FB-37): each
// that is there throughout comes exactly once. It ends with the first error. A
// job whose status changes meanwhile may be missed by a filter of statuses.
func (f *FetchBox) Jobs(ctx context.Context, filter FetchBoxFilter) iter.Seq2[FetchBoxJob, error] {
	query := url.Values{}
	if filter.Status != "" {
		query.Set("status", string(filter.Status))
	}
	return fetchPages[FetchBoxJob](ctx, f, "fetchbox jobs", fetchJobs, query, filter.PageSize)
}

// Wait looks at a job until it is settled and returns it. It looks with growing
// pauses of up to two seconds, and goes on while the server is away or asks
// for patience. A job that failed is settled; a replay may open it again.
//
// Errors: those of [FetchBox.Job], but for [ErrRetryable]; that of the context
// when it ends first.
func (f *FetchBox) Wait(ctx context.Context, jobID string) (FetchBoxJob, error) {
	return watch(ctx, f.client, "fetchbox wait",
		func() (FetchBoxJob, error) { return f.Job(ctx, jobID) },
		func(job FetchBoxJob) bool { return job.Status.Final() })
}

// DeadLetters goes through the downloads that were given up, the newest first
// (FB-084), page by page of pageSize letters; 0 leaves that to the server. It
// ends with the first error. What a replay has revived stays in the list until
// its time is over (FB-092).
func (f *FetchBox) DeadLetters(ctx context.Context, pageSize int) iter.Seq2[FetchBoxDeadLetter,
	error] {
	return fetchPages[FetchBoxDeadLetter](ctx, f, "fetchbox dead letters", fetchLetters,
		url.Values{}, pageSize)
}

// Replay gives the download of a dead letter, named by its offset, new tries.
// Its job is in progress again (G-FB-37).
//
// Errors: [ErrNotFound] when there is no such letter; [ErrConflict] when its
// task is not dead, or is none that the ledger holds.
//
// A repeat while the download is under way is a conflict with oneself, see
// [Error.Uncertain]; one after it has failed again is another replay.
func (f *FetchBox) Replay(ctx context.Context, offset uint64) (FetchBoxReplay, error) {
	return fetchCall[FetchBoxReplay](ctx, f, call{op: "fetchbox replay", method: http.MethodPost,
		path:   fetchLetters + "/" + strconv.FormatUint(offset, 10) + "/replay",
		accept: []int{http.StatusAccepted}})
}

// Health asks every part of the server how it is (FB-065). What is down is no
// error (FB-066), unless it keeps the server from answering.
//
// Errors: [ErrUnauthorized], [ErrRetryable]. Repeating is safe.
func (f *FetchBox) Health(ctx context.Context) (FetchBoxHealth, error) {
	return fetchCall[FetchBoxHealth](ctx, f, call{op: "fetchbox health", path: "/operators/health",
		accept: []int{http.StatusOK, http.StatusServiceUnavailable}})
}

// The lists of operators.
const (
	fetchJobs    = "/operators/jobs"
	fetchLetters = "/operators/dlq"
)

// fetchCall makes an operator's call whose answer is JSON: a read unless it
// says otherwise.
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
	if f.operator != "" {
		if c.header == nil {
			c.header = http.Header{}
		}
		c.header.Set("Authorization", "Bearer "+f.operator)
	}
	return c
}

func fetchPages[T any](ctx context.Context, f *FetchBox, op, path string, query url.Values,
	size int) iter.Seq2[T, error] {
	return pages(query, size, func(query url.Values) (page[T], error) {
		return fetchCall[page[T]](ctx, f, call{op: op, path: path, query: query.Encode()})
	})
}
