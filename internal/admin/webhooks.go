package admin

import (
	"bytes"
	"cmp"
	"context"
	"maps"
	"net/http"
	"strconv"

	"github.com/millrace/millrace/internal/bulk"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/uuids"
	"github.com/millrace/millrace/internal/webhook"
)

// These routes show and change the webhooks of all owners (package webhook). Secrets are shown
// nowhere, and a URL without its query, which may be a secret.

// webhookRoutes are the routes of webhooks.
func (a *API) webhookRoutes() []route {
	const all, one = apiPrefix + "/webhooks", apiPrefix + "/webhooks/{id}"
	return []route{
		{method: "GET", pattern: all, action: "webhook.list", handle: a.listWebhooks,
			query: httpapi.PageQuery("client", "state")},
		{method: "GET", pattern: one + "/deliveries", action: "webhook.deliveries",
			handle: a.listDeliveries, query: httpapi.PageQuery("state")},
		{method: "POST", pattern: one + "/test", action: "webhook.test", handle: a.testWebhook,
			target: webhookTarget, body: true},
		{method: "POST", pattern: one + "/replay", action: "webhook.replay",
			handle: a.replayWebhook, target: webhookTarget, body: true},
		{method: "POST", pattern: one + "/enable", action: "webhook.enable",
			handle: a.webhookSwitch(""), target: webhookTarget, body: true},
		{method: "POST", pattern: one + "/disable", action: "webhook.disable",
			handle: a.webhookSwitch(webhook.DisabledByOperator), target: webhookTarget, body: true},
	}
}

// webhookTarget names the webhook of the path for the audit.
func webhookTarget(c *httpapi.Call) string { return "webhook:" + c.PathValue("id") }

// webhooks returns the webhooks of the node, or NotFound where it has none.
func (a *API) webhooks() (*webhook.Webhooks, error) {
	if a.Webhooks != nil {
		return a.Webhooks, nil
	}
	return nil, &job.Error{Kind: job.NotFound, Op: "admin.webhook",
		Msg: "there is no such webhook: no contract of this node has any"}
}

var webhookPages = newPages(nameCursor("webhook"))

// The states of a webhook.
const (
	stateEnabled  = "enabled"
	stateDisabled = "disabled"
)

// stateOfWebhook returns the state of a webhook.
func stateOfWebhook(h *webhook.Subscription) string {
	if h.Disabled {
		return stateDisabled
	}
	return stateEnabled
}

// listWebhooks is GET /admin/v1/webhooks (AD-052): in the order in which they were made.
func (a *API) listWebhooks(c *httpapi.Call) error {
	page, next, err := a.ListWebhooks(c)
	if err != nil {
		return err
	}
	shown := a.disclosureTo(c)
	o := newList(len(page), next, func(i int, o *strictjson.Object) {
		writeWebhook(o, shown, &page[i].Subscription, &page[i].Figures)
	})
	sendObject(c, http.StatusOK, &o)
	return nil
}

// Webhook is a webhook with the figures of its newest deliveries.
type Webhook struct {
	webhook.Subscription
	webhook.Figures
}

// ShownURL returns the URL without what may be secret in it.
func (h *Webhook) ShownURL() string { return webhook.WithoutQuery(h.URL) }

// ListWebhooks returns the webhooks that the query of a call asks for, and the cursor of the next
// page.
func (a *API) ListWebhooks(c *httpapi.Call) (page []Webhook, next string, err error) {
	owner, state := webhook.AnyOwner, ""
	err = firstError(readUUID(c, "client", &owner),
		readChoice(c, "state", &state, stateEnabled, stateDisabled))
	if err != nil {
		return nil, "", err
	}
	limit, after, err := webhookPages.Read(c)
	if err != nil {
		return nil, "", err
	}
	w, err := a.webhooks()
	if err != nil {
		return nil, "", nil // no contract of this node has any
	}
	found, last, err := findWebhooks(c.Context(), w, owner, state, after, limit)
	if err != nil {
		return nil, "", err
	}
	ids := make([]string, len(found))
	for i := range found {
		ids[i] = found[i].ID
	}
	figures, err := w.Figures(c.Context(), ids)
	if err != nil {
		return nil, "", err
	}
	for i := range found {
		page = append(page, Webhook{found[i], figures[i]})
	}
	if last != "" {
		next = webhookPages.Cursor.Format(last)
	}
	return page, next, nil
}

