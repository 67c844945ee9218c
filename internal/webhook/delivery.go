package webhook

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/uuids"
)

// Status is the state of a delivery as clients see it.
type Status string

// The statuses.
const (
	Pending   Status = "pending"
	Delivered Status = "delivered"
	Exhausted Status = "exhausted"
)

// Delivery is the delivery of one event to one URL, with the members of G-FR-62.
type Delivery struct {
	ID        string `json:"delivery_id"`
	EventID   string `json:"event_id"`
	EventName string `json:"event_name"`
	URL       string `json:"url"`
	Status    Status `json:"status"`
	Tries     []Try  `json:"tries"`
	// NextTryAt is nil while the delivery is waiting or sending and when it has finished.
	NextTryAt *time.Time `json:"next_try_at"`
}

// Try is the outcome of one request. StatusCode and Response are nil if there was no answer, Error
// is nil if the try succeeded.
type Try struct {
	StartedAt  time.Time `json:"at"`
	StatusCode *int      `json:"status_code"`
	Error      *string   `json:"error"`
	DurationMS int64     `json:"duration_ms"`
	Response   *string   `json:"response"` // the first 4 KiB
}

// delivery is the definition of a delivery's job: its event, its URL and the subscriptions that it
// serves. It is written once, by Notify or Replay. The body of the event is the job's payload and
// its tries are the job's progress. The JSON names are stored data: they must not change.
type delivery struct {
	EventID         string   `json:"event_id"`
	EventName       string   `json:"event_name"`
	URL             string   `json:"url"`
	Client          string   `json:"client"`
	Chain           string   `json:"chain"`
	SubscriptionIDs []string `json:"hooks,omitempty"`    // the subscriptions that name the URL
	Callback        bool     `json:"callback,omitempty"` // the chain's callback names the URL
}

// listOwner returns the owner of a delivery's job, by which deliveries are listed: the oldest of
// its subscriptions, or the callbacks of its client.
func (p *delivery) listOwner() string {
	if len(p.SubscriptionIDs) > 0 {
		return p.SubscriptionIDs[0]
	}
	return callbackListOwner(p.Client)
}

// callbackListOwner returns the owner of the deliveries of a client's callbacks. No subscription
// can have it as its id.
func callbackListOwner(owner string) string { return "callbacks/" + owner }

// submission returns the job of a delivery. Its lease and number of tries are those of the settings
// now; a delivery that is stored keeps them.
func (p *delivery) submission(w *Webhooks, id string, body []byte, trace string) (engine.Submission,
	error) {
	definition, err := json.Marshal(p)
	if err != nil {
		return engine.Submission{}, err
	}
	return engine.Submission{Job: job.Job{
		ID:          jobID(id),
		Kind:        p.EventName,
		Queue:       queue,
		Owner:       p.listOwner(),
		Lease:       w.lease(),
		MaxAttempts: w.MaxTries,
		Definition:  definition,
		Payload:     body,
		Trace:       trace,
	}}, nil
}

// jobID returns the identity of a delivery's job: its key is the delivery's id.
func jobID(delivery string) job.ID { return job.ID{Contract: Name, Key: delivery} }

// deliveryID returns the id of the delivery of an event to a URL. It is a digest of both, so an
// event that is notified twice has one delivery (G-FR-47).
func deliveryID(owner, eventID, url string) string {
	h := sha256.New()
	for _, p := range []string{"delivery", owner, eventID, url} {
		fmt.Fprintf(h, "%d:%s", len(p), p)
	}
	return uuids.New(8, [16]byte(h.Sum(nil))).String()
}

func decodeDelivery(j *job.Job) (*delivery, error) {
	p := &delivery{}
	if err := json.Unmarshal(j.Definition, p); err != nil {
		return nil, fmt.Errorf("webhook: delivery %s: %w", j.ID.Key, err)
	}
	return p, nil
}

// decodeTries reads the tries that appendTry has stored with a job; a delivery that was never tried
// has none.
func decodeTries(j *job.Job) (tries []Try, err error) {
	if len(j.Progress) > 0 {
		err = json.Unmarshal(j.Progress, &tries)
	}
	return tries, err
}

