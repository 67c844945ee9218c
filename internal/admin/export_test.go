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
const AuditSearch = maxAuditSearch

// SecretKey returns the key of the record of a code or session.
func SecretKey(secret string) string { return secretKey(secret) }

// LimitCounts lets fewer jobs be counted one by one, and returns how many it was before.
func (a *API) LimitCounts(limit int) (before int) {
	before, a.maxCounted = a.maxCounted, limit
	return before
}

// LimitRuns lets a list of workers look at fewer running jobs.
func (a *API) LimitRuns(limit int) { a.maxRuns = limit }

// NaturalKey is the key by which queues are in the order of their names.
var NaturalKey = naturalKey
