package forgerun

import (
	"net/http"
	"strconv"

	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/uuids"
	"github.com/millrace/millrace/internal/webhook"
)

// webhookID reads the id in the path. A text that is no UUID names no webhook.
func (v *request) webhookID() (string, error) {
	id, ok := uuids.Parse(v.call.PathValue("webhook_id"))
	if !ok {
		return "", notFound("webhook")
	}
	v.logAttr("webhook_id", id)
	return id, nil
}

func appendWebhook(o *strictjson.Object, h *webhook.Subscription) {
	o.Text("webhook_id", h.ID)
	o.Text("url", h.URL)
	o.Texts("events", h.Events)
	o.Bool("disabled", h.Disabled)
	o.Optional("disabled_reason", h.DisabledReason)
	o.Time("created_at", h.CreatedAt)
}

// POST /v1/webhooks
func (f *ForgeRun) registerWebhook(v *request) error {
	h, err := parseWebhook(v.body)
	if err != nil {
		return err
	}
	key, err := idempotencyKeyHeader(v.call.Request.Header)
	if err != nil {
		return err
	}
	subscription, secret, err := f.webhooks.Register(v.ctx, v.identity.ClientID, h.url, h.events,
		key)
	if err != nil {
		return err
	}
	v.logAttr("webhook_id", subscription.ID)
	return v.sendObject(http.StatusCreated, func(o *strictjson.Object) {
		o.Text("webhook_id", subscription.ID)
		o.Time("created_at", subscription.CreatedAt)
		o.Optional("secret", secret) // G-FR-58
		o.Text("url", subscription.URL)
		o.Texts("events", subscription.Events)
	})
}

// DELETE /v1/webhooks/{webhook_id}
func (f *ForgeRun) deleteWebhook(v *request) error {
	id, err := v.webhookID()
	if err != nil {
		return err
	}
	if err := f.webhooks.Delete(v.ctx, v.identity.ClientID, id); err != nil {
		return notFoundAs(err, "webhook")
	}
	return v.sendObject(http.StatusOK, func(o *strictjson.Object) { o.Bool("deleted", true) })
}

// webhooksList marks the cursors of this list.
const webhooksList = "w"

// GET /v1/webhooks
func (f *ForgeRun) listWebhooks(v *request) error {
	p, err := readPage(v.call, webhooksList)
	if err != nil {
		return err
	}
	after, err := p.id()
	if err != nil {
		return err
	}
	subscriptions, err := f.webhooks.Subscriptions(v.ctx, v.identity.ClientID, after, p.limit+1)
	if err != nil {
		return err
	}
	write := func(o *strictjson.Object, h webhook.Subscription) { appendWebhook(o, &h) }
	return sendPage(v, p, subscriptions, func(h webhook.Subscription) string { return h.ID }, write)
}

// POST /v1/webhooks/{webhook_id}/rotate-secret
func (f *ForgeRun) rotateSecret(v *request) error {
	id, err := f.ownWebhook(v)
	if err != nil {
		return err
	}
	secret, err := f.webhooks.Rotate(v.ctx, v.identity.ClientID, id)
	if err != nil {
		return notFoundAs(err, "webhook")
	}
	return v.sendObject(http.StatusOK, func(o *strictjson.Object) {
		o.Text("webhook_id", id)
		o.Text("secret", secret)
	})
}

// ownWebhook reads the id in the path, which must be a webhook of the client, and then checks the
// body, which must be empty or an object.
func (f *ForgeRun) ownWebhook(v *request) (string, error) {
	id, err := v.webhookID()
	if err != nil {
		return "", err
	}
	if _, err := f.webhooks.Subscription(v.ctx, v.identity.ClientID, id); err != nil {
		return "", notFoundAs(err, "webhook")
	}
	return id, parseObject(v.body, false)
}

// POST /v1/webhooks/{webhook_id}/enable
func (f *ForgeRun) enableWebhook(v *request) error {
	id, err := f.ownWebhook(v)
	if err != nil {
		return err
	}
	h, err := f.webhooks.Enable(v.ctx, v.identity.ClientID, id)
	if err != nil {
		return notFoundAs(err, "webhook")
	}
	return v.sendObject(http.StatusOK, func(o *strictjson.Object) { appendWebhook(o, &h) })
}

// deliveriesList marks the cursors of this list.
const deliveriesList = "d"

// GET /v1/webhooks/{webhook_id}/deliveries
func (f *ForgeRun) listDeliveries(v *request) error {
	id, err := v.webhookID()
	if err != nil {
		return err
	}
	p, err := readPage(v.call, deliveriesList)
	if err != nil {
		return err
	}
	before, err := p.number()
	if err != nil {
		return err
	}
	all, more, err := f.webhooks.Deliveries(v.ctx, v.identity.ClientID, id, before, p.limit)
	if err != nil {
		return notFoundAs(err, "webhook")
	}
	next := ""
	if more > 0 {
		next = p.nextCursor(strconv.FormatInt(more, 10))
	}
	v.call.SendPage(len(all), next, func(i int, o *strictjson.Object) {
		appendDelivery(o, &all[i])
	})
	return nil
}

// POST /v1/webhooks/{webhook_id}/deliveries/{delivery_id}/replay
func (f *ForgeRun) replay(v *request) error {
	id, err := f.ownWebhook(v)
	if err != nil {
		return err
	}
	delivery, ok := uuids.Parse(v.call.PathValue("delivery_id"))
	if !ok {
		return notFound("delivery")
	}
	d, err := f.webhooks.Replay(v.ctx, v.identity.ClientID, id, delivery)
	if err != nil {
		return notFoundAs(err, "delivery")
	}
	return v.sendObject(http.StatusOK, func(o *strictjson.Object) { appendDelivery(o, &d) })
}

// appendDelivery writes a delivery with the members of G-FR-62.
func appendDelivery(o *strictjson.Object, d *webhook.Delivery) {
	o.Text("delivery_id", d.ID)
	o.Text("event_id", d.EventID)
	o.Text("event_name", d.EventName)
	o.Text("url", d.URL)
	o.Text("status", string(d.Status))
	o.Objects("tries", len(d.Tries), func(i int, o *strictjson.Object) {
		appendTry(o, &d.Tries[i])
	})
	if d.NextTryAt == nil {
		o.Null("next_try_at")
	} else {
		o.Time("next_try_at", *d.NextTryAt)
	}
}

func appendTry(o *strictjson.Object, t *webhook.Try) {
	o.Time("at", t.StartedAt)
	if t.StatusCode == nil {
		o.Null("status_code")
	} else {
		o.Int("status_code", int64(*t.StatusCode))
	}
	for _, m := range []struct {
		name  string
		value *string
	}{{"error", t.Error}, {"response", t.Response}} {
		if m.value == nil {
			o.Null(m.name)
		} else {
			o.Text(m.name, *m.value)
		}
	}
	o.Int("duration_ms", t.DurationMS)
}
