package webhook

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
)

// What happens to the jobs of all contracts reaches the subscriptions of operators, and the
// callbacks of jobs, in two steps:
//
//	change of a job ─► outbox ─► DeliverEvents ─► a delivery for each of them
//
// The message is written in the transaction of the change, and only where one of them wants it.
// Its body is complete, as the job may be gone when it is published. A message may come again: the
// id of a delivery is a digest of message, type and subscription, so there is one.

// Source says which events changes of jobs are.
type Source interface {
	// Types returns the types of the events that a change is, mostly one or none.
	Types(j *job.Job, ev job.Event) []string
	// About returns the contract of a job and what kind it is, as filters name them.
	About(j *job.Job) (contract, kind string)
	// IsFinal reports whether an event of a type ends a job.
	IsFinal(eventType string) bool
	// ReadsBodies reports whether Data reads bodies of a job that its change has neither set nor
	// read, besides the payload.
	ReadsBodies(j *job.Job, ev job.Event) bool
	// Data returns what the events say: a JSON object, and the members with the payload to add to
	// it where that is wanted. The job has all of its bodies, but for those that are not read.
	Data(j *job.Job, ev job.Event) (data, payload []byte)
}

// NewFeed returns the feed of the subscriptions of operators and of the callbacks of jobs. Every
// node needs it, also one that makes no deliveries.
func NewFeed(s Source) engine.Feed {
	return engine.Feed{JobType: Name, Read: func(r engine.RecordReader) (engine.Subscriptions,
		error) {
		all, err := operatorFilters(r, func(error) {}) // DeliverEvents logs it
		return &subscriptions{s, all}, err             // without subscriptions there are callbacks
	}}
}

// operatorFilter is a subscription of operators, as far as it decides which events it gets.
type operatorFilter struct {
	id        string
	createdAt time.Time
	Spec
}

// operatorFilters returns the subscriptions of operators, the oldest first. broken gets the error
// of one that cannot be read, which is left out so that it stops no job and no other event.
func operatorFilters(r engine.RecordReader, broken func(error)) (all []operatorFilter, err error) {
	records, err := r.Records(subscriptionRecord, Operators, "", maxOperatorSubscriptions)
	if err != nil {
		return nil, err
	}
	for i := range records {
		s, err := decodeRecord(&records[i])
		if err != nil {
			broken(err)
			continue
		}
		if s.Operator != nil {
			all = append(all, operatorFilter{records[i].Key, records[i].CreatedAt, s.spec()})
		}
	}
	return all, nil
}

// feedMessage is the body of a message: one change, which may be several events. It is stored as a
// line of JSON, whose names are stored data, and behind it the data and the payload as they are.
type feedMessage struct {
	Types    []string `json:"types"`
	Contract string   `json:"contract"`
	Queue    string   `json:"queue,omitempty"`
	Kind     string   `json:"kind,omitempty"`
	Chain    string   `json:"chain"`
	JobID    string   `json:"job,omitempty"` // of the contract
	Trace    string   `json:"trace,omitempty"`
	Size     int      `json:"size"` // of Data
	Data     []byte   `json:"-"`
	Payload  []byte   `json:"-"` // members of Data

	Callback   string   `json:"callback,omitempty"`    // the URL of the job's own
	CalledBack []string `json:"called_back,omitempty"` // the types that it gets
}

// wants reports whether a subscription gets an event of a type.
func (l *operatorFilter) wants(h *feedMessage, eventType string) bool {
	selected := func(names []string, name string) bool {
		return len(names) == 0 || slices.Contains(names, name)
	}
	return selected(l.Contracts, h.Contract) && selected(l.Queues, h.Queue) &&
		selected(l.Kinds, h.Kind) && slices.ContainsFunc(l.Events, func(pattern string) bool {
		return MatchType(pattern, eventType)
	})
}

// subscriptions implements engine.Subscriptions.
type subscriptions struct {
	Source
	all []operatorFilter
}

