package main

import (
	"log/slog"

	"github.com/millrace/millrace/cmd/millrace/internal/cli"
	"github.com/millrace/millrace/internal/config"
	"github.com/millrace/millrace/internal/contract/fetchbox"
	"github.com/millrace/millrace/internal/contract/fetchbox/handler"
	"github.com/millrace/millrace/internal/egress"
	"github.com/millrace/millrace/internal/server"
)

func newFetchBoxContract(p *deps, log *slog.Logger) (server.ServedContract, error) {
	s := &p.settings.FetchBox
	f, err := fetchbox.New(fetchbox.Config{
		Log:      log,
		Registry: p.registries.For(fetchbox.Name, ""),
		Tracing:  p.tracing,
		Now:      p.process.Now,
		Elapsed:  p.process.Elapsed,
		Random:   randomBytes,
		Node:     p.node,
		Objects:  p.objects,
		Streams:  p.streams,
		Shared:   p.places,

		Token:         s.Token,
		OperatorToken: p.operatorToken,
		Types:         jobTypes(p.settings),
		Pools:         proxyPools(p.settings),
		MaxResources:  s.MaxResources,
		MaxManifest:   s.MaxManifest,

		Tries:           s.MaxAttempts,
		MaxLostRuns:     s.MaxLostRuns,
		BackoffBase:     s.BackoffBase,
		Lease:           s.Lease,
		ConnectTimeout:  s.ConnectTimeout,
		DownloadTimeout: s.DownloadTimeout,
		MaxDownload:     s.MaxDownload,
		MaxPerHost:      s.MaxPerHost,
		NoLocalWorkers:  p.noWorkers,
		Grace:           p.handlerGrace(),

		IdempotencyWindow: s.IdempotencyWindow,
		LedgerRetention:   s.LedgerRetention,
		LedgerMaxBytes:    s.LedgerMaxBytes,
		PruneInterval:     p.settings.PruneInterval,

		Egress: egress.Config{AllowLocal: p.settings.OnLoopback(), Allow: p.settings.Egress.Allow,
			UserAgent: cli.UserAgent()},
	})
	if err != nil {
		return server.ServedContract{}, err
	}
	p.remoteContracts = append(p.remoteContracts, f.RemoteWorkers())
	return server.ServedContract{Contract: f, Listen: s.Listen, OpenAPI: fetchbox.OpenAPI}, nil
}

func jobTypes(s *config.Settings) map[string]fetchbox.Type {
	types := map[string]fetchbox.Type{}
	for name, t := range s.JobTypes {
		headers := map[string]string{}
		for header, value := range t.DefaultHeaders {
			headers[header] = value.Reveal()
		}
		one := fetchbox.Type{
			Handler:        t.Handler,
			DefaultHeaders: headers,
			Bucket:         t.Bucket,
			KeyPrefix:      t.KeyPrefix,
			MaxParallel:    t.MaxParallel(),
			Options:        t.Options,
		}
		if t.ProxyPrimary != "" || len(t.ProxyFallbacks) > 0 {
			one.Proxy = &handler.Proxy{Primary: t.ProxyPrimary, Fallbacks: t.ProxyFallbacks}
		}
		types[name] = one
	}
	return types
}

func proxyPools(s *config.Settings) map[string]fetchbox.Pool {
	pools := map[string]fetchbox.Pool{}
	for name, p := range s.Pools {
		urls := make([]string, len(p.Primary))
		for i, u := range p.Primary {
			urls[i] = u.Reveal()
		}
		pools[name] = fetchbox.Pool{Primary: urls, Fallbacks: p.Fallbacks}
	}
	return pools
}
