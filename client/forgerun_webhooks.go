package client

import (
	"context"
	"iter"
	"net/http"
	"time"
)

// ForgeRunWebhook is a registered listener.
type ForgeRunWebhook struct {
	// ID is a UUID.
	ID string `json:"webhook_id"`
	// URL hears of the events, of all jobs of the client.
	URL    string              `json:"url"`
	Events []ForgeRunEventName `json:"events"`
	// CreatedAt is in UTC; earlier events are not told.
	CreatedAt time.Time `json:"created_at"`
	// Disabled says that the server has given the URL up, for the reason in
	// DisabledReason; [ForgeRun.EnableWebhook] takes it back.
	Disabled       bool   `json:"disabled"`
	DisabledReason string `json:"disabled_reason"`
}

// ForgeRunRegistration is the answer to a new webhook.
type ForgeRunRegistration struct {
	ID        string    `json:"webhook_id"`
	CreatedAt time.Time `json:"created_at"`
	// Secret is what its bodies are signed with ("whsec_…"), for
	// [VerifyWebhook]. It is shown this once and empty when the same
	// idempotency key had registered it before (G-FR-58);
	// [ForgeRun.RotateWebhookSecret] makes another.
	Secret string `json:"secret"`
}

// ForgeRunDelivery is one event on its way to one webhook (G-FR-62).
type ForgeRunDelivery struct {
	ID        string            `json:"delivery_id"`
	EventID   string            `json:"event_id"`
	EventName ForgeRunEventName `json:"event_name"`
	URL       string            `json:"url"`
	// Status is pending, delivered or exhausted.
	Status ForgeRunDeliveryStatus `json:"status"`
	Tries  []ForgeRunTry          `json:"tries"`
	// NextTryAt is nil when there is none to come, or none fixed yet.
	NextTryAt *time.Time `json:"next_try_at"`
}

// ForgeRunDeliveryStatus says how far a delivery is.
type ForgeRunDeliveryStatus string

// The statuses of a delivery.
const (
	ForgePending   ForgeRunDeliveryStatus = "pending"
	ForgeDelivered ForgeRunDeliveryStatus = "delivered"
	ForgeExhausted ForgeRunDeliveryStatus = "exhausted" // given up for good (FR-192)
)

// ForgeRunTry is one request of a delivery.
type ForgeRunTry struct {
	At time.Time `json:"at"`
	// StatusCode is that of the answer; 0 when none came, see Error.
	StatusCode int    `json:"status_code"`
	Error      string `json:"error"`
	DurationMS int64  `json:"duration_ms"`
	// Response is the beginning of the answer's body, up to 4 KiB (G-FR-48).
	Response string `json:"response"`
}

// RegisterWebhook has a URL hear of the listed events of all jobs of this
// client (FR-185, FR-190); [ForgeRunEvents] are all there are. An empty
// idempotencyKey means that one is made.
//
// Errors: [ErrInvalid] (FR-186); [ErrConflict] when the same URL and events
// are registered already (FR-187).
//
// Repeating under the same key gives the same webhook without its secret.
func (f *ForgeRun) RegisterWebhook(ctx context.Context, url string, events []ForgeRunEventName,
	idempotencyKey string) (ForgeRunRegistration, error) {
	wire := struct {
		URL    string              `json:"url"`
		Events []ForgeRunEventName `json:"events"`
	}{url, events}
	return forgeCall[ForgeRunRegistration](ctx, f,
		call{op: "forgerun register webhook", method: http.MethodPost,
			path: "/v1/webhooks", header: idempotencyHeader(idempotencyKey), body: encodeBody(wire),
			accept: []int{http.StatusCreated}})
}

// Webhooks goes through the webhooks of this client. It ends with the first
// error.
func (f *ForgeRun) Webhooks(ctx context.Context) iter.Seq2[ForgeRunWebhook, error] {
	return forgePages[ForgeRunWebhook](ctx, f, "forgerun webhooks", "/v1/webhooks", nil, 0)
}

// DeleteWebhook ends a webhook: no delivery starts afterwards (FR-188).
//
// Errors: [ErrNotFound], also of a repeat after a lost answer
// ([Error.Uncertain]).
func (f *ForgeRun) DeleteWebhook(ctx context.Context, webhookID string) error {
	_, err := forgeWebhook[struct{}](ctx, f, "forgerun delete webhook", http.MethodDelete,
		webhookID)
	return err
}

// RotateWebhookSecret makes a new secret. For 24 h bodies are signed with both
// (G-FR-48), so that a receiver has time to change.
//
// Repeating makes yet another one.
func (f *ForgeRun) RotateWebhookSecret(ctx context.Context, webhookID string) (secret string,
	err error) {
	got, err := forgeWebhook[ForgeRunRegistration](ctx, f, "forgerun rotate webhook secret",
		http.MethodPost, webhookID, "rotate-secret")
	return got.Secret, err
}

// EnableWebhook takes a disabled webhook back. Repeating is safe.
func (f *ForgeRun) EnableWebhook(ctx context.Context, webhookID string) (ForgeRunWebhook, error) {
	return forgeWebhook[ForgeRunWebhook](ctx, f, "forgerun enable webhook", http.MethodPost,
		webhookID, "enable")
}

// Deliveries goes through the deliveries of a webhook, pageSize at a time (0
// leaves it to the server). It ends with the first error.
func (f *ForgeRun) Deliveries(ctx context.Context, webhookID string,
	pageSize int) iter.Seq2[ForgeRunDelivery, error] {
	return forgePages[ForgeRunDelivery](ctx, f, "forgerun deliveries",
		forgePath("webhooks", webhookID, "deliveries"), nil, pageSize)
}

// ReplayDelivery sends an event to a webhook once more, whatever became of it
// before.
//
// Errors: [ErrNotFound]. Repeating may send it yet again.
func (f *ForgeRun) ReplayDelivery(ctx context.Context, webhookID,
	deliveryID string) (ForgeRunDelivery, error) {
	return forgeWebhook[ForgeRunDelivery](ctx, f, "forgerun replay delivery", http.MethodPost,
		webhookID, "deliveries", deliveryID, "replay")
}

// forgeWebhook makes a call about one webhook.
func forgeWebhook[T any](ctx context.Context, f *ForgeRun, op, method, webhookID string,
	rest ...string) (T, error) {
	for _, member := range append([]string{webhookID}, rest...) {
		if err := checkName("webhook or delivery id", member); err != nil {
			var none T
			return none, invalid(op, "%v", err)
		}
	}
	return forgeCall[T](ctx, f, call{op: op, method: method,
		path:   forgePath(append([]string{"webhooks", webhookID}, rest...)...),
		accept: []int{http.StatusOK, http.StatusCreated, http.StatusAccepted}})
}
