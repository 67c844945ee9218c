package webhook

import (
	"context"
	"encoding/base64"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/millrace/millrace/internal/egress"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
)

// Operators is the owner of the subscriptions of operators, which are about the jobs of all
// contracts. It is no id of a client.
const Operators = "operators"

const (
	// maxOperatorSubscriptions bounds the subscriptions of operators: every change of a job is
	// compared with each, and each has a limit that a claim of deliveries locks.
	maxOperatorSubscriptions = 100
	// DefaultMaxInFlight is Spec.MaxInFlight where an operator names none.
	DefaultMaxInFlight = 4
	// MaxMaxInFlight bounds Spec.MaxInFlight.
	MaxMaxInFlight   = 1000
	maxSelected      = 100 // patterns, and names of one sort
	maxPattern       = 100
	maxSelectedBytes = 512
	maxName          = 100
)

// Spec is what an operator subscribes to, and how the deliveries are made.
type Spec struct {
	URL    string
	Events []string // types of events, or patterns with *
	Options
}

// Options are the part of Spec that subscriptions of clients lack. Without names of a sort, all
// are meant. The JSON names are stored data: they must not change.
type Options struct {
	Name           string   `json:"name,omitempty"`
	Contracts      []string `json:"contracts,omitempty"`
	Queues         []string `json:"queues,omitempty"`
	Kinds          []string `json:"kinds,omitempty"`
	IncludePayload bool     `json:"include_payload,omitempty"`
	MaxInFlight    int      `json:"max_in_flight"`
	Rate           job.Rate `json:"rate,omitzero"` // of the attempts that start
}

// spec returns the spec of a subscription of operators.
func (s *record) spec() Spec { return Spec{URL: s.URL, Events: s.Events, Options: *s.Operator} }

// setSpec replaces the spec.
func (s *record) setSpec(t Spec) {
	s.URL, s.Events, s.Operator = t.URL, t.Events, &t.Options
}

// validate refuses what no subscription can have.
func (t *Spec) validate() error {
	invalid := func(format string, args ...any) error {
		return &job.Error{Kind: job.Invalid, Op: "webhook.register",
			Msg: fmt.Sprintf(format, args...)}
	}
	if _, err := egress.ParseURL(t.URL); err != nil {
		return invalid("url: %v", err)
	}
	if len(t.Events) == 0 || len(t.Events) > maxSelected {
		return invalid("events: there must be 1 to %d", maxSelected)
	}
	for _, pattern := range t.Events {
		if !isPattern(pattern) {
			return invalid("events: a pattern has 1 to %d letters, digits, \"_\", \".\" and \"*\"",
				maxPattern)
		}
	}
	for _, selected := range []struct {
		name  string
		names []string
	}{{"contracts", t.Contracts}, {"queues", t.Queues}, {"kinds", t.Kinds}} {
		tooLong := func(name string) bool { return name == "" || len(name) > maxSelectedBytes }
		if len(selected.names) > maxSelected || slices.ContainsFunc(selected.names, tooLong) {
			return invalid("%s: there may be %d, each of 1 to %d bytes", selected.name, maxSelected,
				maxSelectedBytes)
		}
	}
	switch {
	case len(t.Name) > maxName:
		return invalid("name: it may have %d bytes", maxName)
	case t.MaxInFlight < 1 || t.MaxInFlight > MaxMaxInFlight:
		return invalid("max_in_flight: it must be from 1 to %d", MaxMaxInFlight)
	case !t.Rate.IsValid():
		return invalid("rate: it must be from 1 to %d", job.MaxRateStarts)
	}
	return nil
}

func isPattern(pattern string) bool {
	return pattern != "" && len(pattern) <= maxPattern &&
		strings.Trim(pattern, "abcdefghijklmnopqrstuvwxyz0123456789_.*") == ""
}

// MatchType reports whether a pattern of Spec means a type of events. A pattern that is none means
// no type.
func MatchType(pattern, name string) bool {
	matched, _ := path.Match(pattern, name)
	return matched
}

// checkSecret refuses a secret that is not one of Standard Webhooks, of 24 to 64 bytes.
func checkSecret(plain string) error {
	encoded, ok := strings.CutPrefix(plain, secretPrefix)
	raw, err := base64.StdEncoding.DecodeString(encoded)
	if !ok || err != nil || len(raw) < 24 || len(raw) > 64 {
		return &job.Error{Kind: job.Invalid, Op: "webhook.register",
			Msg: "secret: it must be whsec_ and the Base64 of 24 to 64 bytes"}
	}
	return nil
}

// OperatorChange writes further records with a change of a subscription of operators. before is nil
// for a new one, after for one that is gone.
type OperatorChange func(to engine.RecordWriter, before, after *Subscription) error

