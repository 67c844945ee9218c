package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/cmd/millrace/internal/cli"
	"github.com/millrace/millrace/cmd/millrace/internal/work"
	"github.com/millrace/millrace/internal/account"
	"github.com/millrace/millrace/internal/child"
	"github.com/millrace/millrace/internal/config"
	"github.com/millrace/millrace/internal/contract"
	"github.com/millrace/millrace/internal/contract/fetchbox"
	"github.com/millrace/millrace/internal/contract/forgerun"
	"github.com/millrace/millrace/internal/contract/images"
	"github.com/millrace/millrace/internal/contract/relay"
	"github.com/millrace/millrace/internal/contract/taskflow"
	"github.com/millrace/millrace/internal/egress"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/events"
	"github.com/millrace/millrace/internal/inbox"
	"github.com/millrace/millrace/internal/nodes"
	"github.com/millrace/millrace/internal/object"
	"github.com/millrace/millrace/internal/outage"
	"github.com/millrace/millrace/internal/schedule"
	"github.com/millrace/millrace/internal/series"
	"github.com/millrace/millrace/internal/server"
	"github.com/millrace/millrace/internal/setting"
	"github.com/millrace/millrace/internal/storageid"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/stream"
	"github.com/millrace/millrace/internal/telemetry"
	"github.com/millrace/millrace/internal/webhook"
	"github.com/millrace/millrace/internal/workerapi"
)

// definitions lists all contracts, in the order in which users see them. A new contract is one more
// line; internal/arch/sixth proves it with a contract that is added to the binary by a test.
var definitions = []func() *contract.Definition{
	forgerun.Define,
	images.Define,
	taskflow.Define,
	fetchbox.Define,
	relay.Define,
}

// deps is what the contracts of one node are built with. serve fills it step by step:
//
//	connect        egress, tracing, and storage elsewhere; nothing is made in the data directory
//	openStorage    objects and streams of the data directory
//	newNode        the engine, on the open store; it calls what follows
//	buildContracts one contract.Contract for each contract in the setting contracts
//	buildServices  the worker API over the contracts whose jobs remote workers may run, and the
//	               admin API over all
//
// Whatever a step opened is closed by close, also where a later step failed. One goroutine fills
// it, and nothing changes after the start.
type deps struct {
	process    cli.Process
	settings   *nodeSettings
	log        *slog.Logger
	registries *telemetry.Registries
	tracing    *telemetry.Tracing
	// egress sends every outbound HTTP request, but for those of clients that a contract makes from
	// egressConfig.
	egress *egress.Client
	node   string
	// described is what operators see of the node.
	described *nodes.Node
	// series is what operators see of what the nodes have done.
	series *series.Recorder
	// noWorkers says that other nodes run the jobs.
	noWorkers bool
	engine    *engine.Engine
	pool      func() (inUse, open, limit int) // of the store, see openedStore
	runEnds   func(context.Context, int) (int, time.Time, error)
	version   func(context.Context) (engine.Version, error)
	// unlock releases the data directory; nil while it is not locked.
	unlock  func()
	objects *object.Objects
	streams *stream.Streams
	// binding keeps the nodes of one database on the same objects and streams. It is nil with
	// SQLite, which no other node shares.
	binding *storageid.Binding
	// onClose closes what contracts have opened; the last comes first.
	onClose []func()

	// operatorToken is the token that /operators requires; empty where it is open (G-FB-31).
	operatorToken setting.Secret

	contracts []*contract.Contract // that were built
	events    *events.Catalog      // of what happens to their jobs
	webhooks  *webhook.Webhooks
	secrets   *account.ContractSecrets        // that sign callbacks; nil without a pepper
	schedules *schedule.Schedules             // that submit to them
	inboxOf   func(store.Reader) engine.Inbox // of the store, see openedStore
	inbox     *inbox.Inbox                    // takes over what producers submit by SQL
	monitors  []*outage.Monitor               // that were made
	// loginPath makes a one-time code for the console; nil where none is served.
	loginPath func(context.Context) (path string, err error)
}

// nodeSettings are the settings of a node with the contracts that declare some of them. The fields
// of a contract are filled by the load and read by its own Build.
type nodeSettings struct {
	*config.Settings
	definitions []*contract.Definition
	schedules   schedule.Settings
}

