package forgerun

import (
	"errors"
	"log/slog"
	"net/http"

	"github.com/millrace/millrace/internal/account"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/telemetry"
	"github.com/millrace/millrace/internal/uuids"
)

// Clients and their keys are stored and checked by package account; these handlers read requests
// and write answers. Which key a route needs differs:
//
//	POST /v1/clients    none: everyone may become a client (FR-037)
//	POST …/keys         none for the first key of a client, else a valid one (G-FR-03)
//	POST …/keys/renew   the key to replace, which may have expired (G-FR-26)
//	POST …/keys/revoke  a valid one, which may revoke itself
//	GET  …/keys         a valid one
//
// A secret is in the answer that made it and nowhere else (FR-054).

// POST /v1/clients: makes a client, or returns the one that the same Idempotency-Key has made
// within a day (FR-037, FR-039).
func (f *ForgeRun) createClient(c *httpapi.Call) error {
	if err := parseObject(c.Content, false); err != nil {
		return err
	}
	key, err := idempotencyKeyHeader(c.Request.Header)
	if err != nil {
		return err
	}
	client, err := f.accounts.CreateClient(c.Context(), key)
	if err != nil {
		return err
	}
	c.AddAttrs(slog.String(telemetry.ClientID, client.ID))
	return sendObject(c, http.StatusCreated, func(o *strictjson.Object) {
		o.Text("client_id", client.ID)
	})
}

// pathClient reads the client of the path. If the caller is another client, the answer differs
// between a client that exists and one that does not (G-FR-65).
func (f *ForgeRun) pathClient(c *httpapi.Call) (string, error) {
	id, ok := uuids.Parse(c.PathValue("client_id"))
	if !ok {
		return "", notFound("client")
	}
	if clientID(c) == "" || clientID(c) == id {
		return id, nil
	}
	if _, err := f.accounts.Client(c.Context(), id); err != nil {
		return "", notFoundAs(err, "client")
	}
	return "", errForbidden
}

// POST /v1/clients/{client_id}/keys: makes the first key, or a new one with rotate, and answers
// 201; without rotate it answers 200 with the present key and no secret (FR-040, G-FR-04).
func (f *ForgeRun) createKey(c *httpapi.Call) error {
	id, err := f.pathClient(c)
	if err != nil {
		return err
	}
	var by *account.Identity
	if caller := identity(c); caller.ClientID != "" {
		by = &caller
	}
	rotate, key, err := readKeyRequest(c)
	if err != nil {
		return f.keyNeededOr(c, by, id, err)
	}
	issued, err := f.accounts.CreateKey(c.Context(), id, by, rotate, key)
	var denied *account.Denied
	switch {
	case by == nil && errors.As(err, &denied):
		return errClientHasKey
	case err != nil:
		return notFoundAs(err, "client")
	}
	if by == nil {
		c.AddAttrs(slog.String(telemetry.ClientID, id))
	}
	status := http.StatusOK
	if issued.Created {
		status = http.StatusCreated
	}
	return sendIssued(c, status, issued)
}

// readKeyRequest reads the request for a key and its idempotency key. The guard has not checked the
// query of a caller without a key, so it is checked here.
func readKeyRequest(c *httpapi.Call) (rotate bool, key string, err error) {
	if err := c.CheckQuery(); err != nil {
		return false, "", err
	}
	if rotate, err = parseRotate(c.Content); err != nil {
		return false, "", err
	}
	key, err = idempotencyKeyHeader(c.Request.Header)
	return rotate, key, err
}

// keyNeededOr answers an invalid request for a key. A caller without a key learns what is wrong
// with the request only if the client needs none (FR-029).
func (f *ForgeRun) keyNeededOr(c *httpapi.Call, by *account.Identity, id string,
	bodyErr error) error {
	if by != nil {
		return bodyErr
	}
	keys, err := f.accounts.Keys(c.Context(), id, "", 1)
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
var errClientHasKey = &httpapi.CodedError{
	Code: codeCredentials,
	Detail: "only the first key of a client is made without one, and without rotate: show the " +
		"client's key, as the header Authorization: Bearer API_KEY; a client that lost its key " +
		"gets another from the operator, by millrace operator recover",
}

// sendIssued answers with a key. api_key is null for one that existed before, expires_at for one
// that does not expire; callback_secret comes with the first key of a client only (G-FR-62).
func sendIssued(c *httpapi.Call, status int, issued account.Issued) error {
	return sendObject(c, status, func(o *strictjson.Object) {
		o.Optional("api_key", issued.Secret)
		o.Text("key_id", issued.Key.ID)
		o.Time("created_at", issued.Key.CreatedAt)
		o.Time("expires_at", issued.Key.ExpiresAt)
		if issued.CallbackSecret != "" {
			o.Text("callback_secret", issued.CallbackSecret)
		}
	})
}

// POST /v1/clients/{client_id}/keys/renew: replaces the key of the request by a new one; the old
// one is refused from then on (FR-047).
func (f *ForgeRun) renewKey(c *httpapi.Call) error {
	id, err := f.pathClient(c)
	if err != nil {
		return err
	}
	if err := parseObject(c.Content, false); err != nil {
		return err
	}
	issued, err := f.accounts.RenewKey(c.Context(), id, bearer(c))
	if err != nil {
		return notFoundAs(err, "client")
	}
	return sendIssued(c, http.StatusOK, issued)
}

// POST /v1/clients/{client_id}/keys/revoke: revokes a key of the client; repeated, it answers the
// same (FR-050, G-FR-25).
func (f *ForgeRun) revokeKey(c *httpapi.Call) error {
	if _, err := f.pathClient(c); err != nil {
		return err
	}
	id, err := parseKeyID(c.Content)
	if err != nil {
		return err
	}
	if err := f.accounts.RevokeKey(c.Context(), identity(c), id); err != nil {
		return notFoundAs(err, "key")
	}
	return sendObject(c, http.StatusOK, func(o *strictjson.Object) { o.Bool("revoked", true) })
}

var keyPages = pages("k", httpapi.ByID)

// GET /v1/clients/{client_id}/keys: the keys of the client without their secrets, in the order they
// were made, revoked ones included.
func (f *ForgeRun) listKeys(c *httpapi.Call) error {
	id, err := f.pathClient(c)
	if err != nil {
		return err
	}
	limit, after, err := keyPages.Read(c)
	if err != nil {
		return err
	}
	keys, err := f.accounts.Keys(c.Context(), id, after, limit+1)
	if err != nil {
		return notFoundAs(err, "client")
	}
	write := func(o *strictjson.Object, k account.Key) {
		o.Text("key_id", k.ID)
		o.Time("created_at", k.CreatedAt)
		o.Time("expires_at", k.ExpiresAt)
		o.Time("revoked_at", k.RevokedAt)
	}
	return httpapi.SendPage(c, keyPages.Cursor, limit, keys,
		func(k account.Key) string { return k.ID }, write)
}
