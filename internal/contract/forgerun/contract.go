package forgerun

import (
	"context"
	"crypto/rand"
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
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/telemetry"
	"github.com/millrace/millrace/internal/webhook"
	"github.com/millrace/millrace/internal/worker"
)

// OpenAPI is the contract's description, as it is served and as the tests
// check every exchange against it.
//
//go:embed openapi.yaml
var OpenAPI []byte

// Config is what a ForgeRun is made of.
type Config struct {
	Log *slog.Logger
	// requests and changes of state at Info, as the document has it, and not at Debug
	LogRequests bool
	Registry    prometheus.Registerer // the contract's own
	// what requests are held against; the store's clock decides what a job does
	Now     func() time.Time
	Elapsed func() time.Duration // a clock that never jumps
	Random  func() [16]byte      // of cryptographic quality
	Pepper  []byte               // see account.Config
	Node    string               // names this node's workers

	Types         []string // that may be submitted (FR-059)
	Workers       int      // of this node; 0 runs nothing here
	JobsPerWorker int
	Lease         time.Duration
	Heartbeat     time.Duration
	Grace         time.Duration // that runs get to end in when the node stops
	MaxRunTime    time.Duration
	CancelWindow  time.Duration // G-FR-32
	MaxRetries    int
	BackoffBase   time.Duration
	BackoffMax    time.Duration
	AutoRetry     bool // G-FR-06

	RatePerMinute      int
	QuotaPerDay        int // 0: none
	AnonymousPerMinute int
	MaxActiveJobs      int // G-FR-13
	QueueSize          int // G-FR-12
	BodyLimit          int64
	PayloadLimit       int64 // bytes of a job's payload (G-FR-17)

	FailureProbability float64 // FR-078
	DurationScale      float64 // G-FR-55

	Retention           time.Duration // of final jobs; 0 keeps them
	RevokedKeyRetention time.Duration
	KeyLifetime         time.Duration // 0: keys do not expire

	RequestTimeout time.Duration // FR-203; 0 is 30 s

	Client  webhook.Doer // makes the requests of deliveries
	Webhook Webhook
	Tracing *telemetry.Tracing // nil makes no spans

	// Timer is how time passes for runs; nil is real time.
	Timer func(time.Duration) (passed <-chan time.Time, stop func())
}

// Webhook is how deliveries are made (FR-194).
type Webhook struct {
	Timeout       time.Duration
	MaxTries      int
	BackoffBase   time.Duration
	BackoffMax    time.Duration
	BackoffFactor float64
	Slots         int // tries under way at a time on this node; 0 is the usual number
}

func (c *Config) validate() error {
	if c.RequestTimeout == 0 {
		c.RequestTimeout = 30 * time.Second
	}
	if c.Timer == nil {
		c.Timer = realTimer
	}
	for _, t := range c.Types {
		if !slices.Contains(types, t) {
			return fmt.Errorf("forgerun: there is no type %q", t)
		}
	}
	for problem, violated := range map[string]bool{
		"Log, Registry, Now, Elapsed and Random are needed": c.Log == nil ||
			c.Registry == nil || c.Now == nil || c.Elapsed == nil || c.Random == nil,
		"Types must not be empty":         len(c.Types) == 0,
		"Workers must not be below 0":     c.Workers < 0,
		"JobsPerWorker must be 1 or more": c.JobsPerWorker < 1,
		"Heartbeat must be above 0 and below Lease": c.Heartbeat <= 0 ||
			c.Heartbeat >= c.Lease,
		"MaxRunTime must be above 0":       c.MaxRunTime <= 0,
		"CancelWindow must not be below 0": c.CancelWindow < 0,
		"MaxRetries must not be below 0":   c.MaxRetries < 0,
		"BackoffBase must be from 0 to BackoffMax": c.BackoffBase < 0 ||
			c.BackoffBase > c.BackoffMax,
		"RatePerMinute and AnonymousPerMinute must be 1 or more": c.RatePerMinute < 1 ||
			c.AnonymousPerMinute < 1,
		"QuotaPerDay must not be below 0": c.QuotaPerDay < 0,
		"MaxActiveJobs and QueueSize must be 1 or more": c.MaxActiveJobs < 1 ||
			c.QueueSize < 1,
		"BodyLimit and PayloadLimit must be 1 or more": c.BodyLimit < 1 ||
			c.PayloadLimit < 1,
		"FailureProbability must be from 0 to 1": !(c.FailureProbability >= 0 &&
			c.FailureProbability <= 1),
		"DurationScale must be above 0": !(c.DurationScale > 0),
		"Retention and the like must not be below 0": c.Retention < 0 ||
			c.RevokedKeyRetention < 0 || c.KeyLifetime < 0,
		"RequestTimeout and Grace must not be below 0": c.RequestTimeout < 0 ||
			c.Grace < 0,
	} {
		if violated {
			return errors.New("forgerun: " + problem)
		}
	}
	return nil
}

// ForgeRun is the contract. It is made before the engine, which needs Contracts,
// and mounted after it.
type ForgeRun struct {
	Config

	rules    definitionRules
	metrics  *metrics
	webhooks *webhook.Webhooks
	produce  func(*definition) []byte

	// What Mount makes. Scrapes, and what the engine tells of, may come before.
	engine      *engine.Engine
	accounts    *account.Accounts
	pool        *worker.Pool
	bound       atomic.Pointer[engine.Engine] // engine, once all of it is there
	pepperBound atomic.Bool                   // the pepper is known to be the store's
	running     atomic.Bool                   // Run was called
}

