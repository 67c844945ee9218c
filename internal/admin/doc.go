// Package admin is what operators use: the API under /admin/v1 over all contracts, and the access
// to it and to the pages under /console, which package console makes.
//
// All routes stand in one table (routes.go). The router, the check of access, the audit and the
// test of the OpenAPI document are derived from it, so a route cannot have one and lack another.
//
//	request ─▶ authorize   token or session, else 401 (pages: the login page), whatever the path
//	           │           a change: same origin, else 403; not with the read token, else 403
//	           ▼
//	         handler ─▶ change: one transaction with the entry of the audit ─▶ answer
//	           │
//	           └─ error ─▶ sendError: a problem document with a code, or a page
//
// # Tokens
//
// The operator's token is the one of the settings, else one that the first start makes and keeps
// in the file operator.token of the data directory. On a store that nodes share, the store has it
// too, sealed under the pepper; every node compares its own with that once a second (token.go). A
// second token, of the settings, reads everything and changes nothing.
//
// # Sessions
//
// A browser gets a session for a one-time code or for a token. Codes and sessions are records, so
// they hold on every node. Each is bound to the token that it was made under and is worth nothing
// under another one: a rotation ends them all.
//
//	code    15 minutes, shown by GET and used up by POST
//	session 12 hours from its last use on
//
// # Audit
//
// An entry is written in the transaction of the change that it records. It is stored three times,
// under no owner, its target and its action, because records are listed by owner (audit.go).
//
// # A new route
//
//   - It is a row of the table in routes.go, or of the part of it beside its handlers
//     (queueRoutes …): method, path, handler, action, query parameters and, where it changes
//     something, its target. Access, audit and HEAD follow from the row.
//   - The handler is in the file of its noun. What it changes is written together with API.record
//     (of a job: API.withAudit), in one transaction. Lists are made by newPages and newList, and
//     bodies are read by readMembers.
//   - openapi.yaml describes it; TestDocument has the number of routes, and TestEveryRoute goes
//     through the table by itself, with 1 for the members of paths.
//   - client/admin_NOUN.go has it with a test, and docs/contracts/admin.md its requirement.
//   - A command for it is in cmd/millrace/internal/NOUN, made of cli.List, Show or Each, and a line
//     of rootCommand (cmd/millrace/main.go), with a script in cmd/millrace/testdata/script.
package admin
