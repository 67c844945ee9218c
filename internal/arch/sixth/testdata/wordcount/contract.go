package wordcount

import (
	"context"
	_ "embed"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/telemetry"
	"github.com/millrace/millrace/internal/uuids"
	"github.com/millrace/millrace/internal/worker"
)

// OpenAPI is the contract's description.
//
//go:embed openapi.yaml
var OpenAPI []byte

// Config holds the settings and dependencies of a WordCount.
type Config struct {
	Settings

	Engine   *engine.Engine // has JobType registered
	Log      *slog.Logger
	Registry prometheus.Registerer // the contract's own
	Tracing  *telemetry.Tracing    // nil makes no spans
	Now      func() time.Time
	Random   func() [16]byte
	Node     string

	NoLocalWorkers bool          // this process counts nothing
	Grace          time.Duration // for running attempts when the node stops
}

// WordCount is the contract.
type WordCount struct {
	Config

	ids     *uuids.Source
	metrics *metrics
}

// New registers the metrics. It starts nothing.
func New(c Config) (*WordCount, error) {
	m, err := newMetrics(c.Registry)
	if err != nil {
		return nil, err
	}
	return &WordCount{Config: c, metrics: m,
		ids: &uuids.Source{Now: c.Now, Random: c.Random}}, nil
}

// JobType describes WordCount to the engine. OnTransitions is called for those on ReportedCauses alone,
// after their commit.
func (w *WordCount) JobType() engine.JobType {
	return engine.JobType{Name: Name, Machine: machine, History: true, OnTransitions: w.onTransitions,
		ReportedCauses: []job.Cause{job.Succeeded}}
}

// Mount returns the handler of the routes. It is called once.
func (w *WordCount) Mount() httpapi.PrefixHandler {
	router := httpapi.Router{
		Name:       Name,
		Prefixes:   []string{"/wordcount/v1/"},
		Routes:     w.routes(),
		Token:      w.Token,
		BodyLimit:  w.MaxText,
		WriteError: w.sendError,
		Log:        w.Log,
		Tracing:    w.Tracing,
	}
	return router.MustMount()
}

// Run counts words until ctx ends, and returns within the grace after that. Several nodes may run
// it on one store: each text is claimed by one of them.
func (w *WordCount) Run(ctx context.Context) {
	if w.NoLocalWorkers {
		return
	}
	pool := worker.MustNew(worker.Config{
		Engine:            w.Engine,
		JobType:           Name,
		Name:              w.Node,
		Workers:           w.Workers,
		HeartbeatInterval: w.Lease / 3,
		Handler:           counter{},
		Log:               w.Log,
	})
	pool.Run(ctx, w.Grace)
}