// matching returns the types that subscriptions want, and whether one wants them with the payload.
func (a *subscriptions) matching(h *feedMessage, types []string) (wanted []string, payload bool) {
	for _, t := range types {
		found := false
		for i := range a.all {
			if a.all[i].wants(h, t) {
				found, payload = true, payload || a.all[i].IncludePayload
			}
		}
		if found {
			wanted = append(wanted, t)
		}
	}
	return wanted, payload
}

func (a *subscriptions) messageAbout(j *job.Job) feedMessage {
	contract, kind := a.About(j)
	return feedMessage{Contract: contract, Queue: j.Queue, Kind: kind}
}

// Wants implements engine.Subscriptions.
func (a *subscriptions) Wants(j *job.Job, ev job.Event) (wanted, readsBodies bool) {
	if len(a.all) == 0 && j.Callback == "" {
		return false, false
	}
	types := a.Types(j, ev)
	if len(types) == 0 {
		return false, false
	}
	h := a.messageAbout(j)
	some, withPayload := a.matching(&h, types)
	if len(some) == 0 && len(a.callbackTypes(j, types)) == 0 {
		return false, false
	}
	return true, withPayload || a.ReadsBodies(j, ev)
}

// Message implements engine.Subscriptions.
func (a *subscriptions) Message(j *job.Job, ev job.Event) []byte {
	h := a.messageAbout(j)
	types, withPayload := a.Types(j, ev), false
	h.Types, withPayload = a.matching(&h, types)
	if h.CalledBack = a.callbackTypes(j, types); len(h.CalledBack) > 0 {
		h.Callback = DecodeCallback(j.Callback).URL
	}
	h.Chain, h.Trace = h.Contract+" "+strconv.FormatInt(j.Seq, 10), j.Trace
	h.JobID = j.ID.Key
	var payload []byte
	h.Data, payload = a.Data(j, ev)
	if withPayload {
		h.Payload = payload
	}
	return encodeFeedMessage(&h)
}

// EventBody implements engine.Subscriptions.
func (a *subscriptions) EventBody(n engine.FeedEvent) []byte {
	h := feedMessage{Queue: n.Queue, Chain: n.Subject}
	h.Contract, _, _ = strings.Cut(n.JobType, ".") // one that clients know
	if h.Types, _ = a.matching(&h, []string{n.Type}); len(h.Types) == 0 {
		return nil
	}
	var err error
	if h.Data, err = json.Marshal(n.Data); err != nil {
		return nil
	}
	return encodeFeedMessage(&h)
}

// encodeFeedMessage returns the body of a message. It returns nil, which means no message, if it
// cannot be encoded; this does not happen, as all of it can be written as JSON.
func encodeFeedMessage(h *feedMessage) []byte {
	h.Size = len(h.Data)
	line, err := json.Marshal(h)
	if err != nil {
		return nil
	}
	return slices.Concat(line, []byte("\n"), h.Data, h.Payload)
}

func decodeFeedMessage(body []byte) (h feedMessage, err error) {
	line, rest, hasData := bytes.Cut(body, []byte("\n"))
	if err := json.Unmarshal(line, &h); err != nil {
		return h, err
	}
	if !hasData { // a message of an earlier version has its data in the JSON
		var former struct {
			Data    json.RawMessage `json:"data"`
			Payload []byte          `json:"payload"`
		}
		err := json.Unmarshal(line, &former)
		h.Data, h.Payload = former.Data, former.Payload
		return h, err
	}
	if h.Size > len(rest) {
		return h, fmt.Errorf("webhook: an event of %d bytes has %d", h.Size, len(rest))
	}
	h.Data, h.Payload = rest[:h.Size:h.Size], rest[h.Size:]
	return h, nil
}

