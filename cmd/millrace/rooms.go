package main

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"

	"github.com/millrace/millrace/cmd/millrace/internal/cli"
	"github.com/millrace/millrace/internal/account"
	"github.com/millrace/millrace/internal/config"
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
	"github.com/millrace/millrace/internal/places"
	"github.com/millrace/millrace/internal/server"
	"github.com/millrace/millrace/internal/stream"
	"github.com/millrace/millrace/internal/telemetry"
	workerapi "github.com/millrace/millrace/internal/worker/api"
)

// deps are what rooms are made of.
type deps struct {
	process    cli.Process
	settings   *config.Settings
	log        *slog.Logger
	registries *telemetry.Registries
	tracing    *telemetry.Tracing
	egress     *egress.Client // the only way out
	node       string
	noWorkers  bool // jobs are run elsewhere
	engine     *engine.Engine
	unlock     func() // the data directory, when the node has it
	objects    *object.Objects
	streams    *stream.Streams
	places     *places.Places // nil where no other node can have the database
	messages   message.Queue  // of image jobs
	cdn        cdn.CDN        // is told of images that have changed; nil is nobody

	// operatorToken is what /operators asks for; empty where it is open (G-FB-31).
	operatorToken config.Secret

	// of the rooms that were made, whose jobs may be run by workers outside
	remoteContracts []workerapi.Contract
}

// contractBuilder makes the room of one contract; log names the contract.
type contractBuilder struct {
	name  string
	build func(p *deps, log *slog.Logger) (server.ServedContract, error)
}

// contractBuilders is the list of contracts.
var contractBuilders = []contractBuilder{
	{forgerun.Name, newForgeRunContract},
	{taskflow.Name, newTaskFlowContract},
	{fetchbox.Name, newFetchBoxContract},
	{images.Name, newImagesContract},
	{relay.Name, newRelayContract},
}

// buildContracts makes those of the contracts that are switched on.
func buildContracts(p *deps) ([]server.ServedContract, error) {
	var built []server.ServedContract
	for _, c := range contractBuilders {
		if !p.settings.Serves(c.name) {
			continue
		}
		contract, err := c.build(p, p.log.With(telemetry.Contract, c.name))
		var f *cli.ExitError
		if err != nil && !errors.As(err, &f) {
			err = cli.WithCode(cli.ExitFailed, fmt.Errorf("contract %s: %w", c.name, err))
		}
		if err != nil {
			return nil, err
		}
		built = append(built, contract)
	}
	return built, nil
}

func newRelayContract(p *deps, log *slog.Logger) (server.ServedContract, error) {
	s := &p.settings.Relay
	r, err := relay.New(relay.Config{Tracing: p.tracing, Log: log,
		Registry: p.registries.For(relay.Name, ""), Token: s.Token, V1: s.V1,
		MaxNumJobs: s.MaxNumJobs, BodyLimit: s.BodyLimit, RetryableStatus: s.RetryableStatus})
	return server.ServedContract{Contract: r, Listen: s.Listen, OpenAPI: relay.OpenAPI}, err
}

// loadPepper reads the pepper. One is made on the first start only where nobody says
// where it is: a wrong path would make a node that recognises no key.
func loadPepper(s *config.Settings) ([]byte, error) {
	if path := s.Secrets.PepperFile; path != "" {
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			return nil, cli.UnableError(
				"secrets.pepper_file: there is no file %s; copy the one of the other nodes there, or write 32 random bytes or more to it (mode 0600)", path)
		}
	}
	pepper, err := account.LoadPepper(s.PepperFile())
	if err != nil {
		return nil, cli.UnableError("secrets.pepper_file: %v", err)
	}
	return pepper, nil
}

