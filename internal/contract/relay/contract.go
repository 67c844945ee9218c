package relay

import (
	_ "embed"
	"errors"
	"log/slog"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"

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

	Log      *slog.Logger
	Registry prometheus.Registerer // the contract's own
	Tracing  *telemetry.Tracing    // nil makes no spans
}

// validate names what is missing or out of range. The settings have been checked when they were
// read; this is for those who build a Config in Go.
func (c *Config) validate() error {
	switch {
	case c.Log == nil || c.Registry == nil:
		return errors.New("relay: Log and Registry are needed")
	case c.MaxNumJobs < 1:
		return errors.New("relay: MaxNumJobs must be 1 or more")
	case c.BodyLimit < 1:
		return errors.New("relay: BodyLimit must be 1 or more")
	case c.RetryableStatus != http.StatusTooManyRequests &&
		c.RetryableStatus != http.StatusServiceUnavailable:
		return errors.New("relay: RetryableStatus must be 429 or 503")
	}
	return nil
}

// Relay is the contract. New comes first, then the engine is built with Contract, then Mount binds
// the two.
type Relay struct {
	Config

	errors  httpapi.ErrorTable
	metrics *metrics
	engine  *engine.Engine // set by Mount
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

// Contract describes Relay to the engine: no history, no messages, no limits, and dead letters
// that are kept for ever. Without tracing only timeouts are reported, since all other transitions
// are requests, whose handlers count them. The engine copies the job for each reported transition.
func (r *Relay) Contract() engine.Contract {
	causes := []job.Cause{job.Expired, job.ExpiredForGood}
	if r.Tracing.Enabled() {
		causes = job.Causes()
	}
	return engine.Contract{Name: Name, Machine: machine, Moved: r.onTransitions, MovedOn: causes}
}

// Mount binds Relay to its engine and returns the handler of its routes. It is called once.
// Without version 1 its prefix stays free, and its paths belong to ForgeRun (G-RL-29).
func (r *Relay) Mount(e *engine.Engine) httpapi.PrefixHandler {
	r.engine = e
	router := httpapi.Router{
		Name:       Name,
		Prefixes:   []string{"/v2/queues/"},
		Routes:     r.routes(),
		Token:      r.Token,
		BodyLimit:  r.BodyLimit,
		WriteError: r.sendError,
		Log:        r.Log,
		Tracing:    r.Tracing,
	}
	if r.V1 {
		router.Prefixes = append(router.Prefixes, "/v1/queues/")
		router.Routes = append(router.Routes, r.routesV1()...)
	}
	for i := range router.Routes {
		route := &router.Routes[i]
		route.Observe = r.metrics.route(route.Method + " " + route.Pattern)
	}
	return router.MustMount()
}
