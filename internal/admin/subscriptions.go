package admin

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/events"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/setting"
	"github.com/millrace/millrace/internal/webhook"
)

// Operators have webhooks of their own (WH-001), for the jobs of all contracts. They stand in one
// list with those of ForgeRun's clients, which their owners alone change.

// subscriptionRoutes are the routes of what operators subscribe to.
func (a *API) subscriptionRoutes() []route {
	const all, one = apiPrefix + "/webhooks", apiPrefix + "/webhooks/{id}"
	return []route{
		{method: "GET", pattern: apiPrefix + "/webhook-events", action: "webhook.events",
			handle: a.listEventTypes, query: httpapi.PageQuery()},
		{method: "POST", pattern: all, action: "webhook.create", handle: a.createWebhook,
			target: FixedTarget("webhooks"), body: true},
		{method: "GET", pattern: one, action: "webhook.show", handle: a.showWebhook},
		{method: "PATCH", pattern: one, action: "webhook.set", handle: a.patchWebhook,
			target: webhookTarget, body: true},
		{method: "DELETE", pattern: one, action: "webhook.delete", handle: a.deleteWebhook,
			target: webhookTarget},
		{method: "POST", pattern: one + "/rotate-secret", action: "webhook.rotate",
			handle: a.rotateWebhook, target: webhookTarget, body: true},
	}
}

var eventTypePages = newPages(nameCursor("event type"))

// listEventTypes is GET /admin/v1/webhook-events (WH-002): by name.
func (a *API) listEventTypes(c *httpapi.Call) error {
	limit, after, err := eventTypePages.Read(c)
	if err != nil {
		return err
	}
	var page []events.Type
	next := ""
	for _, t := range a.Events.All() {
		if t.Name <= after {
			continue
		}
		if len(page) == limit {
			next = eventTypePages.Cursor.Format(page[limit-1].Name)
			break
		}
		page = append(page, t)
	}
	o := newList(len(page), next, func(i int, o *strictjson.Object) {
		o.Text("type", page[i].Name)
		o.Text("meaning", page[i].Meaning)
		o.Raw("schema", page[i].Schema)
		o.Raw("example", page[i].Example)
	})
	sendObject(c, http.StatusOK, &o)
	return nil
}

// specMembers are the members that a webhook of operators is made of.
var specMembers = []string{"url", "events", "contracts", "queues", "kinds", "name",
	"include_payload", "max_in_flight", "rate", "rate_period"}

// WebhookMembers returns the members that a webhook of operators is made of.
func WebhookMembers() []string { return slices.Clone(specMembers) }

// EditWebhook sets members, JSON by their names, of what operators subscribe to.
func EditWebhook(t *webhook.Spec, members map[string][]byte) error { return patchSpec(t, members) }

// errNothingToSet refuses a body without members.
var errNothingToSet = invalid("the body names nothing to set")

// readSpec reads a body into the members that it names, and the secret, "" without one.
func readSpec(c *httpapi.Call, more ...string) (edit func(*webhook.Spec) error, secret string,
	err error) {
	body, err := readMembers(c, append(more, specMembers...)...)
	if err != nil {
		return nil, "", err
	}
	members := map[string][]byte{}
	for member, value := range strictjson.Members(body) {
		members[string(member)] = bytes.Clone(value)
	}
	if len(members) == 0 {
		return nil, "", errNothingToSet
	}
	if raw, given := members["secret"]; given && !strictjson.IsNull(raw) {
		if secret, err = strictjson.String(raw); err != nil || secret == "" {
			return nil, "", invalid("secret must be a text that is not empty")
		}
	}
	return func(t *webhook.Spec) error { return patchSpec(t, members) }, secret, nil
}

// patchSpec sets the members of a body. null takes back what may be left out.
func patchSpec(t *webhook.Spec, members map[string][]byte) (err error) {
	texts := map[string]*string{"url": &t.URL, "name": &t.Name}
	lists := map[string]*[]string{"events": &t.Events, "contracts": &t.Contracts,
		"queues": &t.Queues, "kinds": &t.Kinds}
	for _, name := range specMembers {
		raw, given := members[name]
		if !given {
			continue
		}
		isNull := strictjson.IsNull(raw)
		switch {
		case texts[name] != nil:
			*texts[name] = ""
			if !isNull {
				if *texts[name], err = strictjson.String(raw); err != nil {
					return invalid(name + " must be a string")
				}
			}
		case lists[name] != nil:
			if *lists[name], err = readNames(name, raw); err != nil {
				return err
			}
		case name == "include_payload":
			t.IncludePayload = false
			if !isNull {
				if t.IncludePayload, err = strictjson.Bool(raw); err != nil {
					return invalid("include_payload must be true or false")
				}
			}
		case name == "max_in_flight":
			if t.MaxInFlight, err = readLimit(name, raw, webhook.MaxMaxInFlight); err != nil {
				return err
			}
			if t.MaxInFlight == 0 {
				t.MaxInFlight = webhook.DefaultMaxInFlight
			}
		}
	}
	q := job.QueueSettings{Rate: t.Rate}
	if err := patchRate(&q, members); err != nil {
		return err
	}
	t.Rate = q.Limits().Rate
	return nil
}

