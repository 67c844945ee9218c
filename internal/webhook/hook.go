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
)

// Hook is a subscription of a client to events of its jobs.
type Hook struct {
	ID             string
	Owner          string
	URL            string
	Events         []string // in the order they were given, each once
	Disabled       bool
	DisabledReason string
	CreatedAt      time.Time
}

// ErrForbidden says that something is another client's (FR-034).
var ErrForbidden = errors.New("webhook: it belongs to another client")

// ErrKeyReused says that an idempotency key came with another request before.
var ErrKeyReused = errors.New("webhook: the idempotency key was used for another request")

// The kinds of records.
const (
	hookRecord = "webhook"
	keyRecord  = "webhook-key"
)

const (
	// maxHooks bounds the subscriptions of one client.
	maxHooks = 1000
	// keyTime is how long an idempotency key is known (G-FR-24).
	keyTime = 24 * time.Hour
)

// Why a subscription is disabled.
const (
	reasonGone    = "the receiver answered 410 Gone"
	reasonFailing = "no try has succeeded for 24 hours"
)

// stored is what the record of a subscription holds besides its names and times.
type stored struct {
	URL          string    `json:"url"`
	Events       []string  `json:"events"`
	Secrets      []secret  `json:"secrets"`
	Disabled     string    `json:"disabled,omitempty"`     // why
	FailingSince time.Time `json:"failing_since,omitzero"` // no try has succeeded since
}

func (s *stored) hook(r *job.Record) Hook {
	return Hook{ID: r.Key, Owner: r.Owner, URL: s.URL, Events: s.Events, Disabled: s.Disabled != "", DisabledReason: s.Disabled, CreatedAt: r.CreatedAt}
}

func (s *stored) same(url string, events []string) bool {
	return s.URL == url && slices.Equal(sorted(s.Events), sorted(events))
}

func sorted(all []string) []string { return slices.Sorted(slices.Values(all)) }

func read(r *job.Record) (*stored, error) {
	s := &stored{}
	if err := json.Unmarshal(r.Body, s); err != nil {
		return nil, fmt.Errorf("webhook: record %s: %w", r.Key, err)
	}
	return s, nil
}

func write(to engine.RecordWriter, id, owner string, s *stored) error {
	body, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return to.PutRecords(job.Record{Kind: hookRecord, Key: id, Owner: owner, Body: body})
}

func unknown(what string) error {
	return &job.Error{Kind: job.NotFound, Op: "webhook", Msg: "there is no such " + what}
}

// canonical is a UUID as it is stored; anything else names nothing.
func canonical(id string) (string, bool) {
	u, err := job.ParseRunID(id)
	return u.String(), err == nil
}

// canonicalOr lets the empty id through.
func canonicalOr(id string) (string, bool) {
	if id == "" {
		return "", true
	}
	return canonical(id)
}

// lockOf is under what everything that changes a subscription is done.
func lockOf(id string) string { return "webhook:" + id }

// find reads a subscription that must be the owner's.
func find(r engine.RecordReader, owner, id string) (*job.Record, *stored, error) {
	id, ok := canonical(id)
	if !ok {
		return nil, nil, unknown("webhook")
	}
	rec, err := r.Record(hookRecord, id)
	if err != nil {
		return nil, nil, err
	}
	if rec == nil {
		return nil, nil, unknown("webhook")
	}
	if rec.Owner != owner {
		return nil, nil, ErrForbidden
	}
	s, err := read(rec)
	return rec, s, err
}

// Register subscribes a client to events of its jobs and returns the secret with which its requests are signed; nobody
// sees that again. A repeat under the same idempotency key, for a day, returns what the first made, and no secret
// (G-FR-58).
//
// Errors: Invalid for a URL or events that are none, Conflict for a URL with the same events that the client has
// subscribed already (FR-187), or one subscription too many; ErrKeyReused.
func (w *Webhooks) Register(ctx context.Context, owner, url string, events []string, idempotencyKey string) (h Hook, plain string, err error) {
	if events, err = checked(url, events); err != nil {
		return Hook{}, "", err
	}
	err = w.engine.ChangeRecords(ctx, "webhooks:"+owner, func(to engine.RecordWriter) error {
		h, plain = Hook{}, ""
		if idempotencyKey != "" {
			known, err := repeated(to, owner, url, events, idempotencyKey)
			if known != nil {
				h = *known
			}
			if known != nil || err != nil {
				return err
			}
		}
		if err := vacant(to, owner, url, events); err != nil {
			return err
		}
		var err error
		h, plain, err = w.register(to, owner, url, events)
		if err == nil && idempotencyKey != "" {
			err = remember(to, h, idempotencyKey)
		}
		return err
	})
	if err != nil {
		return Hook{}, "", err
	}
	return h, plain, nil
}

// checked says what is wrong with a subscription and returns its events, each once.
func checked(url string, events []string) (once []string, err error) {
	invalid := func(msg string) error { return &job.Error{Kind: job.Invalid, Op: "webhook.register", Msg: msg} }
	if _, err := egress.ParseURL(url); err != nil {
		return nil, invalid("url: " + err.Error())
	}
	for _, e := range events {
		if e == "" || len(e) > 100 {
			return nil, invalid("events: a name is empty or longer than 100 bytes")
		}
		if !slices.Contains(once, e) {
			once = append(once, e)
		}
	}
	if len(once) == 0 || len(once) > 100 {
		return nil, invalid("events: there must be 1 to 100")
	}
	return once, nil
}

