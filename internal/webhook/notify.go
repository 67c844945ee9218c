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
	Owner    string
	Chain    string // what the event is about: order is kept within it, for each URL
	Event    EventRef
	At       time.Time // subscriptions made later do not get it
	Body     []byte    // the JSON to send
	Callback string    // a URL that gets every event of the chain; "" is none
	Trace    string
	// Earlier returns the events of the chain before this one, in order. It is asked for only when somebody listens.
	Earlier func(ctx context.Context) ([]EventRef, error)
}

// subscriber is a subscription as events look for it.
type subscriber struct {
	id      string
	url     string
	events  []string
	created time.Time
}

// draft is a delivery that is to be there after Notify.
type draft struct {
	id         string
	parcel     parcel
	body       []byte
	trace      string
	after      string   // the delivery before it, if this call makes or has made it
	candidates []string // else the deliveries it may come after, in order
}

const (
	// notifyGroup is how many deliveries are made in one transaction.
	notifyGroup = 200
	// lookBack bounds how many earlier events of a chain are looked at.
	lookBack = 64
	// races is how often a group is looked at again, as another process makes the same deliveries.
	races = 10
)

// Notify makes a delivery of each event for each distinct URL that listens to it. The events of a chain come in order;
// each may come any number of times. When it returns without an error the deliveries are on stable storage.
func (w *Webhooks) Notify(ctx context.Context, all []Notification) error {
	listening, err := w.subscribers(ctx, all)
	if err != nil {
		return err
	}
	drafts, err := drafted(ctx, all, listening)
	if err != nil {
		return err
	}
	for group := range slices.Chunk(drafts, notifyGroup) {
		if err := w.make(ctx, group); err != nil {
			return err
		}
	}
	return nil
}

// subscribers returns the subscriptions of every owner that is notified, the eldest first.
func (w *Webhooks) subscribers(ctx context.Context, all []Notification) (by map[string][]subscriber, err error) {
	err = w.engine.ViewRecords(ctx, func(r engine.RecordReader) error {
		by = map[string][]subscriber{}
		for _, n := range all {
			if _, seen := by[n.Owner]; seen {
				continue
			}
			records, err := r.Records(hookRecord, n.Owner, "", maxHooks)
			if err != nil {
				return err
			}
			by[n.Owner] = []subscriber{}
			for i := range records {
				s, err := read(&records[i])
				if err != nil { // it would hold up the events of everybody
					w.Log.Error("a webhook cannot be read and is passed over", keyError, err)
					continue
				}
				by[n.Owner] = append(by[n.Owner], subscriber{id: records[i].Key, url: s.URL, events: s.Events, created: records[i].CreatedAt})
			}
		}
		return nil
	})
	return by, err
}

// parcels returns what is to be sent of an event: one for each distinct URL (G-FR-47).
func (n *Notification) parcels(all []subscriber) (parcels []parcel) {
	at := func(url string) *parcel {
		i := slices.IndexFunc(parcels, func(p parcel) bool { return p.URL == url })
		if i < 0 {
			i = len(parcels)
			parcels = append(parcels, parcel{EventID: n.Event.ID, EventName: n.Event.Name, URL: url, Client: n.Owner, Chain: n.Chain})
		}
		return &parcels[i]
	}
	if n.Callback != "" {
		at(n.Callback).Callback = true
	}
	for _, s := range all {
		if slices.Contains(s.events, n.Event.Name) && !s.created.After(n.At) {
			p := at(s.url)
			p.Hooks = append(p.Hooks, s.id)
		}
	}
	return parcels
}

// drafted returns the deliveries of a batch of events, each with what it comes after.
func drafted(ctx context.Context, all []Notification, listening map[string][]subscriber) (drafts []*draft, err error) {
	type line struct{ owner, chain, url string }
	last := map[line]string{}
	seen := map[string]bool{}
	for i := range all {
		n := &all[i]
		var earlier []EventRef
		asked := false
		for _, p := range n.parcels(listening[n.Owner]) {
			d := &draft{id: deliveryID(n.Owner, n.Event.ID, p.URL), parcel: p, body: n.Body, trace: n.Trace}
			if seen[d.id] {
				continue
			}
			seen[d.id] = true
			of := line{n.Owner, n.Chain, p.URL}
			if d.after = last[of]; d.after == "" && n.Earlier != nil {
				if !asked {
					if earlier, err = n.Earlier(ctx); err != nil {
						return nil, fmt.Errorf("webhook: earlier events of %s: %w", n.Chain, err)
					}
					asked = true
				}
				for _, e := range earlier[max(0, len(earlier)-lookBack):] {
					d.candidates = append(d.candidates, deliveryID(n.Owner, e.ID, p.URL))
				}
			}
			last[of] = d.id
			drafts = append(drafts, d)
		}
	}
	return drafts, nil
}

// make stores those of a group of deliveries that are not there.
func (w *Webhooks) make(ctx context.Context, group []*draft) error {
	for range races {
		batch, err := w.missing(ctx, group)
		if err != nil || len(batch) == 0 {
			return err
		}
		_, err = w.engine.Submit(ctx, engine.Unique, batch)
		switch {
		case job.IsKind(err, job.Conflict), job.IsKind(err, job.NotFound): // made, or what it comes after pruned, since the look
			continue
		case job.IsKind(err, job.Invalid):
			return w.makeEach(ctx, batch)
		}
		return err
	}
	return &job.Error{Kind: job.Unavailable, Op: "webhook.notify", Msg: "another process keeps making the same deliveries"}
}

// makeEach stores deliveries one by one and leaves out what no store can keep: it would hold up everything behind it for
// ever. One whose forerunner is left out goes without.
func (w *Webhooks) makeEach(ctx context.Context, batch []engine.Submission) error {
	for _, s := range batch {
		_, err := w.engine.Submit(ctx, engine.Unique, []engine.Submission{s})
		if job.IsKind(err, job.NotFound) {
			s.DependsOn = nil
			_, err = w.engine.Submit(ctx, engine.Unique, []engine.Submission{s})
		}
		switch {
		case err == nil || job.IsKind(err, job.Conflict):
		case job.IsKind(err, job.Invalid):
			w.Log.Error("a delivery cannot be kept and is left out", keyDelivery, s.Job.ID.Key, keyError, err)
		default:
			return err
		}
	}
	return nil
}

// missing looks at what is there of a group and what came before it, and returns the rest to be submitted.
func (w *Webhooks) missing(ctx context.Context, group []*draft) (batch []engine.Submission, err error) {
	var ids []job.ID
	for _, d := range group {
		ids = append(ids, jobID(d.id))
		for _, c := range d.candidates {
			ids = append(ids, jobID(c))
		}
		if d.after != "" {
			ids = append(ids, jobID(d.after))
		}
	}
	found, err := w.engine.GetAll(ctx, ids)
	if err != nil {
		return nil, err
	}
	there := map[string]bool{}
	for _, j := range found {
		there[j.ID.Key] = true
	}
	for _, d := range group {
		if there[d.id] {
			continue
		}
		s, err := d.parcel.submission(w, d.id, d.body, d.trace)
		if err != nil {
			return nil, err
		}
		if after := d.before(there); after != "" {
			s.DependsOn = []job.ID{jobID(after)}
		}
		there[d.id] = true // for those behind it
		batch = append(batch, s)
	}
	return batch, nil
}

// before returns the delivery a draft comes after: the latest of those that are there.
func (d *draft) before(there map[string]bool) string {
	if there[d.after] {
		return d.after
	}
	for _, c := range slices.Backward(d.candidates) {
		if there[c] {
			return c
		}
	}
	return ""
}
