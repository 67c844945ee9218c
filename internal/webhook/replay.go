package webhook

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/uuids"
)

// Replay makes one more delivery of the same event to the subscription, whatever the state of the
// first one. Callbacks and other subscriptions with the same URL are not served by it.
//
// Errors: those of Subscription, NotFound for a delivery that is not the subscription's, Conflict
// while the subscription is disabled.
func (w *Webhooks) Replay(ctx context.Context, owner, subscriptionID, id string) (Delivery, error) {
	h, err := w.enabledSubscription(ctx, owner, subscriptionID)
	if err != nil {
		return Delivery{}, err
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
	if j, err = w.repeat(ctx, p, j); err != nil {
		return Delivery{}, err
	}
	return newDelivery(j)
}

// repeat stores one more delivery of what a job has delivered or has given up.
func (w *Webhooks) repeat(ctx context.Context, p *delivery, was *job.Job) (*job.Job, error) {
	id, err := w.newRandomID()
	if err != nil {
		return nil, err
	}
	s, err := p.submission(w, id, was.Payload, was.Trace)
	if err != nil {
		return nil, err
	}
	stored, err := w.Engine.Submit(ctx, engine.Unique, []engine.Submission{s})
	if err != nil {
		return nil, err
	}
	return stored.Jobs[0], nil
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

// enabledSubscription returns a subscription to replay deliveries to, and Conflict while it is
// disabled.
func (w *Webhooks) enabledSubscription(ctx context.Context, owner,
	id string) (Subscription, error) {
	h, err := w.Subscription(ctx, owner, id)
	if err != nil {
		return Subscription{}, err
	}
	if h.Disabled {
		return Subscription{}, &job.Error{Kind: job.Conflict, Op: "webhook.replay",
			Msg: "the webhook is disabled: enable it first"}
	}
	return h, nil
}

// The bounds of one call of ReplayAll: how many deliveries it looks through and how many it makes.
// Both are a little more where a batch goes beyond.
const (
	maxReplaySearched = 10_000
	maxReplays        = 1000
)

// ReplayFilter selects the deliveries of a subscription to make once more, by when they were first
// due.
type ReplayFilter struct {
	From, To time.Time // inclusive and exclusive; zero is no bound
	Status   Status    // Exhausted or Delivered
	After    int64     // ReplayResult.Next of the call before; 0 begins
}

// ReplayResult is what a call of ReplayAll has done.
type ReplayResult struct {
	Made    int   // deliveries that were stored
	Skipped int   // those that an earlier call has made already
	Next    int64 // ReplayFilter.After of the call that goes on; 0: that was all
}

// ReplayAll makes the selected deliveries of a subscription once more, the oldest first, and those
// of one chain in order. Each is a delivery of its own, made in the background. A delivery is
// replayed by ReplayAll once at most, so a call may be repeated; what fails again is a delivery of
// its own and can be replayed as such.
//
// Errors: those of Subscription, Conflict while the subscription is disabled.
func (w *Webhooks) ReplayAll(ctx context.Context, owner, subscriptionID string,
	f ReplayFilter) (r ReplayResult, err error) {
	h, err := w.enabledSubscription(ctx, owner, subscriptionID)
	if err != nil {
		return r, err
	}
	after := f.After
	if after == 0 && !f.From.IsZero() {
		if after, err = w.lastBefore(ctx, h.ID, f.From); err != nil {
			return r, err
		}
	}
	lastOfChain := map[string]string{}
	for searched := 0; searched < maxReplaySearched && r.Made < maxReplays; {
		batch, err := w.Engine.List(ctx, store.Filter{Contract: Name, Owner: h.ID, After: after,
			WithoutBodies: true, Limit: maxNotifyBatch})
		if err != nil {
			return r, err
		}
		searched += len(batch)
		var ids []job.ID
		for _, j := range batch {
			if !f.To.IsZero() && !j.CreatedAt.Before(f.To) {
				return r, w.replayEach(ctx, h.ID, ids, lastOfChain, &r)
			}
			if statusOf(j) == f.Status && !j.CreatedAt.Before(f.From) {
				ids = append(ids, j.ID)
			}
			after = j.Seq
		}
		err = w.replayEach(ctx, h.ID, ids, lastOfChain, &r)
		if err != nil || len(batch) < maxNotifyBatch {
			return r, err
		}
	}
	r.Next = after
	return r, nil
}

// replayEach stores replays of deliveries and counts them. lastOfChain has the replay that is the
// predecessor of the next one of its chain.
func (w *Webhooks) replayEach(ctx context.Context, subscriptionID string, ids []job.ID,
	lastOfChain map[string]string, r *ReplayResult) error {
	if len(ids) == 0 {
		return nil
	}
	jobs, err := w.Engine.GetAll(ctx, ids)
	if err != nil {
		return err
	}
	slices.SortFunc(jobs, func(a, b *job.Job) int { return cmp.Compare(a.Seq, b.Seq) })
	var group []*pendingDelivery
	for _, j := range jobs {
		p, err := decodeDelivery(j)
		if err != nil {
			return err
		}
		p.SubscriptionIDs, p.Callback = []string{subscriptionID}, false
		id := digestID("replay", subscriptionID, j.ID.Key)
		group = append(group, &pendingDelivery{id: id, delivery: *p, body: j.Payload,
			trace: j.Trace, predecessor: lastOfChain[p.Chain]})
		lastOfChain[p.Chain] = id
	}
	made, err := w.createMissing(ctx, group)
	if err != nil {
		return err
	}
	r.Made += made
	r.Skipped += len(group) - made
	return nil
}

// lastBefore returns a number up to which all deliveries of a subscription were made before a time,
// and none above. It halves the numbers between, as the time grows with them.
func (w *Webhooks) lastBefore(ctx context.Context, subscriptionID string,
	at time.Time) (int64, error) {
	low, high, middle := int64(0), int64(0), int64(0) // of middle 0 the newest is looked at
	for {
		found, err := w.Engine.List(ctx, store.Filter{Contract: Name, Owner: subscriptionID,
			NewestFirst: true, Before: middle, WithoutBodies: true, Limit: 1})
		if err != nil {
			return 0, err
		}
		isBefore := len(found) == 0 || found[0].CreatedAt.Before(at)
		switch {
		case isBefore && middle == 0 && len(found) == 0:
			return 0, nil
		case isBefore && middle == 0:
			return found[0].Seq, nil
		case isBefore:
			low = middle - 1
		default:
			high = found[0].Seq
		}
		if high-low <= 1 {
			return low, nil
		}
		middle = low + (high-low)/2 + 1
	}
}

// ReplayDead makes one more delivery of the event of a delivery that is exhausted, to all that the
// first one served. Where their subscriptions are gone or disabled, it ends as that did.
func (w *Webhooks) ReplayDead(ctx context.Context, dead *job.Job) (*job.Job, error) {
	j, err := w.Engine.Get(ctx, dead.ID)
	if err != nil {
		return nil, err
	}
	p, err := decodeDelivery(j)
	if err != nil {
		return nil, err
	}
	return w.repeat(ctx, p, j)
}
