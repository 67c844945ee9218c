package main

import (
	"log/slog"

	"github.com/millrace/millrace/cmd/millrace/internal/cli"
	"github.com/millrace/millrace/internal/contract/fetchbox"
	"github.com/millrace/millrace/internal/egress"
	"github.com/millrace/millrace/internal/server"
)

// newFetchBoxContract builds FetchBox on the objects and streams of the node. Its downloads leave
// through an egress client of their own, which the proxies of its pools configure.
func newFetchBoxContract(p *deps, log *slog.Logger) (server.ServedContract, error) {
	f, err := fetchbox.New(fetchbox.Config{
		Settings: p.settings.FetchBox,
		Log:      log,
		Registry: p.registries.For(fetchbox.Name, ""),
		Tracing:  p.tracing,
		Now:      p.process.Now,
		Elapsed:  p.process.Elapsed,
		Random:   randomBytes,
		Node:     p.node,
		Objects:  p.objects,
		Streams:  p.streams,
		Shared:   p.binding,

		OperatorToken:  p.operatorToken,
		NoLocalWorkers: p.noWorkers,
		Grace:          p.handlerGrace(),
		PruneInterval:  p.settings.PruneInterval,
		Egress: egress.Config{AllowLocal: p.settings.OnLoopback(), Allow: p.settings.Egress.Allow,
			UserAgent: cli.UserAgent()},
	})
	if err != nil {
		return server.ServedContract{}, err
	}
	p.remoteContracts = append(p.remoteContracts, f.RemoteWorkers())
	return server.ServedContract{Contract: f, Listen: p.settings.FetchBox.Listen,
		OpenAPI: fetchbox.OpenAPI}, nil
}
