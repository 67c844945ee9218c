package admin

import (
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/httpapi"
)

// A login exchanges a token, or a one-time code, for a session. The end of the code, the session
// and the entry of the audit are one transaction under the lock of all sessions, so that a code is
// used once, also where two browsers send it at the same time.

// Login gives the browser of a call a session for a token, or for a one-time code that is used up
// by it. Exactly one of them is given.
func (a *API) Login(c *httpapi.Call, token, code string) error {
	if (token == "") == (code == "") {
		return invalid("the form needs a code or a token")
	}
	var fromToken *caller
	if token != "" {
		var err error
		if fromToken, err = a.tokens.callerOf(token); err != nil {
			a.logUnauthorized(c, err)
			return err
		}
	}
	secret := ""
	err := a.Engine.ChangeRecords(c.Context(), sessionKind, func(w engine.RecordWriter) error {
		g, err := a.loginGrant(w, fromToken, code)
		if err != nil {
			return err
		}
		if secret, err = newSession(w, g); err != nil {
			return err
		}
		c.Identity = &caller{kind: g.Kind}
		return a.record(w, c, nil, nil)
	})
	if err != nil {
		a.logUnauthorized(c, err)
		return err
	}
	a.setCookie(c, secret)
	return nil
}

// loginGrant returns what a login permits: as much as its token, else as its code.
func (a *API) loginGrant(w engine.RecordWriter, fromToken *caller, code string) (grant, error) {
	if fromToken == nil {
		return a.useCode(w, code)
	}
	g, known := a.tokens.grantOf(fromToken.kind)
	if !known {
		return g, a.tokens.errUnknown()
	}
	return g, nil
}

// Logout ends the session of a call; a token has none.
func (a *API) Logout(c *httpapi.Call) error {
	if key := callerOf(c).session; key != "" {
		err := a.Engine.ChangeRecords(c.Context(), sessionKind, func(w engine.RecordWriter) error {
			if err := w.DeleteRecords(sessionKind, key); err != nil {
				return err
			}
			return a.record(w, c, nil, nil)
		})
		if err != nil {
			return err
		}
	}
	a.setCookie(c, "")
	return nil
}
