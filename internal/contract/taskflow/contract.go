package taskflow

import (
	"context"
	_ "embed"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/internal/clock"
	"github.com/millrace/millrace/internal/contract"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/external"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/telemetry"
	"github.com/millrace/millrace/internal/uuids"
	"github.com/millrace/millrace/internal/worker"
)

// OpenAPI is the contract's description. The server serves it, and the tests check every exchange
// against it.
//
//go:embed openapi.yaml
var OpenAPI []byte

// Config holds the settings and dependencies of a TaskFlow.
type Config struct {
	Settings

	Engine   *engine.Engine // has JobType registered
	Log      *slog.Logger
	Registry prometheus.Registerer // the contract's own

	// Now gives the time that ids begin with. All times of a job are the store's.
	Now     func() time.Time
	Random  func() [16]byte    // of cryptographic quality
	Tracing *telemetry.Tracing // nil makes no spans

	Callbacks contract.Callbacks // of single jobs

	BodyLimit      int64 // bytes of a request's body, except graphs
	GraphBodyLimit int64 // bytes of a graph

	// The rest is for queues with a handler.
	Node           string           // names the workers of this node
	NoLocalWorkers bool             // this process executes no jobs
	External       external.Factory // makes the handlers exec and http
	Grace          time.Duration    // for running attempts when the node stops

	// Timer replaces the real timers of simulated attempts; nil is real time.
	Timer clock.Timer
}

// validate names the first member that is missing or out of range.
func (c *Config) validate() error {
	switch {
	case c.Engine == nil || c.Log == nil || c.Registry == nil || c.Now == nil || c.Random == nil:
		return errors.New("taskflow: Engine, Log, Registry, Now and Random are required")
	case c.Lease <= 0:
		return errors.New("taskflow: Lease must be above 0")
	case c.MaxConcurrent < 1:
		return errors.New("taskflow: MaxConcurrent must be 1 or more")
	case c.BodyLimit < 1 || c.GraphBodyLimit < c.BodyLimit:
		return errors.New("taskflow: BodyLimit must be 1 or more, and GraphBodyLimit not below it")
	}
	return c.validateQueues()
}

// TaskFlow is the contract. New makes it complete; its requests and Run need the engine to have its
// JobType.
type TaskFlow struct {
	Config

	ids     *uuids.Source
	metrics *metrics
	pools   map[string]*worker.Pool // of queues with a handler
}

// New checks the config, makes the handlers of queues and registers the metrics. It starts nothing.
func New(c Config) (*TaskFlow, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	t := &TaskFlow{Config: c, ids: &uuids.Source{Now: c.Now, Random: c.Random}}
	err := t.makePools()
	if err != nil {
		return nil, err
	}
	t.metrics, err = newMetrics(c.Registry, c.Engine)
	return t, err
}

// JobType describes TaskFlow to the engine. Three causes are not reported (G-TF-30): Replaced
// changes no status, Removed leads to no status and so has no counter, and Released would be
// counted as a retry, which it is not.
func (t *TaskFlow) JobType() engine.JobType {
	return engine.JobType{
		Name:          Name,
		Machine:       machine,
		History:       true,
		Graph:         true,
		Searchable:    true,
		MaxRunning:    t.MaxConcurrent,
		LostFailure:   lostRunFailure,
		OnTransitions: t.onTransitions,
		ReportedCauses: []job.Cause{
			job.Submitted, job.Satisfied, job.Unsatisfiable, job.Claimed, job.Succeeded,
			job.Failed, job.FailedForGood, job.Expired, job.ExpiredForGood, job.Canceled,
		},
	}
}

// Mount returns the handler of the routes. It is called once.
func (t *TaskFlow) Mount() httpapi.PrefixHandler {
	router := httpapi.Router{
		Name:       Name,
		Prefixes:   []string{"/api/v1/"},
		Routes:     t.routes(),
		Token:      t.Token,
		BodyLimit:  t.BodyLimit,
		WriteError: t.sendError,
		Log:        t.Log,
		Observe:    t.metrics.observeRoute,
		Tracing:    t.Tracing,
	}
	return router.MustMount()
}

// Run stores the limits of queues and executes the jobs of queues with a handler. It returns when
// ctx has ended and the attempts under way have finished. A node without workers stores the limits
// as well, as they hold for all nodes.
func (t *TaskFlow) Run(ctx context.Context) {
	if !t.storeQueueLimits(ctx) {
		return
	}
	var all sync.WaitGroup
	for _, pool := range t.pools {
		all.Go(func() { pool.Run(ctx, t.Grace) })
	}
	all.Wait()
}
