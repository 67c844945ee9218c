package client

import (
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"net/url"
)

// AdminWebhookSpec describes a webhook of operators (WH-001). With [Admin.SetWebhook], fields that
// are nil stay as they are, and an empty list removes a filter.
type AdminWebhookSpec struct {
	// URL is the URL to which events are sent.
	URL *string `json:"url,omitempty"`
	// Events are types of events, or patterns such as "*.job.failed"; see
	// [Admin.WebhookEventTypes].
	Events []string `json:"events,omitempty"`
	// Contracts, Queues and Kinds limit the jobs whose events are sent; nil is no limit.
	Contracts *[]string `json:"contracts,omitempty"`
	Queues    *[]string `json:"queues,omitempty"`
	Kinds     *[]string `json:"kinds,omitempty"`
	// Name is for people.
	Name *string `json:"name,omitempty"`
	// IncludePayload adds the payload of jobs to their events, up to 64 KiB.
	IncludePayload *bool `json:"include_payload,omitempty"`
	// MaxInFlight is the maximum number of requests at a time, over all nodes; the default is 4.
	MaxInFlight *int `json:"max_in_flight,omitempty"`
	// RateLimit is the maximum number of requests in every RatePeriod, such as "1m"; 0 is no limit.
	RateLimit  *int    `json:"rate,omitempty"`
	RatePeriod *string `json:"rate_period,omitempty"`
}

// AdminWebhookEventType is a type of event to which operators may subscribe (WH-002).
type AdminWebhookEventType struct {
	Type        string `json:"type"`
	Description string `json:"meaning"`
	// Schema is the JSON Schema of the body of such an event, and Example an example of one.
	Schema  json.RawMessage `json:"schema"`
	Example json.RawMessage `json:"example"`
}

const webhooksPath = "/admin/v1/webhooks"

// WebhookEventTypes iterates over the types of events, by name. It ends with the first error.
func (a *Admin) WebhookEventTypes(ctx context.Context) iter.Seq2[AdminWebhookEventType, error] {
	return adminPages[AdminWebhookEventType](ctx, a, "admin webhook event types",
		"/admin/v1/webhook-events", url.Values{}, 0)
}

// Webhook returns a webhook, of a client or of operators.
//
// Errors: [ErrNotFound].
func (a *Admin) Webhook(ctx context.Context, webhookID string) (AdminWebhook, error) {
	return adminCall[AdminWebhook](ctx, a, call{op: "admin webhook",
		path: webhooksPath + "/" + escape(webhookID)})
}

// CreateWebhook creates a webhook of operators, and returns it with the secret that signs its
// requests: the given one, which is whsec_ and the Base64 of 24 to 64 bytes, or a new one if that
// is empty. The secret is not shown again. See [VerifyWebhook].
//
// Errors: [ErrInvalid] names the field that is wrong; [ErrConflict] where a webhook of operators
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
	created, err := adminCall[struct {
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
	return created.AdminWebhook, created.Secret, err
}

// SetWebhook changes a webhook of operators by the fields of spec that are not nil. Pending
// deliveries go to the new URL.
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

// DeleteWebhook deletes a webhook of operators. Its pending deliveries end as exhausted.
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
		op:            "admin rotate webhook secret",
		method:        http.MethodPost,
		path:          adminWebhookPath(webhookID, "rotate-secret"),
		notIdempotent: true,
	})
	return got.Secret, err
}