// DisabledWebhooks returns the first n webhooks that are disabled.
func (a *API) DisabledWebhooks(ctx context.Context, n int) ([]webhook.Subscription, error) {
	w, err := a.webhooks()
	if err != nil {
		return nil, nil // no contract of this node has any
	}
	found, _, err := findWebhooks(ctx, w, webhook.AnyOwner, stateDisabled, "", n)
	return found, err
}

// What one request reads of webhooks at most: a state may be rare.
const (
	maxWebhooksSearched = 5000
	webhookBatch        = 500
)

// findWebhooks returns up to limit webhooks of an owner and state after an id, and the id after
// which the next page begins, "" if there is none.
func findWebhooks(ctx context.Context, w *webhook.Webhooks, owner, state, after string,
	limit int) (page []webhook.Subscription, last string, err error) {
	for searched := 0; searched < maxWebhooksSearched; searched += webhookBatch {
		batch, err := w.Subscriptions(ctx, owner, after, webhookBatch)
		if err != nil {
			return nil, "", err
		}
		for i := range batch {
			if state == "" || stateOfWebhook(&batch[i]) == state {
				if len(page) == limit {
					return page, after, nil
				}
				page = append(page, batch[i])
			}
			after = batch[i].ID
		}
		if len(batch) < webhookBatch {
			return page, "", nil
		}
	}
	return page, after, nil
}

// writeWebhook writes the members of a webhook. Its figures are about its newest deliveries.
func writeWebhook(o *strictjson.Object, d disclosure, h *webhook.Subscription,
	f *webhook.Figures) {
	o.Text("id", h.ID)
	if h.Operator == nil {
		o.Text("client", h.Owner)
	} else {
		o.Null("client")
	}
	o.Text("url", webhook.WithoutQuery(h.URL))
	o.Texts("events", h.Events)
	o.Text("state", stateOfWebhook(h))
	o.Optional("disabled_reason", h.DisabledReason)
	o.Time("failing_since", h.FailingSince)
	o.Time("created_at", h.CreatedAt)
	writeOptions(o, h)
	o.Int("pending", int64(f.Pending))
	o.Int("delivered", int64(f.Delivered))
	o.Int("exhausted", int64(f.Exhausted))
	if rate, ok := f.SuccessRate(); ok {
		o.Raw("success_rate", strconv.AppendFloat(nil, rate, 'f', 4, 64))
	} else {
		o.Null("success_rate")
	}
	if f.LastAttempt == nil {
		for _, name := range []string{"last_status", "last_error", "last_try_at"} {
			o.Null(name)
		}
		return
	}
	writeNumber(o, "last_status", f.LastAttempt.StatusCode)
	d.textOf(o, "last_error", f.LastAttempt.Error)
	o.Time("last_try_at", f.LastAttempt.StartedAt)
}

var deliveryPages = newPages(httpapi.Named("deliveries", httpapi.ByNumber))

// listDeliveries is GET /admin/v1/webhooks/{id}/deliveries: the newest first. Of a state a page may
// be shorter than its limit, even empty, while there is a next one.
func (a *API) listDeliveries(c *httpapi.Call) error {
	all, next, err := a.ListDeliveries(c)
	if err != nil {
		return err
	}
	shown := a.disclosureTo(c)
	o := newList(len(all), next, func(i int, o *strictjson.Object) {
		writeDelivery(o, shown, &all[i])
	})
	sendObject(c, http.StatusOK, &o)
	return nil
}

// ListDeliveries returns the deliveries of the webhook of the path that the query of a call asks
// for, and the cursor of the next page.
func (a *API) ListDeliveries(c *httpapi.Call) (all []webhook.Delivery, next string, err error) {
	state := ""
	if err := readChoice(c, "state", &state, string(webhook.Pending), string(webhook.Delivered),
		string(webhook.Exhausted)); err != nil {
		return nil, "", err
	}
	limit, before, err := deliveryPages.Read(c)
	if err != nil {
		return nil, "", err
	}
	w, err := a.webhooks()
	if err != nil {
		return nil, "", err
	}
	all, last, err := w.Deliveries(c.Context(), webhook.AnyOwner, c.PathValue("id"),
		webhook.Status(state), before, limit)
	if err != nil {
		return nil, "", err
	}
	if last > 0 {
		next = deliveryPages.Cursor.Format(last)
	}
	return all, next, nil
}

