package account

import (
	"context"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/telemetry"
	"github.com/millrace/millrace/internal/uuids"
)

// Key is an API key without its secret. Times are UTC.
type Key struct {
	ID        string
	ClientID  string
	CreatedAt time.Time
	ExpiresAt time.Time // zero: never
	RevokedAt time.Time // zero: not revoked
}

// States of a key.
const (
	KeyActive  = "active"
	KeyExpired = "expired"
	KeyRevoked = "revoked"
)

// State returns the state of the key at a time.
func (k *Key) State(now time.Time) string {
	switch {
	case !k.RevokedAt.IsZero():
		return KeyRevoked
	case !k.ExpiresAt.IsZero() && !now.Before(k.ExpiresAt):
		return KeyExpired
	}
	return KeyActive
}

// Issued is the answer to a request for a key.
type Issued struct {
	Key            Key
	Secret         string // the key itself, which cannot be read later; empty unless Created
	CallbackSecret string // with a client's first key only
	Created        bool   // false: Key existed before
}

// keyBody is the body of a key's record. The record's owner is the client.
type keyBody struct {
	Digest    []byte    `json:"digest"`
	ExpiresAt time.Time `json:"expires_at,omitzero"`
	RevokedAt time.Time `json:"revoked_at,omitzero"`
	Reason    string    `json:"why,omitempty"` // of the revocation
}

// Reasons of revocations.
const (
	rotated   = "rotated"
	renewed   = "renewed"
	revoked   = "revoked"
	recovered = "recovered"
)

// newKey returns the key of a record, without its digest.
func newKey(r *job.Record, b *keyBody) Key {
	return Key{
		ID:        r.Key,
		ClientID:  r.Owner,
		CreatedAt: r.CreatedAt.UTC(),
		ExpiresAt: b.ExpiresAt,
		RevokedAt: b.RevokedAt,
	}
}

// grant collects what a transaction of changeKey does. A transaction may run more than once, each
// time with a fresh grant.
type grant struct {
	issued        Issued
	replacedKeyID string                    // the key that is revoked, if any
	reason        string                    // of that revocation
	once          *engine.IdempotencyRecord // nil without an idempotency key
}

// CreateKey makes a client's first key, which needs no key (by is nil); or it replaces the caller's
// key (rotate); or it returns the client's present key without its secret. A caller without a key
// is Denied once the client has had one, also if another caller was only a moment faster (FR-042 to
// FR-045, G-FR-57).
//
// A repeated idempotencyKey makes no second key within 24 hours: it returns the key that the first
// request made. With a different rotate it is engine.ErrKeyReused.
//
// Errors: NotFound if the client does not exist, ErrForbidden if by is another client, *Denied. The
// answer shows the secret of a new key once; nothing can show it again.
func (a *Accounts) CreateKey(ctx context.Context, clientID string, by *Identity, rotate bool,
	idempotencyKey string) (Issued, error) {
	hashedKey, digest := "", ""
	if idempotencyKey != "" {
		hashedKey = a.hashIdempotencyKey(idempotencyKey)
	}
	if rotate {
		digest = "rotate"
	}
	return a.changeKey(ctx, clientID, func(w engine.RecordWriter, id string, c *clientBody,
		g *grant) error {
		if hashedKey != "" {
			g.once = a.once(id, id+"/"+hashedKey, digest)
		}
		if by == nil {
			if c.HadKey || rotate {
				return &Denied{Reason: Missing, ClientID: id}
			}
			return a.issue(w, id, c, g)
		}
		if by.ClientID != id {
			return ErrForbidden
		}
		own, err := verifyPresented(w, by)
		if err != nil {
			return err
		}
		if replayed, err := a.findIssued(w, g); replayed || err != nil {
			return err
		}
		if !rotate {
			g.issued = Issued{Key: own}
			return nil
		}
		g.replacedKeyID, g.reason = c.ActiveKeyID, rotated
		return a.issue(w, id, c, g)
	})
}

// findIssued reports whether an earlier request with the same Idempotency-Key made a key, and sets
// that key as g's.
func (a *Accounts) findIssued(w engine.RecordWriter, g *grant) (bool, error) {
	id, err := g.once.Find(w)
	if err != nil || id == "" {
		return false, err
	}
	record, body, err := readRecord[keyBody](w, keyKind, id)
	if err != nil || record == nil {
		return false, err
	}
	g.issued = Issued{Key: newKey(record, body)}
	return true, nil
}

