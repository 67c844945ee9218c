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

// visit is one request on its way through an action.
type visit struct {
	ctx    context.Context
	call   *httpapi.Call
	body   []byte
	bearer string           // what was shown as a key
	who    account.Identity // empty where nobody showed a good key
}

// note adds to the line that the log gets of the request (FR-215 to FR-218).
func (v *visit) note(key, value string) { v.call.Note(slog.String(key, value)) }

func (v *visit) transition(from, to job.State) {
	v.note(telemetry.CurrentState, string(from))
	v.note(telemetry.NextState, string(to))
}

// requestID is where the id of a request travels to what logs about it.
type requestID struct{}

func requestIDOf(ctx context.Context) string {
	id, _ := ctx.Value(requestID{}).(string)
	return id
}

// serve takes a request through an action: who sends it and whether that one may
// send more, what HTTP says of it, and only then what it says (FR-029).
func (f *ForgeRun) serve(c *httpapi.Call, a *action) error {
	v := &visit{ctx: context.WithValue(c.Request.Context(), requestID{}, c.RequestID()), call: c}
	if err := f.admit(v, a.access); err != nil {
		return err
	}
	if a.access != maybe || v.who.ClientID != "" { // else the action finds out first whether a key is needed
		if err := c.CheckQuery(); err != nil {
			return err
		}
	}
	if !c.AcceptsJSON() {
		return httpapi.ErrNotAcceptable
	}
	if c.Request.ContentLength > 0 && !c.SaysPlainJSON() {
		return httpapi.ErrNotJSON
	}
	if err := v.read(a.method == http.MethodPost); err != nil {
		return err
	}
	return a.do(f, v)
}

// read reads the body and, where it is wanted, keeps it. One whose length was not
// announced may turn out to be none.
func (v *visit) read(wanted bool) error {
	body, err := v.call.Body()
	if err != nil || !wanted {
		return err
	}
	if len(body) > 0 && !v.call.SaysPlainJSON() {
		return httpapi.ErrNotJSON
	}
	v.body = body
	return nil
}

// admit finds out who sends the request and whether that one may send more.
func (f *ForgeRun) admit(v *visit, who access) error {
	if err := f.admitPepper(v); err != nil {
		return err
	}
	given := v.call.Request.Header["Authorization"]
	v.bearer = account.Bearer(given)
	if who == anybody || who == maybe && len(given) == 0 {
		return f.allowAddress(v)
	}
	identity, err := f.accounts.Authenticate(v.ctx, v.bearer)
	var denied *account.Denied
	if errors.As(err, &denied) {
		if denied.ClientID != "" {
			v.note(telemetry.ClientID, denied.ClientID)
		}
		if err := f.allowAddress(v); err != nil {
			return err
		}
		if who == outOfDate && denied.Reason == account.Expired {
			return nil
		}
	}
	if err != nil {
		return err
	}
	v.who = identity
	v.note(telemetry.ClientID, identity.ClientID)
	verdict, err := f.accounts.Allow(v.ctx, identity.ClientID)
	return limited(verdict, err, "this client")
}

// allowAddress limits who shows no good key (G-FR-16).
func (f *ForgeRun) allowAddress(v *visit) error {
	host, _, err := net.SplitHostPort(v.call.Request.RemoteAddr)
	if err != nil {
		host = v.call.Request.RemoteAddr
	}
	verdict, err := f.accounts.AllowAddress(v.ctx, host)
	return limited(verdict, err, "this address, without a valid API key,")
}

func limited(verdict account.Verdict, err error, who string) error {
	if err != nil || verdict.OK {
		return err
	}
	return &problem{code: codeRateLimited, detail: who + " has sent more requests than it may " + verdict.Limit, wait: verdict.RetryAfter}
}

// forbidden is the answer to who asks for what is another client's (FR-014).
var forbidden = &problem{code: codeForbidden, detail: "this belongs to another client"}

// denials say what a key was refused for; they say it before anything is looked
// up, so that they are the same whatever there is (FR-031).
var denials = map[account.Reason]*problem{
	account.Missing:   {code: codeCredentials, detail: keyNeeded},
	account.Malformed: {code: codeCredentials, detail: keyNeeded},
	account.Unknown:   {code: codeCredentials, detail: keyNeeded},
	account.Expired:   {code: codeExpired, detail: "the API key has expired; it can be renewed"},
	account.Disabled:  {code: codeDisabled, detail: "the API key was revoked or replaced"},
}

const keyNeeded = "a valid API key is needed, as the header Authorization: Bearer API_KEY"
