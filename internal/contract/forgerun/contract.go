package forgerun

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/internal/account"
	"github.com/millrace/millrace/internal/clock"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/telemetry"
	"github.com/millrace/millrace/internal/webhook"
	"github.com/millrace/millrace/internal/worker"
)

// OpenAPI is the contract's description. The server serves it, and the tests check every exchange
// against it.
//
//go:embed openapi.yaml
var OpenAPI []byte

// Config holds the settings and dependencies of a ForgeRun.
type Config struct {
	Settings

	Engine   *engine.Engine // has JobTypes registered
	Log      *slog.Logger
	Registry prometheus.Registerer // the contract's own

	// WebhookLog is the log of deliveries, of which some are about jobs of other contracts; nil
	// stands for Log.
	WebhookLog *slog.Logger

	// Now gives the time that requests are validated against. All times of a job are the store's.
	Now     func() time.Time
	Elapsed func() time.Duration // a monotonic clock
	Random  func() [16]byte      // of cryptographic quality
	Pepper  []byte               // see account.Config
	Node    string               // prefix of the names of this node's workers

	NoLocalWorkers bool          // this process executes no jobs
	Grace          time.Duration // for running attempts when the node stops
	RequestTimeout time.Duration // FR-203; 0 is 30 s

	// ContractSecret signs the callbacks of the jobs of other contracts; nil: there are none.
	ContractSecret func(ctx context.Context, contract string) (string, error)

	Client  webhook.Doer       // makes the requests of deliveries
	Slots   int                // attempts at deliveries at a time on this node; 0 is the default
	Tracing *telemetry.Tracing // nil makes no spans

	// Timer replaces the real timers of simulated attempts; nil is real time.
	Timer clock.Timer
}

// validate sets the default of RequestTimeout and returns an error for the first setting or
// dependency that is missing or out of range. The settings are within their bounds when they were
// read from the configuration; these checks are for a Config that is made in code, as tests do.
func (c *Config) validate() error {
	if c.RequestTimeout == 0 {
		c.RequestTimeout = 30 * time.Second
	}
	for _, t := range c.Types {
		if !slices.Contains(types, t) {
			return fmt.Errorf("forgerun: there is no type %q", t)
		}
	}
	probable := c.FailureProbability >= 0 && c.FailureProbability <= 1 // false for NaN
	switch {
	case c.Engine == nil || c.Log == nil || c.Registry == nil || c.Now == nil ||
		c.Elapsed == nil || c.Random == nil:
		return errors.New("forgerun: Engine, Log, Registry, Now, Elapsed and Random are required")
	case len(c.Types) == 0:
		return errors.New("forgerun: Types must not be empty")
	case !c.NoLocalWorkers && c.Workers < 1:
		return errors.New("forgerun: Workers must be 1 or more")
	case c.JobsPerWorker < 1:
		return errors.New("forgerun: JobsPerWorker must be 1 or more")
	case c.Heartbeat <= 0 || c.Heartbeat >= c.Lease:
		return errors.New("forgerun: Heartbeat must be above 0 and below Lease")
	case c.MaxRunTime <= 0:
		return errors.New("forgerun: MaxRunTime must be above 0")
	case c.CancelWindow < 0:
		return errors.New("forgerun: CancelWindow must not be below 0")
	case c.MaxRetries < 0:
		return errors.New("forgerun: MaxRetries must not be below 0")
	case c.BackoffBase < 0 || c.BackoffBase > c.BackoffMax:
		return errors.New("forgerun: BackoffBase must be from 0 to BackoffMax")
	case c.RatePerMinute < 1 || c.AnonymousPerMinute < 1:
		return errors.New("forgerun: RatePerMinute and AnonymousPerMinute must be 1 or more")
	case c.QuotaPerDay < 0:
		return errors.New("forgerun: QuotaPerDay must not be below 0")
	case c.MaxActiveJobs < 1 || c.QueueSize < 1:
		return errors.New("forgerun: MaxActiveJobs and QueueSize must be 1 or more")
	case c.BodyLimit < 1 || c.PayloadLimit < 1:
		return errors.New("forgerun: BodyLimit and PayloadLimit must be 1 or more")
	case !probable:
		return errors.New("forgerun: FailureProbability must be from 0 to 1")
	case !(c.DurationScale > 0):
		return errors.New("forgerun: DurationScale must be above 0")
	case c.Retention < 0 || c.RevokedKeyRetention < 0 || c.KeyLifetime < 0:
		return errors.New("forgerun: Retention, RevokedKeyRetention and KeyLifetime must not " +
			"be below 0")
	case c.RequestTimeout < 0 || c.Grace < 0:
		return errors.New("forgerun: RequestTimeout and Grace must not be below 0")
	}
	return nil
}