// verifyPresented checks under the client's lock that the key of a caller is still valid: it may
// have been replaced since the request was authenticated.
func verifyPresented(r engine.RecordReader, by *Identity) (Key, error) {
	record, body, err := readRecord[keyBody](r, keyKind, by.KeyID)
	if err != nil {
		return Key{}, err
	}
	denied := &Denied{ClientID: by.ClientID, KeyID: by.KeyID}
	switch {
	case record == nil:
		denied.Reason = Unknown
	case !body.RevokedAt.IsZero():
		denied.Reason = Disabled
	case !body.ExpiresAt.IsZero() && !r.Now().Before(body.ExpiresAt):
		denied.Reason = Expired
	default:
		return newKey(record, body), nil
	}
	return Key{}, denied
}

// RenewKey replaces the presented key, which may have expired but must not be revoked (FR-047,
// G-FR-26). It returns Conflict and changes nothing if the key was replaced meanwhile (FR-049).
func (a *Accounts) RenewKey(ctx context.Context, clientID, bearer string) (Issued, error) {
	presented, err := a.findKey(ctx, bearer)
	if err != nil {
		return Issued{}, a.logDenial(ctx, err)
	}
	return a.changeKey(ctx, clientID, func(w engine.RecordWriter, id string, c *clientBody,
		g *grant) error {
		if presented.key.ClientID != id {
			return ErrForbidden
		}
		if c.ActiveKeyID != presented.key.ID {
			return conflict("the key was replaced or revoked in the meantime; there is nothing " +
				"to renew")
		}
		g.replacedKeyID, g.reason = c.ActiveKeyID, renewed
		return a.issue(w, id, c, g)
	})
}

// Recover gives a client that has lost its key a new one and revokes the old one, if any. Only the
// operator may call it (G-FR-03). also, unless nil, is called in the transaction.
func (a *Accounts) Recover(ctx context.Context, clientID string,
	also func(engine.RecordWriter) error) (Issued, error) {
	return a.changeKey(ctx, clientID, func(w engine.RecordWriter, id string, c *clientBody,
		g *grant) error {
		g.replacedKeyID, g.reason = c.ActiveKeyID, recovered
		if err := a.issue(w, id, c, g); err != nil || also == nil {
			return err
		}
		return also(w)
	})
}

// changeKey runs fn under the lock of a client. If it fails nothing has changed. If the store
// becomes unavailable during the commit, changeKey looks whether the new key was stored (FR-048).
func (a *Accounts) changeKey(ctx context.Context, clientID string,
	fn func(w engine.RecordWriter, id string, c *clientBody, g *grant) error) (Issued, error) {
	id, ok := uuids.Parse(clientID)
	if !ok {
		return Issued{}, errNotFound("client")
	}
	var g grant
	err := a.Engine.ChangeRecords(ctx, clientLock(id), func(w engine.RecordWriter) error {
		g = grant{}
		_, c, err := readClient(w, id)
		if err != nil {
			return err
		}
		return fn(w, id, c, &g)
	})
	a.keys.invalidate(g.replacedKeyID)
	if err != nil {
		uncertain := job.IsKind(err, job.Unavailable) && g.issued.Created
		if !uncertain || !a.keyExists(ctx, g.issued.Key.ID) {
			return Issued{}, a.logDenial(ctx, err)
		}
	}
	if g.issued.Created {
		attrs := []any{telemetry.ClientID, id, keyIDAttr, g.issued.Key.ID}
		if g.reason != "" {
			attrs = append(attrs, reasonAttr, g.reason)
		}
		a.Log.InfoContext(ctx, "made an API key", a.logAttrs(ctx, attrs...)...)
	}
	return g.issued, nil
}

// keyExists reports whether a key is known to be stored. It returns false if the store fails. The
// caller then reports the failed commit, and a client that tries again finds the key or makes one.
func (a *Accounts) keyExists(ctx context.Context, keyID string) bool {
	found := false
	err := a.Engine.ViewRecords(ctx, func(r engine.RecordReader) error {
		record, err := r.Record(keyKind, keyID)
		found = record != nil
		return err
	})
	if err != nil {
		return false
	}
	return found
}

