package relay

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/internal/contract"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/telemetry"
)

// OpenAPI is the contract's description. The server serves it, and the tests check every exchange
// against it.
//
//go:embed openapi.yaml
var OpenAPI []byte

// Config holds the settings and dependencies of a Relay.
type Config struct {
	Settings

	Engine   *engine.Engine // has JobType registered
	Log      *slog.Logger
	Registry prometheus.Registerer // the contract's own
	Tracing  *telemetry.Tracing    // nil makes no spans

	Callbacks contract.Callbacks // of single jobs
}

// validate names fields that are missing or out of range. The settings have been checked when they
// were read; this is for those who build a Config in Go.
func (c *Config) validate() error {
	switch {
	case c.Engine == nil || c.Log == nil || c.Registry == nil:
		return errors.New("relay: Engine, Log and Registry are required")
	case c.MaxNumJobs < 1:
		return errors.New("relay: MaxNumJobs must be 1 or more")
	case c.BodyLimit < 1:
		return errors.New("relay: BodyLimit must be 1 or more")
	case c.RetryableStatus != http.StatusTooManyRequests &&
		c.RetryableStatus != http.StatusServiceUnavailable:
		return errors.New("relay: RetryableStatus must be 429 or 503")
	}
	for _, name := range slices.Sorted(maps.Keys(c.Queues)) {
		if !c.Queues[name].Rate.IsValid() {
			return fmt.Errorf("relay: Rate of queue %s is out of range", name)
		}
	}
	return nil
}

// Relay is the contract. New makes it complete; its requests need the engine to have its JobType.
type Relay struct {
	Config

	errors  httpapi.ErrorTable
	metrics *metrics
}

// New checks the config and registers the metrics. It starts nothing. It fails with a config that
// is not valid, and with a registry in which a metric has one of its names.
func New(c Config) (*Relay, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	m, err := newMetrics(c.Registry)
	if err != nil {
		return nil, err
	}
	return &Relay{Config: c, errors: errorTable(c.RetryableStatus), metrics: m}, nil
}

// Run stores the configured rates of queues. It returns when the store has accepted them, or when
// ctx ends.
func (r *Relay) Run(ctx context.Context) {
	limits := map[string]job.QueueLimits{}
	for name, q := range r.Queues {
		limits[name] = job.QueueLimits{Rate: q.Rate}
	}
	contract.StoreQueueLimits(ctx, r.Engine, r.Log, Name, limits)
}

// JobType describes Relay to the engine: no history, no messages, no limits, and dead letters
// that are kept for ever. Without tracing only timeouts and failures are reported, since all other
// transitions are requests, whose handlers count them. The engine copies the job for each reported
// transition.
func (r *Relay) JobType() engine.JobType {
	causes := []job.Cause{job.Expired, job.ExpiredForGood, job.Failed, job.FailedForGood}
	if r.Tracing.Enabled() {
		causes = job.Causes()
	}
	return engine.JobType{Name: Name, Machine: machine, OnTransitions: r.onTransitions,
		ReportedCauses: causes,
		RecordedEnds:   r.recordedEnds()}
}

// Mount returns the handler of the routes. It is called once. Without version 1 its prefix stays
// free, and its paths belong to ForgeRun (G-RL-29).
func (r *Relay) Mount() httpapi.PrefixHandler {
	router := httpapi.Router{
		Name:       Name,
		Prefixes:   []string{"/v2/queues/"},
		Routes:     r.routes(),
		Token:      r.Token,
		BodyLimit:  r.BodyLimit,
		WriteError: r.sendError,
		Log:        r.Log,
		Observe:    r.metrics.observeRoute,
		Tracing:    r.Tracing,
	}
	if r.V1 {
		router.Prefixes = append(router.Prefixes, "/v1/queues/")
		router.Routes = append(router.Routes, r.routesV1()...)
	}
	return router.MustMount()
}
