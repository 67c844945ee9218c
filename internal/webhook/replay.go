package webhook

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/uuids"
)

// Replay makes one more delivery of the same event to the subscription, whatever the state of the
// first one, and returns it. Callbacks and other subscriptions with the same URL are not served by
// it. It is made as ReplayEach does it, so once: a call that is repeated returns the delivery that
// the first one made, which can be replayed as such. record, which may be nil, writes records in
// the transaction that stores it.
//
// Errors: those of Subscription, NotFound for a delivery that is not the subscription's, Conflict
// while the subscription is disabled.
func (w *Webhooks) Replay(ctx context.Context, owner, subscriptionID, id string,
	record func(engine.RecordWriter) error) (Delivery, error) {
	h, err := w.enabledSubscription(ctx, owner, subscriptionID)
	if err != nil {
		return Delivery{}, err
	}
	j, err := w.findDelivery(ctx, h.ID, id)
	if err != nil {
		return Delivery{}, err
	}
	if _, err := w.replayEach(ctx, h.ID, []job.ID{j.ID},
		func(to engine.RecordWriter, _ []job.ID) error {
			if record == nil {
				return nil
			}
			return record(to)
		}); err != nil {
		return Delivery{}, err
	}
	if j, err = w.Engine.Get(ctx, jobID(replayID(h.ID, j.ID))); err != nil {
		return Delivery{}, err
	}
	return w.newDelivery(j)
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
		return nil, errNotFound("delivery")
	}
	j, err := w.Engine.Get(ctx, jobID(id))
	if job.IsKind(err, job.NotFound) {
		return nil, errNotFound("delivery")
	}
	if err != nil {
		return nil, err
	}
	if j.Owner != subscriptionID {
		return nil, errNotFound("delivery")
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

// ReplayAll makes the selected deliveries of a subscription once more, the oldest first. They are
// made as ReplayEach does it.
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
	for searched := 0; searched < maxReplaySearched && r.Made < maxReplays; {
		batch, err := w.Engine.List(ctx, store.Filter{JobType: Name, Owner: h.ID, After: after,
			WithoutBodies: true, Limit: maxDeliverBatch})
		if err != nil {
			return r, err
		}
		searched += len(batch)
		var ids []job.ID
		for _, j := range batch {
			if !f.To.IsZero() && !j.CreatedAt.Before(f.To) {
				return r, w.replayCounted(ctx, h.ID, ids, &r)
			}
			if statusOf(j) == f.Status && !j.CreatedAt.Before(f.From) {
				ids = append(ids, j.ID)
			}
			after = j.Seq
		}
		err = w.replayCounted(ctx, h.ID, ids, &r)
		if err != nil || len(batch) < maxDeliverBatch {
			return r, err
		}
	}
	r.Next = after
	return r, nil
}

// replayCounted makes deliveries once more and counts them.
func (w *Webhooks) replayCounted(ctx context.Context, subscriptionID string, ids []job.ID,
	r *ReplayResult) error {
	made, err := w.replayEach(ctx, subscriptionID, ids, nil)
	r.Made += made
	r.Skipped += len(ids) - made
	return err
}

// ReplayStart returns the number behind which a replay starts: the deliveries of a subscription
// that were due at a time or later have higher numbers. The zero time means all. Errors: those of
// Subscription, Conflict while the subscription is disabled.
func (w *Webhooks) ReplayStart(ctx context.Context, subscriptionID string,
	from time.Time) (after int64, err error) {
	h, err := w.enabledSubscription(ctx, AnyOwner, subscriptionID)
	if err != nil || from.IsZero() {
		return 0, err
	}
	return w.lastBefore(ctx, h.ID, from)
}

// ReplayEach makes some deliveries of a subscription once more, those of one chain in order. Each
// is a delivery of its own, made in the background. A delivery is replayed so once at most, so a
// call may be repeated; what fails again is a delivery of its own and can be replayed as such.
// Its dead letter is replayed with it, and one that was replayed as a dead letter is left out.
// record writes records in the transaction that stores replays, with what they are replays of.
//
// Errors: those of Subscription, Conflict while the subscription is disabled, those of record.
func (w *Webhooks) ReplayEach(ctx context.Context, subscriptionID string, ids []job.ID,
	record func(to engine.RecordWriter, replayed []job.ID) error) error {
	h, err := w.enabledSubscription(ctx, AnyOwner, subscriptionID)
	if err != nil {
		return err
	}
	_, err = w.replayEach(ctx, h.ID, ids, record)
	return err
}

