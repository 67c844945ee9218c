package main

import (
	"context"
	"crypto/rand"
	"errors"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.opentelemetry.io/otel/attribute"

	"github.com/millrace/millrace/cmd/millrace/internal/cli"
	"github.com/millrace/millrace/internal/backup"
	"github.com/millrace/millrace/internal/clock"
	"github.com/millrace/millrace/internal/egress"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/schedule"
	"github.com/millrace/millrace/internal/server"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/telemetry"
)

// A start goes through these steps. A step that fails ends it: deps.close, and serve for the store,
// then close what the steps before have opened.
//
//	checkStart      read what most often stops a start: pepper, a local database, addresses
//	connect         open services elsewhere: outbound HTTP, traces, queue, CDN, objects, streams
//	openStore       open the database and bring its schema up to date
//	newNode         local objects and streams, contracts, worker API, admin API with its token
//	Listen          open all listeners, or none
//	endFormerTerms  lock the data directory, end the terms of the process before this one
//	printGreeting   say where the server listens
//	Run             serve until a signal comes, stop within shutdown_grace, close the store
//
// A process that is killed needs no repair at the next start: what was acknowledged is in the
// database, the attempts that it was executing expire with their leases, and the kernel has
// released its locks.

// serveCommand is `millrace serve`. The hidden flag --until-stdin-ends is for a process that starts
// a server as its child: however the parent ends, the pipe is closed and the server stops.
func serveCommand(p cli.Process) *cobra.Command {
	var flags settingsFlags
	var mode serveMode
	var untilStdinEnds bool
	c := &cobra.Command{
		Use:   "serve",
		Short: "Start a server",
		Long: `Start a server. Without any setting it listens on 127.0.0.1:8080 and keeps its data
in ./millrace-data, on SQLite; 'millrace config' shows all settings. When it
listens it prints one line with its address, and on a terminal below that what it
is, what is open without a token and what to try; logs go to standard error.

SIGINT, SIGTERM or SIGHUP stops it: no new requests, waiting polls answer, requests under
way and runs of jobs end, within the setting shutdown_grace. A second signal ends
it at once; what was acknowledged is on disk either way.

On one PostgreSQL many nodes share the work: --no-workers serves and leaves the
running of jobs to others, --workers-only runs jobs and serves nothing but health
and metrics.`,
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			settings, err := flags.load(p, c)
			if err != nil {
				return loggedAs(p, flags.logFormat(p, c), err)
			}
			ctx, stop := cli.UntilSignal(context.Background())
			defer stop()
			if untilStdinEnds {
				ctx, stop = p.UntilStdinEnds(ctx)
				defer stop()
			}
			if err := serve(ctx, p, settings, mode); err != nil {
				return loggedAs(p, settings.Log.Format, err)
			}
			return nil
		},
	}
	flags.register(c)
	c.Flags().BoolVar(&mode.noWorkers, "no-workers", false,
		"run no jobs in this process; webhook deliveries go on")
	c.Flags().BoolVar(&mode.workersOnly, "workers-only", false,
		"run jobs; serve nothing but health and metrics")
	c.MarkFlagsMutuallyExclusive("no-workers", "workers-only")
	c.Flags().BoolVar(&untilStdinEnds, "until-stdin-ends", false,
		"stop when standard input ends, as it does with the parent process")
	_ = c.Flags().MarkHidden("until-stdin-ends")
	return c
}

// serveMode says which part of the work a node does; the zero value is all of it.
type serveMode struct{ noWorkers, workersOnly bool }

