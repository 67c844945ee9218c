package admin

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/outage"
	"github.com/millrace/millrace/internal/telemetry"
)

// A browser has a session instead of a token, which it gets for a token or for a one-time code:
//
//	LoginPath, POST login-codes ─▶ newCode ─▶ a link ─▶ useCode ─┐
//	                                 a token ─▶ callerOf ────────┴▶ newSession ─▶ cookie
//	each request: cookie ─▶ sessionOf ─▶ caller
//	                           └ extend: the session lasts sessionIdle from its last use on
//
// Codes and sessions are records under the digest of their secret: a reader of the store cannot use
// them. They hold on every node.
const (
	codeKind    = "admin.code"
	sessionKind = "admin.session"
)

const (
	codeLifetime = 15 * time.Minute
	sessionIdle  = 12 * time.Hour
	// sessionExtendInterval is how much later than at its last use a session may be extended, so
	// that not every request writes.
	sessionExtendInterval = time.Minute
)

// cookieName is the name of the cookie of a session.
const cookieName = "millrace_session"

// grant is the body of a code or session: what it permits.
type grant struct {
	Kind kind `json:"kind"`
	// Binding identifies the token that it was made under. It permits nothing under another token.
	Binding string `json:"binding"`
}

// secretKey returns the key of the record of a code or session.
func secretKey(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

// grantOf returns what a caller with a kind of token is permitted; false while that token is not
// known.
func (t *tokens) grantOf(k kind) (grant, bool) {
	present := t.ofKind(k)
	if present == nil {
		return grant{}, false
	}
	return grant{k, present.binding}, true
}

// isInForce reports whether the token that a code or session was made under is in force.
func (t *tokens) isInForce(g *grant) bool {
	present, known := t.grantOf(g.Kind)
	return known && present == *g
}

// code is a one-time code for a session of an operator.
type code struct {
	text      string
	expiresAt time.Time
}

// path returns the path of the page that uses up the code.
func (k *code) path() string { return consolePrefix + "/login?code=" + k.text }

// newCode makes a code. record is called in its transaction; nil records nothing.
func (a *API) newCode(ctx context.Context, record func(engine.RecordWriter) error) (k code,
	err error) {
	g, known := a.tokens.grantOf(operatorKind)
	if !known {
		return k, a.tokens.errUnknown()
	}
	k.text = rand.Text()
	err = a.Engine.ChangeRecords(ctx, sessionKind, func(w engine.RecordWriter) error {
		k.expiresAt = w.Now().Add(codeLifetime)
		r := job.Record{Kind: codeKind, Key: secretKey(k.text), ExpiresAt: k.expiresAt}
		if err := putBody(w, r, g); err != nil || record == nil {
			return err
		}
		return record(w)
	})
	return k, err
}

// LoginPath makes a one-time code and returns the path of the page that logs in with it (AD-003).
// A start prints it.
func (a *API) LoginPath(ctx context.Context) (string, error) {
	k, err := a.newCode(ctx, nil)
	return k.path(), err
}

// createCode is POST /admin/v1/login-codes.
func (a *API) createCode(c *httpapi.Call) error {
	if _, err := readMembers(c); err != nil {
		return err
	}
	k, err := a.newCode(c.Context(), func(w engine.RecordWriter) error {
		return a.record(w, c, nil, nil)
	})
	if err != nil {
		return err
	}
	o := strictjson.NewObject(nil)
	o.Text("code", k.text)
	o.Text("path", k.path())
	o.Time("expires_at", k.expiresAt)
	sendObject(c, http.StatusCreated, &o)
	return nil
}

// useCode uses up a code and returns what it permits. It is called in the transaction of the login,
// so of many that come with the same code, on all nodes, one gets a session.
func (a *API) useCode(w engine.RecordWriter, text string) (grant, error) {
	g, err := readBody[grant](w, codeKind, secretKey(text))
	if err != nil {
		return grant{}, err
	}
	if g == nil || !a.tokens.isInForce(g) {
		return grant{}, errUnauthorized
	}
	return *g, w.DeleteRecords(codeKind, secretKey(text))
}

// newSession stores a session and returns the secret for its cookie.
func newSession(w engine.RecordWriter, g grant) (secret string, err error) {
	secret = rand.Text()
	r := job.Record{Kind: sessionKind, Key: secretKey(secret),
		ExpiresAt: w.Now().Add(sessionIdle + sessionExtendInterval)}
	return secret, putBody(w, r, g)
}

// sessionOf returns the caller of a request by its cookie. The error is errUnauthorized without a
// session that holds.
func (a *API) sessionOf(c *httpapi.Call) (*caller, error) {
	cookie, err := c.Request.Cookie(cookieName)
	if err != nil {
		return nil, errUnauthorized
	}
	key := secretKey(cookie.Value)
	var g *grant
	needsExtension := false
	err = a.Engine.ViewRecords(c.Context(), func(r engine.RecordReader) (err error) {
		g, needsExtension, err = readSession(r, key)
		return err
	})
	if err != nil {
		return nil, err
	}
	if g == nil || !a.tokens.isInForce(g) {
		return nil, errUnauthorized
	}
	// What a page reads again by itself is no use of it: a browser says that its script asks.
	byScript := c.Request.Header.Get("Sec-Fetch-Dest") == "empty"
	if needsExtension && !byScript {
		a.extend(c.Context(), key)
	}
	return &caller{kind: g.Kind, session: key}, nil
}

// readSession reads a session; nil if there is none. It needs an extension when the last one was
// longer than sessionExtendInterval ago.
func readSession(r engine.RecordReader, key string) (g *grant, needsExtension bool, err error) {
	record, err := r.Record(sessionKind, key)
	if err != nil || record == nil {
		return nil, false, err
	}
	g, err = readBody[grant](r, sessionKind, key)
	return g, record.ExpiresAt.Sub(r.Now()) <= sessionIdle, err
}

// sessionsInForce returns which of some sessions have neither ended nor expired.
func (a *API) sessionsInForce(ctx context.Context, keys []string) (map[string]bool, error) {
	inForce := map[string]bool{}
	err := a.Engine.ViewRecords(ctx, func(r engine.RecordReader) error {
		records, err := r.RecordsOf(sessionKind, keys...)
		for i := range records {
			inForce[records[i].Key] = true
		}
		return err
	})
	return inForce, err
}

// extend lets a session last sessionIdle from now on. One that was ended meanwhile stays ended. The
// request goes on where the store refuses: the session then ends earlier.
func (a *API) extend(ctx context.Context, key string) {
	err := a.Engine.ChangeRecords(ctx, sessionKind, func(w engine.RecordWriter) error {
		g, needsExtension, err := readSession(w, key)
		if err != nil || g == nil || !needsExtension {
			return err
		}
		r := job.Record{Kind: sessionKind, Key: key,
			ExpiresAt: w.Now().Add(sessionIdle + sessionExtendInterval)}
		return putBody(w, r, g)
	})
	if err != nil && !errors.Is(err, context.Canceled) {
		a.Log.Log(ctx, outage.Level(slog.LevelWarn, err), "a session could not be extended",
			telemetry.ErrorMessage, err)
	}
}

// setCookie gives the browser a session; "" takes it away (AD-004).
func (a *API) setCookie(c *httpapi.Call, secret string) {
	cookie := &http.Cookie{Name: cookieName, Value: secret, Path: "/", HttpOnly: true,
		SameSite: http.SameSiteStrictMode, Secure: a.SecureCookies || c.Request.TLS != nil}
	if secret == "" {
		cookie.MaxAge = -1
	}
	http.SetCookie(c, cookie)
}

// readBody reads a record and decodes its body. It returns nil if there is none. A body that cannot
// be read is a defect or damaged data.
func readBody[T any](r engine.RecordReader, kind, key string) (*T, error) {
	record, err := r.Record(kind, key)
	if err != nil || record == nil {
		return nil, err
	}
	body := new(T)
	if err := json.Unmarshal(record.Body, body); err != nil {
		return nil, &job.Error{Op: "admin.read", Msg: "a stored record cannot be read",
			Err: fmt.Errorf("%s: %w", kind, err)}
	}
	return body, nil
}

// putBody stores a record with a body.
func putBody(w engine.RecordWriter, r job.Record, body any) error {
	var err error
	if r.Body, err = json.Marshal(body); err != nil {
		return err
	}
	return w.UpsertRecords(r)
}
