package client

import (
	"context"
	"iter"
	"net/http"
	"time"
)

// ForgeRunAPIKey is an API key as the server lists it, without its secret.
type ForgeRunAPIKey struct {
	// ID identifies the key, for [ForgeRun.RevokeAPIKey]; it is no secret.
	ID string `json:"key_id"`
	// CreatedAt is when the key was made, in UTC.
	CreatedAt time.Time `json:"created_at"`
	// ExpiresAt is when the key expires, in UTC; nil for a key that does not (FR-052).
	ExpiresAt *time.Time `json:"expires_at"`
	// RevokedAt is when the key was revoked, renewed or rotated, in UTC; nil if it was not. Only
	// [ForgeRun.APIKeys] sets it.
	RevokedAt *time.Time `json:"revoked_at"`
}

// ForgeRunIssuedAPIKey is the answer to creating or renewing a key.
type ForgeRunIssuedAPIKey struct {
	ForgeRunAPIKey
	// APIKey is the secret, for [ForgeRun.WithAPIKey] or Config.Token. The server shows it once
	// (FR-054); it is empty when the key existed already (FR-043).
	APIKey string `json:"api_key"`
	// CallbackSecret signs the requests to the callbacks of the client's jobs (G-FR-48), see
	// [VerifyWebhook]. Only the answer with the first key has it (G-FR-62).
	CallbackSecret string `json:"callback_secret"`
}

// ForgeRunAPIKeyOptions are the options of [ForgeRun.CreateAPIKey].
type ForgeRunAPIKeyOptions struct {
	// Rotate makes a new key and revokes the present one (FR-044).
	Rotate bool
	// IdempotencyKey is sent with the call; empty means a random one.
	IdempotencyKey string
}

// CreateClient creates a client of ForgeRun and returns its id, a UUID (FR-037, FR-038). It sends
// no API key. idempotencyKey should be random, because all callers of the server share one scope
// of keys; the server remembers it for 24 h (G-FR-24). Empty means a random one.
//
// Repeating under the same key returns the same client (FR-039).
func (f *ForgeRun) CreateClient(ctx context.Context,
	idempotencyKey string) (clientID string, err error) {
	got, err := forgeCall[struct {
		ID string `json:"client_id"`
	}](ctx, f, call{
		op:     "forgerun create client",
		method: http.MethodPost,
		path:   "/v1/clients",
		header: withoutCredentials(idempotencyHeader(idempotencyKey)),
		accept: []int{http.StatusCreated},
	})
	return got.ID, err
}

// CreateFirstAPIKey creates the first key of a client that never had one. It sends no API key
// (FR-042).
//
// Errors: [ErrUnauthorized] when the client has had a key, even if that was made by an earlier try
// of this call ([Error.Uncertain]): the secret is lost with the answer then, and another client
// must be created. [ErrNotFound].
func (f *ForgeRun) CreateFirstAPIKey(ctx context.Context, clientID string) (ForgeRunIssuedAPIKey,
	error) {
	return f.createAPIKey(ctx, "forgerun create first API key", clientID, ForgeRunAPIKeyOptions{},
		true)
}

// CreateAPIKey creates a key of this client. While the client has an active key and Rotate is not
// set, the metadata of that key is returned without a secret (FR-043).
//
// Errors: [ErrUnauthorized]; [ErrNotFound].
//
// Repeating: with Rotate, a try that took effect has revoked the key that its repeat uses. The
// repeat fails with [ErrUnauthorized] and [Error.Uncertain], the new secret is lost with the
// answer, and an operator must recover the client.
func (f *ForgeRun) CreateAPIKey(ctx context.Context, clientID string,
	opts ForgeRunAPIKeyOptions) (ForgeRunIssuedAPIKey, error) {
	return f.createAPIKey(ctx, "forgerun create API key", clientID, opts, false)
}

func (f *ForgeRun) createAPIKey(ctx context.Context, op, clientID string,
	opts ForgeRunAPIKeyOptions,
	anonymous bool) (ForgeRunIssuedAPIKey, error) {
	if err := checkName("client id", clientID); err != nil {
		return ForgeRunIssuedAPIKey{}, invalid(op, "%v", err)
	}
	header := idempotencyHeader(opts.IdempotencyKey)
	if anonymous {
		header = withoutCredentials(header)
	}
	return forgeCall[ForgeRunIssuedAPIKey](ctx, f, call{
		op:     op,
		method: http.MethodPost,
		path:   forgePath("clients", clientID, "keys"),
		header: header,
		body:   encodeBody(map[string]bool{"rotate": opts.Rotate}),
		accept: []int{http.StatusCreated, http.StatusOK},
	})
}

// RenewAPIKey replaces the key of f by a new one. The old key may have expired but not been revoked
// (G-FR-26), and is refused from then on (FR-047).
//
// Errors: [ErrUnauthorized]; [ErrConflict] when there is nothing to renew (FR-049). Repeating is
// as with Rotate, see [ForgeRun.CreateAPIKey].
func (f *ForgeRun) RenewAPIKey(ctx context.Context, clientID string) (ForgeRunIssuedAPIKey, error) {
	const op = "forgerun renew API key"
	if err := checkName("client id", clientID); err != nil {
		return ForgeRunIssuedAPIKey{}, invalid(op, "%v", err)
	}
	return forgeCall[ForgeRunIssuedAPIKey](ctx, f, call{
		op:     op,
		method: http.MethodPost,
		path:   forgePath("clients", clientID, "keys", "renew"),
		header: idempotencyHeader(""),
		body:   []byte("{}"),
		accept: []int{http.StatusOK},
	})
}

// RevokeAPIKey revokes a key of this client: the next request with it is refused (FR-050). A key
// may revoke itself, after which only an operator can help (G-FR-26). Revoking a key again is no
// error (FR-051).
//
// Errors: [ErrNotFound]; [ErrUnauthorized], also for a key of another client, and for a repeat
// after a lost answer when the key revoked itself.
func (f *ForgeRun) RevokeAPIKey(ctx context.Context, clientID, keyID string) error {
	const op = "forgerun revoke API key"
	if err := checkName("client id", clientID); err != nil {
		return invalid(op, "%v", err)
	}
	_, err := forgeCall[struct{}](ctx, f, call{
		op:     op,
		method: http.MethodPost,
		path:   forgePath("clients", clientID, "keys", "revoke"),
		body:   encodeBody(map[string]string{"key_id": keyID}),
		accept: []int{http.StatusOK},
	})
	return err
}

// APIKeys iterates over the keys of this client, the revoked ones too while the server keeps them
// (FR-055). It ends with the first error.
func (f *ForgeRun) APIKeys(ctx context.Context, clientID string) iter.Seq2[ForgeRunAPIKey, error] {
	return forgePages[ForgeRunAPIKey](ctx, f, "forgerun API keys",
		forgePath("clients", clientID, "keys"),
		nil, 0)
}
