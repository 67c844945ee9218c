package console

import (
	"net/url"
	"strconv"
	"strings"

	"github.com/millrace/millrace/internal/admin"
	"github.com/millrace/millrace/internal/httpapi"
)

// The limits of a client come from the settings unless it has some of its own. The form has those
// of its own alone, so an empty field means the settings, and 0 means no limit.

// clientPages are the pages of clients and the forms on them.
func (o *Console) clientPages() []admin.Page {
	const all, one = Path + "/clients", Path + "/clients/{id}"
	return []admin.Page{
		{Method: "GET", Pattern: all, Action: "console.clients", Query: httpapi.PageQuery(),
			Handle: o.show(o.showClients)},
		{Method: "GET", Pattern: one, Action: "console.client", Handle: o.show(o.showClient)},
		{Method: "POST", Pattern: one, Action: "console.client.set", Audit: "client.set",
			Target: admin.ClientTarget,
			Handle: o.submitOn(o.showClient, o.setClient, "rate_limit_per_minute", "quota_per_day")},
		{Method: "POST", Pattern: one + "/keys/{key_id}/revoke", Action: "console.client.revoke_key",
			Audit: "client.revoke_key", Target: admin.ClientTarget,
			Handle: o.submit(func(c *httpapi.Call, _ url.Values) (string, error) {
				return pathOf("clients", c.PathValue("id")), o.api.RevokeKey(c)
			})},
	}
}

// showClients is GET /console/clients.
func (o *Console) showClients(c *httpapi.Call) (view, error) {
	found, next, err := o.api.ListClients(c)
	if err != nil {
		return view{}, err
	}
	return view{Name: "clients", Title: "Clients", Page: struct {
		Clients []admin.Client
		Next    string
	}{found, nextPage(c.Request, next)}}, nil
}

// clientPage is what the page of a client shows.
type clientPage struct {
	admin.Client
	Rate, Quota string // limits of its own, as the form has them; "" where the settings decide
}

// showClient is GET /console/clients/{id}.
func (o *Console) showClient(c *httpapi.Call) (view, error) {
	found, err := o.api.PathClient(c)
	if err != nil {
		return view{}, err
	}
	return view{Name: "client", Title: "Client " + found.ID, Page: &clientPage{found,
		limitText(found.Own.RatePerMinute), limitText(found.Own.QuotaPerDay)}}, nil
}

// limitText returns a limit as a form has it.
func limitText(limit *int) string {
	if limit == nil {
		return ""
	}
	return strconv.Itoa(*limit)
}

// setClient is POST /console/clients/{id}. An empty field takes a limit of the client's own away.
func (o *Console) setClient(c *httpapi.Call, form url.Values) (string, error) {
	members := map[string]*int{}
	for _, name := range []string{"rate_limit_per_minute", "quota_per_day"} {
		members[name] = nil
		if text := strings.TrimSpace(form.Get(name)); text != "" {
			n, err := strconv.Atoi(text)
			if err != nil {
				return "", invalid(name + " must be a whole number, 0 for no limit")
			}
			members[name] = &n
		}
	}
	return pathOf("clients", c.PathValue("id")), o.api.PatchClient(c, members)
}
