package webhook

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/millrace/millrace/internal/egress"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/uuids"
)

// Subscription is a client's subscription to events of its jobs, or one of operators.
type Subscription struct {
	ID             string
	Owner          string
	URL            string
	Events         []string // in the order of the request, each once
	Disabled       bool
	DisabledReason string
	FailingSince   time.Time // no attempt has succeeded since; zero: the last one has
	CreatedAt      time.Time
	Operator       *Options // of a subscription of operators; nil: it is a client's
}

// AnyOwner in the place of an owner stands for all of them, for operators. It is no id of a client.
const AnyOwner = "*"

// ErrForbidden reports that a subscription belongs to another client (FR-034).
var ErrForbidden = errors.New("webhook: it belongs to another client")

// The kinds of records.
const (
	subscriptionRecord   = "webhook"
	idempotencyKeyRecord = "webhook-key"
)

// maxSubscriptions bounds the subscriptions of one client.
const maxSubscriptions = 1000

// Why a subscription is disabled.
const (
	reasonGone    = "the receiver answered 410 Gone"
	reasonFailing = "no attempt has succeeded for 24 hours"
	// DisabledByOperator is for SetDisabled.
	DisabledByOperator = "an operator has disabled it"
)

// record is the body of a subscription's record. Its id, owner and times are the record's own.
type record struct {
	URL          string    `json:"url"`
	Events       []string  `json:"events"`
	Secrets      []secret  `json:"secrets"`
	Disabled     string    `json:"disabled,omitempty"`     // the reason; empty: enabled
	FailingSince time.Time `json:"failing_since,omitzero"` // no attempt has succeeded since
	Operator     *Options  `json:"operator,omitempty"`     // of operators; nil: it is a client's
}

func (s *record) subscription(r *job.Record) Subscription {
	return Subscription{
		ID:             r.Key,
		Owner:          r.Owner,
		URL:            s.URL,
		Events:         s.Events,
		Disabled:       s.Disabled != "",
		DisabledReason: s.Disabled,
		FailingSince:   s.FailingSince,
		CreatedAt:      r.CreatedAt,
		Operator:       s.Operator,
	}
}

func (s *record) matches(url string, events []string) bool {
	return s.URL == url && slices.Equal(sortedCopy(s.Events), sortedCopy(events))
}

// sortedCopy returns the elements in order. It leaves its argument as it is, since the order of a
// request is kept for the client.
func sortedCopy(all []string) []string { return slices.Sorted(slices.Values(all)) }

func decodeRecord(r *job.Record) (*record, error) {
	s := &record{}
	if err := json.Unmarshal(r.Body, s); err != nil {
		return nil, fmt.Errorf("webhook: record %s: %w", r.Key, err)
	}
	return s, nil
}

// putSubscription stores a subscription under its id, new or in place of the old one.
func putSubscription(to engine.RecordWriter, id, owner string, s *record) error {
	body, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return to.UpsertRecords(job.Record{Kind: subscriptionRecord, Key: id, Owner: owner, Body: body})
}

func errNotFound(what string) error {
	return &job.Error{Kind: job.NotFound, Op: "webhook", Msg: "there is no such " + what}
}

// lockName returns the lock under which a subscription is changed.
func lockName(id string) string { return "webhook:" + id }

// findSubscription loads a subscription and checks that it is the owner's.
func findSubscription(r engine.RecordReader, owner, id string) (*job.Record, *record, error) {
	id, ok := uuids.Parse(id)
	if !ok {
		return nil, nil, errNotFound("webhook")
	}
	rec, err := r.Record(subscriptionRecord, id)
	if err != nil {
		return nil, nil, err
	}
	if rec == nil {
		return nil, nil, errNotFound("webhook")
	}
	if owner != AnyOwner && rec.Owner != owner {
		return nil, nil, ErrForbidden
	}
	s, err := decodeRecord(rec)
	return rec, s, err
}

