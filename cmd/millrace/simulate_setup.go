package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/millrace/millrace/client"
)

// prepare makes the clients with their keys and listeners. Each has a sound receiver that hears of everything, which is
// how the simulator knows where its jobs are; the clients of the lanes have one with troubles besides.
func (s *simulator) prepare(ctx context.Context) error {
	count := s.flags.clients
	for _, kind := range s.mix.kinds {
		if kind.manner != simSound {
			count++
		}
	}
	bar := s.p.progress("clients", int64(count))
	defer bar.end()
	add := func(manner simManner) (*simClient, error) {
		c, err := s.newClient(ctx, len(s.clients), manner)
		if err == nil {
			s.clients = append(s.clients, c)
			bar.add(1, "with keys and webhooks")
		}
		return c, err
	}
	for range s.flags.clients {
		if _, err := add(simSound); err != nil {
			return err
		}
	}
	for _, kind := range s.mix.kinds {
		if kind.manner == simSound {
			continue
		}
		c, err := add(kind.manner)
		if err != nil {
			return err
		}
		s.lanes[kind.name] = c
	}
	return nil
}

// client finds one by its number.
func (s *simulator) client(number int) *simClient { return s.clients[number] }

func (s *simulator) newClient(ctx context.Context, number int, manner simManner) (*simClient, error) {
	id, key, err := s.firstKey(ctx)
	if err != nil {
		return nil, err
	}
	c := &simClient{number: number, id: id, gate: make(chan struct{}, callsUnderWay), forge: s.setup.WithKey(key.APIKey)}
	c.callback = s.sink.hook(fmt.Sprintf("/callback/%d", number), simSound, number)
	if key.CallbackSecret == "" {
		return nil, failed("the first key of client %s came without a callback secret", id)
	}
	s.sink.registered(c.callback, "", key.CallbackSecret)
	manners := []simManner{simSound}
	if manner != simSound {
		manners = append(manners, manner)
	}
	for _, m := range manners {
		if err := s.register(ctx, c, m); err != nil {
			return nil, err
		}
	}
	c.forge = s.api.ForgeRun().WithKey(key.APIKey)
	return c, nil
}

// firstKey makes a client. When the answer with the key was lost nobody knows it, and another client is made.
func (s *simulator) firstKey(ctx context.Context) (id string, key client.ForgeRunIssuedKey, err error) {
	for range 5 {
		if id, err = s.setup.CreateClient(ctx, ""); err != nil {
			return "", key, err
		}
		key, err = s.setup.FirstKey(ctx, id)
		var fail *client.Error
		if err == nil || !errors.As(err, &fail) || !fail.Uncertain {
			break
		}
	}
	return id, key, err
}

func (s *simulator) register(ctx context.Context, c *simClient, manner simManner) error {
	name := map[simManner]string{simSound: "sound", simStalls: "stalls", simFails: "fails", simSlow: "slow", simNever: "never"}[manner]
	h := s.sink.hook(fmt.Sprintf("/%s/%d", name, c.number), manner, c.number)
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
	s.sink.registered(h, made.ID, secrets...)
	return nil
}
