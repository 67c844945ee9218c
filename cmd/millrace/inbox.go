package main

import (
	"github.com/millrace/millrace/cmd/millrace/internal/cli"
	"github.com/millrace/millrace/internal/inbox"
	"github.com/millrace/millrace/internal/telemetry"
)

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
