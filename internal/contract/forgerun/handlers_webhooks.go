package forgerun

import (
	"log/slog"
	"net/http"

	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/uuids"
	"github.com/millrace/millrace/internal/webhook"
)

// The webhooks of a client are the subscriptions of package webhook, which checks in each call that
// a subscription is the client's (FR-034). A secret is only in the answers of the registration and
// of rotate-secret; deliveries and their attempts are read from the rows of the engine.

// pathWebhookID reads the id in the path. A text that is no UUID names no webhook.
func pathWebhookID(c *httpapi.Call) (string, error) {
	id, ok := uuids.Parse(c.PathValue("webhook_id"))
	if !ok {
		return "", notFound("webhook")
	}
	c.AddAttrs(slog.String("webhook_id", id))
	return id, nil
}

// appendWebhook writes a webhook without its secret.
func appendWebhook(o *strictjson.Object, h *webhook.Subscription) {
	o.Text("webhook_id", h.ID)
	o.Text("url", h.URL)
	o.Texts("events", h.Events)
	o.Bool("disabled", h.Disabled)
	o.Optional("disabled_reason", h.DisabledReason)
	o.Time("created_at", h.CreatedAt)
}

// POST /v1/webhooks: registers a URL for events (FR-185). A repeated Idempotency-Key answers with
// the first registration and the secret null; the same URL and events without a key are a conflict
// (FR-187, G-FR-58).
func (f *ForgeRun) registerWebhook(c *httpapi.Call) error {
	h, err := parseWebhook(c.Content)
	if err != nil {
		return err
	}
	key, err := idempotencyKeyHeader(c.Request.Header)
	if err != nil {
		return err
	}
	subscription, secret, err := f.webhooks.Register(c.Context(), clientID(c), h.url, h.events,
		key)
	if err != nil {
		return err
	}
	c.AddAttrs(slog.String("webhook_id", subscription.ID))
	return sendObject(c, http.StatusCreated, func(o *strictjson.Object) {
		o.Text("webhook_id", subscription.ID)
		o.Time("created_at", subscription.CreatedAt)
		o.Optional("secret", secret) // G-FR-58
		o.Text("url", subscription.URL)
		o.Texts("events", subscription.Events)
	})
}

// DELETE /v1/webhooks/{webhook_id}: removes a webhook; no attempt for it starts afterwards
// (FR-188).
func (f *ForgeRun) deleteWebhook(c *httpapi.Call) error {
	id, err := pathWebhookID(c)
	if err != nil {
		return err
	}
	if err := f.webhooks.Delete(c.Context(), clientID(c), id); err != nil {
		return notFoundAs(err, "webhook")
	}
	return sendObject(c, http.StatusOK, func(o *strictjson.Object) { o.Bool("deleted", true) })
}

var webhookPages = pages("w", httpapi.ByID)

// GET /v1/webhooks: the client's own webhooks, in the order they were registered.
func (f *ForgeRun) listWebhooks(c *httpapi.Call) error {
	limit, after, err := webhookPages.Read(c)
	if err != nil {
		return err
	}
	subscriptions, err := f.webhooks.Subscriptions(c.Context(), clientID(c), after, limit+1)
	if err != nil {
		return err
	}
	write := func(o *strictjson.Object, h webhook.Subscription) { appendWebhook(o, &h) }
	return httpapi.SendPage(c, webhookPages.Cursor, limit, subscriptions,
		func(h webhook.Subscription) string { return h.ID }, write)
}

// POST /v1/webhooks/{webhook_id}/rotate-secret: answers with a new secret. For a day requests are
// signed with the old one as well, so that a receiver can change to the new one (G-FR-48).
func (f *ForgeRun) rotateWebhookSecret(c *httpapi.Call) error {
	id, err := f.ownWebhook(c)
	if err != nil {
		return err
	}
	secret, err := f.webhooks.Rotate(c.Context(), clientID(c), id)
	if err != nil {
		return notFoundAs(err, "webhook")
	}
	return sendObject(c, http.StatusOK, func(o *strictjson.Object) {
		o.Text("webhook_id", id)
		o.Text("secret", secret)
	})
}

// ownWebhook reads the id in the path, which must be a webhook of the client, and then checks the
// body, which must be empty or an object.
func (f *ForgeRun) ownWebhook(c *httpapi.Call) (string, error) {
	id, err := pathWebhookID(c)
	if err != nil {
		return "", err
	}
	if _, err := f.webhooks.Subscription(c.Context(), clientID(c), id); err != nil {
		return "", notFoundAs(err, "webhook")
	}
	return id, parseObject(c.Content, false)
}

