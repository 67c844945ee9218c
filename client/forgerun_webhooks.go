package client

import (
	"context"
	"iter"
	"net/http"
	"time"
)

// ForgeRunWebhook is a subscription: a URL that gets the events of all jobs of a client.
type ForgeRunWebhook struct {
	// ID is a UUID.
	ID string `json:"webhook_id"`
	// URL gets the events named in Events.
	URL    string              `json:"url"`
	Events []ForgeRunEventName `json:"events"`
	// CreatedAt is in UTC. Events before it are not delivered.
	CreatedAt time.Time `json:"created_at"`
	// Disabled is true when the server has stopped deliveries to the URL, for the reason in
	// DisabledReason. [ForgeRun.EnableWebhook] resumes them.
	Disabled       bool   `json:"disabled"`
	DisabledReason string `json:"disabled_reason"`
}

// ForgeRunCreatedWebhook is the answer to a new webhook.
type ForgeRunCreatedWebhook struct {
	ID        string    `json:"webhook_id"`
	CreatedAt time.Time `json:"created_at"`
	// Secret signs the requests to the webhook ("whsec_…"), see [VerifyWebhook]. The server shows
	// it once; it is empty when the same idempotency key had created the webhook before
	// (G-FR-58). [ForgeRun.RotateWebhookSecret] makes another.
	Secret string `json:"secret"`
}

// ForgeRunDelivery is the delivery of one event to one webhook (G-FR-62).
type ForgeRunDelivery struct {
	ID        string            `json:"delivery_id"`
	EventID   string            `json:"event_id"`
	EventName ForgeRunEventName `json:"event_name"`
	URL       string            `json:"url"`
	// Status is pending, delivered or exhausted.
	Status   ForgeRunDeliveryStatus    `json:"status"`
	Attempts []ForgeRunDeliveryAttempt `json:"tries"`
	// NextAttemptAt is when the next request is due, in UTC; nil when none is.
	NextAttemptAt *time.Time `json:"next_try_at"`
}

// ForgeRunDeliveryStatus is the status of a delivery.
type ForgeRunDeliveryStatus string

// The statuses of a delivery.
const (
	ForgeRunDeliveryPending   ForgeRunDeliveryStatus = "pending"
	ForgeRunDeliveryDelivered ForgeRunDeliveryStatus = "delivered"
	ForgeRunDeliveryExhausted ForgeRunDeliveryStatus = "exhausted" // given up (FR-192)
)

// ForgeRunDeliveryAttempt is one request of a delivery.
type ForgeRunDeliveryAttempt struct {
	At time.Time `json:"at"`
	// StatusCode is the status of the answer; 0 when none came, see Error.
	StatusCode int    `json:"status_code"`
	Error      string `json:"error"`
	DurationMS int64  `json:"duration_ms"`
	// Response is the beginning of the answer's body, at most 4 KiB (G-FR-48).
	Response string `json:"response"`
}

// CreateWebhook subscribes a URL to events of all jobs of this client (FR-185, FR-190).
// [ForgeRunEvents] lists the events there are. An empty idempotencyKey means a random one.
//
// Errors: [ErrInvalid] (FR-186); [ErrConflict] when the client has a webhook of the same URL and
// events already (FR-187).
//
// Repeating under the same key returns the same webhook without its secret.
func (f *ForgeRun) CreateWebhook(ctx context.Context, url string, events []ForgeRunEventName,
	idempotencyKey string) (ForgeRunCreatedWebhook, error) {
	wire := struct {
		URL    string              `json:"url"`
		Events []ForgeRunEventName `json:"events"`
	}{url, events}
	return forgeCall[ForgeRunCreatedWebhook](ctx, f, call{
		op:     "forgerun create webhook",
		method: http.MethodPost,
		path:   "/v1/webhooks",
		header: idempotencyHeader(idempotencyKey),
		body:   encodeBody(wire),
		accept: []int{http.StatusCreated},
	})
}

// Webhooks iterates over the webhooks of this client. It ends with the first error.
func (f *ForgeRun) Webhooks(ctx context.Context) iter.Seq2[ForgeRunWebhook, error] {
	return forgePages[ForgeRunWebhook](ctx, f, "forgerun webhooks", "/v1/webhooks", nil, 0)
}

// DeleteWebhook deletes a webhook. No delivery to it starts afterwards (FR-188).
//
// Errors: [ErrNotFound], which is Uncertain on a repeat after a lost answer, because the earlier
// try may have deleted it.
func (f *ForgeRun) DeleteWebhook(ctx context.Context, webhookID string) error {
	_, err := forgeWebhook[struct{}](ctx, f, "forgerun delete webhook", http.MethodDelete,
		webhookID)
	return err
}

// RotateWebhookSecret makes and returns a new secret. For 24 h requests are signed with both
// secrets (G-FR-48), so that the receiver has time to change.
//
// Errors: [ErrNotFound]. Repeating makes yet another secret.
func (f *ForgeRun) RotateWebhookSecret(ctx context.Context,
	webhookID string) (secret string, err error) {
	got, err := forgeWebhook[ForgeRunCreatedWebhook](ctx, f, "forgerun rotate webhook secret",
		http.MethodPost, webhookID, "rotate-secret")
	return got.Secret, err
}