// ForgeRun is the contract. A process makes and uses one in this order:
//
//	New         checks the config, registers the metrics, makes accounts, webhooks and pool
//	JobTypes    describe jobs and deliveries, and are registered with the engine
//	Mount       returns the routes
//	Run         executes jobs and deliveries until the node stops
//
// Requests, Run and the outbox (Deliver) use it concurrently. New has set all its fields.
type ForgeRun struct {
	Config

	rules    definitionRules
	metrics  *metrics
	accounts *account.Accounts
	webhooks *webhook.Webhooks
	pool     *worker.Pool // nil on a node without workers
	produce  func(*definition) []byte

	pepperBound atomic.Bool // the store is bound to the pepper
	running     atomic.Bool // Run was called
}

// New checks the config and registers the metrics. It makes no connection and reads nothing from
// the store.
func New(c Config) (*ForgeRun, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	f := &ForgeRun{Config: c, produce: produce,
		rules: definitionRules{maxRunTime: c.MaxRunTime, payloadLimit: c.PayloadLimit,
			failureProbability: c.FailureProbability}}
	var err error
	if f.metrics, err = newMetrics(c.Registry, queueGauges(c.Engine), f.available); err != nil {
		return nil, err
	}
	if f.accounts, err = f.newAccounts(); err != nil {
		return nil, err
	}
	if f.webhooks, err = f.newWebhooks(); err != nil {
		return nil, err
	}
	if !c.NoLocalWorkers {
		f.metrics.workers.Set(float64(c.Workers))
		f.pool, err = f.newPool()
	}
	return f, err
}

// newAccounts makes the accounts of the clients.
func (f *ForgeRun) newAccounts() (*account.Accounts, error) {
	return f.accountsOf(account.Config{Engine: f.Engine, Pepper: f.Pepper, Log: f.Log,
		Elapsed: f.Elapsed, RequestID: requestIDFrom})
}

// newWebhooks makes the webhooks. Callbacks of a client's jobs are signed with a secret of its
// account (G-FR-48).
func (f *ForgeRun) newWebhooks() (*webhook.Webhooks, error) {
	vault, err := account.NewVault(f.Pepper)
	if err != nil {
		return nil, err
	}
	c := f.Webhook.config(f.Retention)
	c.Engine, c.Vault, c.Client, c.Elapsed = f.Engine, vault, f.Client, f.Elapsed
	c.Log, c.ClientContract = cmp.Or(f.WebhookLog, f.Log), Name
	c.CallbackSecret, c.Slots = f.accounts.CallbackSecret, f.Slots
	c.ContractSecret = f.ContractSecret
	c.OnAttempt, c.StartSpan = f.metrics.countAttempt, deliverySpan(f.Tracing)
	return webhook.New(c)
}

