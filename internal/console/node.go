package console

import (
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/admin"
	"github.com/millrace/millrace/internal/httpapi"
)

// Health and settings are those of the node that answers, which the pages name: behind a load
// balancer a reload may show another one. The audit is that of all nodes.

// nodePages are the pages about the node that answers, and the audit.
func (o *Console) nodePages() []admin.Page {
	return []admin.Page{
		{Method: "GET", Pattern: Path + "/health", Action: "console.health",
			Handle: o.show(o.showHealth)},
		{Method: "GET", Pattern: Path + "/settings", Action: "console.settings",
			Query: []string{"text", "changed"}, Handle: o.show(o.showSettings)},
		{Method: "GET", Pattern: Path + "/audit", Action: "console.audit",
			Query: httpapi.PageQuery("action", "target", "from", "to"), Handle: o.show(o.showAudit)},
	}
}

// showHealth is GET /console/health.
func (o *Console) showHealth(c *httpapi.Call) (view, error) {
	parts, ok := o.api.Health(c.Context())
	return view{Name: "health", Title: "Health", Page: struct {
		OK    bool
		Parts []admin.Part
	}{ok, parts}}, nil
}

// showSettings is GET /console/settings.
func (o *Console) showSettings(c *httpapi.Call) (view, error) {
	text, _, err := c.Query("text")
	if err != nil {
		return view{}, err
	}
	_, changed, err := c.Query("changed")
	if err != nil {
		return view{}, err
	}
	var found []admin.Setting
	for _, s := range o.api.Settings {
		all := strings.ToLower(s.Key + "\n" + s.Value + "\n" + s.Meaning + "\n" + s.Origin)
		if strings.Contains(all, strings.ToLower(text)) && (!changed || s.Origin != "default") {
			found = append(found, s)
		}
	}
	return view{Name: "settings", Title: "Settings", Page: struct {
		Text     string
		Changed  bool
		Settings []admin.Setting
	}{text, changed, found}}, nil
}

// auditPage is what the page of the audit shows.
type auditPage struct {
	Action, Target, From, To string
	Filtered                 bool
	Entries                  []admin.Entry
	SearchedTo               time.Time
	Next                     string // the address of the next page
}

// showAudit is GET /console/audit.
func (o *Console) showAudit(c *httpapi.Call) (view, error) {
	found, err := o.api.Audit(c)
	if err != nil {
		return view{}, err
	}
	q := c.Request.URL.Query()
	return view{Name: "audit", Title: "Audit", Page: auditPage{Action: q.Get("action"),
		Target: q.Get("target"), From: q.Get("from"), To: q.Get("to"), Filtered: len(q) > 0,
		Entries: found.Entries, SearchedTo: found.SearchedTo,
		Next: nextPage(c.Request, found.Next)}}, nil
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
