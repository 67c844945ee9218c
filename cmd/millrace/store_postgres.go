package main

import (
	"context"

	"github.com/millrace/millrace/cmd/millrace/internal/cli"
	"github.com/millrace/millrace/internal/outage"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/store/postgres"
	"github.com/millrace/millrace/internal/telemetry"
)

// postgresDatabase is a PostgreSQL that several nodes share.
var postgresDatabase = database{
	kind:   "postgres",
	shared: true,
	open: func(ctx context.Context, p cli.Process, s *nodeSettings, o observer) (store.Store,
		error) {
		log, err := telemetry.NewLogger(p.Stderr, s.Log.Format, s.Log.Level)
		if err != nil {
			return nil, cli.WithCode(cli.ExitUsage, err)
		}
		return postgres.Open(ctx, postgres.Config{URL: s.Store.Reveal(),
			Conns: s.Postgres.MaxConnections, Observe: o, Log: log})
	},
	openViews: func(ctx context.Context, _ cli.Process, s *nodeSettings) (views, error) {
		return postgres.OpenViews(ctx, postgres.Config{URL: s.Store.Reveal()})
	},
	schemaVersion: func(ctx context.Context, s *nodeSettings) (have, want int64, err error) {
		return postgres.SchemaVersion(ctx, s.Store.Reveal())
	},
	place: func(s *nodeSettings) string { return s.Store.String() + " (setting store)" },
	endpoint: func(s *nodeSettings) outage.Endpoint {
		return outage.Endpoint{Setting: "store",
			Address: outage.HostsOf(s.Store.Reveal(), "5432")}
	},
}
