package client

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"time"
)

// AdminWebhook is a webhook of a client of ForgeRun, or of operators (AD-052). Its numbers are
// about its newest deliveries, at most 100.
type AdminWebhook struct {
	ID string `json:"id"`
	// ClientID is empty for a webhook of operators. Only these have the fields from Name to
	// RatePeriod, which [AdminWebhookSpec] explains.
	ClientID string `json:"client"`
	// URL is the URL to which events are sent, without its query.
	URL    string   `json:"url"`
	Events []string `json:"events"`
	// State is "enabled" or "disabled". DisabledReason says why it is disabled.
	State          string `json:"state"`
	DisabledReason string `json:"disabled_reason"`
	// FailingSince is since when no attempt has succeeded; nil if the last one has succeeded.
	FailingSince *time.Time `json:"failing_since"`
	CreatedAt    time.Time  `json:"created_at"`

	Name           string   `json:"name"`
	Contracts      []string `json:"contracts"`
	Queues         []string `json:"queues"`
	Kinds          []string `json:"kinds"`
	IncludePayload bool     `json:"include_payload"`
	MaxInFlight    int      `json:"max_in_flight"`
	RateLimit      int      `json:"rate"`
	RatePeriod     string   `json:"rate_period"`

	// Pending is how many deliveries are still to be made, Delivered how many the receiver has
	// accepted, and Exhausted how many were given up.
	Pending   int `json:"pending"`
	Delivered int `json:"delivered"`
	Exhausted int `json:"exhausted"`
	// SuccessRate is the share of Delivered among the finished deliveries; nil if there is none.
	SuccessRate *float64 `json:"success_rate"`
	// LastStatus is the status of the receiver's answer to the last attempt, 0 if there was
	// none, and LastError why that attempt failed, empty if it did not.
	LastStatus    int        `json:"last_status"`
	LastError     string     `json:"last_error"`
	LastAttemptAt *time.Time `json:"last_try_at"`
}

// AdminWebhookFilter selects webhooks. Empty fields select all.
type AdminWebhookFilter struct {
	ClientID string // the id of a client of ForgeRun
	State    string // "enabled" or "disabled"
	PageSize int    // webhooks that one request reads; 0 is the server's default
}

// AdminDelivery is the delivery of an event to a webhook.
type AdminDelivery struct {
	ID string `json:"id"`
	// Number is the number of the job that makes the delivery.
	Number    int64  `json:"number"`
	EventID   string `json:"event_id"`
	EventName string `json:"event_name"`
	// JobContract and JobID name the job that the event is about; empty where it is about none.
	JobContract string `json:"job_contract"`
	JobID       string `json:"job_id"`
	URL         string `json:"url"`
	// State is "pending", "delivered" or "exhausted".
	State    string                 `json:"state"`
	Attempts []AdminDeliveryAttempt `json:"tries"`
	// NextAttemptAt is when the next request is due; nil when none is.
	NextAttemptAt *time.Time `json:"next_try_at"`
}

// AdminDeliveryAttempt is one request to the receiver of a webhook.
type AdminDeliveryAttempt struct {
	At time.Time `json:"at"`
	// Status is the status of the answer, 0 if there was none. Error is why the attempt failed,
	// empty if it did not.
	Status     int    `json:"status"`
	Error      string `json:"error"`
	DurationMS int64  `json:"duration_ms"`
	// Response is the beginning of the answer's body, at most 4 KiB.
	Response string `json:"response"`
}

// AdminWebhookTest is the result of [Admin.TestWebhook].
type AdminWebhookTest struct {
	// EventID is the id of the event, as in the header webhook-id.
	EventID   string `json:"event_id"`
	Succeeded bool   `json:"succeeded"`
	AdminDeliveryAttempt
}

// AdminDeliveryReplayFilter selects deliveries to be made once more.
type AdminDeliveryReplayFilter struct {
	// From, which is inclusive, and To, which is exclusive, limit when the deliveries were
	// submitted; the zero time is no limit.
	From, To time.Time
	// State is "exhausted", the default, or "delivered".
	State string
}

