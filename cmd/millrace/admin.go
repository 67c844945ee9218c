package main

import (
	"context"
	"path/filepath"

	"github.com/millrace/millrace/cmd/millrace/internal/cli"
	"github.com/millrace/millrace/internal/admin"
	"github.com/millrace/millrace/internal/console"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/nodes"
	"github.com/millrace/millrace/internal/series"
	"github.com/millrace/millrace/internal/server"
	"github.com/millrace/millrace/internal/setting"
	"github.com/millrace/millrace/internal/telemetry"
)

// buildAdmin builds the admin API and makes sure that there is a token for the operator, which a
// first start makes. The token does not close /operators on loopback: only one that the settings
// name does (G-FB-31). Beyond loopback the API is served where its token does not travel in the
// clear.
func (d *deps) buildAdmin(ctx context.Context) (*server.Service, error) {
	s := d.settings
	if !s.ServesOperators() {
		d.log.Info("the admin API is not served: beyond loopback it needs tls.cert and tls.key, or " +
			"trusted_network")
		return nil, nil
	}
	pepper, err := loadPepper(s)
	if err != nil {
		return nil, err
	}
	api, err := admin.New(admin.Config{
		Engine:         d.engine,
		Log:            d.log.With(telemetry.Contract, admin.Name),
		Now:            d.process.Now,
		Elapsed:        d.process.Elapsed,
		Tracing:        d.tracing,
		Pepper:         pepper,
		Token:          s.Operator.Token,
		TokenFile:      operatorTokenFile(s),
		Shared:         databaseOf(s).shared,
		ReadToken:      s.Operator.ReadToken,
		ReadPayloads:   s.Operator.ReadPayloads,
		AuditRetention: s.Operator.AuditRetention,
		TraceURL:       s.Telemetry.TraceURL,
		Settings:       d.shownSettings(),
		Node:           d.described,
		Series:         d.series,
		Checks:         d.checks(),
		Monitors:       d.monitors,
		SecureCookies:  s.TLS.Enabled(),
		Contracts:      d.operated(),
		Schedules:      d.schedules,
		Events:         d.events,
		Webhooks:       d.webhooks,
	})
	if err != nil {
		return nil, cli.WithCode(cli.ExitFailed, err)
	}
	if err := api.Prepare(ctx); err != nil {
		return nil, cli.WithCode(cli.ExitUnable, err)
	}
	d.loginPath = api.LoginPath
	return &server.Service{Name: admin.Name, OpenAPI: admin.OpenAPI, Run: api.Run,
		Mount: func() httpapi.PrefixHandler { return api.Mount(console.New(api)) }}, nil
}

// operatorTokenFile is the file of a generated token.
func operatorTokenFile(s *nodeSettings) string { return filepath.Join(s.DataDir, tokenName) }

// shownSettings are the settings as operators see them.
func (d *deps) shownSettings() []admin.Setting {
	var all []admin.Setting
	for _, e := range d.settings.Resolved() {
		all = append(all, admin.Setting{Key: e.Key, Value: e.Value, Origin: e.Origin,
			Default: e.Default, Meaning: e.Description})
	}
	return all
}

// checks are the checks of the store and of what the contracts depend on.
func (d *deps) checks() []httpapi.Check {
	all := []httpapi.Check{{Name: "store", Run: d.engine.Ping}}
	for _, c := range d.contracts {
		all = append(all, c.Checks...)
	}
	return all
}

// consoleLink returns the link with a one-time code that logs a browser in (AD-003); "" where the
// node is not on loopback, or cannot make one now.
func (d *deps) consoleLink(ctx context.Context, url string) string {
	if (d.loginPath == nil) || !setting.IsLoopback(d.settings.Listen) {
		return ""
	}
	path, err := d.loginPath(ctx)
	switch {
	case job.IsKind(err, job.Unavailable): // an outage of the store, which has its line
		return ""
	case err != nil:
		d.log.Warn("there is no link to the console; 'millrace operator login' makes one",
			telemetry.ErrorMessage, err)
		return ""
	}
	return url + path
}

// describeNode makes what operators see of this node (AD-042) and the series of what it does
// (AD-060). It comes after the contracts, whose names it shows, and before the admin API, which
// shows it.
func (d *deps) describeNode() (err error) {
	var contracts []string
	for _, c := range d.contracts {
		contracts = append(contracts, c.Name)
	}
	stored := databaseOf(d.settings)
	d.described, err = nodes.New(nodes.Config{Engine: d.engine, Log: d.log,
		Elapsed: d.process.Elapsed, Version: cli.ReadBuildInfo().Version, Contracts: contracts,
		StoreKind: stored.kind, OneNode: !stored.shared, Pool: d.pool, Monitors: d.monitors})
	if err != nil {
		return err
	}
	d.series, err = series.New(series.Config{Engine: d.engine, Log: d.log})
	return err
}