// newDelivery returns a delivery as clients see it. While it is waiting or being sent it is pending
// as well; only a pending one has a time of its next try.
func newDelivery(j *job.Job) (Delivery, error) {
	p, err := decodeDelivery(j)
	if err != nil {
		return Delivery{}, err
	}
	tries, err := decodeTries(j)
	if err != nil {
		return Delivery{}, fmt.Errorf("webhook: tries of delivery %s: %w", j.ID.Key, err)
	}
	if tries == nil {
		tries = []Try{}
	}
	d := Delivery{
		ID:        j.ID.Key,
		EventID:   p.EventID,
		EventName: p.EventName,
		URL:       p.URL,
		Status:    Pending,
		Tries:     tries,
	}
	switch j.State {
	case delivered:
		d.Status = Delivered
	case exhausted:
		d.Status = Exhausted
	case pending:
		due := j.DueAt
		d.NextTryAt = &due
	}
	return d, nil
}

// Deliveries returns the newest limit deliveries of a subscription that are older than before. An
// empty subscriptionID stands for all callbacks of the client. next is the value of before for the
// next page, 0 at the end. A delivery for several subscriptions with one URL is listed with the
// oldest of them. Errors are those of Subscription.
func (w *Webhooks) Deliveries(ctx context.Context, owner, subscriptionID string, before int64,
	limit int) (all []Delivery, next int64, err error) {
	listOwner := callbackListOwner(owner)
	if subscriptionID != "" {
		h, err := w.Subscription(ctx, owner, subscriptionID)
		if err != nil {
			return nil, 0, err
		}
		listOwner = h.ID
	}
	limit = max(1, limit)
	jobs, err := w.Engine.List(ctx, store.Filter{
		Contract:    Name,
		Owner:       listOwner,
		NewestFirst: true,
		Before:      before,
		Limit:       limit + 1,
	})
	if err != nil {
		return nil, 0, err
	}
	if len(jobs) > limit {
		jobs = jobs[:limit]
		next = jobs[limit-1].Seq
	}
	all = make([]Delivery, len(jobs))
	for i, j := range jobs {
		if all[i], err = newDelivery(j); err != nil {
			return nil, 0, err
		}
	}
	return all, next, nil
}

// Replay makes one more delivery of the same event to the subscription, whatever the state of the
// first one. Callbacks and other subscriptions with the same URL are not served by it.
//
// Errors: those of Subscription, NotFound for a delivery that is not the subscription's, Conflict
// while the subscription is disabled.
func (w *Webhooks) Replay(ctx context.Context, owner, subscriptionID, id string) (Delivery, error) {
	h, err := w.Subscription(ctx, owner, subscriptionID)
	if err != nil {
		return Delivery{}, err
	}
	if h.Disabled {
		return Delivery{}, &job.Error{Kind: job.Conflict, Op: "webhook.replay",
			Msg: "the webhook is disabled: enable it first"}
	}
	j, err := w.findDelivery(ctx, h.ID, id)
	if err != nil {
		return Delivery{}, err
	}
	p, err := decodeDelivery(j)
	if err != nil {
		return Delivery{}, err
	}
	p.SubscriptionIDs, p.Callback = []string{h.ID}, false
	replayID, err := w.newRandomID()
	if err != nil {
		return Delivery{}, err
	}
	s, err := p.submission(w, replayID, j.Payload, j.Trace)
	if err != nil {
		return Delivery{}, err
	}
	if _, err := w.Engine.Submit(ctx, engine.Unique, []engine.Submission{s}); err != nil {
		return Delivery{}, err
	}
	if j, err = w.Engine.Get(ctx, jobID(replayID)); err != nil {
		return Delivery{}, err
	}
	return newDelivery(j)
}

// findDelivery loads a delivery and checks that it is listed with the subscription.
func (w *Webhooks) findDelivery(ctx context.Context, subscriptionID, id string) (*job.Job, error) {
	id, ok := uuids.Parse(id)
	if !ok {
		return nil, notFound("delivery")
	}
	j, err := w.Engine.Get(ctx, jobID(id))
	if job.IsKind(err, job.NotFound) {
		return nil, notFound("delivery")
	}
	if err != nil {
		return nil, err
	}
	if j.Owner != subscriptionID {
		return nil, notFound("delivery")
	}
	return j, nil
}
