package account

import (
	"context"
	"encoding/base64"
	"io"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/telemetry"
	"github.com/millrace/millrace/internal/uuids"
)

// Client is an account that submits jobs. Its ID never changes (FR-038).
type Client struct {
	ID        string
	CreatedAt time.Time
}

// clientBody is the body of a client's record.
type clientBody struct {
	HadKey               bool   `json:"keyed"`         // the client has had a key (G-FR-03)
	ActiveKeyID          string `json:"key,omitempty"` // the key that is not revoked
	SealedCallbackSecret string `json:"callback"`
	OwnLimits
}

// OwnLimits are limits of one client that an operator has set. They take the place of the
// settings' (AD-053); nil: they do not.
type OwnLimits struct {
	RatePerMinute *int `json:"rate,omitempty"`
	QuotaPerDay   *int `json:"quota,omitempty"` // 0: no limit
}

// over returns the limits in force, given the settings'.
func (o OwnLimits) over(settings Limits) Limits {
	if o.RatePerMinute != nil {
		settings.RatePerMinute = *o.RatePerMinute
	}
	if o.QuotaPerDay != nil {
		settings.QuotaPerDay = *o.QuotaPerDay
	}
	return settings
}

// CreateClient makes a client. Requests with the same non-empty idempotencyKey get the same client
// for 24 hours, from any caller (FR-039, G-FR-24).
func (a *Accounts) CreateClient(ctx context.Context, idempotencyKey string) (Client, error) {
	id, err := a.newClientID()
	if err != nil {
		return Client{}, err
	}
	callback, err := a.newCallbackSecret()
	if err != nil {
		return Client{}, err
	}
	lock, once := clientLock(id), (*engine.IdempotencyRecord)(nil)
	if idempotencyKey != "" {
		once = a.once("", a.hashIdempotencyKey(idempotencyKey), "")
		lock = "account.request/" + once.Key
	}
	var client Client
	created := false
	err = a.Engine.ChangeRecords(ctx, lock, func(w engine.RecordWriter) error {
		client, created = Client{}, false
		earlier, err := a.findCreatedClient(w, once)
		if err != nil {
			return err
		}
		if earlier != nil {
			client = *earlier
			return nil
		}
		client, created = Client{ID: id, CreatedAt: storeNow(w)}, true
		err = putRecord(w, job.Record{Kind: clientKind, Key: client.ID},
			clientBody{SealedCallbackSecret: callback})
		if err != nil {
			return err
		}
		return once.Store(w, client.ID)
	})
	if err != nil {
		return Client{}, err
	}
	if created {
		a.Log.InfoContext(ctx, "made a client", a.logAttrs(ctx, telemetry.ClientID, client.ID)...)
	}
	return client, nil
}

// findCreatedClient returns the client that an earlier request with the same Idempotency-Key made,
// or nil if there was none.
func (a *Accounts) findCreatedClient(r engine.RecordReader,
	once *engine.IdempotencyRecord) (*Client, error) {
	id, err := once.Find(r)
	if err != nil || id == "" {
		return nil, err
	}
	record, _, err := readRecord[clientBody](r, clientKind, id)
	if err != nil || record == nil {
		return nil, err
	}
	return &Client{ID: record.Key, CreatedAt: record.CreatedAt.UTC()}, nil
}

// Client returns a client, or NotFound. An id that is no UUID is NotFound as well.
func (a *Accounts) Client(ctx context.Context, clientID string) (Client, error) {
	var found Client
	err := a.Engine.ViewRecords(ctx, func(r engine.RecordReader) error {
		record, _, err := readClient(r, clientID)
		if err != nil {
			return err
		}
		found = Client{ID: record.Key, CreatedAt: record.CreatedAt.UTC()}
		return nil
	})
	return found, err
}

// CallbackSecret returns the secret that signs requests to the callbacks of a client's jobs, as
// whsec_ and base64. It never changes.
func (a *Accounts) CallbackSecret(ctx context.Context, clientID string) (string, error) {
	if secret, ok := a.callbacks.get(clientID); ok {
		return secret, nil
	}
	var body *clientBody
	err := a.Engine.ViewRecords(ctx, func(r engine.RecordReader) (err error) {
		_, body, err = readClient(r, clientID)
		return err
	})
	if err != nil {
		return "", err
	}
	secret, err := a.openCallbackSecret(body)
	if err != nil {
		return "", err
	}
	a.callbacks.put(clientID, secret)
	return secret, nil
}

// newClientID returns a UUID of version 4.
func (a *Accounts) newClientID() (string, error) {
	var id [16]byte
	_, err := io.ReadFull(a.Random, id[:])
	return uuids.New(4, id).String(), err
}

const callbackPrefix = "whsec_" // of Standard Webhooks

// newCallbackSecret makes a secret for callbacks and seals it.
func (a *Accounts) newCallbackSecret() (sealed string, err error) {
	var secret [32]byte
	if _, err := io.ReadFull(a.Random, secret[:]); err != nil {
		return "", err
	}
	return a.vault.Seal([]byte(callbackPrefix + base64.StdEncoding.EncodeToString(secret[:])))
}

// openCallbackSecret returns the plain callback secret of a client.
func (a *Accounts) openCallbackSecret(c *clientBody) (string, error) {
	plain, err := a.vault.Open(c.SealedCallbackSecret)
	return string(plain), err
}

// readClient reads a client's record. It returns NotFound if there is none.
func readClient(r engine.RecordReader, clientID string) (*job.Record, *clientBody, error) {
	id, ok := uuids.Parse(clientID)
	if !ok {
		return nil, nil, errNotFound("client")
	}
	record, body, err := readRecord[clientBody](r, clientKind, id)
	if err != nil {
		return nil, nil, err
	}
	if record == nil {
		return nil, nil, errNotFound("client")
	}
	return record, body, nil
}

// clientLock returns the lock under which a client and its keys are changed.
func clientLock(id string) string { return "account.client/" + id }

// logAttrs adds the request id to the attributes of a log line.
func (a *Accounts) logAttrs(ctx context.Context, attrs ...any) []any {
	if a.RequestID == nil {
		return attrs
	}
	if id := a.RequestID(ctx); id != "" {
		attrs = append(attrs, telemetry.RequestID, id)
	}
	return attrs
}
