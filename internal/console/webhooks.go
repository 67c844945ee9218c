package console

import (
	"net/url"
	"strconv"

	"github.com/millrace/millrace/internal/admin"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/webhook"
)

// Webhooks of operators and of clients stand in one list, and their pages have the same buttons but
// for the form, which only those of operators have: what a client has set it alone changes. A
// secret is shown once, by the page that answers the form which made it.

// webhookPages are the pages of webhooks and the forms on them.
func (o *Console) webhookPages() []admin.Page {
	const one = Path + "/webhooks/{id}"
	form := func(path, action, audit string, handle httpapi.Handler) admin.Page {
		return admin.Page{Method: "POST", Pattern: one + path, Handle: handle, Audit: audit,
			Action: action,
			Target: func(c *httpapi.Call) string { return "webhook:" + c.PathValue("id") }}
	}
	set := func(reason string) httpapi.Handler {
		return o.submit(func(c *httpapi.Call, _ url.Values) (string, error) {
			_, err := o.api.SetWebhook(c, reason)
			return pathOf("webhooks", c.PathValue("id")), err
		})
	}
	return append(o.webhookFormPages(), []admin.Page{
		{Method: "GET", Pattern: Path + "/webhooks", Action: "console.webhooks",
			Query: httpapi.PageQuery("client", "state"), Handle: o.show(o.showWebhooks)},
		{Method: "GET", Pattern: one, Action: "console.webhook", Query: httpapi.PageQuery("state"),
			Handle: o.show(o.showDeliveries)},
		form("/enable", "console.webhook.enable", "webhook.enable", set("")),
		form("/disable", "console.webhook.disable", "webhook.disable",
			set(webhook.DisabledByOperator)),
		form("/test", "console.webhook.test", "webhook.test", o.showForm(o.testWebhook)),
		form("/replay", "console.webhook.replay", "webhook.replay",
			o.submit(o.replayWebhook, "from", "to", "state")),
		form("/deliveries/{delivery}/replay", "console.delivery.replay", "webhook.replay",
			o.submit(o.replayDelivery)),
	}...)
}

// showWebhooks is GET /console/webhooks.
func (o *Console) showWebhooks(c *httpapi.Call) (view, error) {
	found, next, err := o.api.ListWebhooks(c)
	if err != nil {
		return view{}, err
	}
	viewer := o.api.Viewer(c)
	for i := range found {
		viewer.RedactAttempts(found[i].LastAttempt)
	}
	q := c.Request.URL.Query()
	return view{Name: "webhooks", Title: "Webhooks", Page: struct {
		State, Client string
		Webhooks      []admin.Webhook
		Next          string
	}{q.Get("state"), q.Get("client"), found, nextPage(c.Request, next)}}, nil
}

// webhookPage is what the page of a webhook shows.
type webhookPage struct {
	admin.Webhook
	State      string // the filter
	Deliveries []webhook.Delivery
	Next       string
}

// showDeliveries is GET /console/webhooks/{id}.
func (o *Console) showDeliveries(c *httpapi.Call) (view, error) {
	h, err := o.api.PathWebhook(c)
	if err != nil {
		return view{}, err
	}
	found, next, err := o.api.ListDeliveries(c)
	if err != nil {
		return view{}, err
	}
	viewer := o.api.Viewer(c)
	viewer.RedactAttempts(h.LastAttempt)
	for i := range found {
		for j := range found[i].Attempts {
			viewer.RedactAttempts(&found[i].Attempts[j])
		}
	}
	return view{Name: "webhook", Title: "Webhook", Page: &webhookPage{h,
		c.Request.URL.Query().Get("state"), found, nextPage(c.Request, next)}}, nil
}

// testWebhook is POST /console/webhooks/{id}/test: it shows what came back.
func (o *Console) testWebhook(c *httpapi.Call, _ url.Values) (view, error) {
	tested, err := o.api.TestWebhook(c)
	o.api.Viewer(c).RedactAttempts(&tested.Attempt)
	return view{Name: "tested", Title: "Test of a webhook", Page: struct {
		ID     string
		Result webhook.TestResult
	}{c.PathValue("id"), tested}}, err
}

// replayWebhook is POST /console/webhooks/{id}/replay. It goes to the operation that makes the
// deliveries again.
func (o *Console) replayWebhook(c *httpapi.Call, form url.Values) (string, error) {
	started, err := o.api.ReplayWebhook(c, admin.WebhookReplay{From: form.Get("from"),
		To: form.Get("to"), State: form.Get("state")})
	if err != nil {
		return "", err
	}
	return pathOf("bulk", started.ID), nil
}

// replayDelivery is POST /console/webhooks/{id}/deliveries/{delivery}/replay. It goes to the job of
// the new delivery.
func (o *Console) replayDelivery(c *httpapi.Call, _ url.Values) (string, error) {
	made, err := o.api.ReplayDelivery(c)
	if err != nil {
		return "", err
	}
	return pathOf("jobs", strconv.FormatInt(made.Number, 10)), nil
}
