package account

import (
	"context"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/telemetry"
)

// Key is what is known of an API key once its secret was shown. Times are UTC.
type Key struct {
	ID        string
	ClientID  string
	CreatedAt time.Time
	ExpiresAt time.Time // zero: never
	RevokedAt time.Time // zero: it is not
}

// Issued is the answer to who asked for a key.
type Issued struct {
	Key            Key
	Secret         string // the key itself, shown this once; empty for a key that was there already
	CallbackSecret string // with a client's first key only
	Created        bool
}

// keyBody is what a key's record holds; the record belongs to the client.
type keyBody struct {
	Digest    []byte    `json:"digest"`
	ExpiresAt time.Time `json:"expires_at,omitzero"`
	RevokedAt time.Time `json:"revoked_at,omitzero"`
	Why       string    `json:"why,omitempty"` // it was revoked
}

// Why keys are revoked.
const (
	rotated   = "rotated"
	renewed   = "renewed"
	revoked   = "revoked"
	recovered = "recovered"
)

func keyOf(r *job.Record, b *keyBody) Key {
	return Key{ID: r.Key, ClientID: r.Owner, CreatedAt: r.CreatedAt.UTC(), ExpiresAt: b.ExpiresAt, RevokedAt: b.RevokedAt}
}

// grant is a new key on its way through a transaction, which may run again.
type grant struct {
	issued Issued
	old    string // key that it replaces
	why    string
}

// CreateKey makes a client's first key, for which nobody needs to show one (by is
// nil), replaces the key of a client that shows it (rotate), or tells about the
// one that is there. A caller without a key is Denied as soon as the client has
// had one, also when another was faster by a moment (FR-042 to FR-045, G-FR-57).
//
// An idempotencyKey of the client that has made a key within 24 hours makes no
// other: it tells about that one. With another rotate it is ErrReused.
//
// Errors: NotFound for no such client, ErrForbidden when by is another's,
// *Denied.
func (a *Accounts) CreateKey(ctx context.Context, clientID string, by *Identity, rotate bool, idempotencyKey string) (Issued, error) {
	note := requestNote{rotate: rotate}
	if idempotencyKey != "" {
		note.name = a.hidden(idempotencyKey)
	}
	return a.grant(ctx, clientID, func(w engine.RecordWriter, id string, c *clientBody, g *grant) error {
		if by == nil {
			if c.Keyed || rotate {
				return &Denied{Reason: Missing, ClientID: id}
			}
			return a.issue(w, id, c, g, note)
		}
		if by.ClientID != id {
			return ErrForbidden
		}
		own, err := presented(w, by)
		if err != nil {
			return err
		}
		if told, err := a.repeated(w, id, note, g); told || err != nil {
			return err
		}
		if !rotate {
			g.issued = Issued{Key: own}
			return nil
		}
		g.old, g.why = c.Key, rotated
		return a.issue(w, id, c, g, note)
	})
}

// requestNote is what is kept of a request with an Idempotency-Key; name is empty
// without one.
type requestNote struct {
	name   string
	rotate bool
}

// repeated reports whether an earlier request with the same Idempotency-Key made
// a key, and tells about it.
func (a *Accounts) repeated(w engine.RecordWriter, clientID string, note requestNote, g *grant) (bool, error) {
	if note.name == "" {
		return false, nil
	}
	_, earlier, err := read[requestBody](w, requestKind, clientID+"/"+note.name)
	if err != nil || earlier == nil {
		return false, err
	}
	if earlier.Rotate != note.rotate {
		return false, conflict("the idempotency key was used for another request", ErrReused)
	}
	record, body, err := read[keyBody](w, keyKind, earlier.ID)
	if err != nil || record == nil {
		return false, err
	}
	g.issued = Issued{Key: keyOf(record, body)}
	return true, nil
}

// presented checks once more, under the client's lock, that the key of a caller
// is good: it may have been replaced since it was authenticated.
func presented(r engine.RecordReader, by *Identity) (Key, error) {
	record, body, err := read[keyBody](r, keyKind, by.KeyID)
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
		return keyOf(record, body), nil
	}
	return Key{}, denied
}

// RenewKey replaces the key that the caller shows, which may have expired, but
// was not revoked (FR-047, G-FR-26). Conflict when somebody was faster: then
// nothing changes (FR-049).
func (a *Accounts) RenewKey(ctx context.Context, clientID, bearer string) (Issued, error) {
	shown, err := a.find(ctx, bearer)
	if err != nil {
		return Issued{}, a.refuse(ctx, err)
	}
	return a.grant(ctx, clientID, func(w engine.RecordWriter, id string, c *clientBody, g *grant) error {
		if shown.key.ClientID != id {
			return ErrForbidden
		}
		if c.Key != shown.key.ID {
			return conflict("the key was replaced or revoked in the meantime; there is nothing to renew", nil)
		}
		g.old, g.why = c.Key, renewed
		return a.issue(w, id, c, g, requestNote{})
	})
}

// Recover gives a client that is locked out a fresh key and revokes the one it
// may have. It is the operator's (G-FR-03).
func (a *Accounts) Recover(ctx context.Context, clientID string) (Issued, error) {
	return a.grant(ctx, clientID, func(w engine.RecordWriter, id string, c *clientBody, g *grant) error {
		g.old, g.why = c.Key, recovered
		return a.issue(w, id, c, g, requestNote{})
	})
}

