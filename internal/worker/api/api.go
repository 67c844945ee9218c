package workerapi

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/internal/config"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/telemetry"
)

// Name is what the API is called among the mounts, and its description among the descriptions.
const Name = "worker"

// OpenAPI is the description, as it is served and as the tests check every exchange against it.
//
//go:embed openapi.yaml
var OpenAPI []byte

// bodyLimit holds for every request: results and states are answers, not archives.
const bodyLimit = 4 << 20

// Contract is what the API needs to know of a contract whose jobs it serves. Jobs that are given to
// the functions have no bodies, unless said.
type Contract struct {
	Name string
	// EngineName is what the engine calls the contract of the jobs; "" is Name.
	EngineName string

	// Attempt is how often the job was handed out to be tried, this time included: from 1 on.
	Attempt func(*job.Job) int
	// Complete and Fail say how a run ends; they are asked in the transaction: see
	// engine.DecideFunc. result is nil when none was sent.
	Complete func(j *job.Job, result []byte) engine.Outcome
	Fail     func(j *job.Job, message, errorType string, retryable bool) engine.Outcome
	// VerifyResult takes the place of Complete where more than the job tells whether it is done. It
	// is asked before the transaction, of the job with its definition. An error refuses the result,
	// and the run goes on.
	VerifyResult func(ctx context.Context, j *job.Job, result []byte) (engine.Outcome, error)

	// ID is the identity of the job that the contract shows under an id; false when there can be
	// none. Nil takes the id as the key.
	ID func(jobID string) (job.ID, bool)
	// State is how a state is called in answers; nil is its own name.
	State func(job.State) string
	// Payload is what a worker is given of a job with all its bodies; nil is the payload as it was
	// sent.
	Payload func(*job.Job) []byte
	// RunsLocally reports whether the process runs the jobs of a queue itself, so that they are not
	// handed out here; of "" whether it runs all of them. Nil is none.
	RunsLocally func(queue string) bool
	// TimedOut is how a run ends that should have ended by now although its worker is alive, nil
	// while it may go on. It is asked whenever the worker says something, which then comes too
	// late, as Complete is. Without it no run is overdue.
	TimedOut func(j *job.Job) *engine.Outcome
	// Check says why this node must not hand out jobs of the contract or judge what came of them;
	// nil is never.
	Check func() error
	// OnHeartbeat is told of every heartbeat that got through; nil tells nobody.
	OnHeartbeat func()
}

func (c *Contract) id(jobID string) (job.ID, bool) {
	if c.ID == nil {
		return job.ID{Contract: c.engineName(), Key: jobID}, true
	}
	return c.ID(jobID)
}

func (c *Contract) engineName() string {
	if c.EngineName == "" {
		return c.Name
	}
	return c.EngineName
}

func (c *Contract) state(s job.State) string {
	if c.State == nil {
		return string(s)
	}
	return c.State(s)
}

func (c *Contract) payload(j *job.Job) []byte {
	if c.Payload == nil {
		return j.Payload
	}
	return c.Payload(j)
}

func (c *Contract) timedOut(j *job.Job) *engine.Outcome {
	if c.TimedOut == nil {
		return nil
	}
	return c.TimedOut(j)
}

func (c *Contract) check() error {
	if c.Check == nil {
		return nil
	}
	return c.Check()
}

func (c *Contract) runsLocally(queue string) bool {
	return c.RunsLocally != nil && c.RunsLocally(queue)
}

// Config is what the API is made of.
type Config struct {
	Log       *slog.Logger
	Registry  prometheus.Registerer // its own; nil shows the metrics to nobody
	Tracing   *telemetry.Tracing    // nil makes no spans
	Token     config.Secret         // empty: open, on loopback only (G-X-20)
	Contracts []Contract            // one at least
	// Refused tells whether an error of a contract's Check is why its jobs are refused, and what
	// workers may be told of it; nil where nothing is refused.
	Refused func(error) (msg string, is bool)
}

// API is the worker API. It is made before the engine and mounted after it.
type API struct {
	Config

	contracts   map[string]*Contract // by name
	byEngine    map[string]*Contract // by what the engine calls them
	needsVerify bool                 // one of them has Settle
	metrics     *metrics
	engine      *engine.Engine
}

// New checks the config.
func New(c Config) (*API, error) {
	if c.Log == nil || len(c.Contracts) == 0 {
		return nil, errors.New("workerapi: Log and Contracts are needed")
	}
	a := &API{Config: c, contracts: map[string]*Contract{}, byEngine: map[string]*Contract{}}
	for i := range c.Contracts {
		contract := &c.Contracts[i]
		if contract.Name == "" || contract.Attempt == nil ||
			(contract.Complete == nil && contract.VerifyResult == nil) || contract.Fail == nil ||
			a.contracts[contract.Name] != nil {
			return nil, fmt.Errorf(
				"workerapi: contract %q needs a name of its own, Attempt, Complete or Settle, and Fail", contract.Name)
		}
		a.contracts[contract.Name], a.byEngine[contract.engineName()] = contract, contract
		a.needsVerify = a.needsVerify || contract.VerifyResult != nil
	}
	if c.Registry == nil {
		c.Registry = prometheus.NewRegistry()
	}
	var err error
	a.metrics, err = newMetrics(c.Registry, c.Contracts)
	return a, err
}

// Mount makes the API serve its paths by an engine.
func (a *API) Mount(e *engine.Engine) httpapi.PrefixHandler {
	a = &API{Config: a.Config, contracts: a.contracts, byEngine: a.byEngine,
		needsVerify: a.needsVerify, metrics: a.metrics, engine: e}
	t := httpapi.Router{Name: Name, Prefixes: []string{"/worker/v1/"}, Routes: a.routes(),
		Token: a.Token, BodyLimit: bodyLimit,
		WriteError: a.sendError, Log: a.Log, Tracing: a.Tracing}
	for i := range t.Routes {
		t.Routes[i].Observe = a.metrics.route(t.Routes[i].Action)
	}
	return t.MustMount()
}

const runPath = "/worker/v1/runs/{run_id}"

func (a *API) routes() []httpapi.Route {
	routes := []httpapi.Route{
		{Action: "claim", Pattern: "/worker/v1/claims", Handle: a.claim},
		{Action: "claim_job", Pattern: "/worker/v1/jobs/{job_id}/claim", Handle: a.claimJob},
		{Action: "heartbeat", Pattern: runPath + "/heartbeat", Handle: a.heartbeat},
		{Action: "start", Pattern: runPath + "/start", Handle: a.start},
		{Action: "complete", Pattern: runPath + "/complete", Handle: a.complete},
		{Action: "fail", Pattern: runPath + "/fail", Handle: a.fail},
		{Action: "release", Pattern: runPath + "/release", Handle: a.release},
		{Action: "finish", Pattern: "/worker/v1/outcomes", Handle: a.finish},
	}
	for i := range routes {
		routes[i].Method, routes[i].ReadsBody, routes[i].NoStore = http.MethodPost, true, true
	}
	return routes
}