// loadSettings resolves the settings with those of all contracts, served or not: a key of a
// contract that is not served is no error. The error names every setting that is wrong.
func loadSettings(src config.Sources) (*nodeSettings, error) {
	s := &nodeSettings{definitions: defineContracts()}
	src.Stores, src.Contracts = storeKinds(), groups(s.definitions)
	var names []string
	for _, d := range s.definitions {
		names = append(names, d.Name())
	}
	src.Parts = []*setting.Group{s.schedules.Group(names)}
	var err error
	s.Settings, err = config.Load(src)
	return s, err
}

// defaultSettings are the settings of a node for which nothing is set.
func defaultSettings() *config.Settings {
	return config.Default(storeKinds(), groups(defineContracts()))
}

// defineContracts makes the definitions afresh: each call has settings of its own, so that two
// loads in one process, as in tests, share nothing.
func defineContracts() []*contract.Definition {
	all := make([]*contract.Definition, len(definitions))
	for i, define := range definitions {
		all[i] = define()
	}
	return all
}

// workedContracts returns the contracts whose jobs remote workers may execute.
func workedContracts() []work.Target {
	var all []work.Target
	for _, d := range defineContracts() {
		if d.Settings.Workers != setting.NoWorkers {
			all = append(all, work.Target{Name: d.Name(), CheckQueue: d.CheckQueue})
		}
	}
	return all
}

// groups returns the settings that the contracts declare.
func groups(definitions []*contract.Definition) []*setting.Group {
	all := make([]*setting.Group, len(definitions))
	for i, d := range definitions {
		all[i] = d.Settings
	}
	return all
}

// served returns the contracts that are served, in the order of definitions.
func (s *nodeSettings) served() []*contract.Definition {
	var all []*contract.Definition
	for _, d := range s.definitions {
		if s.Serves(d.Name()) {
			all = append(all, d)
		}
	}
	return all
}

// connectContracts connects the contracts that are served to services outside of the node. It stops
// at the first error; what was opened before is in onClose.
func (d *deps) connectContracts(ctx context.Context) error {
	for _, c := range d.settings.served() {
		if c.Connect == nil {
			continue
		}
		if err := c.Connect(ctx, d.contractDeps(c.Name())); err != nil {
			return contractError(c.Name(), err)
		}
	}
	return nil
}

// buildContracts builds the contracts that the settings serve. It runs after the storage is open,
// as a contract finds its engine, objects and streams in its node.
func (d *deps) buildContracts() error {
	for _, c := range d.settings.served() {
		built, err := c.Build(d.contractDeps(c.Name()))
		if err != nil {
			return contractError(c.Name(), err)
		}
		d.contracts = append(d.contracts, built)
	}
	return nil
}

// contractDeps is the process as one contract sees it. It is made when it is needed: for Connect it
// has no engine, objects, streams and binding yet, as contract.Definition says.
func (d *deps) contractDeps(name string) *contract.Deps {
	return &contract.Deps{
		Name:   d.node,
		Engine: d.engine,
		Log:    d.log.With(telemetry.Contract, name),

		WebhookLog: d.log.With(telemetry.Contract, webhook.Name),

		Now:            d.process.Now,
		Elapsed:        d.process.Elapsed,
		Random:         randomBytes,
		NoLocalWorkers: d.noWorkers,
		Grace:          d.handlerGrace(),
		Registry: func(role string) prometheus.Registerer {
			return d.registries.For(name, role)
		},
		Tracing: d.tracing,
		Callbacks: contract.Callbacks{Allowed: d.settings.Callbacks,
			Egress: d.egressConfig()},
		ContractSecret: d.callbackSecret,
		Client:         d.egress,
		Egress:         d.egressConfig(),
		NewMonitor:     d.newMonitor,
		DataDir:        d.settings.DataDir,
		Objects:        d.objects,
		Bucket:         d.settings.Objects.Bucket,
		Streams:        d.streams,
		Binding:        d.binding,
		Pepper:         func() ([]byte, error) { return loadPepper(d.settings) },
		OperatorToken:  d.operatorToken,
		PruneInterval:  d.settings.PruneInterval,
		Command:        ownCommand,
		Environ:        child.Environ(d.process.Environ),
		OnClose:        func(end func()) { d.onClose = append(d.onClose, end) },
	}
}