// newPool makes the pool of this node's workers.
func (f *ForgeRun) newPool() (*worker.Pool, error) {
	return worker.New(worker.Config{
		Engine:            f.Engine,
		JobType:           Name,
		Name:              f.Node,
		Workers:           f.Workers,
		Slots:             f.JobsPerWorker,
		HeartbeatInterval: f.Heartbeat,
		Handler:           handler{f},
		Log:               f.Log,
		OnPanic:           panicOutcome,
		OnHeartbeat:       f.metrics.heartbeats.Inc,
	})
}

// available returns how many workers of this node can take a job. It is 0 on a node without
// workers, before Run and after the pool has stopped.
func (f *ForgeRun) available() float64 {
	if f.pool == nil {
		return 0
	}
	return float64(f.pool.Available())
}

// JobType describes the jobs of clients to the engine. MaxRunning counts ASSIGNED and RUNNING jobs
// over all nodes (G-FR-13). MaxQueueSize refuses submits beyond it, while a job that comes due
// stays CREATED until there is a place (G-FR-12). Every cause is reported to onTransitions, since
// each transition is counted and logged.
func (f *ForgeRun) JobType() engine.JobType {
	return engine.JobType{
		Name:           Name,
		Machine:        machine,
		History:        true,
		Publish:        true,
		MaxRunning:     f.MaxActiveJobs,
		MaxQueueSize:   f.QueueSize,
		Retention:      f.Retention,
		OnTransitions:  f.onTransitions,
		ReportedCauses: job.Causes(),
	}
}

// JobTypes returns the job types: the jobs, and the deliveries of their events.
func (f *ForgeRun) JobTypes() []engine.JobType {
	return []engine.JobType{f.JobType(), f.webhooks.JobType()}
}

// Mount returns the handler of the routes. It is called once. The router has no token: the guard of
// each route asks for an API key.
func (f *ForgeRun) Mount() httpapi.PrefixHandler {
	router := httpapi.Router{
		Name:             Name,
		Prefixes:         []string{"/v1/"},
		Routes:           f.routes(),
		BodyLimit:        f.BodyLimit,
		WriteError:       f.sendError,
		Log:              f.Log,
		Observe:          f.metrics.observeRoute,
		ObserveUnmatched: f.metrics.unmatched,
		Timeout:          f.RequestTimeout,
		Info:             f.LogRequests,
		Tracing:          f.Tracing,
	}
	return router.MustMount()
}

// Checks returns the health checks of a node that serves ForgeRun: it needs the pepper of the
// store's keys and, if it is configured to have workers, one that claims or is busy (G-FR-29). The
// reason of a failed check begins with the code that requests are answered with.
func (f *ForgeRun) Checks() []httpapi.Check {
	return []httpapi.Check{
		{Name: Name + " pepper", Run: f.checkPepperHealth},
		{Name: Name + " workers", Run: f.checkWorkersHealth},
	}
}

// checkWorkersHealth fails if no worker of this node can take a job and none is executing one. It
// does not fail before Run, nor on a node without workers.
func (f *ForgeRun) checkWorkersHealth(_ context.Context) error {
	expected := f.running.Load() && f.pool != nil
	if expected && f.pool.Available() == 0 && f.pool.Busy() == 0 {
		return unhealthy(codeNoWorker, "no worker claims", nil)
	}
	return nil
}

// unhealthy returns the error of a failed check.
func unhealthy(code, reason string, cause error) error {
	msg := code + ": " + reason
	return &job.Error{Kind: job.Unavailable, Op: "forgerun.check", Msg: msg, Err: cause}
}

// Run binds the pepper, makes deliveries and, if this node has workers, executes jobs. It returns
// when ctx has ended and the attempts and deliveries under way have finished.
func (f *ForgeRun) Run(ctx context.Context) {
	var all sync.WaitGroup
	all.Go(func() { f.runPepper(ctx) })
	all.Go(func() { f.webhooks.Run(ctx) })
	if f.pool != nil {
		f.running.Store(true)
		all.Go(func() { f.pool.Run(ctx, f.Grace) })
	}
	all.Wait()
}
