package fetchbox

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/internal/config"
	"github.com/millrace/millrace/internal/contract/fetchbox/handler"
	"github.com/millrace/millrace/internal/egress"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/object"
	"github.com/millrace/millrace/internal/places"
	"github.com/millrace/millrace/internal/stream"
	"github.com/millrace/millrace/internal/telemetry"
	"github.com/millrace/millrace/internal/uuids"
)

// OpenAPI is the contract's description, as it is served and as the tests
// check every exchange against it.
//
//go:embed openapi.yaml
var OpenAPI []byte

// Config is what a FetchBox is made of.
type Config struct {
	Log      *slog.Logger
	Registry prometheus.Registerer // the contract's own
	// what ids begin with; the store's clock decides what a task does
	Now           func() time.Time
	Elapsed       func() time.Duration // a clock that never jumps
	Random        func() [16]byte      // of cryptographic quality
	Token         config.Secret        // of POST /jobs; empty: open
	OperatorToken config.Secret        // of /operators; empty: open (G-FB-31)
	Tracing       *telemetry.Tracing   // nil makes no spans
	Node          string               // names this node's workers

	Objects *object.Objects // closed by whoever opened them, as are the streams
	Streams *stream.Streams
	// refuses a node whose objects and streams are not the database's; nil where no other node can
	// have it
	Shared *places.Places
	Types  map[string]Type // the job types that are registered
	Pools  map[string]Pool

	MaxResources      int
	MaxManifest       int64 // bytes, after decompression
	Tries             int   // of a task
	MaxLostRuns       int   // of a task: these cost no try
	BackoffBase       time.Duration
	Lease             time.Duration // of a task
	ConnectTimeout    time.Duration
	DownloadTimeout   time.Duration
	MaxDownload       int64 // bytes
	MaxPerHost        int   // downloads at a time from one host, on this node
	IdempotencyWindow time.Duration
	LedgerRetention   time.Duration // 0 keeps for ever
	LedgerMaxBytes    int64         // 0 is no bound
	PruneInterval     time.Duration // of the streams (G-FB-40)

	NoLocalWorkers bool          // no downloads in this process
	Grace          time.Duration // that they get to end in when the node stops
	Egress         egress.Config // the guard of downloads; time-outs and redirects are set here
}

// Type is a job type as the settings have it (FB-068).
type Type struct {
	Handler        string // "" is default
	DefaultHeaders map[string]string
	Proxy          *handler.Proxy
	Bucket         string // of downloads; "" is the default one
	KeyPrefix      string // in place of resources/TYPE/
	MaxParallel    int    // downloads at a time, over all nodes (FB-074); 0 is no limit
	Options        map[string]any
}

// Pool is a pool of proxies.
type Pool struct {
	Primary   []string // URLs of proxies
	Fallbacks []string // pools
}

func (c *Config) validate() error {
	for wrong, is := range map[string]bool{
		"Log, Registry, Now, Elapsed and Random are needed": c.Log == nil || c.Registry == nil ||
			c.Now == nil || c.Elapsed == nil || c.Random == nil,
		"Node, Objects and Streams are needed": c.Node == "" || c.Objects == nil ||
			c.Streams == nil,
		"MaxResources and MaxManifest must be 1 or more": c.MaxResources < 1 ||
			c.MaxManifest < 1,
		"Tries and MaxLostRuns must be 1 or more": c.Tries < 1 || c.MaxLostRuns < 1,
		"BackoffBase must not be below 0":         c.BackoffBase < 0,
		"Lease must be above 0":                   c.Lease <= 0,
		"ConnectTimeout, DownloadTimeout, MaxDownload above 0": c.ConnectTimeout <= 0 ||
			c.DownloadTimeout <= 0 || c.MaxDownload <= 0,
		"MaxPerHost must not be below 0":    c.MaxPerHost < 0,
		"IdempotencyWindow must be above 0": c.IdempotencyWindow <= 0,
		"PruneInterval must be above 0":     c.PruneInterval <= 0,
		"LedgerRetention and LedgerMaxBytes must be 0 or more": c.LedgerRetention < 0 ||
			c.LedgerMaxBytes < 0,
	} {
		if is {
			return errors.New("fetchbox: " + wrong)
		}
	}
	for name := range c.Types {
		if !validType(name) {
			return fmt.Errorf("fetchbox: %q cannot be a job type", name)
		}
	}
	return nil
}