// RegisterForOperators subscribes operators and returns the secret with which the requests are
// signed: a new one where given is empty. It cannot be read later.
//
// Errors: Invalid for a wrong spec or a wrong secret; Conflict for the same url, events and filters
// as another one has, or beyond 100 of them.
func (w *Webhooks) RegisterForOperators(ctx context.Context, t Spec, given string,
	also OperatorChange) (h Subscription, plain string, err error) {
	if err := t.validate(); err != nil {
		return h, "", err
	}
	if given != "" {
		if err := checkSecret(given); err != nil {
			return h, "", err
		}
	}
	now, err := w.Engine.StoreTime(ctx)
	if err != nil {
		return h, "", err
	}
	id, err := w.newID(now)
	if err != nil {
		return h, "", err
	}
	plain, sealed, err := w.sealSecret(given)
	if err != nil {
		return h, "", err
	}
	s := &record{Secrets: []secret{sealed}}
	s.setSpec(t)
	err = w.Engine.ChangeFeed(ctx, Name, id, func(to engine.RecordWriter,
		q *job.QueueSettings) error {
		if err := ensureNewSpec(to, "", &t); err != nil {
			return err
		}
		h = s.subscription(&job.Record{Key: id, Owner: Operators, CreatedAt: to.Now()})
		q.MaxRunning, q.Rate = t.MaxInFlight, t.Rate
		if err := putSubscription(to, id, Operators, s); err != nil {
			return err
		}
		return also(to, nil, &h)
	})
	if err != nil {
		return Subscription{}, "", err
	}
	return h, plain, nil
}

// ensureNewSpec refuses a spec that selects what another subscription of operators selects for the
// same URL, and one beyond maxOperatorSubscriptions. self is the one that has them already.
func ensureNewSpec(r engine.RecordReader, self string, t *Spec) error {
	conflict := func(msg string) error {
		return &job.Error{Kind: job.Conflict, Op: "webhook.register", Msg: msg}
	}
	all, err := r.Records(subscriptionRecord, Operators, "", maxOperatorSubscriptions)
	if err != nil {
		return err
	}
	if self == "" && len(all) >= maxOperatorSubscriptions {
		return conflict(fmt.Sprintf("operators have at most %d webhooks",
			maxOperatorSubscriptions))
	}
	for i := range all {
		if all[i].Key == self {
			continue
		}
		s, err := decodeRecord(&all[i])
		if err != nil || s.Operator == nil {
			continue // it is logged where it is read for events
		}
		if s.matches(t.URL, t.Events) && s.Operator.selects(&t.Options) {
			return conflict("webhook " + all[i].Key + " has this url, these events and filters")
		}
	}
	return nil
}

// selects reports whether two options select the same events.
func (o *Options) selects(other *Options) bool {
	same := func(a, b []string) bool { return slices.Equal(sortedCopy(a), sortedCopy(b)) }
	return same(o.Contracts, other.Contracts) && same(o.Queues, other.Queues) &&
		same(o.Kinds, other.Kinds)
}

// ChangeForOperators changes the spec of a subscription of operators. Deliveries that were made
// before keep their events, and go to the new URL. edit may run more than once.
//
// Errors: those of Subscription and RegisterForOperators, and of edit.
func (w *Webhooks) ChangeForOperators(ctx context.Context, id string, edit func(*Spec) error,
	also OperatorChange) (h Subscription, err error) {
	err = w.changeOperator(ctx, id, func(to engine.RecordWriter, q *job.QueueSettings,
		rec *job.Record, s *record) error {
		before, t := s.subscription(rec), s.spec()
		if err := edit(&t); err != nil {
			return err
		}
		if err := t.validate(); err != nil {
			return err
		}
		if err := ensureNewSpec(to, rec.Key, &t); err != nil {
			return err
		}
		s.setSpec(t)
		h = s.subscription(rec)
		q.MaxRunning, q.Rate = t.MaxInFlight, t.Rate
		if err := putSubscription(to, rec.Key, Operators, s); err != nil {
			return err
		}
		return also(to, &before, &h)
	})
	return h, err
}

// DeleteForOperators is Delete for a subscription of operators.
func (w *Webhooks) DeleteForOperators(ctx context.Context, id string, also OperatorChange) error {
	return w.changeOperator(ctx, id, func(to engine.RecordWriter, q *job.QueueSettings,
		rec *job.Record, s *record) error {
		before := s.subscription(rec)
		*q = job.QueueSettings{JobType: q.JobType, Queue: q.Queue}
		if err := to.DeleteRecords(subscriptionRecord, rec.Key); err != nil {
			return err
		}
		return also(to, &before, nil)
	})
}

// changeOperator loads a subscription of operators and lets fn change it and its queue.
func (w *Webhooks) changeOperator(ctx context.Context, id string, fn func(engine.RecordWriter,
	*job.QueueSettings, *job.Record, *record) error) error {
	h, err := w.Subscription(ctx, Operators, id)
	if err != nil {
		return err
	}
	return w.Engine.ChangeFeed(ctx, Name, h.ID, func(to engine.RecordWriter,
		q *job.QueueSettings) error {
		if err := to.Lock(lockName(h.ID)); err != nil {
			return err
		}
		rec, s, err := findSubscription(to, Operators, h.ID)
		if err != nil {
			return err
		}
		return fn(to, q, rec, s)
	})
}

// RotateForOperators is Rotate for a subscription of operators.
func (w *Webhooks) RotateForOperators(ctx context.Context, id string,
	also func(engine.RecordWriter) error) (plain string, err error) {
	return w.rotate(ctx, Operators, id, also)
}
