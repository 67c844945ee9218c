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
// Every error is an [*Error] whose Code, when the server answered, is one of the ForgeRunCode
// constants. A ForgeRun is safe for concurrent use.
//
// Calls that create something send an idempotency key, a random one when the caller passes none.
// So a repeat after a lost answer does nothing twice (FR-067, G-FR-24).
type ForgeRun struct {
	client *Client
	apiKey string // empty means Config.Token
}

// ForgeRun returns the ForgeRun contract on this client. Its API key is Config.Token, unless
// [ForgeRun.WithAPIKey] sets another.
func (c *Client) ForgeRun() *ForgeRun { return &ForgeRun{client: c} }

// WithAPIKey returns the contract with another API key. It shares the connections of f.
func (f *ForgeRun) WithAPIKey(apiKey string) *ForgeRun {
	return &ForgeRun{client: f.client, apiKey: apiKey}
}

// The codes of ForgeRun's errors (FR-005). ForgeRunCodeTimeout is also the code of a job's failure,
// see [ForgeRunFailure].
const (
	ForgeRunCodeMalformed            = "RFA_REQUEST_MALFORMED"
	ForgeRunCodeValidationFailed     = "RFA_JOB_VALIDATION_FAILED"
	ForgeRunCodeUnsupportedMediaType = "RFA_REQUEST_UNSUPPORTED_MEDIA_TYPE"
	ForgeRunCodeMethodNotAllowed     = "RFA_REQUEST_METHOD_NOT_ALLOWED"
	ForgeRunCodeNotAcceptable        = "RFA_REQUEST_NOT_ACCEPTABLE"
	ForgeRunCodePayloadTooLarge      = "RFA_REQUEST_PAYLOAD_TOO_LARGE"
	ForgeRunCodeInvalidCredentials   = "RFA_AUTH_INVALID_CREDENTIALS"
	ForgeRunCodeTokenExpired         = "RFA_AUTH_TOKEN_EXPIRED"
	ForgeRunCodeForbidden            = "RFA_AUTH_FORBIDDEN"
	ForgeRunCodeKeyDisabled          = "RFA_AUTH_API_KEY_DISABLED"
	// ForgeRunCodeNotFound is the code of every 404, not only of jobs (FR-016).
	ForgeRunCodeNotFound            = "RFA_JOB_NOT_FOUND"
	ForgeRunCodeConflict            = "RFA_JOB_CONFLICT"
	ForgeRunCodeIdempotencyConflict = "RFA_EXEC_IDEMPOTENCY_CONFLICT"
	ForgeRunCodeRateLimited         = "RFA_REQUEST_RATE_LIMITED"
	ForgeRunCodeInternal            = "RFA_INTERNAL"
	ForgeRunCodeDatabaseError       = "RFA_STORAGE_DB_ERROR"
	ForgeRunCodeStorageUnavailable  = "RFA_STORAGE_UNAVAILABLE"
	ForgeRunCodeQueueFull           = "RFA_EXEC_QUEUE_FULL"
	ForgeRunCodeWorkerUnavailable   = "RFA_EXEC_WORKER_UNAVAILABLE"
	ForgeRunCodeTimeout             = "RFA_EXEC_TIMEOUT"
	ForgeRunCodeDependencyTimeout   = "RFA_DEPENDENCY_TIMEOUT"
	ForgeRunCodeConfigInvalid       = "RFA_CONFIG_INVALID"
)

// forgeCall makes a call whose answer is JSON, with the API key of f.
func forgeCall[T any](ctx context.Context, f *ForgeRun, c call) (T, error) {
	if _, hasOwn := c.header["Authorization"]; f.apiKey != "" && !hasOwn {
		c.header = c.header.Clone()
		if c.header == nil {
			c.header = http.Header{}
		}
		c.header.Set("Authorization", "Bearer "+f.apiKey)
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
func forgePath(segments ...string) string {
	path := "/v1"
	for _, segment := range segments {
		path += "/" + escape(segment)
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