// jobType is a registered job type with its handler.
type jobType struct {
	Type
	name    string
	handler handler.Handler
}

// FetchBox is the contract. It is made before the engine, which needs Contracts,
// and mounted after it.
type FetchBox struct {
	Config

	types       map[string]*jobType
	metrics     *metrics
	proxyRoutes *proxyRoutes
	hosts       *hosts
	storages    []*storage
	ids         *uuids.Source
	publish     func(context.Context, []stream.Message) ([]uint64, error)

	engine *engine.Engine // set by Mount

	// Requests that last as long as they are wanted end with the node.
	followCtx     context.Context
	stopFollowing context.CancelFunc
}

// New checks the config, makes the handlers and registers the metrics.
func New(c Config) (*FetchBox, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	f := &FetchBox{Config: c, types: map[string]*jobType{},
		ids: &uuids.Source{Now: c.Now, Random: c.Random}, publish: c.Streams.Publish,
		storages: storages(c.Types)}
	registry := handler.Registry()
	for name, t := range c.Types {
		entry, known := registry[orDefault(t.Handler)]
		if !known {
			return nil, fmt.Errorf("fetchbox: job type %s: there is no handler %q", name, t.Handler)
		}
		h, err := entry.New(t.Options)
		if err != nil {
			return nil, fmt.Errorf("fetchbox: job type %s: %w", name, err)
		}
		f.types[name] = &jobType{Type: t, name: name, handler: h}
	}
	var err error
	f.followCtx, f.stopFollowing = context.WithCancel(context.Background())
	if f.metrics, err = newMetrics(c.Registry, c.Pools); err != nil {
		return nil, err
	}
	f.hosts = newHosts(c.MaxPerHost, c.Elapsed)
	f.proxyRoutes, err = newProxyRoutes(&c, func(pool string) {
		f.metrics.proxyFailures.WithLabelValues(pool).Inc()
	})
	return f, err
}

func orDefault(name string) string {
	if name == "" {
		return "default" // G-FB-34
	}
	return name
}

// Contract is what the engine is told of the ledger.
func (f *FetchBox) Contract() engine.Contract {
	return engine.Contract{Name: Name, Machine: jobMachine, History: true, Publish: true,
		Searchable: true, Body: jobMessages,
		Retention: f.LedgerRetention, MaxBytes: f.LedgerMaxBytes, Pruned: f.metrics.pruned}
}

// Contracts are all that the engine is to serve: the ledger, and the tasks.
func (f *FetchBox) Contracts() []engine.Contract {
	return []engine.Contract{f.Contract(),
		{Name: Tasks, Machine: taskMachine, History: true, Publish: true, Body: taskMessages,
			RetryDelay: f.retryDelay, MaxLostAttempts: f.MaxLostRuns,
			LostFailure: errWorkerLost.encode(),
			Moved:       f.onDeadTasks, MovedOn: []job.Cause{job.FailedForGood,
				job.ExpiredForGood}}}
}

// maxBackoff bounds the growing delays between tries.
const maxBackoff = 5 * time.Minute

// retryDelay is how long a task waits after the failure just counted. One that was replayed begins
// anew.
func (f *FetchBox) retryDelay(j *job.Job) time.Duration {
	before := max(0, j.MaxAttempts-f.Tries) // see revive
	return job.Backoff{Strategy: job.Exponential, Base: f.BackoffBase,
		Max: maxBackoff}.Delay(max(1, j.FailedAttempts-before))
}

// Await waits until the node is known to have the database's objects and streams; false is that it
// has others. Nothing is published before.
func (f *FetchBox) Await(ctx context.Context) bool { return f.Shared.Await(ctx) }

// Run downloads, tells handlers of jobs that ended, takes in what direct producers
// publish and sweeps manifests without a job, until ctx ends.
func (f *FetchBox) Run(ctx context.Context) {
	defer context.AfterFunc(ctx, f.stopFollowing)()
	if !f.Await(ctx) {
		return
	}
	var all sync.WaitGroup
	for _, task := range []func(context.Context){f.runFinalizer, f.runProducers, f.runSweeper,
		f.runPruner} {
		all.Go(func() { task(ctx) })
	}
	all.Go(func() {
		f.runLimits(ctx) // before anything is claimed under them
		if !f.NoLocalWorkers {
			f.runFetchers(ctx)
		}
	})
	all.Wait()
	f.stopFollowing()
}
