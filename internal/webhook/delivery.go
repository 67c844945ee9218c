package webhook

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/telemetry"
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
	ID        string    `json:"delivery_id"`
	Number    int64     `json:"-"` // of its job
	EventID   string    `json:"event_id"`
	EventName string    `json:"event_name"`
	URL       string    `json:"url"`
	Status    Status    `json:"status"`
	Attempts  []Attempt `json:"tries"`
	// JobContract and JobID name the job that the event is about; empty where it is about none.
	JobContract string `json:"-"`
	JobID       string `json:"-"`
	// NextAttemptAt is nil while the delivery is waiting or sending and when it has finished.
	NextAttemptAt *time.Time `json:"next_try_at"`
}

// Attempt is the outcome of one request. StatusCode and Response are nil if there was no answer,
// Error is nil if the attempt succeeded.
type Attempt struct {
	StartedAt  time.Time `json:"at"`
	StatusCode *int      `json:"status_code"`
	Error      *string   `json:"error"`
	DurationMS int64     `json:"duration_ms"`
	Response   *string   `json:"response"` // the first 4 KiB
}

// delivery is the definition of a delivery's job: its event, its URL and the subscriptions that it
// serves. It is written once, by Deliver or Replay. The body of the event is the job's payload and
// its attempts are the job's progress. The JSON names are stored data: they must not change.
type delivery struct {
	EventID         string   `json:"event_id"`
	EventName       string   `json:"event_name"`
	URL             string   `json:"url"`
	Client          string   `json:"client"`
	Chain           string   `json:"chain"`
	JobID           string   `json:"job,omitempty"`      // that an event of the feed is about
	JobContract     string   `json:"contract,omitempty"` // of that job
	SubscriptionIDs []string `json:"hooks,omitempty"`    // the subscriptions that name the URL
	Callback        bool     `json:"callback,omitempty"` // the chain's callback names the URL
}

// subjectOf returns the contract and the id of the job that the event of a delivery is about;
// nothing where it is about none. The chain of an event for a client is the id of its job.
func (w *Webhooks) subjectOf(p *delivery) (contract, id string) {
	switch {
	case p.JobID != "":
		return p.JobContract, p.JobID
	case p.Client == Operators || p.Chain == "":
		return "", ""
	}
	return w.ClientContract, p.Chain
}

