package admin

import (
	"bytes"
	_ "embed"
	"html/template"
	"net/http"
	"net/url"
	"slices"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/httpapi/strictjson"
)

//go:embed console.html
var consoleText string

var consolePage = template.Must(template.New("console").Parse(consoleText))

// page is what a page of the console shows.
type page struct {
	Title, Text string
	Code        string // that a button uses up
	Login       bool   // the form for a token
	Actor       string // who is logged in; empty: nobody
}

// htmlType is the content type of the pages.
var htmlType = []string{"text/html; charset=utf-8"}

// sendPage answers with a page.
func sendPage(c *httpapi.Call, status int, p page) error {
	var text bytes.Buffer
	if err := consolePage.Execute(&text, p); err != nil {
		return err
	}
	c.Send(status, htmlType, text.Bytes())
	return nil
}

// sendErrorPage answers an error with a page: the login page where credentials are missing. The
// template knows every page, so it does not fail.
func sendErrorPage(c *httpapi.Call, answer httpapi.Answer) {
	p := page{Title: answer.Title, Text: answer.Detail}
	if answer.Code == codeUnauthorized {
		p = page{Title: "Log in", Text: "Log in with an operator token, or with a link that " +
			"'millrace operator login' prints.", Login: true}
	}
	_ = sendPage(c, answer.Status, p)
}

// showConsole is GET /console. The pages themselves are still to come; this one ends the session.
func (a *API) showConsole(c *httpapi.Call) error {
	return sendPage(c, http.StatusOK, page{Title: "Logged in", Actor: callerOf(c).actor()})
}

// showLogin is GET /console/login. It shows a code and does not use it up, as mail scanners and
// browsers follow links before people do (G-AD-02).
func (a *API) showLogin(c *httpapi.Call) error {
	code, given, err := c.Query("code")
	if err != nil {
		return err
	}
	if !given {
		return sendPage(c, http.StatusOK, page{Title: "Log in", Login: true})
	}
	return sendPage(c, http.StatusOK, page{Title: "Log in", Code: code,
		Text: "The link works once."})
}

// login is POST /console/login with a code or a token.
func (a *API) login(c *httpapi.Call) error {
	form, err := readForm(c, "code", "token")
	if err != nil {
		return err
	}
	token, code := form.Get("token"), form.Get("code")
	if (token == "") == (code == "") {
		return invalid("the form needs a code or a token")
	}
	var fromToken *caller
	if token != "" {
		if fromToken, err = a.tokens.callerOf(token); err != nil {
			a.logUnauthorized(c, err)
			return err
		}
	}
	secret := ""
	err = a.Engine.ChangeRecords(c.Context(), sessionKind, func(w engine.RecordWriter) error {
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
	seeOther(c, consolePrefix)
	return nil
}

// loginGrant returns what a login permits: as much as its token, else as its code.
func (a *API) loginGrant(w engine.RecordWriter, fromToken *caller, code string) (grant, error) {
	if fromToken == nil {
		return a.useCode(w, code)
	}
	g, known := a.tokens.grantOf(fromToken.kind)
	if !known {
		return g, errTokenUnknown
	}
	return g, nil
}

// logout is POST /console/logout. It ends the session of the request; a token has none.
func (a *API) logout(c *httpapi.Call) error {
	if _, err := readForm(c); err != nil {
		return err
	}
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
	seeOther(c, consolePrefix+"/login")
	return nil
}

// seeOther sends the browser to another page after a form.
func seeOther(c *httpapi.Call, path string) {
	c.Header().Set("Location", path)
	c.WriteHeader(http.StatusSeeOther)
}

// readForm reads the body of a form that has fields with these names only, each once.
func readForm(c *httpapi.Call, allowed ...string) (url.Values, error) {
	body, err := c.Body()
	if err != nil {
		return nil, err
	}
	form, err := url.ParseQuery(string(strictjson.Trim(body)))
	if err != nil {
		return nil, invalid("the body is not a form")
	}
	for name, values := range form {
		if !slices.Contains(allowed, name) || len(values) > 1 {
			return nil, invalid("the form has other fields than this page")
		}
	}
	return form, nil
}