// replayEach is ReplayEach for a subscription that is enabled. It returns how many were made.
// record may be nil.
func (w *Webhooks) replayEach(ctx context.Context, subscriptionID string, ids []job.ID,
	record func(to engine.RecordWriter, replayed []job.ID) error) (made int, err error) {
	if len(ids) == 0 {
		return 0, nil
	}
	jobs, err := w.Engine.GetByIDs(ctx, ids, store.AllBodies)
	if err != nil {
		return 0, err
	}
	slices.SortFunc(jobs, func(a, b *job.Job) int { return cmp.Compare(a.Seq, b.Seq) })
	group, replayOf := []*pendingDelivery{}, map[job.ID]job.ID{}
	lastOfChain, first := map[string]string{}, map[job.ID]*pendingDelivery{}
	for _, j := range jobs {
		p, err := decodeDelivery(j)
		if err != nil {
			return 0, err
		}
		p.SubscriptionIDs, p.Callback = []string{subscriptionID}, false
		d := &pendingDelivery{id: replayID(subscriptionID, j.ID), delivery: *p, body: j.Payload,
			trace: j.Trace, predecessor: lastOfChain[p.Chain]}
		if d.predecessor == "" {
			first[j.ID] = d
		}
		lastOfChain[p.Chain], replayOf[jobID(d.id)] = d.id, j.ID
		group = append(group, d)
	}
	if err := w.addEarlierReplays(ctx, subscriptionID, first); err != nil {
		return 0, err
	}
	return w.createMissing(ctx, group, func(to engine.RecordWriter,
		stored []engine.Submission) error {
		replayed, copies := make([]job.ID, len(stored)), map[job.ID]job.ID{}
		for i := range stored {
			replayed[i] = replayOf[stored[i].Job.ID]
			copies[replayed[i]] = stored[i].Job.ID
		}
		engine.MarkReplayed(to, copies)
		if record == nil {
			return nil
		}
		return record(to, replayed)
	})
}

// replayID returns the id of the replay of a delivery to a subscription.
func replayID(subscriptionID string, delivery job.ID) string {
	return digestID("replay", subscriptionID, delivery.Key)
}

// addEarlierReplays adds to replays, which are indexed by the deliveries that they repeat, the
// replays of earlier deliveries of the same chains: they have to be made first.
func (w *Webhooks) addEarlierReplays(ctx context.Context, subscriptionID string,
	replays map[job.ID]*pendingDelivery) error {
	of := maps.Clone(replays) // by the earliest delivery of the chain that is known
	for range maxEarlierEvents {
		before, err := w.Engine.Dependencies(ctx, slices.Collect(maps.Keys(of)))
		if err != nil || len(before) == 0 {
			return err
		}
		earlier := map[job.ID]*pendingDelivery{}
		for id, d := range of {
			for _, predecessor := range before[id] { // there is one at most
				earlier[predecessor] = d
				d.predecessorCandidates = slices.Insert(d.predecessorCandidates, 0,
					replayID(subscriptionID, predecessor))
			}
		}
		of = earlier
	}
	return nil
}

// lastBefore returns a number that separates the deliveries of a subscription: all up to it were
// made before a time, and none above it. The time grows with the numbers, so it is found by
// bisection.
func (w *Webhooks) lastBefore(ctx context.Context, subscriptionID string,
	at time.Time) (int64, error) {
	low, high, middle := int64(0), int64(0), int64(0) // of middle 0 the newest is looked at
	for {
		found, err := w.Engine.List(ctx, store.Filter{JobType: Name, Owner: subscriptionID,
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
// first one served. Where their subscriptions are gone or disabled, it ends as that did. It waits
// for the replay of a delivery before it in its chain that was asked for earlier. It is the one
// that ReplayEach would make, which leaves it out from then on; where that has made it, this is
// another one.
func (w *Webhooks) ReplayDead(ctx context.Context, dead *job.Job) (*job.Job, error) {
	j, err := w.Engine.Get(ctx, dead.ID)
	if err != nil {
		return nil, err
	}
	p, err := decodeDelivery(j)
	if err != nil {
		return nil, err
	}
	d := &pendingDelivery{id: replayID(j.Owner, j.ID), delivery: *p, body: j.Payload,
		trace: j.Trace}
	if err := w.addEarlierReplays(ctx, j.Owner, map[job.ID]*pendingDelivery{j.ID: d}); err != nil {
		return nil, err
	}
	batch, err := w.missingSubmissions(ctx, []*pendingDelivery{d})
	if err != nil {
		return nil, err
	}
	if len(batch) == 0 {
		return w.repeat(ctx, p, j)
	}
	stored, err := w.Engine.Submit(ctx, engine.Unique, batch)
	if err != nil {
		return nil, err
	}
	return stored.Jobs[0], nil
}
