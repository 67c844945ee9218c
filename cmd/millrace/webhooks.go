package main

import (
	"context"
	"errors"
	"slices"

	"github.com/millrace/millrace/cmd/millrace/internal/cli"
	"github.com/millrace/millrace/internal/account"
	"github.com/millrace/millrace/internal/contract"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/events"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/maintenance"
	"github.com/millrace/millrace/internal/setting"
	"github.com/millrace/millrace/internal/webhook"
)

// Every node records what happens to its jobs, and publishes what nodes have recorded, so that this
// goes on whichever of them run. Deliveries are made by those that have the pepper, under which
// secrets are sealed:
//
//	serves ForgeRun                    its webhooks
//	serves operators, or takes jobs    webhooks of its own, by the definition of ForgeRun
//	with callbacks
//	else                               webhooks that make deliveries for the others to carry out

// hooks is what a node does for webhooks, beside what its contracts do.
type hooks struct {
	jobTypes   []engine.JobType
	publishers []maintenance.Publisher
	background []func(context.Context)
}

// usesPepper reports whether a node needs the pepper: it has API keys, secrets of webhooks, or the
// operator's token.
func (s *nodeSettings) usesPepper(mode serveMode) bool {
	uses := func(d *contract.Definition) bool { return d.UsesPepper }
	if slices.ContainsFunc(s.served(), uses) {
		return true
	}
	takesCallbacks := func(d *contract.Definition) bool {
		return s.Callbacks && d.Settings.CallbackSecret != nil
	}
	return !mode.workersOnly &&
		(s.ServesOperators() || slices.ContainsFunc(s.served(), takesCallbacks))
}

// openSecrets makes the secrets that sign callbacks, where the node has a pepper.
func (d *deps) openSecrets(mode serveMode) error {
	if !d.settings.usesPepper(mode) {
		return nil
	}
	pepper, err := loadPepper(d.settings)
	if err != nil {
		return err
	}
	d.secrets, err = account.NewContractSecrets(d.engine, pepper)
	return cli.WithCode(cli.ExitFailed, err)
}

// callbackSecret returns the secret that signs the callbacks of a contract: that of the settings,
// also where the contract is not served here, else the one under the pepper.
func (d *deps) callbackSecret(ctx context.Context, name string) (string, error) {
	set, err := d.settings.callbackSecret(name)
	if err != nil || !set.Empty() {
		return set.Reveal(), err
	}
	if d.secrets == nil {
		return "", errors.New("this node has no pepper")
	}
	return d.secrets.Secret(ctx, name)
}

// callbackSecret returns the secret that the settings give a contract. It is NotFound for one whose
// jobs have no callbacks.
func (s *nodeSettings) callbackSecret(name string) (setting.Secret, error) {
	for _, d := range s.definitions {
		if d.Name() == name && d.Settings.CallbackSecret != nil {
			return *d.Settings.CallbackSecret, nil
		}
	}
	return setting.Secret{}, &job.Error{Kind: job.NotFound, Op: "callback_secret",
		Msg: "there is no contract " + name + " with callbacks"}
}

// findWebhooks finds the events of the contracts and what makes deliveries of them.
func (d *deps) findWebhooks() error {
	d.events = events.New(d.contracts)
	d.engine.SetFeed(webhook.NewFeed(d.events))
	for _, c := range d.contracts {
		if c.Webhooks != nil {
			d.webhooks = c.Webhooks
			return nil
		}
	}
	for _, c := range d.settings.definitions {
		if c.Webhooks == nil {
			continue
		}
		node := d.contractDeps(c.Name())
		if d.secrets == nil {
			node.Pepper = nil
		}
		var err error
		d.webhooks, err = c.Webhooks(node)
		return cli.WithCode(cli.ExitFailed, err)
	}
	return nil
}

// ownWebhooks reports whether the webhooks are the node's own, and of none of its contracts.
func (d *deps) ownWebhooks() bool {
	ofContract := func(c *contract.Contract) bool { return c.Webhooks == d.webhooks }
	return d.webhooks != nil && !slices.ContainsFunc(d.contracts, ofContract)
}

// operated returns the contracts whose jobs operators see: those that are served, and deliveries.
func (d *deps) operated() []*contract.Contract {
	if !d.ownWebhooks() {
		return d.contracts
	}
	return append(slices.Clone(d.contracts), contract.OfDeliveries(d.webhooks))
}

// hooks returns what the node does for webhooks.
func (d *deps) hooks() (h hooks) {
	if d.webhooks == nil {
		return h
	}
	h.publishers = []maintenance.Publisher{{JobTypes: []string{webhook.Name},
		Deliver: d.webhooks.DeliverEvents}}
	if !d.ownWebhooks() {
		return h
	}
	h.jobTypes = []engine.JobType{d.webhooks.JobType()}
	if d.secrets != nil {
		h.background = []func(context.Context){d.webhooks.Run}
	}
	return h
}
