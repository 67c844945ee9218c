package admin

import (
	"cmp"
	"net/http"
	"slices"

	"github.com/millrace/millrace/internal/httpapi"
)

// The prefixes of all routes. Below them nothing is answered without credentials.
const (
	apiPrefix     = "/admin/v1"
	consolePrefix = "/console"
)

// The table is made once, in Mount. What follows from a row:
//
//	method, pattern, query, body   the router, which refuses other parameters and bodies
//	target                         the route changes something: the check of origin and of the
//	                               read token, and the entries of the audit
//	action, audited                names in log, traces and audit
//	public, anyToken, dryRun       the few that fewer credentials suffice for
//
// The pages of the console are further rows (pages.go).

// route is one row of the table. Everything that distinguishes routes stands here.
type route struct {
	method  string
	pattern string
	handle  httpapi.Handler
	// action is the name of the route in log and traces. It is unique.
	action string
	// audited is the name of what the route changes in the audit; empty means action.
	audited string
	// target names what a change is about, for the audit. A route without one only reads.
	target func(*httpapi.Call) string
	query  []string
	// body says that the handler reads a body.
	body bool
	// public routes need no credentials: those that give a session.
	public bool
	// anyToken lets the read token change this, as it concerns nothing but its own session.
	anyToken bool
	// dryRun says that the body may ask for a dry run, which is a read (G-AD-03): the handler
	// refuses the read token for all else.
	dryRun bool
	decode func(escaped string) (member string, ok bool) // httpapi.Route.DecodePathValue
}

// routes returns the table.
func (a *API) routes() []route {
	return slices.Concat(a.accessRoutes(), a.actionRoutes(), a.bulkRoutes(), a.clientRoutes(),
		a.contractRoutes(), a.countRoutes(), a.deadLetterRoutes(), a.eventRoutes(),
		a.inboxRoutes(), a.jobRoutes(), a.nodeRoutes(),
		a.queueRoutes(), a.scheduleRoutes(), a.seriesRoutes(),
		a.subscriptionRoutes(), a.webhookRoutes(), a.whyRoutes(), a.jobListRoutes())
}

// accessRoutes are the routes of the token, sessions, the audit and the node.
func (a *API) accessRoutes() []route {
	return []route{
		{method: "GET", pattern: apiPrefix + "/audit", action: "audit.list", handle: a.listAudit,
			query: httpapi.PageQuery("action", "target", "actor", "from", "to")},
		{method: "GET", pattern: apiPrefix + "/settings", action: "settings.list",
			handle: a.listSettings, query: httpapi.PageQuery()},
		{method: "GET", pattern: apiPrefix + "/health", action: "health.show",
			handle: a.showHealth},
		{method: "POST", pattern: apiPrefix + "/token/rotate", action: "token.rotate",
			handle: a.rotateToken, target: FixedTarget("token:operator"), body: true},
		{method: "POST", pattern: apiPrefix + "/login-codes", action: "login.create",
			handle: a.createCode, target: FixedTarget("login"), body: true},
	}
}

// auditedAction returns the name of what the route changes.
func (r *route) auditedAction() string { return cmp.Or(r.audited, r.action) }

// changes reports whether the route changes something.
func (r *route) changes() bool { return r.target != nil }

// httpRoutes returns the route for the router. HEAD goes where GET goes (G-AD-01).
func (r *route) httpRoutes() []httpapi.Route {
	one := httpapi.Route{Method: r.method, Pattern: r.pattern, Handle: r.handle,
		Action: r.action, ReadsBody: r.body, Query: r.query, DecodePathValue: r.decode}
	if r.method != http.MethodGet {
		return []httpapi.Route{one}
	}
	head := one
	head.Method = http.MethodHead
	return []httpapi.Route{one, head}
}

// routeOf returns the row of a call, nil where no route matches.
func (a *API) routeOf(c *httpapi.Call) *route {
	if c.Route == nil {
		return nil
	}
	return a.byAction[c.Route.Action]
}
