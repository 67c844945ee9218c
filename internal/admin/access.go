package admin

import (
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"

	"github.com/millrace/millrace/internal/account"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/telemetry"
)

// Who sends a request is decided before anything about the request is, so that without credentials
// all paths have the same answer, also those that do not exist:
//
//	Authorization ─▶ tokens.callerOf ─┐
//	cookie ────────▶ sessionOf ───────┴▶ caller ─▶ a change? ─▶ checkOrigin ─▶ kind
//
// The origin is checked for every change, whatever the credentials: a browser sends a cookie along
// with a request that a page of somebody else makes.

// kind is which of the two tokens a caller has.
type kind string

const (
	operatorKind kind = "operator"
	readKind     kind = "read"
)

// caller is the sender of a request.
type caller struct {
	kind    kind
	name    string // of the header Millrace-Actor; empty without one
	session string // the key of its record; empty for a token
}

// actor returns the caller as the audit names it (AD-006).
func (c *caller) actor() string {
	if c.name == "" {
		return string(c.kind)
	}
	return string(c.kind) + ":" + c.name
}

// securityHeaders are the headers that every answer has (AD-007): nothing of another source runs or
// is loaded, nothing inline runs, no page frames it, and no cache keeps it.
var securityHeaders = map[string][]string{
	"Content-Security-Policy": {"default-src 'none'; script-src 'self'; style-src 'self'; " +
		"img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; " +
		"frame-ancestors 'none'"},
	"X-Content-Type-Options": {"nosniff"},
	"Referrer-Policy":        {"no-referrer"},
	"Cache-Control":          {"no-store"},
}

// authorize decides about every request, also about those that match no route: without credentials
// all of them have the same answer (AD-001). A refused change of valid credentials is an entry of
// the audit; wrong credentials are a line of the log (G-AD-04).
func (a *API) authorize(c *httpapi.Call) error {
	for name, values := range securityHeaders {
		c.Header()[name] = values
	}
	a.prove(c)
	r := a.routeOf(c)
	if r != nil && r.public {
		return a.checkOrigin(c)
	}
	who, err := a.identify(c)
	if err != nil {
		return err
	}
	c.Identity = who
	c.AddAttrs(slog.String("actor", who.actor()))
	if r == nil || !r.changes() {
		return nil
	}
	if err := a.checkOrigin(c); err != nil {
		a.recordRefusal(c, r, codeForbidden)
		return err
	}
	if who.kind == readKind && !r.anyToken && !r.dryRun {
		a.recordRefusal(c, r, codeReadOnly)
		return errReadOnly
	}
	return nil
}

// maxChallenge bounds the text of a challenge, in bytes.
const maxChallenge = 100

// prove answers a challenge of a command that has the operator's token and does not know yet whose
// server it is about to send it to (AD-008), whatever becomes of the request.
func (a *API) prove(c *httpapi.Call) {
	given := c.Request.Header[account.ChallengeHeader]
	at, isTCP := c.Request.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	if len(given) == 1 && len(given[0]) <= maxChallenge && isTCP {
		c.Header().Set(account.ProofHeader, account.Proof(a.tokens.proofKey, given[0], at.AddrPort()))
	}
}

// checkOrigin refuses a change that a page of another origin has a browser send (AD-004).
func (a *API) checkOrigin(c *httpapi.Call) error {
	if a.crossOrigin.Check(c.Request) != nil {
		return errForeignOrigin
	}
	return nil
}

// identify returns the caller of a request. A header Authorization decides alone, also where the
// request has a session too. The name of the actor is read last: only callers with credentials
// learn that it is wrong.
func (a *API) identify(c *httpapi.Call) (who *caller, err error) {
	if given := c.Request.Header["Authorization"]; len(given) > 0 {
		who, err = a.tokens.callerOf(account.Bearer(given))
	} else {
		who, err = a.sessionOf(c)
	}
	if err != nil {
		a.logUnauthorized(c, err)
		return nil, err
	}
	who.name, err = actorName(c.Request.Header)
	return who, err
}

// logUnauthorized logs that credentials were wrong; a request without any is none of that.
func (a *API) logUnauthorized(c *httpapi.Call, err error) {
	_, noCookie := c.Request.Cookie(cookieName)
	none := len(c.Request.Header["Authorization"]) == 0 && noCookie != nil && isRead(c.Request)
	if errors.Is(err, errUnauthorized) && !none {
		a.Log.Warn("a request was refused for its credentials",
			telemetry.RequestID, c.RequestID(), telemetry.Remote, remoteOf(c.Request))
	}
}

// actorHeader carries the name of who uses the token.
const actorHeader = "Millrace-Actor"

// maxActor bounds the name of an actor, in bytes.
const maxActor = 100

// actorName returns the name in the header Millrace-Actor, which is printable ASCII.
func actorName(h http.Header) (string, error) {
	given := h[actorHeader]
	if len(given) == 0 {
		return "", nil
	}
	name := given[0]
	wrong := func(r rune) bool { return r < ' ' || r > '~' }
	if len(given) > 1 || name == "" || len(name) > maxActor ||
		strings.ContainsFunc(name, wrong) {
		return "", invalid(actorHeader + " takes one name of 1 to 100 printable ASCII characters")
	}
	return name, nil
}

// remoteOf returns the address of the caller without its port.
func remoteOf(r *http.Request) string {
	at, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return httpapi.RemoteHost(r)
	}
	return at.Addr().Unmap().String()
}

// callerOf returns the caller of a call that authorize has let through.
func callerOf(c *httpapi.Call) *caller { return c.Identity.(*caller) }
