package main

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"

	"github.com/millrace/millrace/internal/account"
	"github.com/millrace/millrace/internal/config"
	"github.com/millrace/millrace/internal/contract/forgerun"
	"github.com/millrace/millrace/internal/contract/relay"
	"github.com/millrace/millrace/internal/egress"
	"github.com/millrace/millrace/internal/server"
	"github.com/millrace/millrace/internal/telemetry"
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
}

// room makes the room of one contract; log names the contract.
type room struct {
	name string
	make func(p *parts, log *slog.Logger) (server.Place, error)
}

// contracts is the list of contracts.
var contracts = []room{
	{forgerun.Name, forgeRunRoom},
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
	r, err := relay.New(relay.Config{Log: log, Registry: p.registries.For(relay.Name, ""), Token: s.Token, V1: s.V1,
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
		Log: log, Registry: p.registries.For(forgerun.Name, ""), Now: p.process.now, Elapsed: p.process.since, Random: random,
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
	return server.Place{Room: r, Listen: s.Listen, OpenAPI: forgerun.OpenAPI}, err
}