// serve runs one node until ctx ends.
//
// The order of a start is a promise. Nothing is made in the data directory before the settings, the
// addresses and everything elsewhere were tried, so that a node that does not start leaves nothing
// behind. The node listens last: a client that is answered talks to a complete node.
//
// A signal during the start is no failure: serve then returns nil, as after a complete stop.
func serve(ctx context.Context, p cli.Process, settings *nodeSettings, mode serveMode) (
	err error) {
	tuneGC(p)
	log, err := telemetry.NewLogger(p.Stderr, settings.Log.Format, settings.Log.Level)
	if err != nil {
		return cli.WithCode(cli.ExitUsage, err)
	}
	defer captureLibraryLogs(p, log)()
	for _, text := range settings.UnknownVariables() {
		log.Warn(text)
	}
	started := false
	defer func() {
		if err != nil && !started && ctx.Err() != nil {
			log.Info("stopped before the start was complete")
			err = nil // the stop was asked for
		}
	}()
	registries, err := telemetry.NewRegistries()
	if err != nil {
		return cli.WithCode(cli.ExitFailed, err)
	}
	observe, err := telemetry.StoreObserver(registries.For(telemetry.Core, ""))
	if err != nil {
		return cli.WithCode(cli.ExitFailed, err)
	}
	if err := checkStart(ctx, settings, mode); err != nil {
		return err
	}
	k := &deps{process: p, settings: settings, log: log, registries: registries,
		node: nodeName(), noWorkers: mode.noWorkers}
	defer k.close()
	if err := k.connect(ctx); err != nil {
		return err
	}
	opened, err := openStore(ctx, p, settings, observe)
	if err != nil {
		return namingServer(settings, err)
	}
	k.pool, k.inboxOf, k.runEnds = opened.pool, opened.inbox, opened.runEnds
	k.version = opened.version
	node, err := listeningNode(ctx, k, store.Observed(opened.Store, k.storeMonitor().Do), mode)
	if err != nil {
		opened.Close()
		return err
	}
	started = true
	k.endFormerTerms(ctx, node.URLs()[0])
	k.printGreeting(ctx, node.URLs(), mode.workersOnly)
	go freeStartMemory(ctx)
	return cli.WithCode(cli.ExitFailed, node.Run(ctx))
}

// loggedAs logs the error that a server ends with, if the log is JSON: programs then read nothing
// but JSON on standard error. The returned error keeps the exit code of err, and main writes
// nothing for it. In any other format err is returned as it is.
func loggedAs(p cli.Process, format string, err error) error {
	if format != "json" {
		return err
	}
	log, failed := telemetry.NewLogger(p.Stderr, format, "error")
	if failed != nil {
		return err
	}
	log.Error("the server ends", telemetry.ErrorMessage, err.Error(),
		"exit_code", cli.ExitCode(err))
	return cli.WithCode(cli.ExitCode(err), cli.ErrLogged)
}

// checkStart tries what most often stops a start, before anything is made. The pepper is read only
// where a setting names its file: elsewhere the first start makes one, later. That all addresses
// are free here does not keep another process from taking one before Listen.
func checkStart(ctx context.Context, s *nodeSettings, mode serveMode) error {
	if s.usesPepper(mode) && s.Secrets.PepperFile != "" {
		if _, err := loadPepper(s); err != nil {
			return err
		}
	}
	if err := checkLocalStore(ctx, s); err != nil {
		return err
	}
	if backup.HasStaging(s.DataDir) {
		return cli.UnableError("data_dir: a 'millrace restore' of %q has not ended: remove the "+
			"directory and restore again", s.DataDir)
	}
	if err := server.CheckListen(ctx, s.Settings); err != nil {
		return namingServer(s, cli.WithCode(cli.ExitUnable, err))
	}
	return nil
}

// tuneGC trades memory for time. A server keeps a few megabytes, and what it allocates for a
// request is garbage at once: by default Go would collect dozens of times a second. Near the memory
// limit it collects as usual. GOGC and GOMEMLIMIT take precedence.
func tuneGC(p cli.Process) {
	if p.Env("GOGC") == "" {
		debug.SetGCPercent(400)
	}
	if p.Env("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(512 << 20)
	}
}

// startTime is how long after it listens a node has read and built what it needs.
const startTime = 10 * time.Second

