package main

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"

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

// parts are what rooms are made of.
type parts struct {
	process    process
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
	shared     *places.Places // nil where no other node can have the database
	messages   message.Queue  // of image jobs
	cdn        cdn.CDN        // is told of images that have changed; nil is nobody

	// operatorToken is what /operators asks for; empty where it is open (G-FB-31).
	operatorToken config.Secret

	outside []workerapi.Contract // of the rooms that were made, whose jobs may be run by workers outside
}

// room makes the room of one contract; log names the contract.
type room struct {
	name string
	make func(p *parts, log *slog.Logger) (server.Place, error)
}

// contracts is the list of contracts.
var contracts = []room{
	{forgerun.Name, forgeRunRoom},
	{taskflow.Name, taskFlowRoom},
	{fetchbox.Name, fetchBoxRoom},
	{images.Name, imagesRoom},
	{relay.Name, relayRoom},
}

// rooms makes those of the contracts that are switched on.
func rooms(p *parts) ([]server.Place, error) {
	var places []server.Place
	for _, c := range contracts {
		if !p.settings.Serves(c.name) {
			continue
		}
		place, err := c.make(p, p.log.With(telemetry.Contract, c.name))
		var f *failure
		if err != nil && !errors.As(err, &f) {
			err = withCode(exitFailed, fmt.Errorf("contract %s: %w", c.name, err))
		}
		if err != nil {
			return nil, err
		}
		places = append(places, place)
	}
	return places, nil
}

func relayRoom(p *parts, log *slog.Logger) (server.Place, error) {
	s := &p.settings.Relay
	r, err := relay.New(relay.Config{Tracing: p.tracing, Log: log,
		Registry: p.registries.For(relay.Name, ""), Token: s.Token, V1: s.V1,
		MaxNumJobs: s.MaxNumJobs, BodyLimit: s.BodyLimit, RetryableStatus: s.RetryableStatus})
	return server.Place{Room: r, Listen: s.Listen, OpenAPI: relay.OpenAPI}, err
}

// loadPepper reads the pepper. One is made on the first start only where nobody says
// where it is: a wrong path would make a node that recognises no key.
func loadPepper(s *config.Settings) ([]byte, error) {
	if path := s.Secrets.PepperFile; path != "" {
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			return nil, unable("secrets.pepper_file: there is no file %s; copy the one of the other nodes there, or write 32 random bytes or more to it (mode 0600)", path)
		}
	}
	pepper, err := account.LoadPepper(s.PepperFile())
	if err != nil {
		return nil, unable("secrets.pepper_file: %v", err)
	}
	return pepper, nil
}

func forgeRunRoom(p *parts, log *slog.Logger) (server.Place, error) {
	pepper, err := loadPepper(p.settings)
	if err != nil {
		return server.Place{}, err
	}
	s, hook, grace := &p.settings.ForgeRun, &p.settings.Webhook, p.settings.ShutdownGrace
	workers := s.Workers
	if p.noWorkers {
		workers = 0
	}
	r, err := forgerun.New(forgerun.Config{
		Log: log, LogRequests: s.LogRequests, Registry: p.registries.For(forgerun.Name, ""),
		Now: p.process.now, Elapsed: p.process.since, Random: random,
		Pepper: pepper, Node: p.node, Client: p.egress, Tracing: p.tracing,
		Types: s.Types, Workers: workers, JobsPerWorker: s.JobsPerWorker, Lease: s.Lease, Heartbeat: s.Heartbeat,
		Grace:      grace - grace/8, // the rest is for writing what became of what did not end
		MaxRunTime: s.MaxRunTime, CancelWindow: s.CancelWindow, MaxRetries: s.MaxRetries, BackoffBase: s.BackoffBase,
		BackoffMax: s.BackoffMax, AutoRetry: s.AutoRetry, RatePerMinute: s.RateLimitPerMinute, QuotaPerDay: s.QuotaPerDay,
		AnonymousPerMinute: s.AnonymousRateLimitPerMinute, MaxActiveJobs: s.MaxActiveJobs, QueueSize: s.QueueSize,
		BodyLimit: s.BodyLimit, PayloadLimit: s.PayloadLimit, FailureProbability: s.FailureProbability,
		DurationScale: s.DurationScale, Retention: s.Retention, RevokedKeyRetention: s.RevokedKeyRetention, KeyLifetime: s.KeyLifetime,
		Webhook: forgerun.Webhook{Timeout: hook.Timeout, MaxTries: hook.MaxTries, BackoffBase: hook.BackoffBase,
			BackoffMax: hook.BackoffMax, BackoffFactor: hook.BackoffFactor},
	})
	if err != nil {
		return server.Place{}, err
	}
	p.outside = append(p.outside, r.Outside())
	return server.Place{Room: r, Listen: s.Listen, OpenAPI: forgerun.OpenAPI}, nil
}

// The bodies that TaskFlow takes (G-TF-32).
const (
	taskFlowBody  = 1 << 20
	taskFlowGraph = 16 << 20
)

func taskFlowRoom(p *parts, log *slog.Logger) (server.Place, error) {
	s, grace := &p.settings.TaskFlow, p.settings.ShutdownGrace
	queues := map[string]taskflow.Queue{}
	for name, q := range s.Queues {
		queues[name] = taskflow.Queue{Handler: q.Handler, URL: q.URL, Secret: q.Secret, Timeout: q.Timeout, MaxConcurrent: q.MaxConcurrent}
	}
	t, err := taskflow.New(taskflow.Config{Log: log, Registry: p.registries.For(taskflow.Name, ""), Now: p.process.now, Random: random,
		Token: s.Token, Tracing: p.tracing, Lease: s.Lease, MaxConcurrent: s.MaxConcurrent, BodyLimit: taskFlowBody, GraphBodyLimit: taskFlowGraph,
		Queues: queues, Runner: taskflow.Runner{Off: p.noWorkers, Node: p.node, Client: p.egress, Grace: grace - grace/8}})
	if err != nil {
		return server.Place{}, err
	}
	p.outside = append(p.outside, t.Outside())
	return server.Place{Room: t, Listen: s.Listen, OpenAPI: taskflow.OpenAPI}, nil
}

// surfaces makes what is served beside the rooms: the worker API, where there are jobs for it and it may be served.
func surfaces(p *parts) ([]server.Surface, error) {
	if len(p.outside) == 0 {
		return nil, nil
	}
	if !p.settings.ServesWorkers() {
		p.log.Info("the worker API is not served: beyond loopback it needs worker.token")
		return nil, nil
	}
	api, err := workerapi.New(workerapi.Config{Log: p.log.With(telemetry.Contract, workerapi.Name),
		Registry: p.registries.For(workerapi.Name, ""), Tracing: p.tracing, Token: p.settings.Worker.Token, Contracts: p.outside,
		Refused: places.Refused})
	if err != nil {
		return nil, withCode(exitFailed, err)
	}
	return []server.Surface{{Name: workerapi.Name, Mount: api.Mount, OpenAPI: workerapi.OpenAPI}}, nil
}
