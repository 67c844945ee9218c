package client

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"iter"
	"net/http"
	"net/url"
)

// ForgeRun is version 1 of the ForgeRun contract, for one client of it, identified by its API key.
// Every error is an [*Error] whose Code, when the server answered, is one of the Forge constants.
// A ForgeRun is safe for concurrent use.
//
// Calls that create something send an idempotency key, a random one when the caller passes none.
// So a repeat after a lost answer does nothing twice (FR-067, G-FR-24).
type ForgeRun struct {
	client *Client
	key    string // empty means Config.Token
}

// ForgeRun returns the ForgeRun contract on this client. Its API key is Config.Token, unless
// [ForgeRun.WithKey] sets another.
func (c *Client) ForgeRun() *ForgeRun { return &ForgeRun{client: c} }

// WithKey returns the contract with another API key. It shares the connections of f.
func (f *ForgeRun) WithKey(apiKey string) *ForgeRun {
	return &ForgeRun{client: f.client, key: apiKey}
}

// The codes of ForgeRun's errors (FR-005). ForgeTimeout is also the code of a job's failure, see
// [ForgeRunFailure].
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

// forgeCall makes a call whose answer is JSON, with the API key of f.
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

// withoutCredentials marks a call that sends no credentials, whatever the client has.
func withoutCredentials(header http.Header) http.Header {
	header["Authorization"] = nil
	return header
}

// idempotencyHeader returns a header with an idempotency key, a random one if key is empty.
func idempotencyHeader(key string) http.Header {
	return http.Header{"Idempotency-Key": {orDefault(key, rand.Text())}}
}

// encodeBody encodes a body of strings, numbers, booleans and checked times, which cannot fail.
func encodeBody(value any) []byte {
	encoded, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return encoded
}

// forgePath joins the segments of a path, each of which may be any text.
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
		return forgeCall[page[T]](ctx, f, call{
			op:       op,
			method:   http.MethodGet,
			path:     path,
			query:    query.Encode(),
			readOnly: true,
			accept:   []int{http.StatusOK},
		})
	})
}
