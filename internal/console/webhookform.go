package console

import (
	"bytes"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/millrace/millrace/internal/admin"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/webhook"
)

// The form sends beside each field what it has shown first. A member is changed only if the two
// differ, so a member that somebody else has set meanwhile keeps its value although this form shows
// the old one.

// webhookLists are the members of a webhook that are lists, which a field has with commas.
var webhookLists = []string{"events", "contracts", "queues", "kinds"}

// webhookFields are the fields of the form: the members of the API. Beside each stands what the
// form has shown first, as shown_name and so on.
func webhookFields() []string {
	all := admin.WebhookMembers()
	for _, name := range admin.WebhookMembers() {
		all = append(all, "shown_"+name)
	}
	return all
}

// webhookFormPages are the pages with the form for a webhook of operators, and its new secret.
func (o *Console) webhookFormPages() []admin.Page {
	const one = Path + "/webhooks/{id}"
	target := func(c *httpapi.Call) string { return "webhook:" + c.PathValue("id") }
	return []admin.Page{
		{Method: "GET", Pattern: one + "/edit", Action: "console.webhook.edit",
			Handle: o.show(o.showEditWebhook)},
		{Method: "POST", Pattern: one + "/edit", Action: "console.webhook.set",
			Audit: "webhook.set", Target: target, Handle: o.editWebhook},
		{Method: "POST", Pattern: one + "/rotate-secret", Action: "console.webhook.rotate",
			Audit: "webhook.rotate", Target: target, Handle: o.showForm(o.rotateWebhook)},
	}
}

// webhookFormPage is what the page with the form shows.
type webhookFormPage struct {
	ID    string
	Form  url.Values
	Shown []field // what the form has shown first
}

func newWebhookForm(id string, form url.Values) view {
	p := webhookFormPage{ID: id, Form: form}
	for _, name := range admin.WebhookMembers() {
		p.Shown = append(p.Shown, field{"shown_" + name, form.Get("shown_" + name)})
	}
	return view{Name: "webhookform", Title: "Edit a webhook", Page: p}
}

// showEditWebhook is GET /console/webhooks/{id}/edit. The URL may be secret: its field is empty.
func (o *Console) showEditWebhook(c *httpapi.Call) (view, error) {
	h, err := o.api.PathWebhook(c)
	if err != nil {
		return view{}, err
	}
	if h.Operator == nil {
		return view{}, &job.Error{Kind: job.Conflict, Op: "console.webhook",
			Msg: "the webhook belongs to a client, which alone changes it"}
	}
	form := url.Values{}
	for name, value := range map[string]string{"events": strings.Join(h.Events, ", "),
		"contracts": strings.Join(h.Operator.Contracts, ", "),
		"queues":    strings.Join(h.Operator.Queues, ", "),
		"kinds":     strings.Join(h.Operator.Kinds, ", "), "name": h.Operator.Name,
		"max_in_flight": strconv.Itoa(h.Operator.MaxInFlight)} {
		form.Set(name, value)
	}
	if h.Operator.IncludePayload {
		form.Set("include_payload", "true")
	}
	if rate := h.Operator.Rate; !rate.IsZero() {
		form.Set("rate", strconv.Itoa(rate.Starts))
		form.Set("rate_period", periodText(rate.Period))
	}
	for _, name := range admin.WebhookMembers() {
		form.Set("shown_"+name, form.Get(name))
	}
	return newWebhookForm(c.PathValue("id"), form), nil
}

// editWebhook is POST /console/webhooks/{id}/edit. A form that is refused is shown again as it was
// sent. Members that are as they were shown are left, as others may have changed them since.
func (o *Console) editWebhook(c *httpapi.Call) error {
	form, err := readForm(c, webhookFields())
	if err != nil {
		return err
	}
	if members := webhookMembers(form); len(members) > 0 {
		_, err = o.api.PatchWebhook(c, func(t *webhook.Spec) error {
			return admin.EditWebhook(t, members)
		})
	}
	if err != nil {
		answer := admin.Answer(err)
		if answer.Status >= http.StatusInternalServerError {
			return err
		}
		v := newWebhookForm(c.PathValue("id"), form)
		v.Problem, v.Status = answer.Detail, answer.Status
		return o.send(c, v)
	}
	c.Header().Set("Location", pathOf("webhooks", c.PathValue("id")))
	c.WriteHeader(http.StatusSeeOther)
	return nil
}

// webhookMembers returns the members that a form changes, as JSON. An empty field is null. A rate
// and its period are set together.
func webhookMembers(form url.Values) map[string][]byte {
	isSame := func(name string) bool {
		return strings.TrimSpace(form.Get(name)) == form.Get("shown_"+name)
	}
	sameRate := isSame("rate") && isSame("rate_period")
	members := map[string][]byte{}
	for _, name := range admin.WebhookMembers() {
		text := strings.TrimSpace(form.Get(name))
		isRate := name == "rate" || name == "rate_period"
		switch _, notNumber := strconv.Atoi(text); {
		case (isRate && sameRate) || (!isRate && isSame(name)):
		case slices.Contains(webhookLists, name):
			members[name] = appendNames(text)
		case name == "include_payload":
			members[name] = strconv.AppendBool(nil, text == "true")
		case text == "":
			members[name] = []byte("null")
		case notNumber == nil && (name == "rate" || name == "max_in_flight"):
			members[name] = []byte(text)
		default:
			members[name] = strictjson.AppendString(nil, text)
		}
	}
	return members
}

// appendNames returns names with commas as a JSON array.
func appendNames(text string) []byte {
	var names [][]byte
	for name := range strings.SplitSeq(text, ",") {
		if name = strings.TrimSpace(name); name != "" {
			names = append(names, strictjson.AppendString(nil, name))
		}
	}
	return slices.Concat([]byte("["), bytes.Join(names, []byte(",")), []byte("]"))
}

// rotateWebhook is POST /console/webhooks/{id}/rotate-secret: it shows the new secret, this once.
func (o *Console) rotateWebhook(c *httpapi.Call, _ url.Values) (view, error) {
	secret, err := o.api.RotateWebhook(c)
	return view{Name: "rotated", Title: "New secret of a webhook", Page: struct {
		ID, Secret string
	}{c.PathValue("id"), secret}}, err
}
