package forgerun

import (
	"strconv"

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

func appendHook(o *object, h *webhook.Hook) {
	o.text("webhook_id", h.ID)
	o.text("url", h.URL)
	o.texts("events", h.Events)
	o.flag("disabled", h.Disabled)
	o.optional("disabled_reason", h.DisabledReason)
	o.time("created_at", h.CreatedAt)
}

// POST /v1/webhooks
func (f *ForgeRun) registerHook(v *visit) (reply, error) {
	h, err := parseHook(v.body)
	if err != nil {
		return reply{}, err
	}
	key, err := headerKey(v.call.Request.Header)
	if err != nil {
		return reply{}, err
	}
	made, secret, err := f.webhooks.Register(v.ctx, v.who.ClientID, h.url, h.events, key)
	if err != nil {
		return reply{}, err
	}
	v.note("webhook_id", made.ID)
	return answered(201, func(o *object) {
		o.text("webhook_id", made.ID)
		o.time("created_at", made.CreatedAt)
		o.optional("secret", secret) // G-FR-58
		o.text("url", made.URL)
		o.texts("events", made.Events)
	}), nil
}

// DELETE /v1/webhooks/{webhook_id}
func (f *ForgeRun) deleteHook(v *visit) (reply, error) {
	id, err := v.hookID()
	if err != nil {
		return reply{}, err
	}
	if err := f.webhooks.Delete(v.ctx, v.who.ClientID, id); err != nil {
		return reply{}, missing(err, "webhook")
	}
	return answered(200, func(o *object) { o.flag("deleted", true) }), nil
}

// hooksList is the letter of this list's cursors.
const hooksList = "w"

// GET /v1/webhooks
func (f *ForgeRun) listHooks(v *visit) (reply, error) {
	p, err := readPage(v.call, hooksList)
	if err != nil {
		return reply{}, err
	}
	after, err := p.id()
	if err != nil {
		return reply{}, err
	}
	hooks, err := f.webhooks.Hooks(v.ctx, v.who.ClientID, after, p.limit+1)
	if err != nil {
		return reply{}, err
	}
	next := ""
	if len(hooks) > p.limit {
		hooks = hooks[:p.limit]
		next = hooks[p.limit-1].ID
	}
	return listed(len(hooks), func(i int, o *object) { appendHook(o, &hooks[i]) }, hooksList, next), nil
}

// POST /v1/webhooks/{webhook_id}/rotate-secret
func (f *ForgeRun) rotateSecret(v *visit) (reply, error) {
	id, err := v.hookID()
	if err == nil {
		err = f.ownHook(v, id)
	}
	if err != nil {
		return reply{}, err
	}
	secret, err := f.webhooks.Rotate(v.ctx, v.who.ClientID, id)
	if err != nil {
		return reply{}, missing(err, "webhook")
	}
	return answered(200, func(o *object) {
		o.text("webhook_id", id)
		o.text("secret", secret)
	}), nil
}

// ownHook refuses what is another's, or a body that is none, in this order.
func (f *ForgeRun) ownHook(v *visit, id string) error {
	if _, err := f.webhooks.Hook(v.ctx, v.who.ClientID, id); err != nil {
		return missing(err, "webhook")
	}
	return parseObject(v.body, false)
}

// POST /v1/webhooks/{webhook_id}/enable
func (f *ForgeRun) enableHook(v *visit) (reply, error) {
	id, err := v.hookID()
	if err == nil {
		err = f.ownHook(v, id)
	}
	if err != nil {
		return reply{}, err
	}
	h, err := f.webhooks.Enable(v.ctx, v.who.ClientID, id)
	if err != nil {
		return reply{}, missing(err, "webhook")
	}
	return answered(200, func(o *object) { appendHook(o, &h) }), nil
}

// deliveriesList is the letter of this list's cursors.
const deliveriesList = "d"

// GET /v1/webhooks/{webhook_id}/deliveries
func (f *ForgeRun) listDeliveries(v *visit) (reply, error) {
	id, err := v.hookID()
	if err != nil {
		return reply{}, err
	}
	p, err := readPage(v.call, deliveriesList)
	if err != nil {
		return reply{}, err
	}
	before, err := p.number()
	if err != nil {
		return reply{}, err
	}
	all, more, err := f.webhooks.Deliveries(v.ctx, v.who.ClientID, id, before, p.limit)
	if err != nil {
		return reply{}, missing(err, "webhook")
	}
	next := ""
	if more > 0 {
		next = strconv.FormatInt(more, 10)
	}
	return listed(len(all), func(i int, o *object) { appendDelivery(o, &all[i]) }, deliveriesList, next), nil
}

// POST /v1/webhooks/{webhook_id}/deliveries/{delivery_id}/replay
func (f *ForgeRun) replay(v *visit) (reply, error) {
	id, err := v.hookID()
	if err == nil {
		err = f.ownHook(v, id)
	}
	if err != nil {
		return reply{}, err
	}
	delivery, ok := parseUUID(v.call.Member("delivery_id"))
	if !ok {
		return reply{}, notFound("delivery")
	}
	d, err := f.webhooks.Replay(v.ctx, v.who.ClientID, id, delivery)
	if err != nil {
		return reply{}, missing(err, "delivery")
	}
	return answered(200, func(o *object) { appendDelivery(o, &d) }), nil
}

// appendDelivery writes a delivery in the shape of G-FR-62.
func appendDelivery(o *object, d *webhook.Delivery) {
	o.text("delivery_id", d.ID)
	o.text("event_id", d.EventID)
	o.text("event_name", d.EventName)
	o.text("url", d.URL)
	o.text("status", string(d.Status))
	o.array("tries", len(d.Tries), func(i int, o *object) { appendTry(o, &d.Tries[i]) })
	if d.NextTryAt == nil {
		o.raw("next_try_at", "null")
	} else {
		o.time("next_try_at", *d.NextTryAt)
	}
}

func appendTry(o *object, t *webhook.Try) {
	o.time("at", t.At)
	if t.StatusCode == nil {
		o.raw("status_code", "null")
	} else {
		o.number("status_code", int64(*t.StatusCode))
	}
	for _, m := range []struct {
		name  string
		value *string
	}{{"error", t.Error}, {"response", t.Response}} {
		if m.value == nil {
			o.raw(m.name, "null")
		} else {
			o.text(m.name, *m.value)
		}
	}
	o.number("duration_ms", t.DurationMS)
}
