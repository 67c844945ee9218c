package main

import (
	"context"

	"github.com/millrace/millrace/cmd/millrace/internal/cli"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/outage"
	"github.com/millrace/millrace/internal/setting"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/store/move"
	"github.com/millrace/millrace/internal/store/postgres"
	"github.com/millrace/millrace/internal/telemetry"
)

// postgresDatabase is a PostgreSQL that several nodes share. It has what SQLite lacks: an inbox,
// and ends of runs that workers record in transactions of their own. Backups of it are made by its
// own programs, so backup and prepareRestored are left out.
var postgresDatabase = database{
	kind:   "postgres",
	named:  postgresURLs,
	shared: true,
	open: func(ctx context.Context, p cli.Process, s *nodeSettings, o observer) (openedStore,
		error) {
		log, err := telemetry.NewLogger(p.Stderr, s.Log.Format, s.Log.Level)
		if err != nil {
			return openedStore{}, cli.WithCode(cli.ExitUsage, err)
		}
		opened, err := postgres.Open(ctx, postgres.Config{URL: s.Store.Reveal(),
			Conns: s.Postgres.MaxConnections, Observe: o, Log: log})
		if err != nil {
			return openedStore{}, err
		}
		return openedStore{opened, opened.Pool,
			func(r store.Reader) engine.Inbox { return postgres.InboxOf(r) },
			opened.RunEnds, versionOf(opened.Version)}, nil
	},
	openViews: func(ctx context.Context, _ cli.Process, s *nodeSettings) (views, error) {
		return postgres.OpenViews(ctx, postgres.Config{URL: s.Store.Reveal()})
	},
	schemaVersion: func(ctx context.Context, s *nodeSettings) (have, want int64, err error) {
		return postgres.SchemaVersion(ctx, s.Store.Reveal())
	},
	location: func(s *nodeSettings) string { return s.Store.String() + " (setting store)" },
	endpoint: func(s *nodeSettings) outage.Endpoint {
		return outage.Endpoint{Setting: "store",
			Address: outage.HostsOf(s.Store.Reveal(), "5432")}
	},
	place:     func(text string) (string, bool) { return text, postgresURLs.Accepts(text) },
	placeForm: "postgres://…",

	placeOf: func(s *nodeSettings) string { return s.Store.Reveal() },
	openMove: func(ctx context.Context, at, name string, _ bool) (*move.Database, error) {
		return postgres.OpenMove(ctx, at, name)
	},
}

// postgresURLs are the URLs of a PostgreSQL.
var postgresURLs = setting.StoreAt("postgres", "postgresql")