// writeDelivery writes the members of a delivery.
func writeDelivery(o *strictjson.Object, shown disclosure, d *webhook.Delivery) {
	o.Text("id", d.ID)
	o.Int("number", d.Number)
	o.Text("event_id", d.EventID)
	o.Text("event_name", d.EventName)
	o.Optional("job_contract", d.JobContract)
	o.Optional("job_id", d.JobID)
	o.Text("url", webhook.WithoutQuery(d.URL))
	o.Text("state", string(d.Status))
	o.Objects("tries", len(d.Attempts), func(i int, o *strictjson.Object) {
		writeAttempt(o, shown, &d.Attempts[i])
	})
	if d.NextAttemptAt == nil {
		o.Null("next_try_at")
	} else {
		o.Time("next_try_at", *d.NextAttemptAt)
	}
}

// writeAttempt writes the members of an attempt.
func writeAttempt(o *strictjson.Object, d disclosure, t *webhook.Attempt) {
	o.Time("at", t.StartedAt)
	writeNumber(o, "status", t.StatusCode)
	d.textOf(o, "error", t.Error)
	o.Int("duration_ms", t.DurationMS)
	d.textOf(o, "response", t.Response)
}

// webhookSwitch returns the handler that disables a webhook for a reason, or enables it without
// one.
func (a *API) webhookSwitch(reason string) httpapi.Handler {
	return func(c *httpapi.Call) error {
		if _, err := readMembers(c); err != nil {
			return err
		}
		h, err := a.SetWebhook(c, reason)
		if err != nil {
			return err
		}
		o := strictjson.NewObject(nil)
		writeWebhook(&o, a.disclosureTo(c), &h.Subscription, &h.Figures)
		sendObject(c, http.StatusOK, &o)
		return nil
	}
}

// SetWebhook disables the webhook of the path of a call for a reason, or enables it without one.
func (a *API) SetWebhook(c *httpapi.Call, reason string) (h Webhook, err error) {
	w, err := a.webhooks()
	if err != nil {
		return h, err
	}
	h.Subscription, err = w.SetDisabled(c.Context(), webhook.AnyOwner, c.PathValue("id"), reason,
		func(to engine.RecordWriter, before webhook.Subscription) error {
			return a.record(to, c, webhookState{before.Disabled, before.DisabledReason},
				webhookState{reason != "", reason})
		})
	if err != nil {
		return h, err
	}
	return h, h.readFigures(c.Context(), w)
}

// readFigures reads the figures of the webhook.
func (h *Webhook) readFigures(ctx context.Context, w *webhook.Webhooks) error {
	figures, err := w.Figures(ctx, []string{h.ID})
	if err != nil {
		return err
	}
	h.Figures = figures[0]
	return nil
}

// webhookState is a webhook in the audit.
type webhookState struct {
	Disabled bool   `json:"disabled"`
	Reason   string `json:"reason,omitempty"`
}

// testWebhook is POST /admin/v1/webhooks/{id}/test: it answers what came back. The entry of the
// audit is written before anything is sent.
func (a *API) testWebhook(c *httpapi.Call) error {
	if _, err := readMembers(c); err != nil {
		return err
	}
	tested, err := a.TestWebhook(c)
	if err != nil {
		return err
	}
	o := strictjson.NewObject(nil)
	o.Text("event_id", tested.EventID)
	o.Bool("succeeded", tested.Error == nil)
	writeAttempt(&o, a.disclosureTo(c), &tested.Attempt)
	sendObject(c, http.StatusOK, &o)
	return nil
}