// POST /v1/webhooks/{webhook_id}/enable: resumes deliveries to a webhook that was disabled after a
// 410 or a day of failures. Events of the time between can be replayed.
func (f *ForgeRun) enableWebhook(c *httpapi.Call) error {
	id, err := f.ownWebhook(c)
	if err != nil {
		return err
	}
	h, err := f.webhooks.Enable(c.Context(), clientID(c), id)
	if err != nil {
		return notFoundAs(err, "webhook")
	}
	return sendObject(c, http.StatusOK, func(o *strictjson.Object) { appendWebhook(o, &h) })
}

var (
	deliveryPages = pages("d", httpapi.ByNumber)
	replayPages   = httpapi.Named("r", httpapi.ByNumber)
)

// GET /v1/webhooks/{webhook_id}/deliveries: the deliveries with their attempts, the newest first.
func (f *ForgeRun) listDeliveries(c *httpapi.Call) error {
	id, err := pathWebhookID(c)
	if err != nil {
		return err
	}
	limit, before, err := deliveryPages.Read(c)
	if err != nil {
		return err
	}
	all, more, err := f.webhooks.Deliveries(c.Context(), clientID(c), id, "", before, limit)
	if err != nil {
		return notFoundAs(err, "webhook")
	}
	next := ""
	if more > 0 {
		next = deliveryPages.Cursor.Format(more)
	}
	return c.SendItems(len(all), next, func(i int, o *strictjson.Object) {
		appendDelivery(o, &all[i])
	})
}

// POST /v1/webhooks/{webhook_id}/deliveries/{delivery_id}/replay: makes one more delivery of the
// same event, once, under the same event id. The answer is that delivery.
func (f *ForgeRun) replayDelivery(c *httpapi.Call) error {
	id, err := f.ownWebhook(c)
	if err != nil {
		return err
	}
	delivery, ok := uuids.Parse(c.PathValue("delivery_id"))
	if !ok {
		return notFound("delivery")
	}
	d, err := f.webhooks.Replay(c.Context(), clientID(c), id, delivery, nil)
	if err != nil {
		return notFoundAs(err, "delivery")
	}
	return sendObject(c, http.StatusOK, func(o *strictjson.Object) { appendDelivery(o, &d) })
}

// POST /v1/webhooks/{webhook_id}/replay: makes the deliveries once more that were given up in a
// time, or that were delivered in it. One request makes a thousand or so; next_cursor, sent as the
// cursor of the same body, goes on.
func (f *ForgeRun) replayDeliveries(c *httpapi.Call) error {
	id, err := f.ownWebhook(c)
	if err != nil {
		return err
	}
	filter, err := parseReplay(c.Content)
	if err != nil {
		return err
	}
	replayed, err := f.webhooks.ReplayAll(c.Context(), clientID(c), id, filter)
	if err != nil {
		return notFoundAs(err, "webhook")
	}
	return sendObject(c, http.StatusOK, func(o *strictjson.Object) {
		o.Int("replayed", int64(replayed.Made))
		o.Int("skipped", int64(replayed.Skipped))
		next := ""
		if replayed.Next > 0 {
			next = replayPages.Format(replayed.Next)
		}
		o.Optional("next_cursor", next)
	})
}

// POST /v1/webhooks/{webhook_id}/test: sends a signed event to the webhook now and answers what
// came back.
func (f *ForgeRun) testWebhook(c *httpapi.Call) error {
	id, err := f.ownWebhook(c)
	if err != nil {
		return err
	}
	tested, err := f.webhooks.Test(c.Context(), clientID(c), id, nil)
	if err != nil {
		return notFoundAs(err, "webhook")
	}
	return sendObject(c, http.StatusOK, func(o *strictjson.Object) {
		o.Text("event_id", tested.EventID)
		appendAttempt(o, &tested.Attempt)
	})
}

// appendDelivery writes a delivery with the members of G-FR-62.
func appendDelivery(o *strictjson.Object, d *webhook.Delivery) {
	o.Text("delivery_id", d.ID)
	o.Text("event_id", d.EventID)
	o.Text("event_name", d.EventName)
	o.Text("url", d.URL)
	o.Text("status", string(d.Status))
	o.Objects("tries", len(d.Attempts), func(i int, o *strictjson.Object) {
		appendAttempt(o, &d.Attempts[i])
	})
	if d.NextAttemptAt == nil {
		o.Null("next_try_at")
	} else {
		o.Time("next_try_at", *d.NextAttemptAt)
	}
}

// appendAttempt writes an attempt: status_code and response are null if the receiver did not
// answer, error if it succeeded.
func appendAttempt(o *strictjson.Object, t *webhook.Attempt) {
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