// Register subscribes a client to events of its jobs and returns the secret with which its requests
// are signed. The secret cannot be read later. For a day a repeated request with the same
// idempotency key returns the subscription that the first one made, without the secret (G-FR-58).
//
// Errors: Invalid for a wrong URL or wrong events; Conflict if the client has subscribed the URL to
// the same events (FR-187) or has too many subscriptions, or that wraps engine.ErrKeyReused.
func (w *Webhooks) Register(ctx context.Context, owner, url string, events []string,
	idempotencyKey string) (h Subscription, plain string, err error) {
	if events, err = validateSubscription(url, events); err != nil {
		return Subscription{}, "", err
	}
	err = w.Engine.ChangeRecords(ctx, "webhooks:"+owner, func(to engine.RecordWriter) (err error) {
		h, plain = Subscription{}, ""
		once := onceRegistered(owner, url, events, idempotencyKey)
		previous, err := findRegistered(to, owner, once)
		if err != nil {
			return err
		}
		if previous != nil {
			h = *previous
			return nil
		}
		if err := ensureNotDuplicate(to, owner, url, events); err != nil {
			return err
		}
		h, plain, err = w.register(to, owner, url, events)
		if err != nil {
			return err
		}
		return once.Store(to, h.ID)
	})
	if err != nil {
		return Subscription{}, "", err
	}
	return h, plain, nil
}

// validateSubscription checks a subscription and returns its events, each once.
func validateSubscription(url string, events []string) (unique []string, err error) {
	invalid := func(msg string) error {
		return &job.Error{Kind: job.Invalid, Op: "webhook.register", Msg: msg}
	}
	if _, err := egress.ParseURL(url); err != nil {
		return nil, invalid("url: " + err.Error())
	}
	for _, e := range events {
		if e == "" || len(e) > 100 {
			return nil, invalid("events: a name is empty or longer than 100 bytes")
		}
		if !slices.Contains(unique, e) {
			unique = append(unique, e)
		}
	}
	if len(unique) == 0 || len(unique) > 100 {
		return nil, invalid("events: there must be 1 to 100")
	}
	return unique, nil
}

// register stores a new subscription with a first secret, whose plain text it returns.
func (w *Webhooks) register(to engine.RecordWriter, owner, url string,
	events []string) (Subscription, string, error) {
	id, err := w.newID(to.Now())
	if err != nil {
		return Subscription{}, "", err
	}
	plain, sealed, err := w.newSecret()
	if err != nil {
		return Subscription{}, "", err
	}
	s := &record{URL: url, Events: events, Secrets: []secret{sealed}}
	if err := putSubscription(to, id, owner, s); err != nil {
		return Subscription{}, "", err
	}
	return s.subscription(&job.Record{Key: id, Owner: owner, CreatedAt: to.Now()}), plain, nil
}

// ensureNotDuplicate refuses a second subscription of a URL to the same events, and one beyond
// maxSubscriptions.
func ensureNotDuplicate(r engine.RecordReader, owner, url string, events []string) error {
	conflict := func(msg string) error {
		return &job.Error{Kind: job.Conflict, Op: "webhook.register", Msg: msg}
	}
	all, err := r.Records(subscriptionRecord, owner, "", maxSubscriptions)
	if err != nil {
		return err
	}
	if len(all) >= maxSubscriptions {
		return conflict(fmt.Sprintf("a client has at most %d webhooks", maxSubscriptions))
	}
	for i := range all {
		s, err := decodeRecord(&all[i])
		if err != nil {
			return err
		}
		if s.matches(url, events) {
			return conflict("this url is registered for these events already")
		}
	}
	return nil
}

