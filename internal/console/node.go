package console

import (
	"net/http"
	"net/url"

	"github.com/millrace/millrace/internal/admin"
	"github.com/millrace/millrace/internal/httpapi"
)

// The pages show health and settings of the node that answers, and name it: behind a load balancer
// a reload may show another node. The audit has the entries of all nodes.

// nodePages are the pages about the node that answers, and the audit.
func (o *Console) nodePages() []admin.Page {
	return []admin.Page{
		{Method: "GET", Pattern: Path + "/health", Action: "console.health",
			Handle: o.show(o.showHealth)},
		{Method: "GET", Pattern: Path + "/settings", Action: "console.settings",
			Query: []string{"text"}, Handle: o.show(o.showSettings)},
		{Method: "GET", Pattern: Path + "/audit", Action: "console.audit",
			Query: httpapi.PageQuery(auditFilters...), Handle: o.show(o.showAudit)},
	}
}

// showHealth is GET /console/health.
func (o *Console) showHealth(c *httpapi.Call) (view, error) {
	parts, ok := o.api.Health(c.Context())
	return view{Name: "health", Title: "Health", Page: struct {
		OK    bool
		Parts []admin.PartHealth
	}{ok, parts}}, nil
}

// firstPage returns the address of the first page of a list; "" for that page itself.
func firstPage(r *http.Request) string {
	q := r.URL.Query()
	if !q.Has("cursor") {
		return ""
	}
	q.Del("cursor")
	return (&url.URL{Path: r.URL.Path, RawQuery: q.Encode()}).String()
}

// nextPage returns the address of the page that a cursor begins; "" without one.
func nextPage(r *http.Request, cursor string) string {
	if cursor == "" {
		return ""
	}
	q := r.URL.Query()
	q.Set("cursor", cursor)
	return (&url.URL{Path: r.URL.Path, RawQuery: q.Encode()}).String()
}
