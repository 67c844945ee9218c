package main

import (
	"context"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/millrace/millrace/internal/config"
	"github.com/millrace/millrace/internal/contract/fetchbox"
	"github.com/millrace/millrace/internal/contract/fetchbox/handler"
	"github.com/millrace/millrace/internal/contract/images"
	"github.com/millrace/millrace/internal/egress"
	"github.com/millrace/millrace/internal/object"
	"github.com/millrace/millrace/internal/server"
	"github.com/millrace/millrace/internal/stream"
	"github.com/millrace/millrace/internal/telemetry"
)

// places opens what contracts keep beside the store: objects and streams. Who needs none has none.
func (k *parts) places(ctx context.Context) (err error) {
	var specs []stream.Spec
	if s := &k.settings.FetchBox; k.settings.Serves(fetchbox.Name) {
		specs = append(specs, fetchbox.Streams(s.TasksRetention, s.LogsRetention, s.DLQRetention)...)
	}
	pictures := k.settings.Serves(images.Name)
	if pictures && k.settings.Images.QueueURL == "" {
		specs = append(specs, images.Streams()...)
	}
	if len(specs) == 0 && !pictures {
		return nil
	}
	k.objects, err = object.Open(ctx, object.Config{Dir: filepath.Join(k.settings.DataDir, "objects"), URL: k.settings.Objects.URL,
		Bucket: k.settings.Objects.Bucket})
	if err != nil {
		return unable("objects: %v", err)
	}
	k.tryObjects(ctx)
	if len(specs) == 0 {
		return nil
	}
	s := &k.settings.Stream
	if k.settings.Store.Postgres() && s.URL == "" {
		k.log.Info("the streams are in this process: where another node works on the same database, set stream.url, and objects.url")
	}
	k.streams, err = stream.Open(ctx, stream.Config{URL: s.URL, Listen: s.Listen, Token: s.Token.Reveal(), Dir: filepath.Join(k.settings.DataDir, "streams"),
		Node: k.node, Specs: specs, Log: k.log, Now: k.process.now})
	if err != nil {
		return unable("streams: %v", err)
	}
	return nil
}

// tryTime bounds how long a start waits for the object storage.
const tryTime = 3 * time.Second

// tryObjects tells at once of a storage that is away or a bucket that nobody has made. The node starts all the same, and
// goes on when they are there.
func (k *parts) tryObjects(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, tryTime)
	defer cancel()
	if err := k.objects.Ping(ctx); err != nil {
		k.log.Warn("the object storage is of no use yet", telemetry.ErrorMessage, err)
	}
}

// closePlaces ends what places opened.
func (k *parts) closePlaces() {
	if k.messages != nil {
		k.messages.Close()
	}
	if k.streams != nil {
		k.streams.Close()
	}
	if k.objects != nil {
		_ = k.objects.Close() // what was acknowledged is stored
	}
}

func fetchBoxRoom(p *parts, log *slog.Logger) (server.Place, error) {
	s, grace := &p.settings.FetchBox, p.settings.ShutdownGrace
	f, err := fetchbox.New(fetchbox.Config{
		Log: log, Registry: p.registries.For(fetchbox.Name, ""), Now: p.process.now, Elapsed: p.process.since, Random: random,
		Token: s.Token, OperatorToken: p.operatorToken, Tracing: p.tracing, Node: p.node,
		Objects: p.objects, Streams: p.streams, Types: jobTypes(p.settings), Pools: proxyPools(p.settings),
		MaxResources: s.MaxResources, MaxManifest: s.MaxManifest, Tries: s.Tries, BackoffBase: s.BackoffBase, Lease: s.Lease,
		ConnectTimeout: s.ConnectTimeout, DownloadTimeout: s.DownloadTimeout, MaxDownload: s.MaxDownload, MaxPerHost: s.MaxPerHost,
		IdempotencyWindow: s.IdempotencyWindow, LedgerRetention: s.LedgerRetention, LedgerMaxBytes: s.LedgerMaxBytes,
		Off: p.noWorkers, Grace: grace - grace/8,
		Egress: egress.Config{Local: p.settings.OnLoopback(), Allow: p.settings.Egress.Allow, UserAgent: "millrace/" + readBuild().Version},
	})
	if err != nil {
		return server.Place{}, err
	}
	p.outside = append(p.outside, f.Outside())
	return server.Place{Room: f, Listen: s.Listen, OpenAPI: fetchbox.OpenAPI}, nil
}

func jobTypes(s *config.Settings) map[string]fetchbox.Type {
	types := map[string]fetchbox.Type{}
	for name, t := range s.JobTypes {
		headers := map[string]string{}
		for header, value := range t.DefaultHeaders {
			headers[header] = value.Reveal()
		}
		one := fetchbox.Type{Handler: t.Handler, DefaultHeaders: headers, Bucket: t.Bucket, KeyPrefix: t.KeyPrefix,
			MaxParallel: t.MaxParallel(), Options: t.Options}
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
