package webhook

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
)

// EventRef names an event.
type EventRef struct{ ID, Name string }

// Notification is an event to tell of.
type Notification struct {
	Owner      string
	Chain      string // what the event is about: order is kept within it, for each URL
	Event      EventRef
	OccurredAt time.Time // subscriptions made later do not get it
	Body       []byte    // the JSON to send
	Callback   string    // a URL that gets every event of the chain; "" is none
	Trace      string
	// EarlierEvents returns the events of the chain before this one, in order. It is asked for only
	// when somebody listens.
	EarlierEvents func(ctx context.Context) ([]EventRef, error)
}

// subscriber is a subscription as events look for it.
type subscriber struct {
	id        string
	url       string
	events    []string
	createdAt time.Time
}

// pendingDelivery is a delivery that is to be there after Notify.
type pendingDelivery struct {
	id                    string
	delivery              delivery
	body                  []byte
	trace                 string
	predecessor           string   // the delivery before it, if this call makes or has made it
	predecessorCandidates []string // else the deliveries it may come after, in order
}

const (
	// maxNotifyBatch is how many deliveries are made in one transaction.
	maxNotifyBatch = 200
	// maxEarlierEvents bounds how many earlier events of a chain are looked at.
	maxEarlierEvents = 64
	// maxConflictRetries is how often a group is looked at again, as another process makes the same
	// deliveries.
	maxConflictRetries = 10
)

// Notify makes a delivery of each event for each distinct URL that listens to it. The events of a
// chain come in order; each may come any number of times. When it returns without an error the
// deliveries are on stable storage.
func (w *Webhooks) Notify(ctx context.Context, all []Notification) error {
	subscribers, err := w.subscribers(ctx, all)
	if err != nil {
		return err
	}
	pending, err := pendingDeliveries(ctx, all, subscribers)
	if err != nil {
		return err
	}
	for group := range slices.Chunk(pending, maxNotifyBatch) {
		if err := w.createMissing(ctx, group); err != nil {
			return err
		}
	}
	return nil
}

// subscribers returns the subscriptions of every owner that is notified, the eldest first.
func (w *Webhooks) subscribers(ctx context.Context,
	all []Notification) (byOwner map[string][]subscriber, err error) {
	err = w.engine.ViewRecords(ctx, func(r engine.RecordReader) error {
		byOwner = map[string][]subscriber{}
		for _, n := range all {
			if _, loaded := byOwner[n.Owner]; loaded {
				continue
			}
			records, err := r.Records(subscriptionRecord, n.Owner, "", maxSubscriptions)
			if err != nil {
				return err
			}
			byOwner[n.Owner] = []subscriber{}
			for i := range records {
				s, err := decodeRecord(&records[i])
				if err != nil { // it would hold up the events of everybody
					w.Log.Error("a webhook cannot be read and is passed over", keyError, err)
					continue
				}
				byOwner[n.Owner] = append(byOwner[n.Owner],
					subscriber{id: records[i].Key, url: s.URL, events: s.Events,
						createdAt: records[i].CreatedAt})
			}
		}
		return nil
	})
	return byOwner, err
}

// deliveries returns what is to be sent of an event: one for each distinct URL (G-FR-47).
func (n *Notification) deliveries(all []subscriber) (parcels []delivery) {
	at := func(url string) *delivery {
		i := slices.IndexFunc(parcels, func(p delivery) bool { return p.URL == url })
		if i < 0 {
			i = len(parcels)
			parcels = append(parcels, delivery{EventID: n.Event.ID, EventName: n.Event.Name,
				URL: url, Client: n.Owner, Chain: n.Chain})
		}
		return &parcels[i]
	}
	if n.Callback != "" {
		at(n.Callback).Callback = true
	}
	for _, s := range all {
		if slices.Contains(s.events, n.Event.Name) && !s.createdAt.After(n.OccurredAt) {
			p := at(s.url)
			p.SubscriptionIDs = append(p.SubscriptionIDs, s.id)
		}
	}
	return parcels
}

