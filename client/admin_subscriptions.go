package client

import (
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"net/url"
)

// AdminWebhookSpec is what operators subscribe to (WH-001). With [Admin.SetWebhook] members that
// are nil stay as they are; an empty list takes a filter back.
type AdminWebhookSpec struct {
	// URL is where events are sent to.
	URL *string `json:"url,omitempty"`
	// Events are types of events, or patterns such as "*.job.failed"; see [Admin.WebhookEvents].
	Events []string `json:"events,omitempty"`
	// Contracts, Queues and Kinds bound which jobs they are about; nil is no bound.
	Contracts *[]string `json:"contracts,omitempty"`
	Queues    *[]string `json:"queues,omitempty"`
	Kinds     *[]string `json:"kinds,omitempty"`
	// Name is for people.
	Name *string `json:"name,omitempty"`
	// IncludePayload adds the payload of jobs to their events, up to 64 KiB.
	IncludePayload *bool `json:"include_payload,omitempty"`
	// MaxInFlight is the most requests at a time, over all nodes; without one it is 4.
	MaxInFlight *int `json:"max_in_flight,omitempty"`
	// Rate is the most requests that begin in every RatePeriod, such as "1m"; 0 is no bound.
	Rate       *int    `json:"rate,omitempty"`
	RatePeriod *string `json:"rate_period,omitempty"`
}

// AdminEventType is a type of events that operators may subscribe to (WH-002).
type AdminEventType struct {
	Type    string `json:"type"`
	Meaning string `json:"meaning"`
	// Schema is the JSON Schema of a body, and Example one of them.
	Schema  json.RawMessage `json:"schema"`
	Example json.RawMessage `json:"example"`
}

const webhooksPath = "/admin/v1/webhooks"

// WebhookEvents iterates over the types of events, by name. It ends with the first error.
func (a *Admin) WebhookEvents(ctx context.Context) iter.Seq2[AdminEventType, error] {
	return adminPages[AdminEventType](ctx, a, "admin webhook events", "/admin/v1/webhook-events",
		url.Values{}, 0)
}

// Webhook returns a webhook, of a client or of operators.
//
// Errors: [ErrNotFound].
func (a *Admin) Webhook(ctx context.Context, webhookID string) (AdminWebhook, error) {
	return adminCall[AdminWebhook](ctx, a, call{op: "admin webhook",
		path: webhooksPath + "/" + escape(webhookID)})
}

// CreateWebhook makes a webhook of operators, and returns it with the secret under which its
// requests are signed: the given one, whsec_ and the Base64 of 24 to 64 bytes, or for an empty one
// a new secret. It is shown this once. See [VerifyWebhook].
//
// Errors: [ErrInvalid] names the member that is wrong; [ErrConflict] where a webhook of operators
// has the same URL, events and filters, also by an earlier try of the call.
func (a *Admin) CreateWebhook(ctx context.Context, spec AdminWebhookSpec,
	secret string) (AdminWebhook, string, error) {
	body, err := json.Marshal(struct {
		AdminWebhookSpec
		Secret string `json:"secret,omitempty"`
	}{spec, secret})
	if err != nil {
		return AdminWebhook{}, "", err
	}
	made, err := adminCall[struct {
		AdminWebhook
		Secret string `json:"secret"`
	}](ctx, a, call{
		op:            "admin create webhook",
		method:        http.MethodPost,
		path:          webhooksPath,
		body:          body,
		accept:        []int{http.StatusCreated},
		notIdempotent: true,
	})
	return made.AdminWebhook, made.Secret, err
}

// SetWebhook changes the members of a webhook of operators that are not nil. Deliveries that are
// still to be made go to the new URL.
//
// Errors: as [Admin.CreateWebhook], [ErrNotFound], and [ErrConflict] for one of a client.
func (a *Admin) SetWebhook(ctx context.Context, webhookID string,
	spec AdminWebhookSpec) (AdminWebhook, error) {
	body, err := json.Marshal(spec)
	if err != nil {
		return AdminWebhook{}, err
	}
	return adminCall[AdminWebhook](ctx, a, call{
		op:     "admin set webhook",
		method: http.MethodPatch,
		path:   webhooksPath + "/" + escape(webhookID),
		body:   body,
	})
}

// DeleteWebhook removes a webhook of operators. Deliveries that are still to be made end as
// exhausted.
//
// Errors: [ErrNotFound]; [ErrConflict] for one of a client. Repeating is safe: when a webhook is
// not found after a try whose answer was lost, DeleteWebhook returns nil.
func (a *Admin) DeleteWebhook(ctx context.Context, webhookID string) error {
	return a.client.deleteOnce(ctx, call{op: "admin delete webhook",
		path: webhooksPath + "/" + escape(webhookID), header: a.header()})
}

// RotateWebhookSecret gives a webhook of operators a new secret and returns it. For a day requests
// are signed with the old one as well.
//
// Errors: [ErrNotFound]; [ErrConflict] for one of a client. It is repeated only while no try can
// have taken effect.
func (a *Admin) RotateWebhookSecret(ctx context.Context, webhookID string) (string, error) {
	got, err := adminCall[struct{ Secret string }](ctx, a, call{
		op:            "admin rotate webhook",
		method:        http.MethodPost,
		path:          adminWebhookPath(webhookID, "rotate-secret"),
		notIdempotent: true,
	})
	return got.Secret, err
}
