package client

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"time"
)

// AdminWebhook is a webhook of a client, or of operators (AD-052). Its figures are about its newest
// deliveries, 100 at most.
type AdminWebhook struct {
	ID string `json:"id"`
	// Client is empty for a webhook of operators. They alone have the members from Name to
	// RatePeriod, see [AdminWebhookSpec].
	Client string `json:"client"`
	// URL is where events are sent to, without its query.
	URL    string   `json:"url"`
	Events []string `json:"events"`
	// State is "enabled" or "disabled", the latter for DisabledReason.
	State          string `json:"state"`
	DisabledReason string `json:"disabled_reason"`
	// FailingSince is since when no try has succeeded; nil if the last one has.
	FailingSince *time.Time `json:"failing_since"`
	CreatedAt    time.Time  `json:"created_at"`

	Name           string   `json:"name"`
	Contracts      []string `json:"contracts"`
	Queues         []string `json:"queues"`
	Kinds          []string `json:"kinds"`
	IncludePayload bool     `json:"include_payload"`
	MaxInFlight    int      `json:"max_in_flight"`
	Rate           int      `json:"rate"`
	RatePeriod     string   `json:"rate_period"`

	// Pending deliveries are still to be made, Delivered ones were accepted by the receiver, and
	// Exhausted ones were given up.
	Pending   int `json:"pending"`
	Delivered int `json:"delivered"`
	Exhausted int `json:"exhausted"`
	// SuccessRate is the share of those that are over that were delivered; nil if none is over.
	SuccessRate *float64 `json:"success_rate"`
	// LastStatus is what the receiver has answered last, 0 if it has not; LastError is why that
	// try failed, empty if it did not.
	LastStatus int        `json:"last_status"`
	LastError  string     `json:"last_error"`
	LastTryAt  *time.Time `json:"last_try_at"`
}

// AdminWebhookFilter selects webhooks. Empty members select all.
type AdminWebhookFilter struct {
	Client   string // the id of a client
	State    string // "enabled" or "disabled"
	PageSize int    // webhooks a request; 0 is the server's default
}

// AdminDelivery is the delivery of an event to a webhook.
type AdminDelivery struct {
	ID string `json:"id"`
	// Number is that of its job.
	Number    int64  `json:"number"`
	EventID   string `json:"event_id"`
	EventName string `json:"event_name"`
	// JobContract and JobID name the job that the event is about; empty where it is about none.
	JobContract string `json:"job_contract"`
	JobID       string `json:"job_id"`
	URL         string `json:"url"`
	// State is "pending", "delivered" or "exhausted".
	State string     `json:"state"`
	Tries []AdminTry `json:"tries"`
	// NextTryAt is when the next request is due; nil when none is.
	NextTryAt *time.Time `json:"next_try_at"`
}

// AdminTry is a request to the receiver of a webhook.
type AdminTry struct {
	At time.Time `json:"at"`
	// Status is that of the answer; 0 when none came. Error is why the try failed, empty if it did
	// not.
	Status     int    `json:"status"`
	Error      string `json:"error"`
	DurationMS int64  `json:"duration_ms"`
	// Response is the beginning of the answer's body, at most 4 KiB.
	Response string `json:"response"`
}

// AdminWebhookTest is what came back from a test.
type AdminWebhookTest struct {
	// EventID is the event, as the header webhook-id had it.
	EventID   string `json:"event_id"`
	Succeeded bool   `json:"succeeded"`
	AdminTry
}

// AdminReplayFilter selects deliveries to make once more.
type AdminReplayFilter struct {
	// From and To bound when the deliveries were made, inclusive and exclusive; zero is no bound.
	From, To time.Time
	// State is "exhausted", which empty means too, or "delivered".
	State string
}

// Webhooks iterates over the webhooks of all clients and of operators, in the order in which they
// were made (AD-052). It ends with the first error.
func (a *Admin) Webhooks(ctx context.Context, f AdminWebhookFilter) iter.Seq2[AdminWebhook, error] {
	query := url.Values{}
	setText(query, "client", f.Client)
	setText(query, "state", f.State)
	return adminPages[AdminWebhook](ctx, a, "admin webhooks", "/admin/v1/webhooks", query,
		f.PageSize)
}

// Deliveries iterates over the deliveries of a webhook in a state, or in all for an empty one, the
// newest first. pageSize is how many one request reads; 0 leaves it to the server. It ends with the
// first error, which is [ErrNotFound] for a webhook that there is not.
func (a *Admin) Deliveries(ctx context.Context, webhookID, state string,
	pageSize int) iter.Seq2[AdminDelivery, error] {
	query := url.Values{}
	setText(query, "state", state)
	return adminPages[AdminDelivery](ctx, a, "admin deliveries",
		adminWebhookPath(webhookID, "deliveries"), query, pageSize)
}

// TestWebhook sends an event named "millrace.test" to a webhook now, signed as every other, and
// returns what came back. That the receiver fails is no error. A disabled webhook gets it too, and
// it decides nothing about the webhook.
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

// ReplayWebhook begins a bulk operation that makes deliveries of a webhook once more, the oldest
// first, and returns its id, for [Admin.Bulk] and the others (AD-052). A delivery is replayed once
// at most, however often this is called; what fails again is a delivery of its own.
//
// Errors: [ErrInvalid] for what is wrong with the filter; [ErrNotFound]; [ErrConflict] while the
// webhook is disabled. It is repeated only while no try can have taken effect.
func (a *Admin) ReplayWebhook(ctx context.Context, webhookID string,
	f AdminReplayFilter) (bulkID string, err error) {
	return a.startBulk(ctx, "admin replay webhook", adminWebhookPath(webhookID, "replay"),
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

// EnableWebhook resumes the deliveries to a webhook and returns it as it is then.
//
// Errors: [ErrNotFound]. Repeating is safe.
func (a *Admin) EnableWebhook(ctx context.Context, webhookID string) (AdminWebhook, error) {
	return a.setWebhook(ctx, "admin enable webhook", webhookID, "enable")
}

// DisableWebhook ends the deliveries to a webhook and returns it as it is then. Its client may
// enable it again.
//
// Errors: [ErrNotFound]. Repeating is safe.
func (a *Admin) DisableWebhook(ctx context.Context, webhookID string) (AdminWebhook, error) {
	return a.setWebhook(ctx, "admin disable webhook", webhookID, "disable")
}

// setWebhook enables or disables a webhook.
func (a *Admin) setWebhook(ctx context.Context, op, webhookID,
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