// attrs returns what spans and log lines say of a delivery: its client, if it is for one, and the
// job that its event is about, if it is about one.
func (w *Webhooks) attrs(p *delivery) (all []slog.Attr) {
	if p.Client != Operators && !strings.HasPrefix(p.Client, contractPrefix) {
		all = append(all, slog.String(telemetry.ClientID, p.Client))
	}
	contract, id := w.subjectOf(p)
	if id != "" {
		all = append(all, slog.String(telemetry.JobID, id))
	}
	if contract != "" {
		all = append(all, slog.String(keyJobContract, contract))
	}
	return all
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

// submission returns the job of a delivery. Its lease and number of attempts are taken from the
// settings now; a delivery that is stored keeps them.
func (p *delivery) submission(w *Webhooks, id string, body []byte, trace string) (engine.Submission,
	error) {
	definition, err := json.Marshal(p)
	if err != nil {
		return engine.Submission{}, err
	}
	queue := clientQueue
	if p.Client == Operators {
		queue = p.SubscriptionIDs[0] // with the limits of the subscription
	}
	return engine.Submission{Job: job.Job{
		ID:          jobID(id),
		Kind:        p.EventName,
		Queue:       queue,
		Owner:       p.listOwner(),
		Lease:       w.lease(),
		MaxAttempts: w.MaxAttempts,
		Definition:  definition,
		Payload:     body,
		Trace:       trace,
	}}, nil
}

// jobID returns the identity of a delivery's job: its key is the delivery's id.
func jobID(delivery string) job.ID { return job.ID{JobType: Name, Key: delivery} }

// deliveryID returns the id of the delivery of an event to a URL. It is a digest of both, so an
// event that is passed twice has one delivery (G-FR-47).
func deliveryID(owner, eventID, url string) string {
	return digestID("delivery", owner, eventID, url)
}

// digestID returns an id that is a digest of texts with their lengths.
func digestID(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
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

// decodeAttempts reads the attempts that appendAttempt has stored with a job; a delivery that was
// never tried has none.
func decodeAttempts(j *job.Job) (attempts []Attempt, err error) {
	if len(j.Progress) > 0 {
		err = json.Unmarshal(j.Progress, &attempts)
	}
	return attempts, err
}

// newDelivery returns a delivery as clients see it. While it is waiting or being sent it is pending
// as well; only a pending one has a time of its next attempt.
func (w *Webhooks) newDelivery(j *job.Job) (Delivery, error) {
	p, err := decodeDelivery(j)
	if err != nil {
		return Delivery{}, err
	}
	attempts, err := decodeAttempts(j)
	if err != nil {
		return Delivery{}, fmt.Errorf("webhook: attempts at delivery %s: %w", j.ID.Key, err)
	}
	if attempts == nil {
		attempts = []Attempt{}
	}
	d := Delivery{
		ID:        j.ID.Key,
		Number:    j.Seq,
		EventID:   p.EventID,
		EventName: p.EventName,
		URL:       p.URL,
		Status:    statusOf(j),
		Attempts:  attempts,
	}
	d.JobContract, d.JobID = w.subjectOf(p)
	if j.State == pending {
		due := j.DueAt
		d.NextAttemptAt = &due
	}
	return d, nil
}

// statusOf returns the status of a delivery: one that is waiting or being sent is pending.
func statusOf(j *job.Job) Status {
	switch j.State {
	case delivered:
		return Delivered
	case exhausted:
		return Exhausted
	}
	return Pending
}

// maxSearched bounds the deliveries that one call looks through for those of a status.
const maxSearched = 5000

// Deliveries returns the newest limit deliveries of a subscription that are older than before, of
// one status unless that is empty. An empty subscriptionID stands for all callbacks of the client.
// next is the value of before for the next page, 0 at the end. Of a status there may be fewer than
// limit on a page, even none, while there is a next one. A delivery for several subscriptions with
// one URL is listed with the oldest of them. It fails as Subscription does.
func (w *Webhooks) Deliveries(ctx context.Context, owner, subscriptionID string, status Status,
	before int64, limit int) (all []Delivery, next int64, err error) {
	listOwner := callbackListOwner(owner)
	if subscriptionID != "" {
		h, err := w.Subscription(ctx, owner, subscriptionID)
		if err != nil {
			return nil, 0, err
		}
		listOwner = h.ID
	}
	limit = max(1, limit)
	var jobs []*job.Job
	if status == "" {
		jobs, next, err = w.newest(ctx, listOwner, before, limit)
	} else {
		jobs, next, err = w.newestOf(ctx, listOwner, status, before, limit)
	}
	if err != nil {
		return nil, 0, err
	}
	all = make([]Delivery, len(jobs))
	for i, j := range jobs {
		if all[i], err = w.newDelivery(j); err != nil {
			return nil, 0, err
		}
	}
	return all, next, nil
}

// newest returns the newest deliveries that are listed with an owner, and where the next ones are.
func (w *Webhooks) newest(ctx context.Context, listOwner string, before int64,
	limit int) (jobs []*job.Job, next int64, err error) {
	jobs, err = w.Engine.List(ctx, store.Filter{JobType: Name, Owner: listOwner,
		NewestFirst: true, Before: before, Limit: limit + 1})
	if err != nil || len(jobs) <= limit {
		return jobs, 0, err
	}
	return jobs[:limit], jobs[limit-1].Seq, nil
}

// newestOf is newest for those of a status. It looks through states without the bodies and then
// loads what it has found.
func (w *Webhooks) newestOf(ctx context.Context, listOwner string, status Status, before int64,
	limit int) (jobs []*job.Job, next int64, err error) {
	var found []job.ID
	const batch = 500
	for searched := 0; searched < maxSearched && len(found) < limit; searched += batch {
		some, err := w.Engine.List(ctx, store.Filter{JobType: Name, Owner: listOwner,
			NewestFirst: true, Before: before, WithoutBodies: true, Limit: batch})
		if err != nil {
			return nil, 0, err
		}
		next = 0
		for _, j := range some {
			if len(found) == limit {
				break
			}
			if statusOf(j) == status {
				found = append(found, j.ID)
			}
			next = j.Seq
		}
		if before = next; len(some) < batch && len(found) < limit {
			next = 0
			break
		}
	}
	if len(found) == 0 {
		return nil, next, nil
	}
	jobs, err = w.Engine.GetByIDs(ctx, found, store.AllBodies)
	slices.SortFunc(jobs, func(a, b *job.Job) int { return cmp.Compare(b.Seq, a.Seq) })
	return jobs, next, err
}
