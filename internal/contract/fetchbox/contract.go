package fetchbox

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/internal/contract/fetchbox/handler"
	"github.com/millrace/millrace/internal/egress"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/object"
	"github.com/millrace/millrace/internal/setting"
	"github.com/millrace/millrace/internal/storageid"
	"github.com/millrace/millrace/internal/stream"
	"github.com/millrace/millrace/internal/telemetry"
	"github.com/millrace/millrace/internal/uuids"
)

// OpenAPI is the description of the contract that the server serves, and that the tests check
// every exchange against.
//
//go:embed openapi.yaml
var OpenAPI []byte

// Config holds the settings of the contract and what it depends on.
type Config struct {
	Settings

	Log           *slog.Logger
	Registry      prometheus.Registerer // of the contract alone
	Now           func() time.Time      // for ids; the clock of the store decides about tasks
	Elapsed       func() time.Duration  // a monotonic clock
	Random        func() [16]byte       // of cryptographic quality
	OperatorToken setting.Secret        // of /operators; empty: open (G-FB-31)
	Tracing       *telemetry.Tracing    // nil makes no spans
	Node          string                // names the workers of this node

	Objects *object.Objects // closed by the caller, like Streams
	Streams *stream.Streams
	Shared  *storageid.Binding // checks that all nodes use the same objects; nil on a single node

	PruneInterval  time.Duration // of the streams (G-FB-40)
	NoLocalWorkers bool          // this process downloads nothing
	Grace          time.Duration // for running downloads when the node stops
	Egress         egress.Config // the guard of downloads; New sets its time limits and redirects
}

func (c *Config) validate() error {
	switch {
	case c.Log == nil || c.Registry == nil || c.Now == nil || c.Elapsed == nil || c.Random == nil:
		return errors.New("fetchbox: Log, Registry, Now, Elapsed and Random are needed")
	case c.Node == "" || c.Objects == nil || c.Streams == nil:
		return errors.New("fetchbox: Node, Objects and Streams are needed")
	case c.MaxResources < 1 || c.MaxManifest < 1:
		return errors.New("fetchbox: MaxResources and MaxManifest must be 1 or more")
	case c.Tries < 1 || c.MaxLostRuns < 1:
		return errors.New("fetchbox: Tries and MaxLostRuns must be 1 or more")
	case c.BackoffBase < 0:
		return errors.New("fetchbox: BackoffBase must not be below 0")
	case c.Lease <= 0:
		return errors.New("fetchbox: Lease must be above 0")
	case c.ConnectTimeout <= 0 || c.DownloadTimeout <= 0 || c.MaxDownload <= 0:
		return errors.New("fetchbox: ConnectTimeout, DownloadTimeout and MaxDownload must be " +
			"above 0")
	case c.MaxPerHost < 0:
		return errors.New("fetchbox: MaxPerHost must not be below 0")
	case c.IdempotencyWindow <= 0:
		return errors.New("fetchbox: IdempotencyWindow must be above 0")
	case c.PruneInterval <= 0:
		return errors.New("fetchbox: PruneInterval must be above 0")
	case c.LedgerRetention < 0 || c.LedgerMaxBytes < 0:
		return errors.New("fetchbox: LedgerRetention and LedgerMaxBytes must be 0 or more")
	}
	for _, name := range slices.Sorted(maps.Keys(c.Types)) {
		if !validType(name) {
			return fmt.Errorf("fetchbox: %q cannot be a job type", name)
		}
	}
	return nil
}

// jobType is a registered job type with its handler.
type jobType struct {
	*Type
	name    string
	handler handler.Handler
}

// FetchBox is the contract. New makes it before the engine, which takes its Contracts; Mount binds
// it to the engine.
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

	// followCtx ends the requests that follow a log when the node stops.
	followCtx     context.Context
	stopFollowing context.CancelFunc
}

