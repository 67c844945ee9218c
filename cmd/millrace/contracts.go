package main

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"time"

	"github.com/millrace/millrace/cmd/millrace/internal/cli"
	"github.com/millrace/millrace/internal/account"
	"github.com/millrace/millrace/internal/contract/fetchbox"
	"github.com/millrace/millrace/internal/contract/forgerun"
	"github.com/millrace/millrace/internal/contract/images"
	"github.com/millrace/millrace/internal/contract/images/cdn"
	"github.com/millrace/millrace/internal/contract/relay"
	"github.com/millrace/millrace/internal/contract/taskflow"
	"github.com/millrace/millrace/internal/egress"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/message"
	"github.com/millrace/millrace/internal/object"
	"github.com/millrace/millrace/internal/server"
	"github.com/millrace/millrace/internal/setting"
	"github.com/millrace/millrace/internal/storageid"
	"github.com/millrace/millrace/internal/stream"
	"github.com/millrace/millrace/internal/telemetry"
	workerapi "github.com/millrace/millrace/internal/worker/api"
)

// deps is what the contracts of one node are built with. serve fills it step by step:
//
//	connect        egress, tracing, and storage elsewhere; nothing is made in the data directory
//	openStorage    objects and streams of the data directory
//	buildContracts one server.ServedContract for each contract in the setting contracts
//	buildAPIs      the worker API over the contracts whose jobs remote workers may run
//
// Whatever a step opened is closed by close, also where a later step failed.
type deps struct {
	process    cli.Process
	settings   *nodeSettings
	log        *slog.Logger
	registries *telemetry.Registries
	tracing    *telemetry.Tracing
	// every outbound HTTP request goes through it
	egress *egress.Client
	node   string
	// other nodes run the jobs
	noWorkers bool
	engine    *engine.Engine
	// releases the data directory; nil while it is not locked
	unlock  func()
	objects *object.Objects
	streams *stream.Streams
	// nil with SQLite, which no other node shares
	binding *storageid.Binding
	// of image jobs
	messages message.Queue
	// purged when an image changes; nil for none
	cdn cdn.CDN

	// operatorToken is the token that /operators requires; empty where it is open (G-FB-31).
	operatorToken setting.Secret

	// remoteContracts are the contracts that were built and whose jobs remote workers may run.
	remoteContracts []workerapi.Contract
}

// contractBuilder builds one contract; the log that build gets names the contract.
type contractBuilder struct {
	name  string
	build func(p *deps, log *slog.Logger) (server.ServedContract, error)
}

// contractBuilders lists all contracts. A new contract is one more entry.
var contractBuilders = []contractBuilder{
	{forgerun.Name, newForgeRunContract},
	{taskflow.Name, newTaskFlowContract},
	{fetchbox.Name, newFetchBoxContract},
	{images.Name, newImagesContract},
	{relay.Name, newRelayContract},
}

// buildContracts builds the contracts that the settings serve.
func buildContracts(p *deps) ([]server.ServedContract, error) {
	var built []server.ServedContract
	for _, c := range contractBuilders {
		if !p.settings.Serves(c.name) {
			continue
		}
		contract, err := c.build(p, p.log.With(telemetry.Contract, c.name))
		if err != nil {
			return nil, contractError(c.name, err)
		}
		built = append(built, contract)
	}
	return built, nil
}

// contractError names the contract in an error that has no exit code yet.
func contractError(name string, err error) error {
	var coded *cli.ExitError
	if errors.As(err, &coded) {
		return err
	}
	return cli.WithCode(cli.ExitFailed, fmt.Errorf("contract %s: %w", name, err))
}

// newRelayContract builds Relay, which needs nothing but its settings and the engine. Its jobs are
// claimed over its own protocol, and not over the worker API.
func newRelayContract(p *deps, log *slog.Logger) (server.ServedContract, error) {
	r, err := relay.New(relay.Config{
		Settings: p.settings.Relay,
		Log:      log,
		Registry: p.registries.For(relay.Name, ""),
		Tracing:  p.tracing,
	})
	return server.ServedContract{Contract: r, Listen: p.settings.Relay.Listen,
		OpenAPI: relay.OpenAPI}, err
}

