package client

import (
	"context"
	"iter"
	"net/http"
	"time"
)

// ForgeRunKey is an API key as the server shows it, without its secret.
type ForgeRunKey struct {
	// ID names the key, for [ForgeRun.RevokeKey]; it is no credential.
	ID string `json:"key_id"`
	// CreatedAt is when it was made, in UTC.
	CreatedAt time.Time `json:"created_at"`
	// ExpiresAt is when it ends, in UTC; nil for a key that does not (FR-052).
	ExpiresAt *time.Time `json:"expires_at"`
	// RevokedAt is when it was revoked, renewed or rotated away; nil while it
	// was not. Only [ForgeRun.Keys] tells.
	RevokedAt *time.Time `json:"revoked_at"`
}

// ForgeRunIssuedKey is what creating or renewing a key answers.
type ForgeRunIssuedKey struct {
	ForgeRunKey
	// APIKey is the credential, for [ForgeRun.WithKey] or Config.Token. It is
	// shown this once (FR-054) and is empty when the key existed already
	// (FR-043).
	APIKey string `json:"api_key"`
	// CallbackSecret is what the bodies sent to the callbacks of the client's
	// jobs are signed with (G-FR-48), for [VerifyWebhook]. Only the first key's
	// answer has it (G-FR-62).
	CallbackSecret string `json:"callback_secret"`
}

// ForgeRunKeyOptions say how a key is created.
type ForgeRunKeyOptions struct {
	// Rotate makes a new key and refuses the present one from then on (FR-044).
	Rotate bool
	// IdempotencyKey is sent with the call; empty means a random one.
	IdempotencyKey string
}

// CreateClient makes a client and returns its id, a UUID (FR-037, FR-038). It
// needs no key. idempotencyKey should be random, as its scope is the whole
// server, and holds for 24 h (G-FR-24); empty means that one is made.
//
// Repeating under the same key gives the same client (FR-039).
func (f *ForgeRun) CreateClient(ctx context.Context, idempotencyKey string) (clientID string,
	err error) {
	got, err := forgeCall[struct {
		ID string `json:"client_id"`
	}](ctx, f, call{op: "forgerun create client", method: http.MethodPost, path: "/v1/clients",
		header: withoutCredentials(idempotencyHeader(idempotencyKey)),
		accept: []int{http.StatusCreated}})
	return got.ID, err
}

// FirstKey makes the first key of a client that never had one, without
// credentials (FR-042).
//
// Errors: [ErrUnauthorized] when the client has had a key, also when that was
// this call's own lost try ([Error.Uncertain]): nobody knows the secret then,
// and another client is to be made. [ErrNotFound].
func (f *ForgeRun) FirstKey(ctx context.Context, clientID string) (ForgeRunIssuedKey, error) {
	return f.createKey(ctx, "forgerun first key", clientID, ForgeRunKeyOptions{}, true)
}

// CreateKey makes a key of this client. While it has an active one, and Rotate
// is not set, that key's metadata is returned without a secret (FR-043).
//
// Errors: [ErrUnauthorized], [ErrNotFound].
//
// Repeating: with Rotate, a repeat of a try that took effect finds its own key
// refused, [ErrUnauthorized] and [Error.Uncertain]; the new secret is lost
// with the answer and an operator recovers the client.
func (f *ForgeRun) CreateKey(ctx context.Context, clientID string,
	opts ForgeRunKeyOptions) (ForgeRunIssuedKey, error) {
	return f.createKey(ctx, "forgerun create key", clientID, opts, false)
}

func (f *ForgeRun) createKey(ctx context.Context, op, clientID string, opts ForgeRunKeyOptions,
	anonymous bool) (ForgeRunIssuedKey, error) {
	if err := checkName("client id", clientID); err != nil {
		return ForgeRunIssuedKey{}, invalid(op, "%v", err)
	}
	header := idempotencyHeader(opts.IdempotencyKey)
	if anonymous {
		header = withoutCredentials(header)
	}
	return forgeCall[ForgeRunIssuedKey](ctx, f, call{op: op, method: http.MethodPost,
		path: forgePath("clients", clientID, "keys"), header: header,
		body:   encodeBody(map[string]bool{"rotate": opts.Rotate}),
		accept: []int{http.StatusCreated, http.StatusOK}})
}

// RenewKey makes a new key in place of the one it is asked with, which may
// have expired but not been revoked (G-FR-26), and stops working at once
// (FR-047).
//
// Errors: [ErrUnauthorized]; [ErrConflict] when there is nothing to renew
// (FR-049). Repeating is as with a rotation, see [ForgeRun.CreateKey].
func (f *ForgeRun) RenewKey(ctx context.Context, clientID string) (ForgeRunIssuedKey, error) {
	const op = "forgerun renew key"
	if err := checkName("client id", clientID); err != nil {
		return ForgeRunIssuedKey{}, invalid(op, "%v", err)
	}
	return forgeCall[ForgeRunIssuedKey](ctx, f, call{op: op, method: http.MethodPost,
		path: forgePath("clients", clientID, "keys", "renew"), header: idempotencyHeader(""),
		body: []byte("{}"), accept: []int{http.StatusOK}})
}

// RevokeKey ends a key of this client: the next request with it is refused
// (FR-050). A key may revoke itself, after which only an operator can help
// (G-FR-26). One that is revoked already is no error (FR-051).
//
// Errors: [ErrNotFound]; [ErrUnauthorized], also for another client's key and
// for a repeat after a lost answer when the key revoked itself.
func (f *ForgeRun) RevokeKey(ctx context.Context, clientID, keyID string) error {
	const op = "forgerun revoke key"
	if err := checkName("client id", clientID); err != nil {
		return invalid(op, "%v", err)
	}
	_, err := forgeCall[struct{}](ctx, f, call{op: op, method: http.MethodPost,
		path: forgePath("clients", clientID, "keys", "revoke"),
		body: encodeBody(map[string]string{"key_id": keyID}), accept: []int{http.StatusOK}})
	return err
}

// Keys goes through the keys of this client, revoked ones too as long as they
// are kept (FR-055). It ends with the first error.
func (f *ForgeRun) Keys(ctx context.Context, clientID string) iter.Seq2[ForgeRunKey, error] {
	return forgePages[ForgeRunKey](ctx, f, "forgerun keys", forgePath("clients", clientID, "keys"),
		nil, 0)
}