// EnableWebhook resumes the deliveries to a disabled webhook.
//
// Errors: [ErrNotFound]. Repeating is safe.
func (f *ForgeRun) EnableWebhook(ctx context.Context, webhookID string) (ForgeRunWebhook, error) {
	return forgeWebhook[ForgeRunWebhook](ctx, f, "forgerun enable webhook", http.MethodPost,
		webhookID, "enable")
}

// Deliveries iterates over the deliveries of a webhook and asks for pageSize of them at a time; 0
// leaves the size to the server. It ends with the first error.
func (f *ForgeRun) Deliveries(ctx context.Context, webhookID string,
	pageSize int) iter.Seq2[ForgeRunDelivery, error] {
	return forgePages[ForgeRunDelivery](ctx, f, "forgerun deliveries",
		forgePath("webhooks", webhookID, "deliveries"), nil, pageSize)
}

// ReplayDelivery delivers an event to a webhook once more, whatever the status of the delivery is,
// and returns the new delivery. A delivery is replayed once: repeating is safe and returns the one
// that was made before, which can be replayed as such.
//
// Errors: [ErrNotFound]; [ErrConflict] while the webhook is disabled.
func (f *ForgeRun) ReplayDelivery(ctx context.Context, webhookID,
	deliveryID string) (ForgeRunDelivery, error) {
	return forgeWebhook[ForgeRunDelivery](ctx, f, "forgerun replay delivery", http.MethodPost,
		webhookID, "deliveries", deliveryID, "replay")
}

// ForgeRunWebhookTest is what came back from a test of a webhook.
type ForgeRunWebhookTest struct {
	// EventID is the event, as the header webhook-id had it.
	EventID string `json:"event_id"`
	// ForgeRunDeliveryAttempt has the answer; an empty Error says that the receiver has accepted
	// the event.
	ForgeRunDeliveryAttempt
}

// TestWebhook sends an event named "millrace.test" to a webhook now, signed as every other, and
// returns what came back. That the receiver fails is no error. A disabled webhook gets it too, and
// it decides nothing about the webhook.
//
// Errors: [ErrNotFound]. A repeat sends another event.
func (f *ForgeRun) TestWebhook(ctx context.Context, webhookID string) (ForgeRunWebhookTest, error) {
	return forgeWebhook[ForgeRunWebhookTest](ctx, f, "forgerun test webhook", http.MethodPost,
		webhookID,
		"test")
}

// ForgeRunDeliveryReplayFilter selects deliveries to make once more.
type ForgeRunDeliveryReplayFilter struct {
	// From and To limit when the deliveries were made, inclusive and exclusive; zero is no limit.
	From, To time.Time
	// Status is ForgeRunDeliveryExhausted, which empty means too, or ForgeRunDeliveryDelivered.
	Status ForgeRunDeliveryStatus
}

// ForgeRunDeliveryReplayResult is what a replay has done.
type ForgeRunDeliveryReplayResult struct {
	// Replayed deliveries were stored, and are made in the background. Skipped ones had been
	// replayed before.
	Replayed int `json:"replayed"`
	Skipped  int `json:"skipped"`
}

// ReplayDeliveries makes deliveries of a webhook once more, the oldest first, with as many requests
// as that needs. On an error it returns what was done before. A delivery is replayed by it once at
// most, however often it is called; what fails again is a delivery of its own.
//
// Errors: [ErrNotFound]; [ErrConflict] while the webhook is disabled. Repeating is safe.
func (f *ForgeRun) ReplayDeliveries(ctx context.Context, webhookID string,
	filter ForgeRunDeliveryReplayFilter) (all ForgeRunDeliveryReplayResult, err error) {
	const op = "forgerun replay deliveries"
	if err := checkName("webhook id", webhookID); err != nil {
		return all, invalid(op, "%v", err)
	}
	wire := newReplayWire(filter.From, filter.To, string(filter.Status))
	for {
		got, err := forgeCall[struct {
			ForgeRunDeliveryReplayResult
			Next string `json:"next_cursor"`
		}](ctx, f, call{
			op:     op,
			method: http.MethodPost,
			path:   forgePath("webhooks", webhookID, "replay"),
			body:   encodeBody(wire),
			accept: []int{http.StatusOK},
		})
		all.Replayed += got.Replayed
		all.Skipped += got.Skipped
		if err != nil || got.Next == "" {
			return all, err
		}
		wire.Cursor = got.Next
	}
}

// forgeWebhook makes a call about one webhook.
func forgeWebhook[T any](ctx context.Context, f *ForgeRun, op, method, webhookID string,
	rest ...string) (T, error) {
	for _, segment := range append([]string{webhookID}, rest...) {
		if err := checkName("webhook or delivery id", segment); err != nil {
			var none T
			return none, invalid(op, "%v", err)
		}
	}
	return forgeCall[T](ctx, f, call{op: op, method: method,
		path:   forgePath(append([]string{"webhooks", webhookID}, rest...)...),
		accept: []int{http.StatusOK, http.StatusCreated, http.StatusAccepted}})
}
