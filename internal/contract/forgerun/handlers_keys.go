package forgerun

import (
	"errors"

	"github.com/millrace/millrace/internal/account"
	"github.com/millrace/millrace/internal/httpapi/jsontext"
	"github.com/millrace/millrace/internal/telemetry"
)

// POST /v1/clients
func (f *ForgeRun) createClient(v *visit) error {
	if err := parseObject(v.body, false); err != nil {
		return err
	}
	key, err := headerKey(v.call.Request.Header)
	if err != nil {
		return err
	}
	client, err := f.accounts.CreateClient(v.ctx, key)
	if err != nil {
		return err
	}
	v.note(telemetry.ClientID, client.ID)
	return v.answer(201, func(o *jsontext.Object) { o.Text("client_id", client.ID) })
}

// clientOfPath reads the client of the path, whose key must have been shown. Where
// it was not, the client of another is told from one that does not exist
// (G-FR-65).
func (f *ForgeRun) clientOfPath(v *visit) (string, error) {
	id, ok := parseUUID(v.call.Member("client_id"))
	if !ok {
		return "", notFound("client")
	}
	if v.who.ClientID == "" || v.who.ClientID == id {
		return id, nil
	}
	if _, err := f.accounts.Client(v.ctx, id); err != nil {
		return "", missing(err, "client")
	}
	return "", forbidden
}

// POST /v1/clients/{client_id}/keys
func (f *ForgeRun) createKey(v *visit) error {
	id, err := f.clientOfPath(v)
	if err != nil {
		return err
	}
	var by *account.Identity
	if v.who.ClientID != "" {
		by = &v.who
	}
	var rotate bool
	if err = v.call.CheckQuery(); err == nil {
		rotate, err = parseRotate(v.body)
	}
	var key string
	if err == nil {
		key, err = headerKey(v.call.Request.Header)
	}
	if err != nil {
		return f.deniedOr(v, by, id, err)
	}
	issued, err := f.accounts.CreateKey(v.ctx, id, by, rotate, key)
	var denied *account.Denied
	switch {
	case by == nil && errors.As(err, &denied):
		return keyedAlready
	case err != nil:
		return missing(err, "client")
	}
	if by == nil {
		v.note(telemetry.ClientID, id)
	}
	status := 200
	if issued.Created {
		status = 201
	}
	return v.issued(status, issued)
}

// deniedOr answers a body that is wrong: to a caller without a key only where none
// is needed (FR-029).
func (f *ForgeRun) deniedOr(v *visit, by *account.Identity, id string, wrong error) error {
	if by != nil {
		return wrong
	}
	keys, err := f.accounts.Keys(v.ctx, id, "", 1)
	switch {
	case err != nil:
		return missing(err, "client")
	case len(keys) > 0:
		return keyedAlready
	}
	return wrong
}

// keyedAlready answers who shows no key and is not to make a client's first one
// (G-FR-03, G-FR-57).
var keyedAlready = &problem{code: codeCredentials, detail: "only the first key of a client is made without one, and without rotate: show the client's key, " +
	"as the header Authorization: Bearer API_KEY; a client that lost its key gets another from the operator, by millrace operator recover"}

func (v *visit) issued(status int, issued account.Issued) error {
	return v.answer(status, func(o *jsontext.Object) {
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
func (f *ForgeRun) renewKey(v *visit) error {
	id, err := f.clientOfPath(v)
	if err != nil {
		return err
	}
	if err := parseObject(v.body, false); err != nil {
		return err
	}
	issued, err := f.accounts.RenewKey(v.ctx, id, v.bearer)
	if err != nil {
		return missing(err, "client")
	}
	return v.issued(200, issued)
}

// POST /v1/clients/{client_id}/keys/revoke
func (f *ForgeRun) revokeKey(v *visit) error {
	if _, err := f.clientOfPath(v); err != nil {
		return err
	}
	id, err := parseKeyID(v.body)
	if err != nil {
		return err
	}
	if err := f.accounts.RevokeKey(v.ctx, v.who, id); err != nil {
		return missing(err, "key")
	}
	return v.answer(200, func(o *jsontext.Object) { o.Flag("revoked", true) })
}

// keysList is the letter of this list's cursors.
const keysList = "k"

// GET /v1/clients/{client_id}/keys
func (f *ForgeRun) listKeys(v *visit) error {
	id, err := f.clientOfPath(v)
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
		return missing(err, "client")
	}
	return sendPage(v, p, keys, func(k account.Key) string { return k.ID }, func(o *jsontext.Object, k account.Key) {
		o.Text("key_id", k.ID)
		o.Time("created_at", k.CreatedAt)
		o.Time("expires_at", k.ExpiresAt)
		o.Time("revoked_at", k.RevokedAt)
	})
}