// loadPepper reads the pepper. The first start makes one, but only where no setting names its
// file: with a wrong path the node would get a new pepper and accept none of the existing keys.
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

// newForgeRunContract builds ForgeRun. It needs the pepper, under which the API keys of its clients
// are hashed. With --no-workers the node serves requests and delivers webhooks, and runs no jobs.
func newForgeRunContract(p *deps, log *slog.Logger) (server.ServedContract, error) {
	pepper, err := loadPepper(p.settings)
	if err != nil {
		return server.ServedContract{}, err
	}
	s := p.settings.ForgeRun
	if p.noWorkers {
		s.Workers = 0
	}
	r, err := forgerun.New(forgerun.Config{
		Settings: s,
		Log:      log,
		Registry: p.registries.For(forgerun.Name, ""),
		Tracing:  p.tracing,
		Now:      p.process.Now,
		Elapsed:  p.process.Elapsed,
		Random:   randomBytes,
		Pepper:   pepper,
		Node:     p.node,
		Client:   p.egress,
		Grace:    p.handlerGrace(),
	})
	if err != nil {
		return server.ServedContract{}, err
	}
	p.remoteContracts = append(p.remoteContracts, r.RemoteWorkers())
	return server.ServedContract{Contract: r, Listen: s.Listen, OpenAPI: forgerun.OpenAPI}, nil
}

// handlerGrace is how long handlers may go on when the node stops. The rest of shutdown_grace is
// left to write down what became of the attempts that were cut short.
func (d *deps) handlerGrace() time.Duration {
	grace := d.settings.ShutdownGrace
	return grace - grace/8
}

// Limits of the request bodies of TaskFlow (G-TF-32).
const (
	taskFlowBodyLimit  = 1 << 20
	taskFlowGraphLimit = 16 << 20
)

// newTaskFlowContract builds TaskFlow, with a runner for the queues that have a handler in the
// server. The jobs of other queues wait for remote workers.
func newTaskFlowContract(p *deps, log *slog.Logger) (server.ServedContract, error) {
	t, err := taskflow.New(taskflow.Config{
		Settings: p.settings.TaskFlow,
		Log:      log,
		Registry: p.registries.For(taskflow.Name, ""),
		Tracing:  p.tracing,
		Now:      p.process.Now,
		Random:   randomBytes,

		BodyLimit:      taskFlowBodyLimit,
		GraphBodyLimit: taskFlowGraphLimit,
		Runner: taskflow.Runner{Disabled: p.noWorkers, Node: p.node, Client: p.egress,
			Grace: p.handlerGrace()},
	})
	if err != nil {
		return server.ServedContract{}, err
	}
	p.remoteContracts = append(p.remoteContracts, t.RemoteWorkers())
	return server.ServedContract{Contract: t, Listen: p.settings.TaskFlow.Listen,
		OpenAPI: taskflow.OpenAPI}, nil
}

// buildAPIs builds what is served beside the contracts: the worker API, unless no contract has jobs
// for remote workers or the settings do not allow it.
func buildAPIs(p *deps) ([]server.API, error) {
	if len(p.remoteContracts) == 0 {
		return nil, nil
	}
	if !p.settings.ServesWorkers() {
		p.log.Info("the worker API is not served: beyond loopback it needs worker.token")
		return nil, nil
	}
	api, err := workerapi.New(workerapi.Config{
		Log:       p.log.With(telemetry.Contract, workerapi.Name),
		Registry:  p.registries.For(workerapi.Name, ""),
		Tracing:   p.tracing,
		Token:     p.settings.Worker.Token,
		Contracts: p.remoteContracts,
		Refused:   storageid.Refused,
	})
	if err != nil {
		return nil, cli.WithCode(cli.ExitFailed, err)
	}
	return []server.API{{Name: workerapi.Name, Mount: api.Mount, OpenAPI: workerapi.OpenAPI}}, nil
}
