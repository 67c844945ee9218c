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
)

// Client is somebody who submits jobs. The ID never changes (FR-038).
type Client struct {
	ID        string
	CreatedAt time.Time
}

// clientBody is what a client's record holds.
type clientBody struct {
	Keyed    bool   `json:"keyed"`         // it has had a key, ever (G-FR-03)
	Key      string `json:"key,omitempty"` // the one that is not revoked
	Callback string `json:"callback"`      // secret that signs callbacks, sealed
}

// requestBody is what an Idempotency-Key led to.
type requestBody struct {
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
	callback, err := a.newCallback()
	if err != nil {
		return Client{}, err
	}
	lock, request := clientLock(id.String()), ""
	if idempotencyKey != "" {
		request = a.hidden(idempotencyKey)
		lock = "account.request/" + request
	}
	var made Client
	fresh := false
	err = a.Engine.ChangeRecords(ctx, lock, func(w engine.RecordWriter) error {
		made, fresh = Client{}, false
		if request != "" {
			known, err := a.requested(w, request)
			if err != nil || known != nil {
				if known != nil {
					made = *known
				}
				return err
			}
		}
		made, fresh = Client{ID: id.String(), CreatedAt: at(w)}, true
		if err := write(w, job.Record{Kind: clientKind, Key: made.ID}, clientBody{Callback: callback}); err != nil || request == "" {
			return err
		}
		return write(w, job.Record{Kind: requestKind, Key: request, ExpiresAt: w.Now().Add(remembered)}, requestBody{ID: made.ID})
	})
	if err != nil {
		return Client{}, err
	}
	if fresh {
		a.Log.InfoContext(ctx, "made a client", a.about(ctx, telemetry.ClientID, made.ID)...)
	}
	return made, nil
}

// requested returns the client that an earlier request made, nil if none did.
func (a *Accounts) requested(r engine.RecordReader, request string) (*Client, error) {
	_, earlier, err := read[requestBody](r, requestKind, request)
	if err != nil || earlier == nil {
		return nil, err
	}
	record, _, err := read[clientBody](r, clientKind, earlier.ID)
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
	secret, err := a.callback(body)
	if err == nil {
		a.callbacks.put(clientID, secret)
	}
	return secret, err
}

const callbackPrefix = "whsec_" // of Standard Webhooks

// newCallback makes a secret for callbacks and seals it.
func (a *Accounts) newCallback() (sealed string, err error) {
	var secret [32]byte
	if _, err := io.ReadFull(a.Random, secret[:]); err != nil {
		return "", err
	}
	return a.vault.Seal([]byte(callbackPrefix + base64.StdEncoding.EncodeToString(secret[:])))
}

func (a *Accounts) callback(c *clientBody) (string, error) {
	plain, err := a.vault.Open(c.Callback)
	return string(plain), err
}

// readClient reads a client's record; NotFound if there is none.
func readClient(r engine.RecordReader, clientID string) (*job.Record, *clientBody, error) {
	id, ok := canonical(clientID)
	if !ok {
		return nil, nil, notFound("client")
	}
	record, body, err := read[clientBody](r, clientKind, id)
	if err == nil && record == nil {
		err = notFound("client")
	}
	return record, body, err
}

// clientLock makes changes of a client and its keys run one after another.
func clientLock(id string) string { return "account.client/" + id }

// about makes the attributes of a line of the log.
func (a *Accounts) about(ctx context.Context, attrs ...any) []any {
	if a.RequestID != nil {
		attrs = append(attrs, telemetry.RequestID, a.RequestID(ctx))
	}
	return attrs
}
