package forgerun

import (
	"context"

	"github.com/millrace/millrace/internal/account"
	"github.com/millrace/millrace/internal/contract"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/webhook"
)

// errNoPepper says that a node makes no deliveries.
var errNoPepper = &job.Error{Kind: job.Unavailable, Op: Name, Msg: "this node has no pepper"}

// noVault is the vault of a node without a pepper.
type noVault struct{}

func (noVault) Seal([]byte) (string, error) { return "", errNoPepper }
func (noVault) Open(string) ([]byte, error) { return nil, errNoPepper }

// Define declares ForgeRun with settings that are still to be read. The process calls Build after
// it has read them. An error of the pepper, such as a file that other users can read, prevents the
// start.
func Define() *contract.Definition {
	s := new(Settings)
	return &contract.Definition{Settings: s.Group(), OpenAPI: OpenAPI,
		Errors: errorTable, UsesPepper: true,
		Webhooks: s.webhooks, Accounts: s.accountsOf,
		Build: func(d *contract.Deps) (*contract.Contract, error) {
			pepper, err := d.Pepper()
			if err != nil {
				return nil, err
			}
			f, err := New(Config{
				Settings: *s,
				Engine:   d.Engine,
				Log:      d.Log,

				WebhookLog: d.WebhookLog,

				Registry: d.Registry(""),
				Tracing:  d.Tracing,
				Now:      d.Now,
				Elapsed:  d.Elapsed,
				Random:   d.Random,
				Pepper:   pepper,

				ContractSecret: d.ContractSecret,

				Node:           d.Name,
				NoLocalWorkers: d.NoLocalWorkers,
				Client:         d.Client,
				Grace:          d.Grace,
			})
			if err != nil {
				return nil, err
			}
			return f.Offer(), nil
		}}
}

// webhooks makes the webhooks of a node that does not serve ForgeRun. Other nodes may, so there may
// be callbacks of clients too. Without a pepper it makes deliveries for other nodes to carry out.
func (s *Settings) webhooks(d *contract.Deps) (*webhook.Webhooks, error) {
	c := s.Webhook.config(s.Retention)
	c.Engine, c.Client, c.Elapsed, c.Log = d.Engine, d.Client, d.Elapsed, d.WebhookLog
	c.ClientContract = Name
	c.ContractSecret, c.StartSpan = d.ContractSecret, deliverySpan(d.Tracing)
	if d.Pepper == nil {
		c.Vault = noVault{}
		c.CallbackSecret = func(context.Context, string) (string, error) { return "", errNoPepper }
		return webhook.New(c)
	}
	pepper, err := d.Pepper()
	if err != nil {
		return nil, err
	}
	if c.Vault, err = account.NewVault(pepper); err != nil {
		return nil, err
	}
	clients, err := s.accountsOf(account.Config{Engine: d.Engine, Pepper: pepper, Log: d.Log,
		Elapsed: d.Elapsed})
	if err != nil {
		return nil, err
	}
	c.CallbackSecret = clients.CallbackSecret
	return webhook.New(c)
}

// accountsOf makes the accounts of the clients, by the settings.
func (s *Settings) accountsOf(c account.Config) (*account.Accounts, error) {
	c.KeyLifetime, c.RevokedRetention = s.KeyLifetime, s.RevokedKeyRetention
	c.RatePerMinute, c.QuotaPerDay = s.RatePerMinute, s.QuotaPerDay
	c.AnonymousPerMinute = s.AnonymousPerMinute
	return account.New(c)
}

// Offer is what ForgeRun offers the process. Everyone may become a client of ForgeRun (FR-037).
func (f *ForgeRun) Offer() *contract.Contract {
	workers := f.RemoteWorkers()
	return &contract.Contract{
		Name:      Name,
		Listen:    f.Listen,
		OpenAPI:   OpenAPI,
		JobTypes:  f.JobTypes(),
		Mount:     f.Mount,
		Run:       f.Run,
		Outbox:    &contract.Outbox{Deliver: f.Deliver},
		Checks:    f.Checks(),
		Workers:   &workers,
		Operators: f.operators(),
		Webhooks:  f.webhooks,
		Accounts:  f.accounts,
		Open:      []string{"/v1/clients"},
	}
}
