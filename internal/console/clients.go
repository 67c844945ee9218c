package console

import (
	"net/url"

	"github.com/millrace/millrace/internal/admin"
	"github.com/millrace/millrace/internal/httpapi"
)

// clientPages are the page of clients and the form on it.
func (o *Console) clientPages() []admin.Page {
	return []admin.Page{
		{Method: "GET", Pattern: Path + "/clients", Action: "console.clients",
			Query: httpapi.PageQuery(), Handle: o.show(o.showClients)},
		{Method: "POST", Pattern: Path + "/clients/{id}/keys/{key_id}/revoke",
			Action: "console.client.revoke_key", Audit: "client.revoke_key",
			Target: admin.ClientTarget,
			Handle: o.submit(func(c *httpapi.Call, _ url.Values) (string, error) {
				return Path + "/clients", o.api.RevokeKey(c)
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