func newForgeRunContract(p *deps, log *slog.Logger) (server.ServedContract, error) {
	pepper, err := loadPepper(p.settings)
	if err != nil {
		return server.ServedContract{}, err
	}
	s, hook, grace := &p.settings.ForgeRun, &p.settings.Webhook, p.settings.ShutdownGrace
	workers := s.Workers
	if p.noWorkers {
		workers = 0
	}
	r, err := forgerun.New(forgerun.Config{
		Log: log, LogRequests: s.LogRequests, Registry: p.registries.For(forgerun.Name, ""),
		Now: p.process.Now, Elapsed: p.process.Elapsed, Random: randomBytes,
		Pepper: pepper, Node: p.node, Client: p.egress, Tracing: p.tracing,
		Types: s.Types, Workers: workers, JobsPerWorker: s.JobsPerWorker, Lease: s.Lease,
		Heartbeat:  s.Heartbeat,
		Grace:      grace - grace/8, // the rest is for writing what became of what did not end
		MaxRunTime: s.MaxRunTime, CancelWindow: s.CancelWindow, MaxRetries: s.MaxRetries,
		BackoffBase: s.BackoffBase,
		BackoffMax:  s.BackoffMax, AutoRetry: s.AutoRetry, RatePerMinute: s.RateLimitPerMinute,
		QuotaPerDay:        s.QuotaPerDay,
		AnonymousPerMinute: s.AnonymousRateLimitPerMinute, MaxActiveJobs: s.MaxActiveJobs,
		QueueSize: s.QueueSize,
		BodyLimit: s.BodyLimit, PayloadLimit: s.PayloadLimit,
		FailureProbability: s.FailureProbability,
		DurationScale:      s.DurationScale, Retention: s.Retention,
		RevokedKeyRetention: s.RevokedKeyRetention, KeyLifetime: s.KeyLifetime,
		Webhook: forgerun.Webhook{Timeout: hook.Timeout, MaxTries: hook.MaxAttempts,
			BackoffBase: hook.BackoffBase,
			BackoffMax:  hook.BackoffMax, BackoffFactor: hook.BackoffFactor},
	})
	if err != nil {
		return server.ServedContract{}, err
	}
	p.remoteContracts = append(p.remoteContracts, r.RemoteWorkers())
	return server.ServedContract{Contract: r, Listen: s.Listen, OpenAPI: forgerun.OpenAPI}, nil
}

// The bodies that TaskFlow takes (G-TF-32).
const (
	taskFlowBodyLimit  = 1 << 20
	taskFlowGraphLimit = 16 << 20
)

func newTaskFlowContract(p *deps, log *slog.Logger) (server.ServedContract, error) {
	s, grace := &p.settings.TaskFlow, p.settings.ShutdownGrace
	queues := map[string]taskflow.Queue{}
	for name, q := range s.Queues {
		queues[name] = taskflow.Queue{Handler: q.Handler, URL: q.URL, Secret: q.Secret,
			Timeout: q.Timeout, MaxConcurrent: q.MaxConcurrent}
	}
	t, err := taskflow.New(taskflow.Config{Log: log, Registry: p.registries.For(taskflow.Name, ""),
		Now: p.process.Now, Random: randomBytes,
		Token: s.Token, Tracing: p.tracing, Lease: s.Lease, MaxConcurrent: s.MaxConcurrent,
		BodyLimit: taskFlowBodyLimit, GraphBodyLimit: taskFlowGraphLimit,
		Queues: queues, Runner: taskflow.Runner{Disabled: p.noWorkers, Node: p.node,
			Client: p.egress, Grace: grace - grace/8}})
	if err != nil {
		return server.ServedContract{}, err
	}
	p.remoteContracts = append(p.remoteContracts, t.RemoteWorkers())
	return server.ServedContract{Contract: t, Listen: s.Listen, OpenAPI: taskflow.OpenAPI}, nil
}

// buildAPIs makes what is served beside the rooms: the worker API, where there are jobs for it and
// it may be served.
func buildAPIs(p *deps) ([]server.API, error) {
	if len(p.remoteContracts) == 0 {
		return nil, nil
	}
	if !p.settings.ServesWorkers() {
		p.log.Info("the worker API is not served: beyond loopback it needs worker.token")
		return nil, nil
	}
	api, err := workerapi.New(workerapi.Config{Log: p.log.With(telemetry.Contract, workerapi.Name),
		Registry: p.registries.For(workerapi.Name, ""), Tracing: p.tracing,
		Token: p.settings.Worker.Token, Contracts: p.remoteContracts, Refused: places.Refused})
	if err != nil {
		return nil, cli.WithCode(cli.ExitFailed, err)
	}
	return []server.API{{Name: workerapi.Name, Mount: api.Mount, OpenAPI: workerapi.OpenAPI}}, nil
}