// readNames reads a list of texts, each once; null is none.
func readNames(name string, raw []byte) (names []string, err error) {
	if strictjson.IsNull(raw) {
		return nil, nil
	}
	if strictjson.KindOf(raw) != strictjson.KindArray {
		return nil, invalid(name + " must be a list of texts")
	}
	seen := map[string]bool{}
	for _, element := range strictjson.Elements(raw) {
		text, err := strictjson.String(bytes.Clone(element))
		if err != nil {
			return nil, invalid(name + " must be a list of texts")
		}
		if !seen[text] {
			seen[text] = true
			names = append(names, text)
		}
	}
	return names, nil
}

// checkSpec refuses patterns, contracts and kinds that mean nothing on this node, alone or
// together. Those that a webhook had before stay: it may have been made by a node that serves more
// contracts.
func (a *API) checkSpec(before, t *webhook.Spec) error {
	for _, check := range []struct {
		before, after []string
		known         func(name string) error
	}{
		{before.Events, t.Events, a.Events.Check},
		{before.Contracts, t.Contracts, a.checkContract},
		{before.Kinds, t.Kinds, a.Events.CheckKind},
	} {
		for _, name := range check.after {
			if slices.Contains(check.before, name) {
				continue
			}
			if err := check.known(name); err != nil {
				return err
			}
		}
	}
	if slices.Equal(before.Events, t.Events) && slices.Equal(before.Contracts, t.Contracts) &&
		slices.Equal(before.Kinds, t.Kinds) {
		return nil
	}
	return a.Events.CheckTogether(t.Events, t.Contracts, t.Kinds)
}

// checkContract refuses a contract that this node does not serve.
func (a *API) checkContract(name string) error {
	known := a.ContractNames()
	if slices.Contains(known, name) {
		return nil
	}
	return invalid(fmt.Sprintf("contracts: this node has no contract %s, did you mean %q? It has %s",
		setting.Quote(name), setting.Nearest(name, known), strings.Join(known, ", ")))
}

// createWebhook is POST /admin/v1/webhooks: it answers the secret, this once.
func (a *API) createWebhook(c *httpapi.Call) error {
	edit, secret, err := readSpec(c, "secret")
	if errors.Is(err, errNothingToSet) {
		err = invalid(`url and events are required, such as {"url": "https://example.com/hook", ` +
			`"events": ["*.job.dead"]}; GET /admin/v1/webhook-events lists the events`)
	}
	if err != nil {
		return err
	}
	h, plain, err := a.CreateWebhook(c, edit, secret)
	if err != nil {
		return err
	}
	o := strictjson.NewObject(nil)
	writeWebhook(&o, a.disclosureTo(c), &h.Subscription, &h.Figures)
	o.Text("secret", plain)
	sendObject(c, http.StatusCreated, &o)
	return nil
}

// CreateWebhook makes a webhook of operators with what edit sets, and returns its secret.
func (a *API) CreateWebhook(c *httpapi.Call, edit func(*webhook.Spec) error,
	secret string) (h Webhook, plain string, err error) {
	t := webhook.Spec{Options: webhook.Options{MaxInFlight: webhook.DefaultMaxInFlight}}
	if err := edit(&t); err != nil {
		return h, "", err
	}
	if err := a.checkSpec(&webhook.Spec{}, &t); err != nil {
		return h, "", err
	}
	w, err := a.webhooks()
	if err != nil {
		return h, "", err
	}
	h.Subscription, plain, err = w.RegisterForOperators(c.Context(), t, secret, a.recordSpec(c))
	return h, plain, err
}

// recordSpec writes the entry of the audit of a change, with the webhook before and after it.
func (a *API) recordSpec(c *httpapi.Call) webhook.OperatorChange {
	return func(to engine.RecordWriter, before, after *webhook.Subscription) error {
		e := newEntry(c, a.routeOf(c))
		if before == nil {
			e.Target = "webhook:" + after.ID
		}
		var err error
		if e.Before, err = encodeState(specState(before)); err != nil {
			return err
		}
		if e.After, err = encodeState(specState(after)); err != nil {
			return err
		}
		return a.audit.write(to, e)
	}
}

