package taskflow

import (
	"context"
	_ "embed"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"

	"github.com/millrace/millrace/internal/config"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/telemetry"
	"github.com/millrace/millrace/internal/uuids"
)

// OpenAPI is the contract's description, as it is served and as the tests
// check every exchange against it.
//
//go:embed openapi.yaml
var OpenAPI []byte

// Config is what a TaskFlow is made of.
type Config struct {
	Log      *slog.Logger
	Registry prometheus.Registerer // the contract's own
	Now      func() time.Time      // what ids begin with; the store's clock decides what a job does
	Random   func() [16]byte       // of cryptographic quality
	Token    config.Secret         // empty: open (G-TF-28)
	Tracing  *telemetry.Tracing    // nil makes no spans

	Lease          time.Duration // how long a worker may be silent
	MaxConcurrent  int           // jobs RUNNING at a time, over all nodes (TF-059)
	BodyLimit      int64         // bytes of every request but graphs
	GraphBodyLimit int64         // bytes of a graph

	Queues map[string]Queue // that have settings of their own (G-TF-37)
	Runner Runner           // needed where one of them has a handler
}

func (c *Config) validate() error {
	switch {
	case c.Log == nil || c.Registry == nil || c.Now == nil || c.Random == nil:
		return errors.New("taskflow: Log, Registry, Now and Random are needed")
	case c.Lease <= 0:
		return errors.New("taskflow: Lease must be above 0")
	case c.MaxConcurrent < 1:
		return errors.New("taskflow: MaxConcurrent must be 1 or more")
	case c.BodyLimit < 1 || c.GraphBodyLimit < c.BodyLimit:
		return errors.New("taskflow: BodyLimit must be 1 or more, and GraphBodyLimit not below it")
	}
	return c.validateQueues()
}

// TaskFlow is the contract. It is made before the engine, which needs Contract,
// and mounted after it.
type TaskFlow struct {
	Config

	ids     *uuids.Source
	metrics *metrics
	engine  *engine.Engine                // set by Mount
	bound   atomic.Pointer[engine.Engine] // the same, for scrapes, which may come before
}

// New checks the config and registers the metrics.
func New(c Config) (*TaskFlow, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	t := &TaskFlow{Config: c, ids: &uuids.Source{Now: c.Now, Random: c.Random}}
	var err error
	t.metrics, err = newMetrics(c.Registry, t.bound.Load)
	return t, err
}

// Contract is what the engine is told of TaskFlow.
func (t *TaskFlow) Contract() engine.Contract {
	return engine.Contract{Name: Name, Machine: machine, History: true, Graph: true,
		Searchable: true, MaxRunning: t.MaxConcurrent,
		RetryDelay: retryDelay, LostFailure: lostRunFailure, Moved: t.onTransitions,
		MovedOn: []job.Cause{job.Submitted, job.Satisfied, job.Unsatisfiable, job.Claimed,
			job.Succeeded, job.Failed, job.FailedForGood, job.Expired, job.ExpiredForGood}}
}

// moved is told of everything that happens to jobs on this node.
func (t *TaskFlow) onTransitions(moves []engine.Moved) {
	t.metrics.countTransitions(moves)
	t.logTransitions(moves)
	if !t.Tracing.Enabled() {
		return
	}
	for i := range moves {
		t.traceTransition(&moves[i])
	}
}

// traceTransition adds to the trace of the request that a job comes from how long it was
// pending and ready, each of its runs, wherever that was, and its end.
func (t *TaskFlow) traceTransition(m *engine.Moved) {
	if m.Job.Trace == "" {
		return
	}
	ctx := telemetry.Resume(context.Background(), m.Job.Trace)
	attrs := []attribute.KeyValue{attribute.String(telemetry.JobID, m.Job.ID.Key),
		attribute.String(telemetry.NextState, string(m.To))}
	switch m.From {
	case Pending:
		t.Tracing.Record(ctx, "wait", m.Job.CreatedAt, m.At, attrs...)
	case Ready:
		t.Tracing.Record(ctx, "queue", m.Since, m.At, attrs...)
	case Running:
		t.Tracing.RecordRun(ctx, m.Failure(), m.Job.StartedAt, m.At,
			append(attrs, attribute.Int(telemetry.Attempt, m.Job.Attempts))...)
	}
	if terminal(m.To) {
		t.Tracing.Record(ctx, "end", m.At, m.At, attrs...)
	}
}

// retryDelay is how long a job waits after the failure just counted (TF-065).
func retryDelay(j *job.Job) time.Duration {
	return time.Duration(RetryDelay(decodePolicy(j), j.FailedAttempts)) * time.Second
}

// Mount makes TaskFlow serve its paths by an engine. It is called once.
func (t *TaskFlow) Mount(e *engine.Engine) httpapi.PrefixHandler {
	t.engine = e
	t.bound.Store(e)
	table := httpapi.Router{
		Name:       Name,
		Prefixes:   []string{"/api/v1/"},
		Routes:     t.routes(),
		Token:      t.Token,
		BodyLimit:  t.BodyLimit,
		WriteError: t.sendError,
		Log:        t.Log,
		Tracing:    t.Tracing,
	}
	for i := range table.Routes {
		route := &table.Routes[i]
		route.Observe = t.metrics.route(route.Method + " " + route.Pattern)
	}
	return table.MustMount()
}
