package forgerun

import (
	"errors"
	"net/http"

	"github.com/millrace/millrace/internal/account"
	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/telemetry"
	"github.com/millrace/millrace/internal/uuids"
)

// POST /v1/clients
func (f *ForgeRun) createClient(v *request) error {
	if err := parseObject(v.body, false); err != nil {
		return err
	}
	key, err := idempotencyKeyHeader(v.call.Request.Header)
	if err != nil {
		return err
	}
	client, err := f.accounts.CreateClient(v.ctx, key)
	if err != nil {
		return err
	}
	v.logAttr(telemetry.ClientID, client.ID)
	return v.sendObject(http.StatusCreated, func(o *strictjson.Object) {
		o.Text("client_id", client.ID)
	})
}

// pathClient reads the client of the path. If the caller is another client, the answer tells an
// existing client from one that does not exist (G-FR-65).
func (f *ForgeRun) pathClient(v *request) (string, error) {
	id, ok := uuids.Parse(v.call.PathValue("client_id"))
	if !ok {
		return "", notFound("client")
	}
	if v.identity.ClientID == "" || v.identity.ClientID == id {
		return id, nil
	}
	if _, err := f.accounts.Client(v.ctx, id); err != nil {
		return "", notFoundAs(err, "client")
	}
	return "", errForbidden
}

// POST /v1/clients/{client_id}/keys
func (f *ForgeRun) createKey(v *request) error {
	id, err := f.pathClient(v)
	if err != nil {
		return err
	}
	var by *account.Identity
	if v.identity.ClientID != "" {
		by = &v.identity
	}
	rotate, key, err := v.readKeyRequest()
	if err != nil {
		return f.keyNeededOr(v, by, id, err)
	}
	issued, err := f.accounts.CreateKey(v.ctx, id, by, rotate, key)
	var denied *account.Denied
	switch {
	case by == nil && errors.As(err, &denied):
		return errClientHasKey
	case err != nil:
		return notFoundAs(err, "client")
	}
	if by == nil {
		v.logAttr(telemetry.ClientID, id)
	}
	status := http.StatusOK
	if issued.Created {
		status = http.StatusCreated
	}
	return v.sendIssued(status, issued)
}

// readKeyRequest reads the request for a key and its idempotency key.
func (v *request) readKeyRequest() (rotate bool, key string, err error) {
	if err := v.call.CheckQuery(); err != nil {
		return false, "", err
	}
	if rotate, err = parseRotate(v.body); err != nil {
		return false, "", err
	}
	key, err = idempotencyKeyHeader(v.call.Request.Header)
	return rotate, key, err
}

// keyNeededOr answers an invalid request for a key. A caller without a key learns what is wrong
// with the request only if the client needs none (FR-029).
func (f *ForgeRun) keyNeededOr(v *request, by *account.Identity, id string, bodyErr error) error {
	if by != nil {
		return bodyErr
	}
	keys, err := f.accounts.Keys(v.ctx, id, "", 1)
	switch {
	case err != nil:
		return notFoundAs(err, "client")
	case len(keys) > 0:
		return errClientHasKey
	}
	return bodyErr
}

// errClientHasKey is the answer to a caller without a key if the client has had one (G-FR-03,
// G-FR-57).
var errClientHasKey = &problem{
	code: codeCredentials,
	detail: "only the first key of a client is made without one, and without rotate: show the " +
		"client's key, as the header Authorization: Bearer API_KEY; a client that lost its key " +
		"gets another from the operator, by millrace operator recover",
}

func (v *request) sendIssued(status int, issued account.Issued) error {
	return v.sendObject(status, func(o *strictjson.Object) {
		o.Optional("api_key", issued.Secret)
		o.Text("key_id", issued.Key.ID)
		o.Time("created_at", issued.Key.CreatedAt)
		o.Time("expires_at", issued.Key.ExpiresAt)
		if issued.CallbackSecret != "" {
			o.Text("callback_secret", issued.CallbackSecret)
		}
	})
}

// POST /v1/clients/{client_id}/keys/renew
func (f *ForgeRun) renewKey(v *request) error {
	id, err := f.pathClient(v)
	if err != nil {
		return err
	}
	if err := parseObject(v.body, false); err != nil {
		return err
	}
	issued, err := f.accounts.RenewKey(v.ctx, id, v.bearer)
	if err != nil {
		return notFoundAs(err, "client")
	}
	return v.sendIssued(http.StatusOK, issued)
}

// POST /v1/clients/{client_id}/keys/revoke
func (f *ForgeRun) revokeKey(v *request) error {
	if _, err := f.pathClient(v); err != nil {
		return err
	}
	id, err := parseKeyID(v.body)
	if err != nil {
		return err
	}
	if err := f.accounts.RevokeKey(v.ctx, v.identity, id); err != nil {
		return notFoundAs(err, "key")
	}
	return v.sendObject(http.StatusOK, func(o *strictjson.Object) { o.Bool("revoked", true) })
}

// keysList marks the cursors of this list.
const keysList = "k"

// GET /v1/clients/{client_id}/keys
func (f *ForgeRun) listKeys(v *request) error {
	id, err := f.pathClient(v)
	if err != nil {
		return err
	}
	p, err := readPage(v.call, keysList)
	if err != nil {
		return err
	}
	after, err := p.id()
	if err != nil {
		return err
	}
	keys, err := f.accounts.Keys(v.ctx, id, after, p.limit+1)
	if err != nil {
		return notFoundAs(err, "client")
	}
	write := func(o *strictjson.Object, k account.Key) {
		o.Text("key_id", k.ID)
		o.Time("created_at", k.CreatedAt)
		o.Time("expires_at", k.ExpiresAt)
		o.Time("revoked_at", k.RevokedAt)
	}
	return sendPage(v, p, keys, func(k account.Key) string { return k.ID }, write)
}
