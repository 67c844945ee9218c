package webhook

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
)

// Deliver turns events into deliveries. The deliveries of one chain to one URL are ordered: each
// depends on its predecessor:
//
//	chain "job 7"     started          progressed        succeeded
//	URL a             delivery 1  ◄──  delivery 2   ◄──  delivery 3
//	URL b                                                delivery 4
//
// An event may be passed again, by the same process after a crash or by another one. So the id of
// a delivery is a digest of event and URL, deliveries that exist are skipped, and the predecessor
// of a new one is looked up: the delivery of the latest earlier event that exists for the URL.
// If that delivery was pruned, the new one does not wait.
//
// Webhooks of operators and callbacks need no look-up: their events come in order from the outbox,
// so SubmitChained of the engine makes their chains (feed.go).

// EventRef names an event.
type EventRef struct{ ID, Name string }

// Event is an event for the subscriptions of its owner.
type Event struct {
	Owner      string
	Chain      string // the events of a chain are delivered in order, to each URL
	Ref        EventRef
	OccurredAt time.Time // subscriptions made later do not get the event
	Body       []byte    // the JSON to send
	Callback   string    // a URL that gets every event of the chain; "" is none
	Trace      string
	// EarlierEvents returns the events of the chain before this one, in order. It is called only if
	// the event has a delivery. nil stands for no earlier events.
	EarlierEvents func(ctx context.Context) ([]EventRef, error)
}

// clientFilter is the part of a subscription that decides which events it gets. Disabled
// subscriptions are among them: their deliveries are recorded and end without an attempt.
type clientFilter struct {
	id        string
	url       string
	events    []string
	createdAt time.Time
}

// pendingDelivery is a delivery that must exist when Deliver returns.
type pendingDelivery struct {
	id                    string
	delivery              delivery
	body                  []byte
	trace                 string
	predecessor           string   // the delivery before it, if it belongs to the same call
	predecessorCandidates []string // otherwise the deliveries of earlier events, oldest first
}

const (
	// maxDeliverBatch is how many deliveries are stored in one transaction.
	maxDeliverBatch = 200
	// maxEarlierEvents bounds how many earlier events of a chain may be the predecessor.
	maxEarlierEvents = 64
	// maxConflictRetries is how often a group is loaded again because another process stores the
	// same deliveries.
	maxConflictRetries = 10
)

// Deliver makes a delivery of each event to each distinct URL that has subscribed to it. The events
// of a chain must come in order; each may come any number of times. When Deliver returns without an
// error the deliveries are on stable storage.
func (w *Webhooks) Deliver(ctx context.Context, all []Event) error {
	filters, err := w.clientFilters(ctx, all)
	if err != nil {
		return err
	}
	pending, err := pendingDeliveries(ctx, all, filters)
	if err != nil {
		return err
	}
	for group := range slices.Chunk(pending, maxDeliverBatch) {
		if _, err := w.createMissing(ctx, group, nil); err != nil {
			return err
		}
	}
	return nil
}

// clientFilters returns the subscriptions of each owner, the oldest first. They are read in one
// transaction for all events of a call.
func (w *Webhooks) clientFilters(ctx context.Context,
	all []Event) (byOwner map[string][]clientFilter, err error) {
	err = w.Engine.ViewRecords(ctx, func(r engine.RecordReader) error {
		byOwner = map[string][]clientFilter{}
		for _, n := range all {
			if _, loaded := byOwner[n.Owner]; loaded {
				continue
			}
			records, err := r.Records(subscriptionRecord, n.Owner, "", maxSubscriptions)
			if err != nil {
				return err
			}
			byOwner[n.Owner] = []clientFilter{}
			for i := range records {
				s, err := decodeRecord(&records[i])
				if err != nil { // one broken record must not stop the events of all clients
					w.Log.Error("a webhook cannot be read and is skipped", keyError, err)
					continue
				}
				byOwner[n.Owner] = append(byOwner[n.Owner], clientFilter{
					id:        records[i].Key,
					url:       s.URL,
					events:    s.Events,
					createdAt: records[i].CreatedAt,
				})
			}
		}
		return nil
	})
	return byOwner, err
}