// DeliverEvents makes deliveries of the messages of the feed: one of each event to each
// subscription that wants it and was there when it happened, and one to the callback of its job.
// Those of a job, to a subscription or its callback, form a chain. The messages must come in order;
// each may come any number of times.
func (w *Webhooks) DeliverEvents(ctx context.Context, messages []job.Message) error {
	var all []operatorFilter
	err := w.Engine.ViewRecords(ctx, func(r engine.RecordReader) (err error) {
		all, err = operatorFilters(r, func(err error) {
			w.Log.Error("a webhook cannot be read and is skipped", keyError, err)
		})
		return err
	})
	if err != nil {
		return err
	}
	var batch []engine.Submission
	for i := range messages {
		made, err := w.deliveriesOf(&messages[i], all)
		if err != nil { // one that cannot be read must not stop all others
			w.Log.Error("an event cannot be read and is skipped", keyError, err)
			continue
		}
		batch = append(batch, made...)
		for len(batch) >= maxDeliverBatch { // not all at once: each has a body of its own
			if err := w.submitChained(ctx, batch[:maxDeliverBatch]); err != nil {
				return err
			}
			batch = slices.Delete(batch, 0, maxDeliverBatch)
		}
	}
	return w.submitChained(ctx, batch)
}

// submitChained stores deliveries, and drops those that the store refuses.
func (w *Webhooks) submitChained(ctx context.Context, batch []engine.Submission) error {
	err := w.Engine.SubmitChained(ctx, batch)
	if job.IsKind(err, job.Invalid) {
		return w.submitEach(ctx, batch)
	}
	return err
}

// submitEach stores deliveries one by one and drops those that the store refuses.
func (w *Webhooks) submitEach(ctx context.Context, batch []engine.Submission) error {
	for _, s := range batch {
		err := w.Engine.SubmitChained(ctx, []engine.Submission{s})
		if err != nil && !job.IsKind(err, job.Invalid) {
			return err
		}
		if err != nil {
			w.Log.Error("a delivery cannot be stored and is dropped", keyDelivery, s.Job.ID.Key,
				keyError, err)
		}
	}
	return nil
}

// deliveriesOf returns the deliveries of a message.
func (w *Webhooks) deliveriesOf(m *job.Message, all []operatorFilter) (batch []engine.Submission,
	err error) {
	h, err := decodeFeedMessage(m.Body)
	if err != nil {
		return nil, err
	}
	at := strconv.FormatInt(m.At.UnixMicro(), 10)
	number := strconv.FormatInt(m.ID, 10) // one transaction may have two events of a type
	idOf := func(eventType string) string {
		return digestID("event", h.Chain, at, number, eventType)
	}
	for _, eventType := range h.Types {
		for i := range all {
			l := &all[i]
			if l.createdAt.After(m.At) || !l.wants(&h, eventType) {
				continue
			}
			s, err := l.delivery(w, m, &h, eventType, idOf(eventType))
			if err != nil {
				return nil, err
			}
			batch = append(batch, s)
		}
	}
	for _, eventType := range h.CalledBack {
		s, err := h.callBack(w, m, eventType, idOf(eventType))
		if err != nil {
			return nil, err
		}
		batch = append(batch, s)
	}
	return batch, nil
}

// delivery returns the delivery of an event to a subscription. Those of a job form a chain.
func (l *operatorFilter) delivery(w *Webhooks, m *job.Message, h *feedMessage, eventType,
	eventID string) (engine.Submission, error) {
	p := delivery{EventID: eventID, EventName: eventType, URL: l.URL, Client: Operators,
		Chain: h.Chain, JobID: h.JobID, SubscriptionIDs: []string{l.id}}
	if p.JobID != "" {
		p.JobContract = h.Contract
	}
	s, err := p.submission(w, digestID("delivery", l.id, eventID),
		h.body(eventType, m.At, l.IncludePayload), h.Trace)
	s.Job.Alias = job.AliasOf(Name, l.id, h.Chain)
	return s, err
}

// body returns what a receiver gets of an event (WH-003).
func (h *feedMessage) body(eventType string, at time.Time, withPayload bool) []byte {
	data := h.Data
	if withPayload && len(h.Payload) > 0 {
		data = slices.Concat(data[:len(data)-1], []byte(","), h.Payload, []byte("}"))
	}
	return standardBody(eventType, at, data)
}

// standardBody returns the body of an event as Standard Webhooks has it. The type needs no escapes.
func standardBody(eventType string, at time.Time, data []byte) []byte {
	var b strings.Builder
	b.WriteString(`{"type":"` + eventType + `","timestamp":"` +
		at.UTC().Format(time.RFC3339Nano) + `","data":`)
	b.Write(data)
	b.WriteString("}")
	return []byte(b.String())
}
