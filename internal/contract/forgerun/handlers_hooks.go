package forgerun

import (
	"strconv"

	"github.com/millrace/millrace/internal/httpapi/jsontext"
	"github.com/millrace/millrace/internal/webhook"
)

// hookID reads the webhook of the path; what is no UUID names none.
func (v *visit) hookID() (string, error) {
	id, ok := parseUUID(v.call.Member("webhook_id"))
	if !ok {
		return "", notFound("webhook")
	}
	v.note("webhook_id", id)
	return id, nil
}

func appendHook(o *jsontext.Object, h *webhook.Hook) {
	o.Text("webhook_id", h.ID)
	o.Text("url", h.URL)
	o.Texts("events", h.Events)
	o.Flag("disabled", h.Disabled)
	o.Optional("disabled_reason", h.DisabledReason)
	o.Time("created_at", h.CreatedAt)
}

// POST /v1/webhooks
func (f *ForgeRun) registerHook(v *visit) error {
	h, err := parseHook(v.body)
	if err != nil {
		return err
	}
	key, err := headerKey(v.call.Request.Header)
	if err != nil {
		return err
	}
	made, secret, err := f.webhooks.Register(v.ctx, v.who.ClientID, h.url, h.events, key)
	if err != nil {
		return err
	}
	v.note("webhook_id", made.ID)
	return v.answer(201, func(o *jsontext.Object) {
		o.Text("webhook_id", made.ID)
		o.Time("created_at", made.CreatedAt)
		o.Optional("secret", secret) // G-FR-58
		o.Text("url", made.URL)
		o.Texts("events", made.Events)
	})
}

// DELETE /v1/webhooks/{webhook_id}
func (f *ForgeRun) deleteHook(v *visit) error {
	id, err := v.hookID()
	if err != nil {
		return err
	}
	if err := f.webhooks.Delete(v.ctx, v.who.ClientID, id); err != nil {
		return missing(err, "webhook")
	}
	return v.answer(200, func(o *jsontext.Object) { o.Flag("deleted", true) })
}

// hooksList is the letter of this list's cursors.
const hooksList = "w"

// GET /v1/webhooks
func (f *ForgeRun) listHooks(v *visit) error {
	p, err := readPage(v.call, hooksList)
	if err != nil {
		return err
	}
	after, err := p.id()
	if err != nil {
		return err
	}
	hooks, err := f.webhooks.Hooks(v.ctx, v.who.ClientID, after, p.limit+1)
	if err != nil {
		return err
	}
	write := func(o *jsontext.Object, h webhook.Hook) { appendHook(o, &h) }
	return sendPage(v, p, hooks, func(h webhook.Hook) string { return h.ID }, write)
}

// POST /v1/webhooks/{webhook_id}/rotate-secret
func (f *ForgeRun) rotateSecret(v *visit) error {
	id, err := v.hookID()
	if err == nil {
		err = f.ownHook(v, id)
	}
	if err != nil {
		return err
	}
	secret, err := f.webhooks.Rotate(v.ctx, v.who.ClientID, id)
	if err != nil {
		return missing(err, "webhook")
	}
	return v.answer(200, func(o *jsontext.Object) {
		o.Text("webhook_id", id)
		o.Text("secret", secret)
	})
}

// ownHook refuses what is another's, or a body that is none, in this order.
func (f *ForgeRun) ownHook(v *visit, id string) error {
	if _, err := f.webhooks.Hook(v.ctx, v.who.ClientID, id); err != nil {
		return missing(err, "webhook")
	}
	return parseObject(v.body, false)
}

// POST /v1/webhooks/{webhook_id}/enable
func (f *ForgeRun) enableHook(v *visit) error {
	id, err := v.hookID()
	if err == nil {
		err = f.ownHook(v, id)
	}
	if err != nil {
		return err
	}
	h, err := f.webhooks.Enable(v.ctx, v.who.ClientID, id)
	if err != nil {
		return missing(err, "webhook")
	}
	return v.answer(200, func(o *jsontext.Object) { appendHook(o, &h) })
}

// deliveriesList is the letter of this list's cursors.
const deliveriesList = "d"

// GET /v1/webhooks/{webhook_id}/deliveries
func (f *ForgeRun) listDeliveries(v *visit) error {
	id, err := v.hookID()
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
	all, more, err := f.webhooks.Deliveries(v.ctx, v.who.ClientID, id, before, p.limit)
	if err != nil {
		return missing(err, "webhook")
	}
	next := ""
	if more > 0 {
		next = p.after(strconv.FormatInt(more, 10))
	}
	v.call.SendPage(len(all), next, func(i int, o *jsontext.Object) { appendDelivery(o, &all[i]) })
	return nil
}

// POST /v1/webhooks/{webhook_id}/deliveries/{delivery_id}/replay
func (f *ForgeRun) replay(v *visit) error {
	id, err := v.hookID()
	if err == nil {
		err = f.ownHook(v, id)
	}
	if err != nil {
		return err
	}
	delivery, ok := parseUUID(v.call.Member("delivery_id"))
	if !ok {
		return notFound("delivery")
	}
	d, err := f.webhooks.Replay(v.ctx, v.who.ClientID, id, delivery)
	if err != nil {
		return missing(err, "delivery")
	}
	return v.answer(200, func(o *jsontext.Object) { appendDelivery(o, &d) })
}

// appendDelivery writes a delivery in the shape of G-FR-62.
func appendDelivery(o *jsontext.Object, d *webhook.Delivery) {
	o.Text("delivery_id", d.ID)
	o.Text("event_id", d.EventID)
	o.Text("event_name", d.EventName)
	o.Text("url", d.URL)
	o.Text("status", string(d.Status))
	o.Objects("tries", len(d.Tries), func(i int, o *jsontext.Object) { appendTry(o, &d.Tries[i]) })
	if d.NextTryAt == nil {
		o.Null("next_try_at")
	} else {
		o.Time("next_try_at", *d.NextTryAt)
	}
}

func appendTry(o *jsontext.Object, t *webhook.Try) {
	o.Time("at", t.At)
	if t.StatusCode == nil {
		o.Null("status_code")
	} else {
		o.Number("status_code", int64(*t.StatusCode))
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
	o.Number("duration_ms", t.DurationMS)
}
