package main

import (
	"fmt"
	"log/slog"

	"github.com/millrace/millrace/internal/config"
	"github.com/millrace/millrace/internal/contract/relay"
	"github.com/millrace/millrace/internal/server"
	"github.com/millrace/millrace/internal/telemetry"
)

// room makes the room of one contract from the settings.
type room struct {
	name string
	make func(*config.Settings, *slog.Logger, *telemetry.Registries) (server.Place, error)
}

// contracts is the list of contracts.
var contracts = []room{
	{relay.Name, relayRoom},
}

// rooms makes those of the contracts that are switched on.
func rooms(s *config.Settings, log *slog.Logger, registries *telemetry.Registries) ([]server.Place, error) {
	var places []server.Place
	for _, c := range contracts {
		if !s.Serves(c.name) {
			continue
		}
		place, err := c.make(s, log.With(telemetry.Contract, c.name), registries)
		if err != nil {
			return nil, fmt.Errorf("contract %s: %w", c.name, err)
		}
		places = append(places, place)
	}
	return places, nil
}

func relayRoom(s *config.Settings, log *slog.Logger, registries *telemetry.Registries) (server.Place, error) {
	r, err := relay.New(relay.Config{Log: log, Registry: registries.For(relay.Name, ""), Token: s.Relay.Token, V1: s.Relay.V1,
		MaxNumJobs: s.Relay.MaxNumJobs, BodyLimit: s.Relay.BodyLimit, RetryableStatus: s.Relay.RetryableStatus})
	return server.Place{Room: r, Listen: s.Relay.Listen, OpenAPI: relay.OpenAPI}, err
}