// pendingDeliveries returns the deliveries of a batch of events, each with what it comes after.
func pendingDeliveries(ctx context.Context, all []Notification,
	subscribers map[string][]subscriber) (pending []*pendingDelivery, err error) {
	type chainKey struct{ owner, chain, url string }
	lastInChain := map[chainKey]string{}
	queued := map[string]bool{}
	for i := range all {
		n := &all[i]
		var earlier []EventRef
		earlierLoaded := false
		for _, p := range n.deliveries(subscribers[n.Owner]) {
			d := &pendingDelivery{id: deliveryID(n.Owner, n.Event.ID, p.URL), delivery: p,
				body: n.Body, trace: n.Trace}
			if queued[d.id] {
				continue
			}
			queued[d.id] = true
			inChain := chainKey{n.Owner, n.Chain, p.URL}
			if d.predecessor = lastInChain[inChain]; d.predecessor == "" && n.EarlierEvents != nil {
				if !earlierLoaded {
					if earlier, err = n.EarlierEvents(ctx); err != nil {
						return nil, fmt.Errorf("webhook: earlier events of %s: %w", n.Chain, err)
					}
					earlierLoaded = true
				}
				for _, e := range earlier[max(0, len(earlier)-maxEarlierEvents):] {
					d.predecessorCandidates = append(d.predecessorCandidates,
						deliveryID(n.Owner, e.ID, p.URL))
				}
			}
			lastInChain[inChain] = d.id
			pending = append(pending, d)
		}
	}
	return pending, nil
}

// createMissing stores those of a group of deliveries that are not there.
func (w *Webhooks) createMissing(ctx context.Context, group []*pendingDelivery) error {
	for range maxConflictRetries {
		batch, err := w.missingSubmissions(ctx, group)
		if err != nil || len(batch) == 0 {
			return err
		}
		_, err = w.engine.Submit(ctx, engine.Unique, batch)
		switch {
		case job.IsKind(err, job.Conflict), job.IsKind(err, job.NotFound):
			// made, or what it comes after pruned, since the look
			continue
		case job.IsKind(err, job.Invalid):
			return w.createEach(ctx, batch)
		}
		return err
	}
	return &job.Error{Kind: job.Unavailable, Op: "webhook.notify",
		Msg: "another process keeps making the same deliveries"}
}

// createEach stores deliveries one by one and leaves out what no store can keep: it would hold up
// everything behind it for ever. One whose forerunner is left out goes without.
func (w *Webhooks) createEach(ctx context.Context, batch []engine.Submission) error {
	for _, s := range batch {
		_, err := w.engine.Submit(ctx, engine.Unique, []engine.Submission{s})
		if job.IsKind(err, job.NotFound) {
			s.DependsOn = nil
			_, err = w.engine.Submit(ctx, engine.Unique, []engine.Submission{s})
		}
		switch {
		case err == nil || job.IsKind(err, job.Conflict):
		case job.IsKind(err, job.Invalid):
			w.Log.Error("a delivery cannot be kept and is left out", keyDelivery, s.Job.ID.Key,
				keyError, err)
		default:
			return err
		}
	}
	return nil
}

// missingSubmissions looks at what is there of a group and what came before it, and returns the
// rest to be submitted.
func (w *Webhooks) missingSubmissions(ctx context.Context,
	group []*pendingDelivery) (batch []engine.Submission, err error) {
	var ids []job.ID
	for _, d := range group {
		ids = append(ids, jobID(d.id))
		for _, c := range d.predecessorCandidates {
			ids = append(ids, jobID(c))
		}
		if d.predecessor != "" {
			ids = append(ids, jobID(d.predecessor))
		}
	}
	found, err := w.engine.GetAll(ctx, ids)
	if err != nil {
		return nil, err
	}
	existing := map[string]bool{}
	for _, j := range found {
		existing[j.ID.Key] = true
	}
	for _, d := range group {
		if existing[d.id] {
			continue
		}
		s, err := d.delivery.submission(w, d.id, d.body, d.trace)
		if err != nil {
			return nil, err
		}
		if predecessor := d.findPredecessor(existing); predecessor != "" {
			s.DependsOn = []job.ID{jobID(predecessor)}
		}
		existing[d.id] = true // for those behind it
		batch = append(batch, s)
	}
	return batch, nil
}

// findPredecessor returns the delivery a draft comes after: the latest of those that are there.
func (d *pendingDelivery) findPredecessor(existing map[string]bool) string {
	if existing[d.predecessor] {
		return d.predecessor
	}
	for _, c := range slices.Backward(d.predecessorCandidates) {
		if existing[c] {
			return c
		}
	}
	return ""
}