// grant runs fn under the lock of a client. When it fails nothing has changed;
// when the store cannot tell whether it has, it is asked (FR-048).
func (a *Accounts) grant(ctx context.Context, clientID string, fn func(w engine.RecordWriter, id string, c *clientBody, g *grant) error) (Issued, error) {
	id, ok := canonical(clientID)
	if !ok {
		return Issued{}, notFound("client")
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
	a.keys.drop(g.old)
	if job.IsKind(err, job.Unavailable) && g.issued.Created && a.exists(ctx, g.issued.Key.ID) {
		err = nil // it was the answer that got lost
	}
	if err != nil {
		return Issued{}, a.refuse(ctx, err)
	}
	if g.issued.Created {
		a.Log.InfoContext(ctx, "made an API key", a.about(ctx, telemetry.ClientID, id, keyIDAttr, g.issued.Key.ID, reasonAttr, g.why)...)
	}
	return g.issued, nil
}

// exists reports whether a key is stored; no, when that cannot be found out.
func (a *Accounts) exists(ctx context.Context, keyID string) bool {
	found := false
	err := a.Engine.ViewRecords(ctx, func(r engine.RecordReader) error {
		record, err := r.Record(keyKind, keyID)
		found = record != nil
		return err
	})
	return err == nil && found
}

// issue makes a key the one of a client.
func (a *Accounts) issue(w engine.RecordWriter, clientID string, c *clientBody, g *grant, note requestNote) error {
	if g.old != "" {
		if err := a.disable(w, g.old, g.why); err != nil {
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
		body.ExpiresAt = at(w).Add(a.KeyLifetime)
	}
	record := job.Record{Kind: keyKind, Key: id.String(), Owner: clientID}
	if err := write(w, record, body); err != nil {
		return err
	}
	record.CreatedAt = at(w)
	g.issued = Issued{Key: keyOf(&record, &body), Secret: token, Created: true}
	if !c.Keyed {
		if g.issued.CallbackSecret, err = a.callback(c); err != nil {
			return err
		}
	}
	c.Keyed, c.Key = true, record.Key
	if err := write(w, job.Record{Kind: clientKind, Key: clientID}, c); err != nil || note.name == "" {
		return err
	}
	return write(w, job.Record{Kind: requestKind, Key: clientID + "/" + note.name, Owner: clientID, ExpiresAt: w.Now().Add(remembered)},
		requestBody{ID: record.Key, Rotate: note.rotate})
}

// disable revokes a key, which is kept for a while from then on (FR-055).
func (a *Accounts) disable(w engine.RecordWriter, keyID, why string) error {
	record, body, err := read[keyBody](w, keyKind, keyID)
	if err != nil || record == nil {
		return err
	}
	body.RevokedAt, body.Why = at(w), why
	if a.RevokedRetention > 0 {
		record.ExpiresAt = w.Now().Add(a.RevokedRetention)
	}
	return write(w, *record, body)
}

// RevokeKey makes a key of the caller's client useless, be it the one shown
// (G-FR-26). One that is revoked stays so (G-FR-25). Errors: NotFound,
// ErrForbidden when it is another client's, *Denied.
func (a *Accounts) RevokeKey(ctx context.Context, by Identity, keyID string) error {
	id, ok := canonical(keyID)
	if !ok {
		return notFound("key")
	}
	defer a.keys.drop(id)
	changed := false
	err := a.Engine.ChangeRecords(ctx, clientLock(by.ClientID), func(w engine.RecordWriter) error {
		changed = false
		record, body, err := read[keyBody](w, keyKind, id)
		switch {
		case err != nil:
			return err
		case record == nil:
			return notFound("key")
		case record.Owner != by.ClientID:
			return ErrForbidden
		case !body.RevokedAt.IsZero():
			return nil
		}
		if _, err := presented(w, &by); err != nil {
			return err
		}
		changed = true
		return a.revoke(w, by.ClientID, id)
	})
	if err == nil && changed {
		a.Log.InfoContext(ctx, "revoked an API key", a.about(ctx, telemetry.ClientID, by.ClientID, keyIDAttr, id)...)
	}
	return a.refuse(ctx, err)
}

// revoke leaves a client without this key.
func (a *Accounts) revoke(w engine.RecordWriter, clientID, keyID string) error {
	if err := a.disable(w, keyID, revoked); err != nil {
		return err
	}
	_, c, err := readClient(w, clientID)
	if err != nil || c.Key != keyID {
		return err
	}
	c.Key = ""
	return write(w, job.Record{Kind: clientKind, Key: clientID}, c)
}

// Keys lists the keys of a client in the order they were made, to the millisecond,
// those above after, at most limit, revoked ones included for as long as they are
// kept.
func (a *Accounts) Keys(ctx context.Context, clientID, after string, limit int) ([]Key, error) {
	var keys []Key
	err := a.Engine.ViewRecords(ctx, func(r engine.RecordReader) error {
		client, _, err := readClient(r, clientID)
		if err != nil {
			return err
		}
		records, err := r.Records(keyKind, client.Key, after, limit)
		keys = make([]Key, 0, len(records))
		for i := range records {
			var body keyBody
			if err := decode(&records[i], &body); err != nil {
				return err
			}
			keys = append(keys, keyOf(&records[i], &body))
		}
		return err
	})
	return keys, err
}