// contractError gives an error its exit code: a setting is named, as the operator can change it
// (cli.ExitUnable), and the contract in all others that have no code yet.
func contractError(name string, err error) error {
	if wrong, ok := errors.AsType[*contract.SettingError](err); ok {
		return cli.UnableError("%s: %s", wrong.Setting, plainError(wrong.Err))
	}
	if _, ok := errors.AsType[*cli.ExitError](err); ok {
		return err
	}
	return cli.WithCode(cli.ExitFailed, fmt.Errorf("contract %s: %w", name, err))
}

// loadPepper reads the pepper. The first start makes one, but only where no setting names its file:
// with a wrong path the node would get a new pepper and accept none of the existing keys. A
// contract calls it while it is built, so that a node without API keys has no pepper.
func loadPepper(s *nodeSettings) ([]byte, error) {
	if path := s.Secrets.PepperFile; path != "" {
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			return nil, cli.UnableError(
				"secrets.pepper_file: there is no file %s; copy the one of the "+
					"other nodes there, or write 32 random bytes or more to it (mode 0600)", path)
		}
	}
	pepper, err := account.LoadPepper(s.PepperFile())
	if err != nil {
		return nil, cli.UnableError("secrets.pepper_file: %v", err)
	}
	return pepper, nil
}

// handlerGrace is how long handlers may go on when the node stops. The rest of shutdown_grace is
// left to write down what became of the attempts that were cut short.
func (d *deps) handlerGrace() time.Duration {
	grace := d.settings.ShutdownGrace
	return grace - grace/8
}

// buildServices builds the services besides the contracts: the worker API and the admin API, each
// where it has something to serve and the settings allow it. They need the built contracts.
func buildServices(ctx context.Context, d *deps, mode serveMode) (all []server.Service, err error) {
	workers, err := buildWorkerAPI(d)
	if err != nil {
		return nil, err
	}
	if workers != nil {
		all = append(all, *workers)
	}
	if mode.workersOnly {
		return all, nil
	}
	operators, err := d.buildAdmin(ctx)
	if err != nil {
		return nil, err
	}
	if operators != nil {
		all = append(all, *operators)
	}
	return all, nil
}

// buildWorkerAPI builds the worker API, unless no contract has jobs for remote workers or the
// settings do not allow it.
func buildWorkerAPI(p *deps) (*server.Service, error) {
	var remote []workerapi.Adapter
	for _, c := range p.contracts {
		if c.Workers != nil {
			remote = append(remote, *c.Workers)
		}
	}
	if len(remote) == 0 {
		return nil, nil
	}
	if !p.settings.ServesWorkers() {
		p.log.Info("the worker API is not served: beyond loopback it needs worker.token")
		return nil, nil
	}
	api, err := workerapi.New(workerapi.Config{
		Engine:    p.engine,
		Log:       p.log.With(telemetry.Contract, workerapi.Name),
		Registry:  p.registries.For(workerapi.Name, ""),
		Tracing:   p.tracing,
		Token:     p.settings.Worker.Token,
		Contracts: remote,
		Refused:   storageid.Refused,
	})
	if err != nil {
		return nil, cli.WithCode(cli.ExitFailed, err)
	}
	return &server.Service{Name: workerapi.Name, Mount: api.Mount, OpenAPI: workerapi.OpenAPI}, nil
}

// buildInbox makes what takes over the requests that producers submit by SQL. It knows the names of
// all contracts: a request to one that this node does not serve is left to another node, and one to
// a contract that there is nowhere is refused.
func (d *deps) buildInbox() (err error) {
	var known []string
	for _, c := range d.settings.definitions {
		known = append(known, c.Name())
	}
	d.inbox, err = inbox.New(inbox.Config{Engine: d.engine,
		Log: d.log.With(telemetry.Contract, "inbox"), Contracts: d.contracts, Known: known,
		Registry: d.registries.For(telemetry.Core, ""), Elapsed: d.process.Elapsed,
		Retention: d.settings.InboxRetention})
	return cli.WithCode(cli.ExitFailed, err)
}
