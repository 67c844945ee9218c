package admin

import (
	"strings"

	"github.com/millrace/millrace/internal/httpapi"
)

// The pages of the console are rows of the table of the API: access, audit and the answer to HEAD
// follow from the row here as there. Package console serves them with the functions of this package
// that the API's own routes call.

// Console is what serves the pages below /console.
type Console interface {
	Pages() []Page
	// SendError answers an error with a page: the login page where credentials are missing.
	SendError(c *httpapi.Call, answer httpapi.Answer)
}

// Page is a page of the console, or a form that one sends.
type Page struct {
	Method  string
	Pattern string // begins with /console
	Handle  httpapi.Handler
	Action  string // its name in log and traces; unique
	Query   []string
	// Audit is the action of a form in the audit, and Target what it changes, as in the row of the
	// API that does the same. A page without a target only reads, and its method is GET.
	Audit  string
	Target func(*httpapi.Call) string
	// Public pages need no session, and AnyToken forms are permitted to the read token.
	Public, AnyToken bool
	DecodePathValue  func(escaped string) (member string, ok bool) // that of httpapi.Route
}

// pageRoutes returns the rows of pages.
func pageRoutes(pages []Page) (all []route) {
	for _, p := range pages {
		all = append(all, route{method: p.Method, pattern: p.Pattern, handle: p.Handle,
			action: p.Action, audited: p.Audit, target: p.Target, query: p.Query,
			body: p.Target != nil, public: p.Public, anyToken: p.AnyToken,
			decode: p.DecodePathValue})
	}
	return all
}

// Viewer is the caller of a page.
type Viewer struct {
	Name     string // as the audit has it
	ReadOnly bool   // it may change nothing
	// Its methods take from what a page shows what the caller does not see.
	disclosure
}

// Viewer returns who sends a call; the zero Viewer where nobody is logged in.
func (a *API) Viewer(c *httpapi.Call) Viewer {
	who, ok := c.Identity.(*caller)
	if !ok {
		return Viewer{}
	}
	return Viewer{Name: who.actor(), ReadOnly: who.kind == readKind, disclosure: a.disclosureTo(c)}
}

// isPage reports whether a call is for a page.
func isPage(c *httpapi.Call) bool {
	path := c.Request.URL.Path
	return path == consolePrefix || strings.HasPrefix(path, consolePrefix+"/")
}

// FixedTarget names the same target whatever the request.
func FixedTarget(target string) func(*httpapi.Call) string {
	return func(*httpapi.Call) string { return target }
}
