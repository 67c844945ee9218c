package client

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"iter"
	"net/http"
	"net/url"
	"slices"
	"strconv"
)

// ForgeRun speaks ForgeRun version 1 for one client of it, known by an API
// key. Every error is an [*Error] whose Code is one of the Forge constants.
// Safe for concurrent use.
//
// What changes something carries an idempotency key, made at random when the
// caller gives none, so that a repeat of a try whose answer was lost does
// nothing twice (FR-067, G-FR-24).
type ForgeRun struct {
	client *Client
	key    string // empty: that of the Config
}

// ForgeRun gives the ForgeRun contract on this client. Its API key is
// Config.Token; [ForgeRun.WithKey] takes another.
func (c *Client) ForgeRun() *ForgeRun { return &ForgeRun{client: c} }

// WithKey gives the contract under another API key, on the same connections.
func (f *ForgeRun) WithKey(apiKey string) *ForgeRun {
	return &ForgeRun{client: f.client, key: apiKey}
}

// The codes of ForgeRun's errors (FR-005). Those of a job's failure are among
// them too ([ForgeRunFailure]).
const (
	ForgeMalformed            = "RFA_REQUEST_MALFORMED"
	ForgeValidationFailed     = "RFA_JOB_VALIDATION_FAILED"
	ForgeUnsupportedMediaType = "RFA_REQUEST_UNSUPPORTED_MEDIA_TYPE"
	ForgeMethodNotAllowed     = "RFA_REQUEST_METHOD_NOT_ALLOWED"
	ForgeNotAcceptable        = "RFA_REQUEST_NOT_ACCEPTABLE"
	ForgePayloadTooLarge      = "RFA_REQUEST_PAYLOAD_TOO_LARGE"
	ForgeInvalidCredentials   = "RFA_AUTH_INVALID_CREDENTIALS"
	ForgeTokenExpired         = "RFA_AUTH_TOKEN_EXPIRED"
	ForgeForbidden            = "RFA_AUTH_FORBIDDEN"
	ForgeKeyDisabled          = "RFA_AUTH_API_KEY_DISABLED"
	ForgeNotFound             = "RFA_JOB_NOT_FOUND" // of every 404, not only of jobs (FR-016)
	ForgeConflict             = "RFA_JOB_CONFLICT"
	ForgeIdempotencyConflict  = "RFA_EXEC_IDEMPOTENCY_CONFLICT"
	ForgeRateLimited          = "RFA_REQUEST_RATE_LIMITED"
	ForgeInternal             = "RFA_INTERNAL"
	ForgeDatabaseError        = "RFA_STORAGE_DB_ERROR"
	ForgeStorageUnavailable   = "RFA_STORAGE_UNAVAILABLE"
	ForgeQueueFull            = "RFA_EXEC_QUEUE_FULL"
	ForgeWorkerUnavailable    = "RFA_EXEC_WORKER_UNAVAILABLE"
	ForgeTimeout              = "RFA_EXEC_TIMEOUT"
	ForgeDependencyTimeout    = "RFA_DEPENDENCY_TIMEOUT"
	ForgeConfigInvalid        = "RFA_CONFIG_INVALID"
)

// forgeCall makes a call whose answer is JSON.
func forgeCall[T any](ctx context.Context, f *ForgeRun, c call) (T, error) {
	if _, hasOwn := c.header["Authorization"]; f.key != "" && !hasOwn {
		c.header = c.header.Clone()
		if c.header == nil {
			c.header = http.Header{}
		}
		c.header.Set("Authorization", "Bearer "+f.key)
	}
	return doJSON[T](ctx, f.client, c)
}

// open marks a call as one without credentials, whatever the client has.
func withoutCredentials(header http.Header) http.Header {
	header["Authorization"] = nil
	return header
}

// idempotencyHeader is the header of a call that may be repeated.
func idempotencyHeader(key string) http.Header {
	return http.Header{"Idempotency-Key": {orDefault(key, rand.Text())}}
}

// encodeBody encodes what needs no care.
func encodeBody(value any) []byte {
	encoded, err := json.Marshal(value)
	if err != nil {
		panic(err) // strings, booleans and times of a sane year only
	}
	return encoded
}

// forgePath joins members, each of which may be any text, to a path.
func forgePath(members ...string) string {
	path := "/v1"
	for _, m := range members {
		path += "/" + escape(m)
	}
	return path
}

func forgePages[T any](ctx context.Context, f *ForgeRun, op, path string, query url.Values,
	size int) iter.Seq2[T, error] {
	return pages(query, size, func(query url.Values) (page[T], error) {
		return forgeCall[page[T]](ctx, f, call{op: op, method: http.MethodGet, path: path,
			query: query.Encode(), readOnly: true, accept: []int{http.StatusOK}})
	})
}

// page is one page of a list.
type page[T any] struct {
	Items []T    `json:"items"`
	Next  string `json:"next_cursor"`
	More  bool   `json:"has_more"`
}

// pages goes through a list page by page, of size items or as many as the server
// likes; it ends with the first error.
func pages[T any](query url.Values, size int, read func(url.Values) (page[T], error)) iter.Seq2[T,
	error] {
	return func(yield func(T, error) bool) {
		query := cloneValues(query)
		if size > 0 {
			query.Set("limit", strconv.Itoa(size))
		}
		for {
			page, err := read(query)
			if err != nil {
				var none T
				yield(none, err)
				return
			}
			for _, item := range page.Items {
				if !yield(item, nil) {
					return
				}
			}
			if !page.More || page.Next == "" {
				return
			}
			query.Set("cursor", page.Next)
		}
	}
}

func cloneValues(from url.Values) url.Values {
	to := url.Values{}
	for name, values := range from {
		to[name] = slices.Clone(values)
	}
	return to
}
