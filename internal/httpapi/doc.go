// Package httpapi is what all contracts share of HTTP: routing, limits, timeouts, logging and one
// path for errors. It knows no contract.
//
// A contract is a Router: its routes, its body limit, its token, and the one function that
// writes all its errors. Router.Mount checks it and makes a PrefixHandler of it, and NewMux
// serves the handlers of a listener side by side.
//
//	NewMux ── longest prefix ──> Router.ServeHTTP
//	                              │ bearer token      401
//	                              │ Authorize         401, 403
//	                              │ route             404, 405
//	                              │ query             400, where the route changes something
//	                              │ body limit        413
//	                              ▼
//	                             Handler(*Call) ── error ──> Router.WriteError
//	                              │                              │
//	                              ▼                              ▼
//	                             answer ─────────────────> metrics, one log line, span
//
// Paths are matched as they were sent, escaped, and their members are decoded once afterwards.
// Nothing is cleaned and nothing redirected, so "%2F" and "%2E%2E" stay part of the member they
// stand in. An empty member matches nothing.
//
// A route with a Guard authenticates its callers itself: the guard replaces the checks of query and
// body, and hands the caller's identity and the body to the handler in the Call.
//
// Handlers return errors. Every error inside a router, an unknown path and a panic included, is
// answered by that router's WriteError and logged there, once. A successful request is one line
// at debug level.
//
// Bodies and answers are moved in pieces, and each piece extends the deadlines of its
// connection: a slow client is served, a silent one is not.
package httpapi