// issue makes a key, which becomes the active key of the client, and revokes the replaced one. It
// writes the new key, the old one, the client and, with an Idempotency-Key, the record of the
// request in the caller's transaction: all of them or none.
func (a *Accounts) issue(w engine.RecordWriter, clientID string, c *clientBody,
	g *grant) error {
	if g.replacedKeyID != "" {
		if err := a.markRevoked(w, g.replacedKeyID, g.reason); err != nil {
			return err
		}
	}
	id, token, err := newToken(a.Random, w.Now())
	if err != nil {
		return err
	}
	sum := a.digest(token)
	body := keyBody{Digest: sum[:]}
	if a.KeyLifetime > 0 {
		body.ExpiresAt = storeNow(w).Add(a.KeyLifetime)
	}
	record := job.Record{Kind: keyKind, Key: id.String(), Owner: clientID}
	if err := putRecord(w, record, body); err != nil {
		return err
	}
	record.CreatedAt = storeNow(w)
	g.issued = Issued{Key: newKey(&record, &body), Secret: token, Created: true}
	if !c.HadKey {
		if g.issued.CallbackSecret, err = a.openCallbackSecret(c); err != nil {
			return err
		}
	}
	c.HadKey, c.ActiveKeyID = true, record.Key
	err = putRecord(w, job.Record{Kind: clientKind, Key: clientID}, c)
	if err != nil {
		return err
	}
	return g.once.Store(w, record.Key)
}

// markRevoked revokes a key. Its record is kept for RevokedRetention (FR-055).
func (a *Accounts) markRevoked(w engine.RecordWriter, keyID, reason string) error {
	record, body, err := readRecord[keyBody](w, keyKind, keyID)
	if err != nil || record == nil {
		return err
	}
	body.RevokedAt, body.Reason = storeNow(w), reason
	if a.RevokedRetention > 0 {
		record.ExpiresAt = w.Now().Add(a.RevokedRetention)
	}
	return putRecord(w, *record, body)
}

// RevokeKey revokes a key of the caller's client; it may be the caller's own (G-FR-26). Revoking a
// revoked key changes nothing (G-FR-25). Errors: NotFound, ErrForbidden if the key belongs to
// another client, *Denied.
func (a *Accounts) RevokeKey(ctx context.Context, by Identity, keyID string) error {
	return a.revokeKey(ctx, by.ClientID, keyID, func(w engine.RecordWriter) error {
		_, err := verifyPresented(w, &by)
		return err
	})
}

// revokeKey revokes a key of a client, unless it is revoked already, and calls also in the
// transaction before. Other nodes refuse the key within maxKeyAge.
func (a *Accounts) revokeKey(ctx context.Context, clientID, keyID string,
	also func(engine.RecordWriter) error) error {
	id, ok := uuids.Parse(keyID)
	if !ok {
		return errNotFound("key")
	}
	defer a.keys.invalidate(id)
	changed := false
	err := a.Engine.ChangeRecords(ctx, clientLock(clientID), func(w engine.RecordWriter) error {
		changed = false
		record, body, err := readRecord[keyBody](w, keyKind, id)
		switch {
		case err != nil:
			return err
		case record == nil:
			return errNotFound("key")
		case record.Owner != clientID:
			return ErrForbidden
		case !body.RevokedAt.IsZero():
			return nil
		}
		if err := also(w); err != nil {
			return err
		}
		changed = true
		return a.revoke(w, clientID, id)
	})
	if err != nil {
		return a.logDenial(ctx, err)
	}
	if changed {
		a.Log.InfoContext(ctx, "revoked an API key",
			a.logAttrs(ctx, telemetry.ClientID, clientID, keyIDAttr, id)...)
	}
	return nil
}

// revoke revokes a key. A client whose active key it was has none afterwards.
func (a *Accounts) revoke(w engine.RecordWriter, clientID, keyID string) error {
	if err := a.markRevoked(w, keyID, revoked); err != nil {
		return err
	}
	_, c, err := readClient(w, clientID)
	if err != nil || c.ActiveKeyID != keyID {
		return err
	}
	c.ActiveKeyID = ""
	return putRecord(w, job.Record{Kind: clientKind, Key: clientID}, c)
}

// Keys returns the first limit keys of a client with an id above after, in the order they were made
// (to the millisecond). Revoked keys are included as long as they are kept.
func (a *Accounts) Keys(ctx context.Context, clientID, after string, limit int) ([]Key, error) {
	var keys []Key
	err := a.Engine.ViewRecords(ctx, func(r engine.RecordReader) error {
		client, _, err := readClient(r, clientID)
		if err != nil {
			return err
		}
		records, err := r.Records(keyKind, client.Key, after, limit)
		if err != nil {
			return err
		}
		keys = make([]Key, len(records))
		for i := range records {
			var body keyBody
			if err := decodeRecord(&records[i], &body); err != nil {
				return err
			}
			keys[i] = newKey(&records[i], &body)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return keys, nil
}