// specState is what the audit keeps of a webhook of operators.
func specState(h *webhook.Subscription) any {
	if h == nil {
		return nil
	}
	return struct {
		URL    string   `json:"url"`
		Events []string `json:"events"`
		*webhook.Options
	}{webhook.WithoutQuery(h.URL), h.Events, h.Operator}
}

// showWebhook is GET /admin/v1/webhooks/{id}.
func (a *API) showWebhook(c *httpapi.Call) error {
	h, err := a.PathWebhook(c)
	if err != nil {
		return err
	}
	a.sendWebhook(c, &h)
	return nil
}

func (a *API) sendWebhook(c *httpapi.Call, h *Webhook) {
	o := strictjson.NewObject(nil)
	writeWebhook(&o, a.disclosureTo(c), &h.Subscription, &h.Figures)
	sendObject(c, http.StatusOK, &o)
}

// patchWebhook is PATCH /admin/v1/webhooks/{id}.
func (a *API) patchWebhook(c *httpapi.Call) error {
	edit, _, err := readSpec(c)
	if err != nil {
		return err
	}
	h, err := a.PatchWebhook(c, edit)
	if err != nil {
		return err
	}
	a.sendWebhook(c, &h)
	return nil
}

// PatchWebhook changes the webhook of the path of a call.
func (a *API) PatchWebhook(c *httpapi.Call, edit func(*webhook.Spec) error) (h Webhook,
	err error) {
	w, err := a.webhooks()
	if err != nil {
		return h, err
	}
	h.Subscription, err = w.ChangeForOperators(c.Context(), c.PathValue("id"),
		func(t *webhook.Spec) error {
			before := *t
			if err := edit(t); err != nil {
				return err
			}
			return a.checkSpec(&before, t)
		}, a.recordSpec(c))
	if err != nil {
		return h, ownersOnly(err)
	}
	return h, h.readFigures(c.Context(), w)
}

// deleteWebhook is DELETE /admin/v1/webhooks/{id}.
func (a *API) deleteWebhook(c *httpapi.Call) error {
	if err := a.DeleteWebhook(c); err != nil {
		return err
	}
	c.WriteHeader(http.StatusNoContent)
	return nil
}

// DeleteWebhook removes the webhook of the path of a call. Deliveries to it that are still to be
// made end as exhausted.
func (a *API) DeleteWebhook(c *httpapi.Call) error {
	w, err := a.webhooks()
	if err != nil {
		return err
	}
	return ownersOnly(w.DeleteForOperators(c.Context(), c.PathValue("id"), a.recordSpec(c)))
}

// rotateWebhook is POST /admin/v1/webhooks/{id}/rotate-secret: for a day requests are signed with
// both secrets.
func (a *API) rotateWebhook(c *httpapi.Call) error {
	if _, err := readMembers(c); err != nil {
		return err
	}
	plain, err := a.RotateWebhook(c)
	if err != nil {
		return err
	}
	o := strictjson.NewObject(nil)
	o.Text("id", pathUUID(c, "id"))
	o.Text("secret", plain)
	sendObject(c, http.StatusOK, &o)
	return nil
}

// RotateWebhook gives the webhook of the path of a call a new secret and returns it.
func (a *API) RotateWebhook(c *httpapi.Call) (plain string, err error) {
	w, err := a.webhooks()
	if err != nil {
		return "", err
	}
	plain, err = w.RotateForOperators(c.Context(), c.PathValue("id"),
		func(to engine.RecordWriter) error { return a.record(to, c, nil, nil) })
	return plain, ownersOnly(err)
}

// ownersOnly says who may change a webhook that is no operator's.
func ownersOnly(err error) error {
	if errors.Is(err, webhook.ErrForbidden) {
		return &job.Error{Kind: job.Conflict, Op: "admin.webhook",
			Msg: "the webhook belongs to a client, which alone changes it", Err: err}
	}
	return err
}

// writeOptions writes the members that webhooks of operators have; of others they are null.
func writeOptions(o *strictjson.Object, h *webhook.Subscription) {
	if h.Operator == nil {
		for _, name := range []string{"name", "contracts", "queues", "kinds", "include_payload",
			"max_in_flight", "rate", "rate_period"} {
			o.Null(name)
		}
		return
	}
	o.Optional("name", h.Operator.Name)
	o.Texts("contracts", h.Operator.Contracts)
	o.Texts("queues", h.Operator.Queues)
	o.Texts("kinds", h.Operator.Kinds)
	o.Bool("include_payload", h.Operator.IncludePayload)
	o.Int("max_in_flight", int64(h.Operator.MaxInFlight))
	writePositive(o, "rate", int64(h.Operator.Rate.Starts))
	period := ""
	if !h.Operator.Rate.IsZero() {
		period = setting.FormatDuration(h.Operator.Rate.Period)
	}
	o.Optional("rate_period", period)
}