// Webhooks iterates over the webhooks of all clients and of operators, in the order of their
// creation (AD-052). It ends with the first error.
func (a *Admin) Webhooks(ctx context.Context, f AdminWebhookFilter) iter.Seq2[AdminWebhook, error] {
	query := url.Values{}
	setText(query, "client", f.ClientID)
	setText(query, "state", f.State)
	return adminPages[AdminWebhook](ctx, a, "admin webhooks", "/admin/v1/webhooks", query,
		f.PageSize)
}

// Deliveries iterates over the deliveries of a webhook in a state, the newest first; the empty
// state means all. pageSize is how many deliveries one request reads; 0 is the server's default. It
// ends with the first error, which is [ErrNotFound] for an unknown webhook.
func (a *Admin) Deliveries(ctx context.Context, webhookID, state string,
	pageSize int) iter.Seq2[AdminDelivery, error] {
	query := url.Values{}
	setText(query, "state", state)
	return adminPages[AdminDelivery](ctx, a, "admin deliveries",
		adminWebhookPath(webhookID, "deliveries"), query, pageSize)
}

// TestWebhook sends an event named "millrace.test" to a webhook now, signed as every other, and
// returns the answer. A receiver that fails is no error. The event is also sent to a disabled
// webhook, and has no effect on the state of the webhook.
//
// Errors: [ErrNotFound]. It is tried once, as a repeat sends another event.
func (a *Admin) TestWebhook(ctx context.Context, webhookID string) (AdminWebhookTest, error) {
	return adminCall[AdminWebhookTest](ctx, a, call{
		op:        "admin test webhook",
		method:    http.MethodPost,
		path:      adminWebhookPath(webhookID, "test"),
		singleTry: true,
	})
}

// ReplayDeliveries starts a bulk operation that makes deliveries of a webhook once more, the oldest
// first, and returns its id, for [Admin.BulkOperation] (AD-052). A delivery is replayed at most
// once, however often this is called. Each replay is a new delivery, which may fail and be replayed
// too.
//
// Errors: [ErrInvalid] for a wrong filter; [ErrNotFound]; [ErrConflict] while the webhook is
// disabled. It is repeated only while no try can have taken effect.
func (a *Admin) ReplayDeliveries(ctx context.Context, webhookID string,
	f AdminDeliveryReplayFilter) (bulkID string, err error) {
	return a.startBulkOperation(ctx, "admin replay deliveries", adminWebhookPath(webhookID, "replay"),
		encodeBody(newReplayWire(f.From, f.To, f.State)))
}

// replayWire is the body of a replay.
type replayWire struct {
	From   *time.Time `json:"from,omitempty"`
	To     *time.Time `json:"to,omitempty"`
	State  string     `json:"state,omitempty"`
	Cursor string     `json:"cursor,omitempty"`
}

func newReplayWire(from, to time.Time, state string) replayWire {
	w := replayWire{State: state}
	if !from.IsZero() {
		w.From = &from
	}
	if !to.IsZero() {
		w.To = &to
	}
	return w
}

// EnableWebhook enables a disabled webhook and returns it as it is then.
//
// Errors: [ErrNotFound]. Repeating is safe.
func (a *Admin) EnableWebhook(ctx context.Context, webhookID string) (AdminWebhook, error) {
	return a.changeWebhook(ctx, "admin enable webhook", webhookID, "enable")
}

// DisableWebhook disables a webhook, so that nothing is delivered, and returns it as it is then.
// Its client may enable it again.
//
// Errors: [ErrNotFound]. Repeating is safe.
func (a *Admin) DisableWebhook(ctx context.Context, webhookID string) (AdminWebhook, error) {
	return a.changeWebhook(ctx, "admin disable webhook", webhookID, "disable")
}

// changeWebhook enables or disables a webhook.
func (a *Admin) changeWebhook(ctx context.Context, op, webhookID,
	verb string) (AdminWebhook, error) {
	return adminCall[AdminWebhook](ctx, a, call{
		op:     op,
		method: http.MethodPost,
		path:   adminWebhookPath(webhookID, verb),
	})
}

func adminWebhookPath(webhookID, rest string) string {
	return "/admin/v1/webhooks/" + escape(webhookID) + "/" + rest
}
