package forgerun

import (
	"errors"

	"github.com/millrace/millrace/internal/account"
	"github.com/millrace/millrace/internal/httpapi/jsontext"
	"github.com/millrace/millrace/internal/telemetry"
)

// POST /v1/clients
func (f *ForgeRun) createClient(v *visit) (reply, error) {
	if err := parseObject(v.body, false); err != nil {
		return reply{}, err
	}
	key, err := headerKey(v.call.Request.Header)
	if err != nil {
		return reply{}, err
	}
	client, err := f.accounts.CreateClient(v.ctx, key)
	if err != nil {
		return reply{}, err
	}
	v.note(telemetry.ClientID, client.ID)
	return answered(201, func(o *jsontext.Object) { o.Text("client_id", client.ID) }), nil
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
func (f *ForgeRun) createKey(v *visit) (reply, error) {
	id, err := f.clientOfPath(v)
	if err != nil {
		return reply{}, err
	}
	var by *account.Identity
	if v.who.ClientID != "" {
		by = &v.who
	}
	rotate, err := parseRotate(v.body)
	var key string
	if err == nil {
		key, err = headerKey(v.call.Request.Header)
	}
	if err != nil {
		return reply{}, f.deniedOr(v, by, id, err)
	}
	issued, err := f.accounts.CreateKey(v.ctx, id, by, rotate, key)
	var denied *account.Denied
	switch {
	case by == nil && errors.As(err, &denied):
		return reply{}, keyedAlready
	case err != nil:
		return reply{}, missing(err, "client")
	}
	if by == nil {
		v.note(telemetry.ClientID, id)
	}
	status := 200
	if issued.Created {
		status = 201
	}
	return issuedKey(status, issued), nil
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

func issuedKey(status int, issued account.Issued) reply {
	return answered(status, func(o *jsontext.Object) {
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
func (f *ForgeRun) renewKey(v *visit) (reply, error) {
	id, err := f.clientOfPath(v)
	if err != nil {
		return reply{}, err
	}
	if err := parseObject(v.body, false); err != nil {
		return reply{}, err
	}
	issued, err := f.accounts.RenewKey(v.ctx, id, v.bearer)
	if err != nil {
		return reply{}, missing(err, "client")
	}
	return issuedKey(200, issued), nil
}

// POST /v1/clients/{client_id}/keys/revoke
func (f *ForgeRun) revokeKey(v *visit) (reply, error) {
	if _, err := f.clientOfPath(v); err != nil {
		return reply{}, err
	}
	id, err := parseKeyID(v.body)
	if err != nil {
		return reply{}, err
	}
	if err := f.accounts.RevokeKey(v.ctx, v.who, id); err != nil {
		return reply{}, missing(err, "key")
	}
	return answered(200, func(o *jsontext.Object) { o.Flag("revoked", true) }), nil
}

// keysList is the letter of this list's cursors.
const keysList = "k"

// GET /v1/clients/{client_id}/keys
func (f *ForgeRun) listKeys(v *visit) (reply, error) {
	id, err := f.clientOfPath(v)
	if err != nil {
		return reply{}, err
	}
	p, err := readPage(v.call, keysList)
	if err != nil {
		return reply{}, err
	}
	after, err := p.id()
	if err != nil {
		return reply{}, err
	}
	keys, err := f.accounts.Keys(v.ctx, id, after, p.limit+1)
	if err != nil {
		return reply{}, missing(err, "client")
	}
	next := ""
	if len(keys) > p.limit {
		keys = keys[:p.limit]
		next = keys[p.limit-1].ID
	}
	return listed(len(keys), func(i int, o *jsontext.Object) {
		o.Text("key_id", keys[i].ID)
		o.Time("created_at", keys[i].CreatedAt)
		o.Time("expires_at", keys[i].ExpiresAt)
		o.Time("revoked_at", keys[i].RevokedAt)
	}, keysList, next), nil
}
