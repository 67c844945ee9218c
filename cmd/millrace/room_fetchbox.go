package main

import (
	"context"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/millrace/millrace/cmd/millrace/internal/cli"
	"github.com/millrace/millrace/internal/config"
	"github.com/millrace/millrace/internal/contract/fetchbox"
	"github.com/millrace/millrace/internal/contract/fetchbox/handler"
	"github.com/millrace/millrace/internal/contract/images"
	"github.com/millrace/millrace/internal/egress"
	"github.com/millrace/millrace/internal/object"
	"github.com/millrace/millrace/internal/places"
	"github.com/millrace/millrace/internal/server"
	"github.com/millrace/millrace/internal/stream"
)

// Where contracts keep what they keep beside the store.
const (
	localStorage    = false
	externalStorage = true // objects.url, stream.url
)

// openStorage opens what contracts keep beside the store, there: objects and streams. Who needs
// none has none.
func (k *deps) openStorage(ctx context.Context, external bool) error {
	s := k.settings
	keeps := s.Serves(fetchbox.Name) || s.Serves(images.Name)
	if keeps && (s.Objects.URL != "") == external {
		if err := k.openObjects(ctx); err != nil {
			return err
		}
	}
	if s.UsesStreams() && (s.Stream.URL != "") == external {
		return k.openStreams(ctx)
	}
	return nil
}

// bindStorage has the nodes of one database keep to the same objects and streams.
func (k *deps) bindStorage() {
	if k.settings.Store.Postgres() && k.objects != nil {
		k.places = places.New(places.Config{Log: k.log, Objects: k.objects, Streams: k.streams,
			Rebind: k.settings.RebindStorage})
	}
}

func (k *deps) openObjects(ctx context.Context) (err error) {
	k.objects, err = object.Open(ctx, object.Config{Dir: filepath.Join(k.settings.DataDir,
		"objects"), URL: k.settings.Objects.URL,
		Bucket: k.settings.Objects.Bucket, Part: k.objectsPart()})
	if err != nil {
		return cli.UnableError("objects.url: %s", plainError(err))
	}
	k.probeObjects(ctx)
	return nil
}

// streamSpecs are the streams of the contracts that are served.
func (k *deps) streamSpecs() []stream.Spec {
	var specs []stream.Spec
	if s := &k.settings.FetchBox; k.settings.Serves(fetchbox.Name) {
		specs = append(specs, fetchbox.Streams(s.TasksRetention, s.LogsRetention,
			s.DLQRetention)...)
	}
	if k.settings.Serves(images.Name) && k.settings.Images.QueueURL == "" {
		specs = append(specs, images.Streams()...)
	}
	return specs
}

func (k *deps) openStreams(ctx context.Context) (err error) {
	s := &k.settings.Stream
	k.streams, err = stream.Open(ctx, stream.Config{URL: s.URL, Listen: s.Listen,
		Token: s.Token.Reveal(), Dir: filepath.Join(k.settings.DataDir, "streams"),
		Node: k.node, Specs: k.streamSpecs(), Log: k.log, Part: k.streamsPart(),
		Now: k.process.Now})
	if err != nil && s.URL != "" {
		return cli.UnableError("stream.url (%s): %s", hostsOf(s.URL, "4222"), plainError(err))
	}
	if err != nil {
		return cli.UnableError("streams: %s", plainError(err))
	}
	return nil
}

// probeTimeout bounds how long a start waits for the object storage.
const probeTimeout = 3 * time.Second

// probeObjects tells at once of a storage that is away or a bucket that nobody has made. The node
// starts all the same, and goes on when they are there.
func (k *deps) probeObjects(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	_ = k.objects.Ping(ctx) // its part tells
}

// closeStorage ends what places opened.
func (k *deps) closeStorage() {
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

func newFetchBoxContract(p *deps, log *slog.Logger) (server.ServedContract, error) {
	s, grace := &p.settings.FetchBox, p.settings.ShutdownGrace
	f, err := fetchbox.New(fetchbox.Config{
		Log: log, Registry: p.registries.For(fetchbox.Name, ""), Now: p.process.Now,
		Elapsed: p.process.Elapsed, Random: randomBytes,
		Token: s.Token, OperatorToken: p.operatorToken, Tracing: p.tracing, Node: p.node,
		Objects: p.objects, Streams: p.streams, Shared: p.places, Types: jobTypes(p.settings),
		Pools:        proxyPools(p.settings),
		MaxResources: s.MaxResources, MaxManifest: s.MaxManifest, Tries: s.MaxAttempts,
		MaxLostRuns: s.MaxLostRuns, BackoffBase: s.BackoffBase, Lease: s.Lease,
		ConnectTimeout: s.ConnectTimeout, DownloadTimeout: s.DownloadTimeout,
		MaxDownload: s.MaxDownload, MaxPerHost: s.MaxPerHost,
		IdempotencyWindow: s.IdempotencyWindow, LedgerRetention: s.LedgerRetention,
		LedgerMaxBytes: s.LedgerMaxBytes, PruneInterval: p.settings.PruneInterval,
		NoLocalWorkers: p.noWorkers, Grace: grace - grace/8,
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
		one := fetchbox.Type{Handler: t.Handler, DefaultHeaders: headers, Bucket: t.Bucket,
			KeyPrefix: t.KeyPrefix, MaxParallel: t.MaxParallel(), Options: t.Options}
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