// New checks the config and registers the metrics.
func New(c Config) (*ForgeRun, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	vault, err := account.NewVault(c.Pepper)
	if err != nil {
		return nil, err
	}
	f := &ForgeRun{Config: c, produce: produce,
		rules: definitionRules{maxRunTime: c.MaxRunTime, payloadLimit: c.PayloadLimit,
			failureProbability: c.FailureProbability}}
	if f.metrics, err = newMetrics(c.Registry, queueGauges(f.bound.Load),
		f.available); err != nil {
		return nil, err
	}
	f.metrics.workers.Set(float64(c.Workers))
	f.webhooks, err = webhook.New(webhook.Config{Vault: vault, Client: c.Client,
		CallbackSecret: f.callbackSecret,
		Timeout:        c.Webhook.Timeout, MaxTries: c.Webhook.MaxTries,
		BackoffBase: c.Webhook.BackoffBase, BackoffMax: c.Webhook.BackoffMax,
		BackoffFactor: c.Webhook.BackoffFactor, Slots: c.Webhook.Slots, Retention: c.Retention,
		Random:  rand.Reader,
		Elapsed: c.Elapsed, Log: c.Log, OnTry: f.metrics.countTry, StartSpan: f.deliverySpan})
	return f, err
}

func (f *ForgeRun) callbackSecret(ctx context.Context, clientID string) (string, error) {
	return f.accounts.CallbackSecret(ctx, clientID)
}

// available is how many workers of this node can take a job.
func (f *ForgeRun) available() float64 {
	if f.bound.Load() == nil || f.pool == nil {
		return 0
	}
	return float64(f.pool.Available())
}

// Contract is what the engine is told of the jobs of clients.
func (f *ForgeRun) Contract() engine.Contract {
	return engine.Contract{Name: Name, Machine: machine, History: true, Publish: true,
		MaxRunning:   f.MaxActiveJobs,
		MaxQueueSize: f.QueueSize, Retention: f.Retention, Moved: f.onTransitions,
		MovedOn: job.Causes()}
}

// Contracts are all that the engine is to serve: the jobs, and the deliveries of
// what happens to them.
func (f *ForgeRun) Contracts() []engine.Contract {
	return []engine.Contract{f.Contract(), f.webhooks.Contract()}
}

// Mount makes ForgeRun serve its paths by an engine. It is called once.
func (f *ForgeRun) Mount(e *engine.Engine) httpapi.PrefixHandler {
	if err := f.bind(e); err != nil {
		panic(err) // New has let nothing pass that is refused here
	}
	t := httpapi.Router{Name: Name, Prefixes: []string{"/v1/"}, Routes: f.routes(),
		BodyLimit: f.BodyLimit, AuthenticatesFirst: true, WriteError: f.sendError,
		Log: f.Log, ObserveUnmatched: f.metrics.unmatched, Timeout: f.RequestTimeout,
		Info: f.LogRequests, Tracing: f.Tracing}
	return t.MustMount()
}

func (f *ForgeRun) bind(e *engine.Engine) (err error) {
	f.engine = e
	f.webhooks.Bind(e)
	f.accounts, err = account.New(account.Config{Engine: e, Pepper: f.Pepper,
		KeyLifetime:      f.KeyLifetime,
		RevokedRetention: f.RevokedKeyRetention, RatePerMinute: f.RatePerMinute,
		QuotaPerDay:        f.QuotaPerDay,
		AnonymousPerMinute: f.AnonymousPerMinute, Log: f.Log, Elapsed: f.Elapsed,
		RequestID: requestIDFrom})
	if err == nil && f.Workers > 0 {
		f.pool, err = worker.New(worker.Config{Engine: e, Contract: Name, Name: f.Node,
			Workers: f.Workers, Slots: f.JobsPerWorker,
			HeartbeatInterval: f.Heartbeat, Handler: handler{f}, Log: f.Log, OnPanic: panicOutcome,
			OnHeartbeat: f.metrics.heartbeats.Inc})
	}
	f.bound.Store(e)
	return err
}

// Checks are what a node that serves ForgeRun needs to be of use: the pepper of its
// keys, and workers that claim, where it is to have some. Busy ones do not count
// against it (G-FR-29). The code that requests get stands in the reason.
func (f *ForgeRun) Checks() []httpapi.Check {
	return []httpapi.Check{
		{Name: Name + " pepper", Run: f.checkPepperHealth},
		{Name: Name + " workers", Run: f.checkWorkersHealth},
	}
}

func (f *ForgeRun) checkWorkersHealth(context.Context) error {
	expected := f.running.Load() && f.pool != nil
	if expected && f.pool.Available() == 0 && f.pool.Busy() == 0 {
		return unhealthy(codeNoWorker, "no worker claims", nil)
	}
	return nil
}

// unhealthy is what a check says of a node that answers requests with a code.
func unhealthy(c code, reason string, cause error) error {
	msg := string(c) + ": " + reason
	return &job.Error{Kind: job.Unavailable, Op: "forgerun.check", Msg: msg, Err: cause}
}

// Run binds the pepper, makes deliveries, and runs jobs where this node has workers,
// until ctx ends and what is under way is over.
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

// moved is told of everything that happens to jobs on this node once it is on
// stable storage.
func (f *ForgeRun) onTransitions(moves []engine.Moved) {
	for i := range moves {
		m := &moves[i]
		f.metrics.onTransition(m)
		f.logTransition(m)
		f.traceTransition(m)
		if m.On == job.Canceled && f.bound.Load() != nil && f.pool != nil {
			f.pool.Cancel(m.Job.ID) // at once, where it runs here (FR-135)
		}
	}
}
