package account

import (
	"context"
	"crypto/subtle"
	"errors"
	"log/slog"
	"time"

	"github.com/google/uuid"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/telemetry"
)

// Keys of log lines, besides those of telemetry.
const (
	keyIDAttr  = "key_id"
	reasonAttr = "reason"
)

// Identity is the client and key that a request was authenticated with. Handlers get it from
// Authenticate and pass it to every change, where it is checked again under the client's lock.
type Identity struct {
	ClientID string
	KeyID    string
	limits   *Limits // of the client's own; nil: those of the settings
}

// keyView is a key as it was read from the store.
type keyView struct {
	key    Key
	digest digest
	limits *Limits       // see Identity
	now    time.Time     // the store's time of the read
	readAt time.Duration // the node's time just before the read
}

// expired reports whether the key has expired by the store's clock. The store's time is continued
// by the node's monotonic clock from the read on, so a node whose wall clock is wrong neither
// accepts an expired key nor refuses a valid one.
func (v *keyView) expired(elapsed time.Duration) bool {
	return !v.key.ExpiresAt.IsZero() && !v.now.Add(elapsed-v.readAt).Before(v.key.ExpiresAt)
}

// Authenticate returns the identity of a key. A *Denied says why the key is refused; it is logged
// with the client, if that is known (FR-035). Other errors are the store's. It does not count the
// request: Allow and AllowAddress do. In the usual case it reads nothing from the store, as the key
// is cached.
func (a *Accounts) Authenticate(ctx context.Context, bearer string) (Identity, error) {
	v, err := a.findKey(ctx, bearer)
	if err != nil {
		return Identity{}, a.logDenial(ctx, err)
	}
	if v.expired(a.Elapsed()) {
		return Identity{}, a.logDenial(ctx,
			&Denied{Reason: Expired, ClientID: v.key.ClientID, KeyID: v.key.ID})
	}
	return Identity{ClientID: v.key.ClientID, KeyID: v.key.ID, limits: v.limits}, nil
}

// findKey returns the presented key unless it was revoked. The key may have expired. Only a
// well-formed key is looked up in the store. The digests are compared in constant time, so the
// answer's time says nothing about a key.
func (a *Accounts) findKey(ctx context.Context, bearer string) (*keyView, error) {
	if bearer == "" {
		return nil, &Denied{Reason: Missing}
	}
	id, ok := parseToken(bearer)
	if !ok {
		return nil, &Denied{Reason: Malformed}
	}
	sum := a.digest(bearer)
	v, err := a.keys.get(ctx, id, a.readKey)
	if err != nil {
		return nil, err
	}
	if v == nil {
		return nil, &Denied{Reason: Unknown}
	}
	denied := Denied{ClientID: v.key.ClientID, KeyID: v.key.ID}
	switch {
	case subtle.ConstantTimeCompare(sum[:], v.digest[:]) != 1:
		denied.Reason = Unknown
	case !v.key.RevokedAt.IsZero():
		denied.Reason = Disabled
	default:
		return v, nil
	}
	return nil, &denied
}

// readKey reads a key, with the limits of its client, from the store. It returns nil if there is
// none, and also with an error: a key without its limits would have those of the settings.
func (a *Accounts) readKey(ctx context.Context, id uuid.UUID) (*keyView, error) {
	var v *keyView
	startedAt := a.Elapsed()
	err := a.Engine.ViewRecords(ctx, func(r engine.RecordReader) error {
		v = nil
		record, body, err := readRecord[keyBody](r, keyKind, id.String())
		if err != nil || record == nil {
			return err
		}
		v = &keyView{key: newKey(record, body), now: r.Now(), readAt: startedAt}
		copy(v.digest[:], body.Digest)
		_, client, err := readRecord[clientBody](r, clientKind, record.Owner)
		if err != nil || client == nil {
			return err
		}
		if client.OwnLimits != (OwnLimits{}) {
			limits := client.over(a.clients.limits)
			v.limits = &limits
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return v, nil
}

// logDenial logs an error if it is a denial, and returns it. The log line has the ids of client and
// key and never the key.
func (a *Accounts) logDenial(ctx context.Context, err error) error {
	var d *Denied
	if !errors.As(err, &d) {
		return err
	}
	attrs := []any{slog.String(reasonAttr, string(d.Reason))}
	if d.ClientID != "" {
		attrs = append(attrs, slog.String(telemetry.ClientID, d.ClientID))
	}
	if d.KeyID != "" {
		attrs = append(attrs, slog.String(keyIDAttr, d.KeyID))
	}
	a.Log.WarnContext(ctx, "a request was refused for its API key", a.logAttrs(ctx, attrs...)...)
	return err
}