// deliveries returns the deliveries of an event, one for each distinct URL (G-FR-47).
func (n *Event) deliveries(filters []clientFilter) (all []delivery) {
	forURL := func(url string) *delivery {
		i := slices.IndexFunc(all, func(p delivery) bool { return p.URL == url })
		if i < 0 {
			i = len(all)
			all = append(all, delivery{
				EventID:   n.Ref.ID,
				EventName: n.Ref.Name,
				URL:       url,
				Client:    n.Owner,
				Chain:     n.Chain,
			})
		}
		return &all[i]
	}
	if n.Callback != "" {
		forURL(n.Callback).Callback = true
	}
	for _, s := range filters {
		if slices.Contains(s.events, n.Ref.Name) && !s.createdAt.After(n.OccurredAt) {
			p := forURL(s.url)
			p.SubscriptionIDs = append(p.SubscriptionIDs, s.id)
		}
	}
	return all
}

// pendingDeliveries returns the deliveries of a batch of events with their predecessors. The
// predecessor is the last delivery of the same chain and URL within the batch. Only the first of a
// chain needs the earlier events, which are asked for once for each event.
func pendingDeliveries(ctx context.Context, all []Event,
	filters map[string][]clientFilter) (pending []*pendingDelivery, err error) {
	type chainKey struct{ owner, chain, url string }
	lastInChain := map[chainKey]string{}
	queued := map[string]bool{}
	for i := range all {
		n := &all[i]
		var earlier []EventRef
		earlierLoaded := false
		for _, p := range n.deliveries(filters[n.Owner]) {
			d := &pendingDelivery{id: deliveryID(n.Owner, n.Ref.ID, p.URL), delivery: p,
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

// createMissing stores the deliveries of a group that do not exist yet, and returns how many.
// record, if not nil, writes records in each transaction that stores some.
func (w *Webhooks) createMissing(ctx context.Context, group []*pendingDelivery,
	record recordStored) (int, error) {
	for range maxConflictRetries {
		batch, err := w.missingSubmissions(ctx, group)
		if err != nil || len(batch) == 0 {
			return 0, err
		}
		_, err = w.Engine.Submit(record.attach(ctx, batch), engine.Unique, batch)
		switch {
		case job.IsKind(err, job.Conflict), job.IsKind(err, job.NotFound):
			// Since they were loaded a delivery was made, or a predecessor was pruned.
			continue
		case job.IsKind(err, job.Invalid):
			return len(batch), w.createEach(ctx, batch, record)
		}
		return len(batch), err
	}
	return 0, &job.Error{Kind: job.Unavailable, Op: "webhook.deliver",
		Msg: "another process keeps making the same deliveries"}
}

// createEach stores deliveries one by one and drops those that the store refuses, which would stop
// all later deliveries for ever. A delivery whose predecessor was dropped is stored without one.
func (w *Webhooks) createEach(ctx context.Context, batch []engine.Submission,
	record recordStored) error {
	for i := range batch {
		one := batch[i : i+1]
		s := &one[0]
		_, err := w.Engine.Submit(record.attach(ctx, one), engine.Unique, one)
		if job.IsKind(err, job.NotFound) {
			s.DependsOn = nil
			_, err = w.Engine.Submit(record.attach(ctx, one), engine.Unique, one)
		}
		switch {
		case err == nil, job.IsKind(err, job.Conflict): // stored, now or before
		case job.IsKind(err, job.Invalid):
			w.Log.Error("a delivery cannot be stored and is dropped", keyDelivery, s.Job.ID.Key,
				keyError, err)
		default:
			return err
		}
	}
	return nil
}

// recordStored writes records in the transaction that stores deliveries.
type recordStored func(engine.RecordWriter, []engine.Submission) error

// attach returns the context of the transaction that stores a batch.
func (f recordStored) attach(ctx context.Context, batch []engine.Submission) context.Context {
	if f == nil {
		return ctx
	}
	return engine.WithTxFunc(ctx, func(to engine.RecordWriter, _, _ *job.Job) error {
		return f(to, batch)
	})
}

// missingSubmissions loads the deliveries of a group and their possible predecessors, and returns
// submissions of those that do not exist.
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
	found, err := w.Engine.GetByIDs(ctx, ids, store.AllBodies)
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
		existing[d.id] = true // as a predecessor
		batch = append(batch, s)
	}
	return batch, nil
}

// findPredecessor returns the latest existing delivery before this one, or "".
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