// freeStartMemory gives back what only the start needed, such as the buffers that migrations are
// read with, once the start is done: a node that is idle would keep it, as the collector runs
// seldom. A sync.Pool drops what it holds at the second collection. Most pages of the binary are of
// the start until the node listens, so they are given back at once, and again at its end.
func freeStartMemory(ctx context.Context) {
	_ = releaseBinary() // it saves memory where it can
	if clock.Sleep(ctx, startTime) {
		runtime.GC()
		debug.FreeOSMemory()
		_ = releaseBinary()
	}
}

// listeningNode makes a node and has it listen. The store stays open when it fails.
func listeningNode(ctx context.Context, k *deps, opened store.Store, mode serveMode) (
	*server.Server, error) {
	node, err := newNode(ctx, k, opened, mode)
	if err != nil {
		return nil, err
	}
	if err := node.Listen(ctx); err != nil {
		return node, cli.WithCode(cli.ExitUnable, err)
	}
	k.described.SetAddress(node.URLs()[0])
	return node, nil
}

// newNode builds a node on an open store: objects and streams of the data directory, the engine,
// the contracts, the worker API and the admin API. What it opened is closed by deps.close, also
// when it fails.
func newNode(ctx context.Context, k *deps, opened store.Store, mode serveMode) (*server.Server,
	error) {
	// Only a token of the settings protects /operators; a generated one does not (G-FB-31).
	if set := k.settings.Operator.Token; !set.Empty() {
		k.operatorToken = set
	}
	if err := k.openStorage(ctx, localStorage); err != nil {
		return nil, err
	}
	k.bindStorage()
	var err error
	if k.engine, err = engine.New(engine.Config{Store: opened, Node: k.node, Random: randomBytes,
		Monotonic: k.process.Elapsed, Log: k.log, Inbox: k.inboxOf,
		Version: k.version}); err != nil {
		return nil, cli.WithCode(cli.ExitUnable, err)
	}
	if err := k.openSecrets(mode); err != nil {
		return nil, err
	}
	if err := k.buildContracts(); err != nil {
		return nil, err
	}
	if err := k.describeNode(); err != nil {
		return nil, cli.WithCode(cli.ExitFailed, err)
	}
	if k.schedules, err = schedule.New(schedule.Config{Engine: k.engine, Contracts: k.contracts,
		Settings: k.settings.schedules,
		Log:      k.log.With(telemetry.Contract, schedule.Name)}); err != nil {
		return nil, cli.WithCode(cli.ExitFailed, err)
	}
	if err := k.buildInbox(); err != nil {
		return nil, err
	}
	if err := k.findWebhooks(); err != nil {
		return nil, err
	}
	apis, err := buildServices(ctx, k, mode)
	if err != nil {
		return nil, err
	}
	hooks := k.hooks()
	node, err := server.New(server.Config{
		Settings:   k.settings.Settings,
		Store:      opened,
		Engine:     k.engine,
		Contracts:  k.contracts,
		Services:   apis,
		JobTypes:   append(hooks.jobTypes, k.schedules.JobType()),
		Publishers: hooks.publishers,
		Log:        k.log,
		Metrics:    k.registries.Handler(k.log),
		Docs:       newDocs(k.settings.definitions),
		Version:    cli.ReadBuildInfo().Version,
		Page:       k.page(mode.workersOnly),
		Monotonic:  k.process.Elapsed,
		Background: append(hooks.background, k.described.Run, k.series.Run, k.schedules.Run,
			k.inbox.Run),

		CountRequests: k.series.CountRequests,
		WorkersOnly:   mode.workersOnly,
	})
	if err != nil {
		return nil, cli.WithCode(cli.ExitUnable, err)
	}
	k.binding.Bind(ctx, k.engine)
	return node, cli.WithCode(cli.ExitUnable, errors.Join(
		registerQueueDepths(k.engine, k.registries),
		k.registries.For(telemetry.Core, "").Register(newEndMetrics(k.engine, k.runEnds))))
}

