package account

import (
	"context"
	"encoding/base64"
	"io"
	"time"

	"github.com/google/uuid"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/telemetry"
	"github.com/millrace/millrace/internal/uuids"
)

// Client is somebody who submits jobs. The ID never changes (FR-038).
type Client struct {
	ID        string
	CreatedAt time.Time
}

// clientBody is what a client's record holds.
type clientBody struct {
	HadKey               bool   `json:"keyed"`         // it has had a key, ever (G-FR-03)
	ActiveKeyID          string `json:"key,omitempty"` // the one that is not revoked
	SealedCallbackSecret string `json:"callback"`      // secret that signs callbacks, sealed
}

// idempotencyBody is what an Idempotency-Key led to.
type idempotencyBody struct {
	ID     string `json:"id"`
	Rotate bool   `json:"rotate,omitempty"`
}

// CreateClient makes a client. The same idempotencyKey, if not empty, gives the
// same client for 24 hours, whoever uses it (FR-039, G-FR-24).
func (a *Accounts) CreateClient(ctx context.Context, idempotencyKey string) (Client, error) {
	id, err := uuid.NewRandomFromReader(a.Random)
	if err != nil {
		return Client{}, err
	}
	callback, err := a.newCallbackSecret()
	if err != nil {
		return Client{}, err
	}
	lock, request := clientLock(id.String()), ""
	if idempotencyKey != "" {
		request = a.hashIdempotencyKey(idempotencyKey)
		lock = "account.request/" + request
	}
	var client Client
	created := false
	err = a.Engine.ChangeRecords(ctx, lock, func(w engine.RecordWriter) error {
		client, created = Client{}, false
		if request != "" {
			earlier, err := a.findCreatedClient(w, request)
			if err != nil || earlier != nil {
				if earlier != nil {
					client = *earlier
				}
				return err
			}
		}
		client, created = Client{ID: id.String(), CreatedAt: storeNow(w)}, true
		if err := putRecord(w, job.Record{Kind: clientKind, Key: client.ID},
			clientBody{SealedCallbackSecret: callback}); err != nil || request == "" {
			return err
		}
		return putRecord(w, job.Record{Kind: idempotencyKind, Key: request,
			ExpiresAt: w.Now().Add(idempotencyTTL)}, idempotencyBody{ID: client.ID})
	})
	if err != nil {
		return Client{}, err
	}
	if created {
		a.Log.InfoContext(ctx, "made a client", a.logAttrs(ctx, telemetry.ClientID, client.ID)...)
	}
	return client, nil
}

// findCreatedClient returns the client that an earlier request made, nil if none did.
func (a *Accounts) findCreatedClient(r engine.RecordReader, request string) (*Client, error) {
	_, earlier, err := readRecord[idempotencyBody](r, idempotencyKind, request)
	if err != nil || earlier == nil {
		return nil, err
	}
	record, _, err := readRecord[clientBody](r, clientKind, earlier.ID)
	if err != nil || record == nil {
		return nil, err
	}
	return &Client{ID: record.Key, CreatedAt: record.CreatedAt.UTC()}, nil
}

// Client returns a client. NotFound if there is none, whatever the id looks like.
func (a *Accounts) Client(ctx context.Context, clientID string) (Client, error) {
	var found Client
	err := a.Engine.ViewRecords(ctx, func(r engine.RecordReader) error {
		record, _, err := readClient(r, clientID)
		if err == nil {
			found = Client{ID: record.Key, CreatedAt: record.CreatedAt.UTC()}
		}
		return err
	})
	return found, err
}

// CallbackSecret returns the secret that signs what is sent to the callbacks of a
// client's jobs, as whsec_ and base64. It never changes.
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
	if err == nil {
		a.callbacks.put(clientID, secret)
	}
	return secret, err
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

func (a *Accounts) openCallbackSecret(c *clientBody) (string, error) {
	plain, err := a.vault.Open(c.SealedCallbackSecret)
	return string(plain), err
}

// readClient reads a client's record; NotFound if there is none.
func readClient(r engine.RecordReader, clientID string) (*job.Record, *clientBody, error) {
	id, ok := uuids.Parse(clientID)
	if !ok {
		return nil, nil, notFound("client")
	}
	record, body, err := readRecord[clientBody](r, clientKind, id)
	if err == nil && record == nil {
		err = notFound("client")
	}
	return record, body, err
}

// clientLock makes changes of a client and its keys run one after another.
func clientLock(id string) string { return "account.client/" + id }

// logAttrs makes the attributes of a line of the log.
func (a *Accounts) logAttrs(ctx context.Context, attrs ...any) []any {
	if a.RequestID != nil {
		attrs = append(attrs, telemetry.RequestID, a.RequestID(ctx))
	}
	return attrs
}
