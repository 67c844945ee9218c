package simulate

import (
	"context"
	"errors"
	"fmt"

	"github.com/millrace/millrace/client"
	"github.com/millrace/millrace/cmd/millrace/internal/cli"
)

// Clients are made before the load starts, with requests that give up soon: a wrong address or a
// full server is an error of the setup, and no result of the simulation.

// prepare makes the clients with their keys and receivers. Every client has a receiver that accepts
// all events; the simulator follows the states of jobs by them. A work kind about a faulty receiver
// has a client of its own, with such a receiver besides.
func (s *simulator) prepare(ctx context.Context) error {
	count := s.flags.clients
	for _, kind := range s.mix.kinds {
		if kind.behavior != behaviorAccepts {
			count++
		}
	}
	bar := s.p.NewProgress("clients", int64(count))
	defer bar.End()
	add := func(behavior receiverBehavior) (*forgeClient, error) {
		c, err := s.newClient(ctx, len(s.clients), behavior)
		if err != nil {
			return nil, err
		}
		s.clients = append(s.clients, c)
		bar.Add(1, "with keys and webhooks")
		return c, nil
	}
	for range s.flags.clients {
		if _, err := add(behaviorAccepts); err != nil {
			return err
		}
	}
	for _, kind := range s.mix.kinds {
		if kind.behavior == behaviorAccepts {
			continue
		}
		c, err := add(kind.behavior)
		if err != nil {
			return err
		}
		s.kindClients[kind.name] = c
	}
	return nil
}

// client returns the client with the number.
func (s *simulator) client(number int) *forgeClient { return s.clients[number] }

// newClient makes a client with its first key, and registers its webhooks: a receiver that accepts
// and, where the behavior is another, one with that behavior. Until it returns its requests give up
// soon; the client that it returns retries until the server answers.
func (s *simulator) newClient(ctx context.Context, number int, behavior receiverBehavior) (
	*forgeClient, error) {
	id, key, err := s.firstKey(ctx)
	if err != nil {
		return nil, err
	}
	c := &forgeClient{number: number, id: id, callSlots: make(chan struct{}, maxCalls),
		forge: s.setupClient.WithAPIKey(key.APIKey)}
	c.callback = s.sink.addReceiver(fmt.Sprintf("/callback/%d", number), behaviorAccepts, number)
	if key.CallbackSecret == "" {
		return nil, cli.FailedError("the first key of client %s came without a callback secret", id)
	}
	s.sink.setRegistered(c.callback, "", key.CallbackSecret)
	behaviors := []receiverBehavior{behaviorAccepts}
	if behavior != behaviorAccepts {
		behaviors = append(behaviors, behavior)
	}
	for _, b := range behaviors {
		if err := s.register(ctx, c, b); err != nil {
			return nil, err
		}
	}
	c.forge = s.api.ForgeRun().WithAPIKey(key.APIKey)
	return c, nil
}

// firstKey makes a client with its first key. When the answer with the key is lost, the key can
// never be read again, and firstKey makes another client, five at most.
func (s *simulator) firstKey(ctx context.Context) (id string, key client.ForgeRunIssuedAPIKey,
	err error) {
	for range 5 {
		if id, err = s.setupClient.CreateClient(ctx, ""); err != nil {
			return "", key, err
		}
		key, err = s.setupClient.CreateFirstAPIKey(ctx, id)
		var fail *client.Error
		isLost := errors.As(err, &fail) && fail.Uncertain
		if !isLost {
			break
		}
	}
	return id, key, err
}

// register registers a receiver of the behavior as a webhook of the client, for all events.
func (s *simulator) register(ctx context.Context, c *forgeClient, behavior receiverBehavior) error {
	name := map[receiverBehavior]string{
		behaviorAccepts:      "accepts",
		behaviorStalls:       "stalls",
		behaviorFails:        "fails",
		behaviorSlow:         "slow",
		behaviorNeverAccepts: "never",
	}[behavior]
	h := s.sink.addReceiver(fmt.Sprintf("/%s/%d", name, c.number), behavior, c.number)
	made, err := c.forge.CreateWebhook(ctx, h.url, client.ForgeRunEvents(), "")
	if err != nil {
		return err
	}
	secrets := []string{made.Secret}
	if made.Secret == "" { // the answer with the secret was lost, and a retry has no secret
		secret, err := c.forge.RotateWebhookSecret(ctx, made.ID)
		if err != nil {
			return err
		}
		secrets = []string{secret}
	}
	s.sink.setRegistered(h, made.ID, secrets...)
	return nil
}
