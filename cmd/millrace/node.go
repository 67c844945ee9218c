package main

import (
	"github.com/millrace/millrace/cmd/millrace/internal/cli"
	"github.com/millrace/millrace/internal/nodes"
	"github.com/millrace/millrace/internal/series"
)

// describeNode makes what operators see of this node (AD-042) and the series of what it does
// (AD-060). It comes after the contracts, whose
// names it shows, and before the admin API, which shows it.
func (d *deps) describeNode() (err error) {
	var contracts []string
	for _, c := range d.contracts {
		contracts = append(contracts, c.Name)
	}
	d.described, err = nodes.New(nodes.Config{Engine: d.engine, Log: d.log,
		Elapsed: d.process.Elapsed, Version: cli.ReadBuildInfo().Version, Contracts: contracts,
		StoreKind: databaseOf(d.settings).kind, Parts: d.parts})
	if err != nil {
		return err
	}
	d.series, err = series.New(series.Config{Engine: d.engine, Log: d.log})
	return err
}
