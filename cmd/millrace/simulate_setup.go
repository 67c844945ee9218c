package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/millrace/millrace/client"
)

// prepare makes the clients with their keys and listeners. Each has a sound receiver that hears of
// everything, which is how the simulator knows where its jobs are; the clients of the lanes have
// one with troubles besides.
func (s *simulator) prepare(ctx context.Context) error {
	count := s.flags.clients
	for _, kind := range s.mix.kinds {
		if kind.behavior != simAccepts {
			count++
		}
	}
	bar := s.p.newProgress("clients", int64(count))
	defer bar.end()
	add := func(behavior simBehavior) (*simClient, error) {
		c, err := s.newClient(ctx, len(s.clients), behavior)
		if err == nil {
			s.clients = append(s.clients, c)
			bar.add(1, "with keys and webhooks")
		}
		return c, err
	}
	for range s.flags.clients {
		if _, err := add(simAccepts); err != nil {
			return err
		}
	}
	for _, kind := range s.mix.kinds {
		if kind.behavior == simAccepts {
			continue
		}
		c, err := add(kind.behavior)
		if err != nil {
			return err
		}
		s.laneClients[kind.name] = c
	}
	return nil
}

// client finds one by its number.
func (s *simulator) client(number int) *simClient { return s.clients[number] }

func (s *simulator) newClient(ctx context.Context, number int, behavior simBehavior) (*simClient,
	error) {
	id, key, err := s.firstKey(ctx)
	if err != nil {
		return nil, err
	}
	c := &simClient{number: number, id: id, callSlots: make(chan struct{}, maxCalls),
		forge: s.setupClient.WithKey(key.APIKey)}
	c.callback = s.sink.addReceiver(fmt.Sprintf("/callback/%d", number), simAccepts, number)
	if key.CallbackSecret == "" {
		return nil, failedError("the first key of client %s came without a callback secret", id)
	}
	s.sink.setRegistered(c.callback, "", key.CallbackSecret)
	manners := []simBehavior{simAccepts}
	if behavior != simAccepts {
		manners = append(manners, behavior)
	}
	for _, m := range manners {
		if err := s.register(ctx, c, m); err != nil {
			return nil, err
		}
	}
	c.forge = s.api.ForgeRun().WithKey(key.APIKey)
	return c, nil
}

// firstKey makes a client. When the answer with the key was lost nobody knows it, and another
// client is made.
func (s *simulator) firstKey(ctx context.Context) (id string, key client.ForgeRunIssuedKey,
	err error) {
	for range 5 {
		if id, err = s.setupClient.CreateClient(ctx, ""); err != nil {
			return "", key, err
		}
		key, err = s.setupClient.FirstKey(ctx, id)
		var fail *client.Error
		if err == nil || !errors.As(err, &fail) || !fail.Uncertain {
			break
		}
	}
	return id, key, err
}

func (s *simulator) register(ctx context.Context, c *simClient, behavior simBehavior) error {
	name := map[simBehavior]string{simAccepts: "sound", simStalls: "stalls", simFails: "fails",
		simSlow: "slow", simNeverAccepts: "never"}[behavior]
	h := s.sink.addReceiver(fmt.Sprintf("/%s/%d", name, c.number), behavior, c.number)
	made, err := c.forge.RegisterWebhook(ctx, h.url, client.ForgeRunEvents(), "")
	if err != nil {
		return err
	}
	secrets := []string{made.Secret}
	if made.Secret == "" { // the answer with it was lost
		secret, err := c.forge.RotateWebhookSecret(ctx, made.ID)
		if err != nil {
			return err
		}
		secrets = []string{secret}
	}
	s.sink.setRegistered(h, made.ID, secrets...)
	return nil
}
