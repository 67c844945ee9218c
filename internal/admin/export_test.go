package admin

import "github.com/millrace/millrace/internal/httpapi"

// TableRow is a row of the table, for tests that go through all of it.
type TableRow struct {
	Method, Pattern, Action string
	Changes, Public         bool
	AnyToken                bool
	Query                   []string
	Endless                 bool // the answer goes on until the caller leaves
}

// Table lists the table, with pages.
func Table(pages ...Page) (all []TableRow) {
	for _, r := range append((&API{}).routes(), pageRoutes(pages)...) {
		all = append(all, TableRow{r.method, r.pattern, r.auditedAction(), r.changes(),
			r.public, r.anyToken, r.query, r.action == "event.stream"})
	}
	return all
}

// ErrorTable is the table of errors.
var ErrorTable httpapi.ErrorTable = errorTable

// AuditSearch is how many entries are searched for one page.
const AuditSearch = auditSearch

// SecretKey returns the key of the record of a code or session.
func SecretKey(secret string) string { return secretKey(secret) }
