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

	"github.com/millrace/millrace/internal/contract"
	"github.com/millrace/millrace/internal/contract/fetchbox/handler"
	"github.com/millrace/millrace/internal/egress"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/external"
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

	Engine        *engine.Engine // has JobTypes registered
	Log           *slog.Logger
	Registry      prometheus.Registerer // of the contract alone
	Now           func() time.Time      // for ids; the clock of the store decides about tasks
	Elapsed       func() time.Duration  // a monotonic clock
	Random        func() [16]byte       // of cryptographic quality
	OperatorToken setting.Secret        // of /operators; empty: open (G-FB-31)
	Tracing       *telemetry.Tracing    // nil makes no spans
	Callbacks     contract.Callbacks    // of single jobs
	Node          string                // names the workers of this node

	Objects *object.Objects // closed by the caller, like Streams
	Streams *stream.Streams
	Binding *storageid.Binding // checks that all nodes use the same objects; nil on a single node

	PruneInterval  time.Duration    // of the streams (G-FB-40)
	NoLocalWorkers bool             // this process downloads nothing
	Grace          time.Duration    // for running downloads when the node stops
	Egress         egress.Config    // guards downloads; New sets its time limits and redirects
	External       external.Factory // makes the handlers exec and http
}

// validate returns an error for the first setting or dependency that is missing or out of range.
// The settings are within their bounds when they were read from the configuration; these checks are
// for a Config that is made in code, as tests do. Job types are checked in the order of their
// names, so that the same config has the same error.
func (c *Config) validate() error {
	switch {
	case c.Engine == nil || c.Log == nil || c.Registry == nil || c.Now == nil || c.Elapsed == nil ||
		c.Random == nil:
		return errors.New("fetchbox: Engine, Log, Registry, Now, Elapsed and Random are required")
	case c.Node == "" || c.Objects == nil || c.Streams == nil:
		return errors.New("fetchbox: Node, Objects and Streams are required")
	case c.MaxResources < 1 || c.MaxManifest < 1:
		return errors.New("fetchbox: MaxResources and MaxManifest must be 1 or more")
	case c.MaxAttempts < 1 || c.MaxLostRuns < 1:
		return errors.New("fetchbox: MaxAttempts and MaxLostRuns must be 1 or more")
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

// jobType is a registered job type with its handler. The handler serves all jobs of the type, on
// several goroutines at once.
type jobType struct {
	*Type
	name    string
	handler handler.Handler
}

// FetchBox is the contract. A process makes and uses one in this order:
//
//	New         checks the config, makes the handlers, registers the metrics
//	JobTypes    describes jobs and tasks, and is registered with the engine
//	Mount       returns the routes
//	Run         does the background work until the node stops
//
// Requests, Run and the outbox (Deliver) use it concurrently. New has set all its fields; metrics,
// proxyRoutes, hosts and storages synchronize themselves.
type FetchBox struct {
	Config

	types       map[string]*jobType
	metrics     *metrics
	proxyRoutes *proxyRoutes
	hosts       *hosts
	storages    []*storage
	ids         *uuids.Source
	publish     func(context.Context, []stream.Message) ([]uint64, error)

	// followCtx ends the requests that follow a log when the node stops.
	followCtx     context.Context
	stopFollowing context.CancelFunc
}

// New validates the config, makes the handlers and registers the metrics. It fails when a job type
// names a handler that does not exist or refuses its options, and when a pool of proxies is missing
// (FB-069, FB-072, G-FB-26), so that the node does not start. It makes no connection and stores
// nothing.
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
	for _, name := range slices.Sorted(maps.Keys(c.Types)) {
		t := c.Types[name]
		h, err := c.newHandler(name, t)
		if err != nil {
			return nil, err
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

// newHandler makes the handler of a job type.
func (c *Config) newHandler(name string, t *Type) (handler.Handler, error) {
	if slices.Contains(external.Kinds, t.Handler) {
		program, err := c.External.New(name, t.Handler, &t.Settings)
		if err != nil {
			return nil, &contract.SettingError{Setting: typesSection + "." + name + ".handler",
				Err: err}
		}
		return &handler.External{Program: program, Events: t.Events, MaxAnswer: t.MaxOutput,
			Log: c.Log}, nil
	}
	entry, known := handler.Registry()[cmp.Or(t.Handler, defaultHandler)]
	if !known {
		return nil, fmt.Errorf("fetchbox: job type %s: there is no handler %q", name, t.Handler)
	}
	h, err := entry.New(t.Options)
	if err != nil {
		return nil, fmt.Errorf("fetchbox: job type %s: %w", name, err)
	}
	return h, nil
}

// JobType is the job type of the ledger: the jobs. Finished jobs are pruned when they are older
// than LedgerRetention, and the oldest of them while the ledger is larger than LedgerMaxBytes
// (FB-088, FB-089). Searchable is for the list of operators and for Export.
func (f *FetchBox) JobType() engine.JobType {
	return engine.JobType{
		Name:        Name,
		Machine:     jobMachine,
		History:     true,
		Publish:     true,
		Searchable:  true,
		MessageBody: jobMessages,
		Retention:   f.LedgerRetention,
		MaxBytes:    f.LedgerMaxBytes,
		OnPruned:    f.metrics.pruned,
	}
}

// JobTypes returns the job types: the ledger, and the tasks. Tasks have no retention of their own:
// as children they are deleted with their job, and their bytes count as the job's. A lost worker
// reports no failure, so the engine stores errWorkerLost in its place, and it counts lost attempts
// apart from those that failed (G-FB-43).
func (f *FetchBox) JobTypes() []engine.JobType {
	tasks := engine.JobType{
		Name:            Tasks,
		Machine:         taskMachine,
		History:         true,
		Publish:         true,
		MessageBody:     taskMessages,
		MaxLostAttempts: f.MaxLostRuns,
		LostFailure:     errWorkerLost.encode(),
		OnTransitions:   f.onTransitions,
		ReportedCauses: []job.Cause{job.FailedForGood, job.ExpiredForGood,
			job.Canceled},
	}
	return []engine.JobType{f.JobType(), tasks}
}

// maxBackoff bounds the growing delays between attempts.
const maxBackoff = 5 * time.Minute

// allowAttempts gives a task its attempts and their delays by the current settings, without regard
// to those that have failed already. A replay calls it for a task whose attempts are used up: the
// task gets MaxAttempts more, and its delays begin at BackoffBase again (G-FB-37).
func (f *FetchBox) allowAttempts(j *job.Job) {
	j.MaxAttempts = j.FailedAttempts + f.MaxAttempts
	j.Retry = job.RetryPolicy{Strategy: job.Exponential, Base: f.BackoffBase, Max: maxBackoff,
		FailedBefore: j.FailedAttempts}
}

// Mount returns the handler of the routes. It is called once. Clients and operators have a router
// each, as each has a token of its own.
func (f *FetchBox) Mount() httpapi.PrefixHandler {
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
			routes[i].Handle = f.Binding.Guard(routes[i].Handle)
		}
	}
	return &httpapi.Router{
		Name:       Name,
		Prefixes:   []string{prefix},
		Routes:     routes,
		Token:      token,
		BodyLimit:  bodyLimit,
		WriteError: f.sendError,
		Log:        f.Log,
		Observe:    f.metrics.observeRoute,
		Tracing:    f.Tracing,
	}
}

// Await waits until the node has verified that its objects and streams are those that the database
// names, and returns false when ctx has ended. Nothing is published before.
func (f *FetchBox) Await(ctx context.Context) bool { return f.Binding.Await(ctx) }

// Run executes everything that the contract does without a request, until ctx ends: downloads, the
// Finalize of handlers, ingestion of direct producers' tasks, the sweep of manifests and the
// pruning of streams. None of it runs while the objects and streams are not the database's. A node
// that finds out later that they are not ends the work, and starts it again when they are.
//
// Run returns when the downloads and Finalize calls in progress have finished or Grace has passed.
// Requests that follow a log end as soon as ctx does, as they would keep the listener open.
func (f *FetchBox) Run(ctx context.Context) {
	defer context.AfterFunc(ctx, f.stopFollowing)()
	f.Binding.Run(ctx, f.runTasks)
	f.stopFollowing()
}

// runTasks runs all loops of the contract and returns when each has ended with ctx. It may be
// called again after that. The loops do not depend on each other: an outage of the streams stops
// ingestion and pruning, and downloads continue.
func (f *FetchBox) runTasks(ctx context.Context) {
	var all sync.WaitGroup
	for _, run := range []func(context.Context){f.runFinalizer, f.runProducers, f.runSweeper,
		f.runPruner} {
		all.Go(func() { run(ctx) })
	}
	all.Go(func() {
		f.storeQueueLimits(ctx) // before the first claim, which they restrict
		if !f.NoLocalWorkers {
			f.runWorkers(ctx)
		}
	})
	all.Wait()
}