// New validates the config, makes the handlers and registers the metrics.
func New(c Config) (*FetchBox, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	f := &FetchBox{
		Config:   c,
		types:    map[string]*jobType{},
		ids:      &uuids.Source{Now: c.Now, Random: c.Random},
		publish:  c.Streams.Publish,
		storages: storages(c.Types),
	}
	registry := handler.Registry()
	for _, name := range slices.Sorted(maps.Keys(c.Types)) {
		t := c.Types[name]
		entry, known := registry[cmp.Or(t.Handler, defaultHandler)]
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

// Contract is the engine's contract of the ledger: the jobs.
func (f *FetchBox) Contract() engine.Contract {
	return engine.Contract{
		Name:       Name,
		Machine:    jobMachine,
		History:    true,
		Publish:    true,
		Searchable: true,
		Body:       jobMessages,
		Retention:  f.LedgerRetention,
		MaxBytes:   f.LedgerMaxBytes,
		Pruned:     f.metrics.pruned,
	}
}

// Contracts are the contracts of the engine: the ledger, and the tasks.
func (f *FetchBox) Contracts() []engine.Contract {
	tasks := engine.Contract{
		Name:            Tasks,
		Machine:         taskMachine,
		History:         true,
		Publish:         true,
		Body:            taskMessages,
		MaxLostAttempts: f.MaxLostRuns,
		LostFailure:     errWorkerLost.encode(),
		Moved:           f.onDeadTasks,
		MovedOn:         []job.Cause{job.FailedForGood, job.ExpiredForGood},
	}
	return []engine.Contract{f.Contract(), tasks}
}

// maxBackoff bounds the growing delays between attempts.
const maxBackoff = 5 * time.Minute

// allowAttempts gives a task its attempts and their delays by the current settings, without regard
// to those that have failed already.
func (f *FetchBox) allowAttempts(j *job.Job) {
	j.MaxAttempts = j.FailedAttempts + f.Tries
	j.Retry = job.RetryPolicy{Strategy: job.Exponential, Base: f.BackoffBase, Max: maxBackoff,
		After: j.FailedAttempts}
}

// Mount binds the contract to an engine and returns the handler of its paths. It is called once.
// Clients and operators have a router each, as each has a token of its own.
func (f *FetchBox) Mount(e *engine.Engine) httpapi.PrefixHandler {
	f.engine = e
	clients := f.router(submitPath, f.submitRoutes(), f.Token,
		f.MaxManifest+gzipOverhead(f.MaxManifest)).MustMount()
	operators := f.router(operatorsPath, f.operatorRoutes(), f.OperatorToken,
		maxOperatorBody).MustMount()
	return httpapi.PrefixHandler{
		Name:     Name,
		Prefixes: append(clients.Prefixes, operators.Prefixes...),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasPrefix(r.URL.Path, operatorsPath) {
				operators.Handler.ServeHTTP(w, r)
				return
			}
			clients.Handler.ServeHTTP(w, r)
		}),
	}
}

// maxOperatorBody bounds the body of an operator's request, which is discarded, in bytes.
const maxOperatorBody = 64 << 10

// router is the router of one of the two groups of routes. All routes but the health check refuse
// requests on a node whose objects or streams are not those of the database.
func (f *FetchBox) router(prefix string, routes []httpapi.Route, token setting.Secret,
	bodyLimit int64) *httpapi.Router {
	for i := range routes {
		if routes[i].Action != "health" {
			routes[i].Handle = f.Shared.Guard(routes[i].Handle)
		}
	}
	f.metrics.observe(routes)
	return &httpapi.Router{
		Name:       Name,
		Prefixes:   []string{prefix},
		Routes:     routes,
		Token:      token,
		BodyLimit:  bodyLimit,
		WriteError: f.sendError,
		Log:        f.Log,
		Tracing:    f.Tracing,
	}
}

// Await waits until the node has verified that its objects and streams are those that the database
// names, and returns false when ctx has ended. Nothing is published before.
func (f *FetchBox) Await(ctx context.Context) bool { return f.Shared.Await(ctx) }

// Run executes everything that the contract does without a request, until ctx ends: downloads,
// the Finalize of handlers, ingestion of direct producers' tasks, the sweep of manifests and the
// pruning of streams. None of it runs while the objects and streams are not the database's.
func (f *FetchBox) Run(ctx context.Context) {
	defer context.AfterFunc(ctx, f.stopFollowing)()
	f.Shared.Run(ctx, f.runTasks)
	f.stopFollowing()
}

func (f *FetchBox) runTasks(ctx context.Context) {
	var all sync.WaitGroup
	for _, run := range []func(context.Context){f.runFinalizer, f.runProducers, f.runSweeper,
		f.runPruner} {
		all.Go(func() { run(ctx) })
	}
	all.Go(func() {
		f.runLimits(ctx) // before the first claim, which they restrict
		if !f.NoLocalWorkers {
			f.runFetchers(ctx)
		}
	})
	all.Wait()
}
