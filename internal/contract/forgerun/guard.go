package forgerun

import (
	"context"
	"errors"
	"log/slog"
	"net"

	"github.com/millrace/millrace/internal/account"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/telemetry"
)

// The guard of a route runs before its handler, and before the body is read:
//
//	pepper ─► key and rate limit ─► query ─► Accept ─► Content-Type ─► body ─► handler
//	  503           401, 403, 429     400       406          415         413
//
// The first check that fails answers. So a request without a valid key has no effect and does not
// show what exists (FR-029 to FR-031). Every request is counted, by its client or by its address
// (G-FR-15, G-FR-16):
//
//	                  valid key      no key         expired key    any other key
//	authKey           by client      refused        refused        refused
//	authNone          by address     by address     by address     by address
//	authOptional      by client      by address     refused        refused
//	authExpiredKey    by client      refused        by address     refused
//
// A refused request is counted by its address too, which limits how many keys a caller can try.

// access is the API key that a route needs.
type access uint8

const (
	authKey        access = iota // a valid key
	authNone                     // no key; counted by address
	authOptional                 // a valid key or, for a client's first key, none (G-FR-03)
	authExpiredKey               // a key that may have expired, to renew it (G-FR-26)
)

// requestIDKey is the context key of the request's id, which account logs.
type requestIDKey struct{}

// requestIDFrom returns the id that guard has put into the context of a request, or "" outside of
// one.
func requestIDFrom(ctx context.Context) string {
	id, _ := ctx.Value(requestIDKey{}).(string)
	return id
}

// guard returns the guard of a route. The order of its checks is the order in which errors are
// reported: the API key and rate limit, the query and headers, the body (FR-029).
func (f *ForgeRun) guard(required access) httpapi.Handler {
	return func(c *httpapi.Call) error {
		ctx := context.WithValue(c.Context(), requestIDKey{}, c.RequestID())
		c.Request = c.Request.WithContext(ctx)
		if err := f.admit(c, required); err != nil {
			return err
		}
		// Without a key the handler first finds out whether it needs one, and checks the query
		// itself.
		if required != authOptional || clientID(c) != "" {
			if err := c.CheckQuery(); err != nil {
				return err
			}
		}
		if !c.AcceptsJSON() {
			return httpapi.ErrNotAcceptable
		}
		if c.Request.ContentLength > 0 && !c.HasPlainJSONContentType() {
			return httpapi.ErrNotJSON
		}
		return readBody(c)
	}
}

// readBody reads the body and keeps it if the route wants one. Only now is it known whether a
// request without a Content-Length has a body, so its content type is checked here.
func readBody(c *httpapi.Call) error {
	body, err := c.Body()
	if err != nil || !c.Route.ReadsBody {
		return err
	}
	if len(body) > 0 && !c.HasPlainJSONContentType() {
		return httpapi.ErrNotJSON
	}
	c.Content = body
	return nil
}

// identity returns the client and key that the guard has authenticated; both are empty without a
// valid key.
func identity(c *httpapi.Call) account.Identity {
	id, _ := c.Identity.(account.Identity)
	return id
}

// clientID returns the client of a request, or "" if it has no valid key.
func clientID(c *httpapi.Call) string { return identity(c).ClientID }

// bearer returns the key of the Authorization header.
func bearer(c *httpapi.Call) string { return account.Bearer(c.Request.Header["Authorization"]) }

// admit authenticates a request and counts it: by its client, or by its address if it has no valid
// key. The handler finds the client in the call's Identity; it is not set for a key that has
// expired, which RenewKey checks again. An error of the store is returned as it is: without an
// answer about the key the request is refused.
func (f *ForgeRun) admit(c *httpapi.Call, required access) error {
	if err := f.ensurePepper(c); err != nil {
		return err
	}
	keyGiven := len(c.Request.Header["Authorization"]) > 0
	if required == authNone || (required == authOptional && !keyGiven) {
		return f.allowAddress(c)
	}
	caller, err := f.accounts.Authenticate(c.Context(), bearer(c))
	var denied *account.Denied
	if errors.As(err, &denied) {
		if denied.ClientID != "" {
			c.AddAttrs(slog.String(telemetry.ClientID, denied.ClientID))
		}
		if err := f.allowAddress(c); err != nil {
			return err
		}
		if required == authExpiredKey && denied.Reason == account.Expired {
			return nil
		}
	}
	if err != nil {
		return err
	}
	c.Identity = caller
	c.AddAttrs(slog.String(telemetry.ClientID, caller.ClientID))
	decision, err := f.accounts.Allow(c.Context(), caller)
	return rateLimitError(decision, err, "this client")
}

// allowAddress counts a request without a valid key (G-FR-16). It counts by the address of the
// connection, or of the client behind a trusted proxy.
func (f *ForgeRun) allowAddress(c *httpapi.Call) error {
	host, _, err := net.SplitHostPort(c.Request.RemoteAddr)
	if err != nil {
		host = c.Request.RemoteAddr
	}
	decision, err := f.accounts.AllowAddress(c.Context(), host)
	return rateLimitError(decision, err, "this address, without a valid API key,")
}

// rateLimitError returns the error of a request that was counted: nil if it is allowed, else one
// that says which limit is used up and when to come back (FR-019, G-FR-14).
func rateLimitError(decision account.Decision, err error, caller string) error {
	if err != nil || decision.Allowed {
		return err
	}
	return &httpapi.CodedError{Code: codeRateLimited,
		Detail:     caller + " has sent more requests than it may " + decision.Limit,
		RetryAfter: decision.RetryAfter}
}

// errForbidden is the answer to a request for something of another client (FR-014).
var errForbidden = &httpapi.CodedError{Code: codeForbidden,
	Detail: "this belongs to another client"}

// denialErrors are the answers to refused keys. They are sent before anything else is looked up,
// so they do not reveal what exists (FR-031).
var denialErrors = map[account.Reason]*httpapi.CodedError{
	account.Missing:   {Code: codeCredentials, Detail: keyNeededDetail},
	account.Malformed: {Code: codeCredentials, Detail: keyNeededDetail},
	account.Unknown:   {Code: codeCredentials, Detail: keyNeededDetail},
	account.Expired:   {Code: codeExpired, Detail: "the API key has expired; it can be renewed"},
	account.Disabled:  {Code: codeDisabled, Detail: "the API key was revoked or replaced"},
}

const keyNeededDetail = "a valid API key is needed, as the header Authorization: Bearer API_KEY"
