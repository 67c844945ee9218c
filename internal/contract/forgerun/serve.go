package forgerun

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"

	"github.com/millrace/millrace/internal/account"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/telemetry"
)

// request is one request that an action serves.
type request struct {
	ctx      context.Context
	call     *httpapi.Call
	body     []byte
	bearer   string           // the key of the Authorization header
	identity account.Identity // empty without a valid key
}

// logAttr adds an attribute to the request's log line (FR-215 to FR-218).
func (v *request) logAttr(key, value string) { v.call.AddAttrs(slog.String(key, value)) }

func (v *request) logTransition(from, to job.State) {
	v.logAttr(telemetry.CurrentState, string(from))
	v.logAttr(telemetry.NextState, string(to))
}

// requestIDKey is the context key of the request's id, which account logs.
type requestIDKey struct{}

func requestIDFrom(ctx context.Context) string {
	id, _ := ctx.Value(requestIDKey{}).(string)
	return id
}

// serve checks a request and calls its action. The order of the checks is the order in which errors
// are reported: the API key and rate limit, the query and headers, the body (FR-029).
func (f *ForgeRun) serve(c *httpapi.Call, a *action) error {
	v := &request{ctx: context.WithValue(c.Request.Context(), requestIDKey{}, c.RequestID()),
		call: c}
	if err := f.admit(v, a.access); err != nil {
		return err
	}
	// Without a key the action first finds out whether it needs one, and checks the query itself.
	if a.access != authOptional || v.identity.ClientID != "" {
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
	if err := v.readBody(a.method == http.MethodPost); err != nil {
		return err
	}
	return a.handle(f, v)
}

// readBody reads the body and keeps it if the action wants one. Only now is it known whether a
// request without a Content-Length has a body, so its content type is checked here.
func (v *request) readBody(wanted bool) error {
	body, err := v.call.Body()
	if err != nil || !wanted {
		return err
	}
	if len(body) > 0 && !v.call.HasPlainJSONContentType() {
		return httpapi.ErrNotJSON
	}
	v.body = body
	return nil
}

// admit authenticates a request and counts it: by its client, or by its address if it has no valid
// key.
func (f *ForgeRun) admit(v *request, required access) error {
	if err := f.ensurePepper(v); err != nil {
		return err
	}
	given := v.call.Request.Header["Authorization"]
	v.bearer = account.Bearer(given)
	if required == authNone || (required == authOptional && len(given) == 0) {
		return f.allowAddress(v)
	}
	identity, err := f.accounts.Authenticate(v.ctx, v.bearer)
	var denied *account.Denied
	if errors.As(err, &denied) {
		if denied.ClientID != "" {
			v.logAttr(telemetry.ClientID, denied.ClientID)
		}
		if err := f.allowAddress(v); err != nil {
			return err
		}
		if required == authExpiredKey && denied.Reason == account.Expired {
			return nil
		}
	}
	if err != nil {
		return err
	}
	v.identity = identity
	v.logAttr(telemetry.ClientID, identity.ClientID)
	decision, err := f.accounts.Allow(v.ctx, identity.ClientID)
	return rateLimitError(decision, err, "this client")
}

// allowAddress counts a request without a valid key (G-FR-16).
func (f *ForgeRun) allowAddress(v *request) error {
	host, _, err := net.SplitHostPort(v.call.Request.RemoteAddr)
	if err != nil {
		host = v.call.Request.RemoteAddr
	}
	decision, err := f.accounts.AllowAddress(v.ctx, host)
	return rateLimitError(decision, err, "this address, without a valid API key,")
}

func rateLimitError(decision account.Decision, err error, caller string) error {
	if err != nil || decision.Allowed {
		return err
	}
	return &problem{code: codeRateLimited,
		detail:     caller + " has sent more requests than it may " + decision.Limit,
		retryAfter: decision.RetryAfter}
}

// errForbidden is the answer to a request for something of another client (FR-014).
var errForbidden = &problem{code: codeForbidden, detail: "this belongs to another client"}

// denialProblems are the answers to refused keys. They are sent before anything else is looked up,
// so they do not reveal what exists (FR-031).
var denialProblems = map[account.Reason]*problem{
	account.Missing:   {code: codeCredentials, detail: keyNeededDetail},
	account.Malformed: {code: codeCredentials, detail: keyNeededDetail},
	account.Unknown:   {code: codeCredentials, detail: keyNeededDetail},
	account.Expired:   {code: codeExpired, detail: "the API key has expired; it can be renewed"},
	account.Disabled:  {code: codeDisabled, detail: "the API key was revoked or replaced"},
}

const keyNeededDetail = "a valid API key is needed, as the header Authorization: Bearer API_KEY"
