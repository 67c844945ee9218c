package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/internal/account"
	"github.com/millrace/millrace/internal/contract"
	"github.com/millrace/millrace/internal/contract/relay"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/events"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/webhook"
)

// Jobs of Relay with a webhook of operators that wants all events: each verb also writes a message
// for a change, and the verb publish makes the deliveries of these messages. They are not sent:
// between the rounds they are ended and removed, so that each round begins with an empty store.
//
//	enqueue, claim, end ─▶ outbox ─▶ publish: Webhooks.DeliverEvents ─▶ deliveries ─▶ clear

// webhookJobType is Relay as an engine sees it, which gets the feed of its events.
func webhookJobType(e *engine.Engine) (engine.JobType, error) {
	r, err := relay.New(relay.Config{Engine: e, Log: slog.New(slog.DiscardHandler),
		Registry: prometheus.NewRegistry(), Settings: relay.Settings{MaxNumJobs: 1, BodyLimit: 1,
			RetryableStatus: http.StatusTooManyRequests}})
	if err != nil {
		return engine.JobType{}, err
	}
	offer := r.Offer()
	e.SetFeed(webhook.NewFeed(events.New([]*contract.Contract{offer})))
	return offer.JobTypes[0], nil
}

// countedWebhook is a webhook that wants all events.
type countedWebhook struct {
	*webhook.Webhooks
	id string // of the subscription, whose deliveries have a queue of this name
}

// newCountedWebhook registers a webhook with an engine that has its other job types.
func newCountedWebhook(ctx context.Context, e *engine.Engine) (*countedWebhook, error) {
	pepper := make([]byte, 32)
	rand.Read(pepper)
	vault, err := account.NewVault(pepper)
	if err != nil {
		return nil, err
	}
	start := time.Now()
	w, err := webhook.New(webhook.Config{Engine: e, Vault: vault, Client: http.DefaultClient,
		CallbackSecret: func(context.Context, string) (string, error) { return "", nil },
		Timeout:        time.Hour, MaxAttempts: 1, BackoffBase: time.Second,
		BackoffMax: time.Second, BackoffFactor: 1, Retention: time.Microsecond, Random: rand.Reader,
		Elapsed: func() time.Duration { return time.Since(start) }})
	if err != nil {
		return nil, err
	}
	if err := e.Register(w.JobType()); err != nil {
		return nil, err
	}
	spec := webhook.Spec{URL: "https://receiver.example/", Events: []string{"*"},
		Options: webhook.Options{MaxInFlight: webhook.MaxMaxInFlight}}
	subscription, _, err := w.RegisterForOperators(ctx, spec, "",
		func(_ engine.RecordWriter, _, _ *webhook.Subscription) error { return nil })
	return &countedWebhook{w, subscription.ID}, err
}

// publish measures what makes deliveries of the messages of a round. The statements are those of
// one batch of messages, from the transaction that removes the batch before to that which stores
// the deliveries. The deliveries are removed afterwards.
func (m *meter) publish(ctx context.Context, l *countedLoad) (verbCost, error) {
	published := 0
	c, err := m.measure(ctx, "publish", func() (err error) {
		published, err = l.engine.Publish(ctx, l.webhook.DeliverEvents, webhook.Name)
		return err
	})
	if err != nil {
		return c, err
	}
	c.statements = oneBatch(m.names)
	c.inTransaction = float64(len(c.statements))
	delivered, err := l.webhook.clear(ctx)
	if err != nil {
		return c, err
	}
	if want := 3 * m.jobs; published != want || delivered != want {
		return c, fmt.Errorf("%d messages and %d deliveries of %d", published, delivered, want)
	}
	return c, nil
}

// oneBatch returns the statements between the transactions that remove the first and the second
// batch of messages.
func oneBatch(names []string) []string {
	var at []int
	for i, name := range names {
		if name == "delete_messages" {
			at = append(at, i-1) // its BEGIN
		}
	}
	if len(at) < 2 {
		return slices.Clone(names)
	}
	return names[at[0]:at[1]]
}

// clear ends the deliveries, each as if it had been sent, and removes them. It returns how many
// there were.
func (h *countedWebhook) clear(ctx context.Context) (n int, err error) {
	for {
		claimed, err := h.Engine.Claim(ctx, engine.ClaimRequest{JobType: webhook.Name,
			Queues: []string{h.id}, Max: webhook.MaxMaxInFlight, Worker: "bench"})
		if err != nil {
			return n, err
		}
		if len(claimed) == 0 {
			break
		}
		n += len(claimed)
		ends := make([]engine.FinishRequest, len(claimed))
		for i, j := range claimed {
			ends[i] = engine.FinishRequest{Run: engine.Run{Run: j.Run},
				Outcome: engine.Outcome{On: job.Succeeded}}
		}
		for _, ended := range h.Engine.FinishAll(ctx, ends) {
			if ended.Err != nil {
				return n, ended.Err
			}
		}
	}
	for removed := 1; removed > 0; {
		if removed, err = h.Engine.Prune(ctx); err != nil {
			return n, err
		}
	}
	return n, nil
}