func (w *Webhooks) register(to engine.RecordWriter, owner, url string, events []string) (Hook, string, error) {
	id, err := w.newID(to.Now())
	if err != nil {
		return Hook{}, "", err
	}
	plain, sealed, err := w.newSecret()
	if err != nil {
		return Hook{}, "", err
	}
	s := &stored{URL: url, Events: events, Secrets: []secret{sealed}}
	if err := write(to, id, owner, s); err != nil {
		return Hook{}, "", err
	}
	return s.hook(&job.Record{Key: id, Owner: owner, CreatedAt: to.Now()}), plain, nil
}

// vacant refuses what is there already.
func vacant(r engine.RecordReader, owner, url string, events []string) error {
	conflict := func(msg string) error { return &job.Error{Kind: job.Conflict, Op: "webhook.register", Msg: msg} }
	all, err := r.Records(hookRecord, owner, "", maxHooks)
	if err != nil {
		return err
	}
	if len(all) >= maxHooks {
		return conflict(fmt.Sprintf("a client has at most %d webhooks", maxHooks))
	}
	for i := range all {
		s, err := read(&all[i])
		if err != nil {
			return err
		}
		if s.same(url, events) {
			return conflict("this url is registered for these events already")
		}
	}
	return nil
}

// keyed is what an idempotency key stands for.
type keyed struct {
	Hook    string `json:"hook"`
	Request string `json:"request"` // its digest
}

func digest(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%d:%s", len(p), p)
	}
	return hex.EncodeToString(h.Sum(nil))
}

func request(url string, events []string) string {
	return digest(append([]string{url}, sorted(events)...)...)
}

// repeated returns the subscription an idempotency key has made, nil if none or if that is deleted.
func repeated(r engine.RecordReader, owner, url string, events []string, key string) (*Hook, error) {
	rec, err := r.Record(keyRecord, digest(owner, key))
	if err != nil || rec == nil {
		return nil, err
	}
	var k keyed
	if err := json.Unmarshal(rec.Body, &k); err != nil {
		return nil, fmt.Errorf("webhook: record of a key: %w", err)
	}
	if k.Request != request(url, events) {
		return nil, ErrKeyReused
	}
	made, s, err := find(r, owner, k.Hook)
	if job.IsKind(err, job.NotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	h := s.hook(made)
	return &h, nil
}

func remember(to engine.RecordWriter, h Hook, key string) error {
	body, err := json.Marshal(keyed{Hook: h.ID, Request: request(h.URL, h.Events)})
	if err != nil {
		return err
	}
	return to.PutRecords(job.Record{Kind: keyRecord, Key: digest(h.Owner, key), Owner: h.Owner, Body: body, ExpiresAt: to.Now().Add(keyTime)})
}

// Hook returns a subscription of a client: NotFound, or ErrForbidden if it is another's.
func (w *Webhooks) Hook(ctx context.Context, owner, id string) (h Hook, err error) {
	err = w.engine.ViewRecords(ctx, func(r engine.RecordReader) error {
		rec, s, err := find(r, owner, id)
		if err == nil {
			h = s.hook(rec)
		}
		return err
	})
	return h, err
}

// Hooks returns the first limit subscriptions of a client with an id above after, in the order they were made. Invalid
// says that after is neither empty nor an id.
func (w *Webhooks) Hooks(ctx context.Context, owner, after string, limit int) (hooks []Hook, err error) {
	after, ok := canonicalOr(after)
	if !ok {
		return nil, &job.Error{Kind: job.Invalid, Op: "webhook.hooks", Msg: "after is no id"}
	}
	err = w.engine.ViewRecords(ctx, func(r engine.RecordReader) error {
		hooks = nil
		all, err := r.Records(hookRecord, owner, after, limit)
		for i := range all {
			s, err := read(&all[i])
			if err != nil {
				return err
			}
			hooks = append(hooks, s.hook(&all[i]))
		}
		return err
	})
	return hooks, err
}

// change lets fn change a subscription of a client and keeps it.
func (w *Webhooks) change(ctx context.Context, owner, id string, fn func(now time.Time, s *stored) error) (h Hook, err error) {
	id, ok := canonical(id)
	if !ok {
		return Hook{}, unknown("webhook")
	}
	err = w.engine.ChangeRecords(ctx, lockOf(id), func(to engine.RecordWriter) error {
		rec, s, err := find(to, owner, id)
		if err != nil {
			return err
		}
		if err := fn(to.Now(), s); err != nil {
			return err
		}
		h = s.hook(rec)
		return write(to, id, owner, s)
	})
	return h, err
}

// Delete ends a subscription. No delivery of it starts afterwards; those that are pending end as exhausted (FR-188).
func (w *Webhooks) Delete(ctx context.Context, owner, id string) error {
	id, ok := canonical(id)
	if !ok {
		return unknown("webhook")
	}
	return w.engine.ChangeRecords(ctx, lockOf(id), func(to engine.RecordWriter) error {
		if _, _, err := find(to, owner, id); err != nil {
			return err
		}
		return to.DropRecords(hookRecord, id)
	})
}

// Rotate gives a subscription a new secret and returns it. The old one signs as well for a day.
func (w *Webhooks) Rotate(ctx context.Context, owner, id string) (plain string, err error) {
	_, err = w.change(ctx, owner, id, func(now time.Time, s *stored) error {
		var fresh secret
		var err error
		if plain, fresh, err = w.newSecret(); err == nil {
			s.Secrets = rotated(s.Secrets, now, fresh)
		}
		return err
	})
	if err != nil {
		return "", err
	}
	return plain, nil
}

// Enable lets a disabled subscription be called again.
func (w *Webhooks) Enable(ctx context.Context, owner, id string) (Hook, error) {
	return w.change(ctx, owner, id, func(_ time.Time, s *stored) error {
		s.Disabled, s.FailingSince = "", time.Time{}
		return nil
	})
}