// connect opens everything that is elsewhere: outbound HTTP, traces, the queue and CDN of Images,
// external objects and streams. It comes before the store because it makes nothing in the data
// directory.
func (d *deps) connect(ctx context.Context) error {
	if err := d.connectEgress(ctx); err != nil {
		return cli.WithCode(cli.ExitFailed, err)
	}
	if err := d.connectContracts(ctx); err != nil {
		return err
	}
	return d.openStorage(ctx, externalStorage)
}

// connectEgress makes the client of outbound HTTP requests and the exporter of traces. Only a node
// that listens on loopback alone may call local addresses.
func (d *deps) connectEgress(ctx context.Context) (err error) {
	d.egress, err = egress.New(d.egressConfig())
	if err != nil {
		return err
	}
	d.tracing, err = telemetry.NewTracing(ctx, d.settings.Telemetry.OTLPEndpoint,
		d.tracesMonitor(), attribute.String("service.name", "millrace"),
		attribute.String("service.version", cli.ReadBuildInfo().Version),
		attribute.String("service.instance.id", d.node))
	return err
}

// egressConfig is how outbound requests are made: with the User-Agent of this version, and to local
// addresses only as the settings allow. A contract that needs a client of its own, such as FetchBox
// for its proxies, makes it from the same configuration.
func (d *deps) egressConfig() egress.Config {
	return egress.Config{AllowLocal: d.settings.OnLoopback(), Allow: d.settings.Egress.Allow,
		UserAgent: cli.UserAgent()}
}

// traceFlushTimeout bounds how long a stop waits for the last traces to be sent.
const traceFlushTimeout = 3 * time.Second

// close closes what connect and newNode opened, whichever step they failed in: first what contracts
// use, then the lock of the data directory, outbound HTTP and, at last, tracing, for whose last
// traces it waits up to traceFlushTimeout. The store is closed by serve or, once the node runs, by
// the server.
func (d *deps) close() {
	d.closeStorage()
	if d.unlock != nil {
		d.unlock()
	}
	if d.egress != nil {
		d.egress.Close()
	}
	ctx, cancel := context.WithTimeout(context.Background(), traceFlushTimeout)
	defer cancel()
	if err := d.tracing.Shutdown(ctx); err != nil {
		d.log.Warn("the last traces were not sent", telemetry.ErrorMessage, err)
	}
}

// maxQueueLabels is how many queues of a contract have a label of their own in the metrics. Users
// name queues: without a limit they could make as many time series as they like.
const maxQueueLabels = 100

// registerQueueDepths registers the metrics of how many jobs the queues of each contract have. They
// are counted in the store when they are collected. Each job type has a metric, such as
// forgerun_queue_jobs, in the registry of its contract.
func registerQueueDepths(e *engine.Engine, registries *telemetry.Registries) error {
	for _, name := range e.JobTypes() {
		contract, _, _ := strings.Cut(name, ".") // of a job type, such as fetchbox.task
		metric := strings.ReplaceAll(name, ".", "_") + "_queue_jobs"
		depth := telemetry.NewQueueDepth(metric, maxQueueLabels,
			func(ctx context.Context) ([]job.QueueCount, error) { return e.Queues(ctx, name) })
		if err := registries.For(contract, "").Register(depth); err != nil {
			return err
		}
	}
	return nil
}

// randomBytes gives 16 bytes of cryptographic quality; the source never fails.
func randomBytes() (r [16]byte) {
	_, _ = rand.Read(r[:])
	return r
}

// nodeName is unique for each process: a restarted one has another name, so that the terms of the
// process before are not taken for its own. It begins with the name of the host, for people who
// read it in a log.
func nodeName() string {
	host, _ := os.Hostname()
	return host + "-" + rand.Text()[:8]
}
