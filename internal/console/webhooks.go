package console

import (
	"net/http"
	"net/url"

	"github.com/millrace/millrace/internal/admin"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/webhook"
)

// webhookPages are the pages of webhooks and the forms on them.
func (o *Console) webhookPages() []admin.Page {
	const one = Path + "/webhooks/{id}"
	target := func(c *httpapi.Call) string { return "webhook:" + c.PathValue("id") }
	set := func(name, reason string) admin.Page {
		return admin.Page{Method: "POST", Pattern: one + "/" + name, Audit: "webhook." + name,
			Action: "console.webhook." + name, Target: target, Handle: o.submit(
				func(c *httpapi.Call, _ url.Values) (string, error) {
					_, err := o.api.SetWebhook(c, reason)
					return Path + "/webhooks", err
				})}
	}
	return []admin.Page{
		{Method: "GET", Pattern: Path + "/webhooks", Action: "console.webhooks",
			Query: httpapi.PageQuery("client", "state"), Handle: o.show(o.showWebhooks)},
		{Method: "GET", Pattern: one, Action: "console.webhook", Query: httpapi.PageQuery("state"),
			Handle: o.show(o.showDeliveries)},
		set("enable", ""),
		set("disable", webhook.DisabledByOperator),
		{Method: "POST", Pattern: one + "/test", Action: "console.webhook.test",
			Audit: "webhook.test", Target: target, Handle: o.showForm(o.testWebhook)},
	}
}

// showWebhooks is GET /console/webhooks.
func (o *Console) showWebhooks(c *httpapi.Call) (view, error) {
	found, next, err := o.api.ListWebhooks(c)
	if err != nil {
		return view{}, err
	}
	who := o.api.Caller(c)
	for i := range found {
		who.LimitTries(found[i].LastTry)
	}
	q := c.Request.URL.Query()
	return view{Name: "webhooks", Title: "Webhooks", Page: struct {
		State, Client string
		Webhooks      []admin.Webhook
		Next          string
	}{q.Get("state"), q.Get("client"), found, nextPage(c.Request, next)}}, nil
}

// showDeliveries is GET /console/webhooks/{id}.
func (o *Console) showDeliveries(c *httpapi.Call) (view, error) {
	found, next, err := o.api.ListDeliveries(c)
	if err != nil {
		return view{}, err
	}
	who := o.api.Caller(c)
	for i := range found {
		for j := range found[i].Tries {
			who.LimitTries(&found[i].Tries[j])
		}
	}
	return view{Name: "webhook", Title: "Deliveries", Page: struct {
		ID, State  string
		Deliveries []webhook.Delivery
		Next       string
	}{c.PathValue("id"), c.Request.URL.Query().Get("state"), found,
		nextPage(c.Request, next)}}, nil
}

// testWebhook is POST /console/webhooks/{id}/test: it shows what came back.
func (o *Console) testWebhook(c *httpapi.Call) (view, error) {
	tested, err := o.api.TestWebhook(c)
	o.api.Caller(c).LimitTries(&tested.Try)
	return view{Name: "tested", Title: "Test of a webhook", Status: http.StatusOK, Page: struct {
		ID     string
		Result webhook.TestResult
	}{c.PathValue("id"), tested}}, err
}
