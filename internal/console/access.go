package console

import (
	"net/url"

	"github.com/millrace/millrace/internal/admin"
	"github.com/millrace/millrace/internal/httpapi"
)

// A login is a POST alone: the link with a one-time code, which a start prints, shows a button. So
// programs that follow links before people do, such as scanners of mail, use up no code. What a
// login does is in package admin (login.go); this file has its form.

// accessPages are login and logout.
func (o *Console) accessPages() []admin.Page {
	return []admin.Page{
		{Method: "GET", Pattern: Path + "/login", Action: "console.login", Public: true,
			Query: []string{"code"}, Handle: o.show(o.showLogin)},
		{Method: "POST", Pattern: Path + "/login", Action: "session.create", Public: true,
			Target: admin.FixedTarget("session"), Handle: o.submit(o.login, "code", "token")},
		{Method: "POST", Pattern: Path + "/logout", Action: "session.end", AnyToken: true,
			Target: admin.FixedTarget("session"), Handle: o.submit(o.logout)},
	}
}

// loginPage is what the login page shows.
type loginPage struct {
	Code string // that a button uses up; empty: the form for a token
}

// showLogin is GET /console/login. It shows a code and does not use it up, as mail scanners and
// browsers follow links before people do (G-AD-02).
func (o *Console) showLogin(c *httpapi.Call) (view, error) {
	code, _, err := c.Query("code")
	return view{Name: "login", Title: "Log in", Page: loginPage{code}}, err
}

// login is POST /console/login with a code or a token.
func (o *Console) login(c *httpapi.Call, form url.Values) (string, error) {
	return Path, o.api.Login(c, form.Get("token"), form.Get("code"))
}

// logout is POST /console/logout.
func (o *Console) logout(c *httpapi.Call, _ url.Values) (string, error) {
	return Path + "/login", o.api.Logout(c)
}