// TestWebhook sends an event to the webhook of the path of a call and returns what came back.
func (a *API) TestWebhook(c *httpapi.Call) (webhook.TestResult, error) {
	w, err := a.webhooks()
	if err != nil {
		return webhook.TestResult{}, err
	}
	return w.Test(c.Context(), webhook.AnyOwner, c.PathValue("id"),
		func(to engine.RecordWriter) error { return a.record(to, c, nil, nil) })
}

// WebhookReplay selects the deliveries of a replay. Empty members select all that were given up.
type WebhookReplay struct{ From, To, State string }

// readReplay reads {from, to, state}.
func readReplay(c *httpapi.Call) (r WebhookReplay, err error) {
	body, err := readMembers(c, "from", "to", "state")
	if err != nil {
		return r, err
	}
	texts := map[string]*string{"from": &r.From, "to": &r.To, "state": &r.State}
	for name, value := range strictjson.Members(body) {
		text, err := strictjson.String(bytes.Clone(value))
		if err != nil || text == "" {
			return r, invalid(string(name) + " must be a text that is not empty")
		}
		*texts[string(name)] = text
	}
	return r, nil
}

// filter returns the jobs that are the deliveries of a webhook.
func (r *WebhookReplay) filter(id string) (f bulk.JobFilter, err error) {
	state := webhook.Status(cmp.Or(r.State, string(webhook.Exhausted)))
	if state != webhook.Exhausted && state != webhook.Delivered {
		return f, invalid("state must be exhausted or delivered")
	}
	f = bulk.JobFilter{JobTypes: []string{webhook.Name}, Owner: id,
		States: []job.State{job.State(state)}}
	given := bodyFilter{"from": r.From, "to": r.To}
	maps.DeleteFunc(given, func(_, text string) bool { return text == "" })
	return f, readRange(given, "from", &f.CreatedFrom, "to", &f.CreatedBefore)
}

// replayWebhook is POST /admin/v1/webhooks/{id}/replay (AD-052): a bulk operation that makes
// deliveries once more.
func (a *API) replayWebhook(c *httpapi.Call) error {
	r, err := readReplay(c)
	if err != nil {
		return err
	}
	o, err := a.ReplayWebhook(c, r)
	if err != nil {
		return err
	}
	sendBulkID(c, o)
	return nil
}

// ReplayWebhook starts the operation that makes deliveries of the webhook of the path of a call
// once more.
func (a *API) ReplayWebhook(c *httpapi.Call, r WebhookReplay) (*bulk.Operation, error) {
	w, err := a.webhooks()
	if err != nil {
		return nil, err
	}
	f, err := r.filter(c.PathValue("id"))
	if err != nil {
		return nil, err
	}
	after, err := w.ReplayStart(c.Context(), f.Owner, f.CreatedFrom)
	if err != nil {
		return nil, err
	}
	return a.StartBulk(c, bulk.Request{Action: bulk.Replay, Jobs: &f, After: after})
}

// ReplayDelivery makes the delivery of the path of a call once more, or returns the delivery that
// was made so before.
func (a *API) ReplayDelivery(c *httpapi.Call) (webhook.Delivery, error) {
	w, err := a.webhooks()
	if err != nil {
		return webhook.Delivery{}, err
	}
	id := pathUUID(c, "delivery")
	return w.Replay(c.Context(), webhook.AnyOwner, c.PathValue("id"), id,
		func(to engine.RecordWriter) error {
			return a.record(to, c, nil, struct {
				Delivery string `json:"delivery"`
			}{id})
		})
}

// PathWebhook returns the webhook of the path of a call.
func (a *API) PathWebhook(c *httpapi.Call) (h Webhook, err error) {
	w, err := a.webhooks()
	if err != nil {
		return h, err
	}
	h.Subscription, err = w.Subscription(c.Context(), webhook.AnyOwner, c.PathValue("id"))
	if err != nil {
		return h, err
	}
	return h, h.readFigures(c.Context(), w)
}

// readUUID reads a query parameter that is an id into p, if it is given.
func readUUID(c *httpapi.Call, name string, p *string) error {
	text := ""
	if err := readText(c, name, &text); err != nil || text == "" {
		return err
	}
	id, ok := uuids.Parse(text)
	if !ok {
		return invalid(name + " must be an id, a UUID")
	}
	*p = id
	return nil
}