// digest returns a SHA-256 over texts with their lengths, so that no two lists of texts have the
// same one by their concatenation.
func digest(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%d:%s", len(p), p)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// onceRegistered identifies a registration by its idempotency key; nil without a key. Two
// registrations are the same by their URL and the set of their events, in any order.
func onceRegistered(owner, url string, events []string, key string) *engine.IdempotencyRecord {
	if key == "" {
		return nil
	}
	return &engine.IdempotencyRecord{
		Kind:   idempotencyKeyRecord,
		Key:    digest(owner, key),
		Owner:  owner,
		Digest: digest(append([]string{url}, sortedCopy(events)...)...),
		Window: engine.DefaultIdempotencyWindow,
	}
}

// findRegistered returns the subscription that the same registration has made before, or nil if
// there was none or it has been deleted.
func findRegistered(r engine.RecordReader, owner string,
	once *engine.IdempotencyRecord) (*Subscription, error) {
	id, err := once.Find(r)
	if err != nil || id == "" {
		return nil, err
	}
	existing, s, err := findSubscription(r, owner, id)
	if job.IsKind(err, job.NotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	h := s.subscription(existing)
	return &h, nil
}

// Subscription returns a subscription of a client. Errors: NotFound; ErrForbidden if it belongs to
// another client.
func (w *Webhooks) Subscription(ctx context.Context, owner, id string) (h Subscription, err error) {
	err = w.Engine.ViewRecords(ctx, func(r engine.RecordReader) error {
		rec, s, err := findSubscription(r, owner, id)
		if err != nil {
			return err
		}
		h = s.subscription(rec)
		return nil
	})
	return h, err
}

// Subscriptions returns the first limit subscriptions of a client with an id above after, in the
// order they were made. It returns Invalid if after is neither empty nor an id.
func (w *Webhooks) Subscriptions(ctx context.Context, owner, after string,
	limit int) (subscriptions []Subscription, err error) {
	if after != "" {
		id, ok := uuids.Parse(after)
		if !ok {
			return nil, &job.Error{Kind: job.Invalid, Op: "webhook.list", Msg: "after is not an id"}
		}
		after = id
	}
	err = w.Engine.ViewRecords(ctx, func(r engine.RecordReader) error {
		list := r.Records
		if owner == AnyOwner {
			list = func(kind, _, after string, limit int) ([]job.Record, error) {
				return r.AllRecords(kind, after, limit)
			}
		}
		all, err := list(subscriptionRecord, owner, after, limit)
		if err != nil {
			return err
		}
		subscriptions = make([]Subscription, len(all))
		for i := range all {
			s, err := decodeRecord(&all[i])
			if err != nil {
				return err
			}
			subscriptions[i] = s.subscription(&all[i])
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return subscriptions, nil
}

// updateSubscription loads a subscription of a client, lets fn change it, and stores it with what
// fn writes.
func (w *Webhooks) updateSubscription(ctx context.Context, owner, id string,
	fn func(to engine.RecordWriter, s *record) error) (h Subscription, err error) {
	id, ok := uuids.Parse(id)
	if !ok {
		return Subscription{}, errNotFound("webhook")
	}
	err = w.Engine.ChangeRecords(ctx, lockName(id), func(to engine.RecordWriter) error {
		rec, s, err := findSubscription(to, owner, id)
		if err != nil {
			return err
		}
		if err := fn(to, s); err != nil {
			return err
		}
		h = s.subscription(rec)
		return putSubscription(to, id, rec.Owner, s)
	})
	return h, err
}

// Delete removes a subscription. No attempt for it starts afterwards; its pending deliveries end as
// exhausted (FR-188).
func (w *Webhooks) Delete(ctx context.Context, owner, id string) error {
	id, ok := uuids.Parse(id)
	if !ok {
		return errNotFound("webhook")
	}
	return w.Engine.ChangeRecords(ctx, lockName(id), func(to engine.RecordWriter) error {
		if _, _, err := findSubscription(to, owner, id); err != nil {
			return err
		}
		return to.DeleteRecords(subscriptionRecord, id)
	})
}

// Rotate gives a subscription a new secret and returns it. For a day requests are signed with the
// old secret as well.
func (w *Webhooks) Rotate(ctx context.Context, owner, id string) (plain string, err error) {
	return w.rotate(ctx, owner, id, func(engine.RecordWriter) error { return nil })
}

// rotate is Rotate; also writes in the same transaction.
func (w *Webhooks) rotate(ctx context.Context, owner, id string,
	also func(engine.RecordWriter) error) (plain string, err error) {
	_, err = w.updateSubscription(ctx, owner, id, func(to engine.RecordWriter, s *record) error {
		newPlain, replacement, err := w.newSecret()
		if err != nil {
			return err
		}
		plain = newPlain
		s.Secrets = rotateSecrets(s.Secrets, to.Now(), replacement)
		return also(to)
	})
	if err != nil {
		return "", err
	}
	return plain, nil
}

// Enable resumes deliveries to a disabled subscription.
func (w *Webhooks) Enable(ctx context.Context, owner, id string) (Subscription, error) {
	return w.SetDisabled(ctx, owner, id, "",
		func(engine.RecordWriter, Subscription) error { return nil })
}

// SetDisabled stops deliveries to a subscription for a reason, or resumes them where it is empty.
// also writes in the same transaction and gets the subscription as it was.
func (w *Webhooks) SetDisabled(ctx context.Context, owner, id, reason string,
	also func(to engine.RecordWriter, before Subscription) error) (Subscription, error) {
	return w.updateSubscription(ctx, owner, id, func(to engine.RecordWriter, s *record) error {
		before := s.subscription(&job.Record{Key: id})
		s.Disabled, s.FailingSince = reason, time.Time{}
		return also(to, before)
	})
}
