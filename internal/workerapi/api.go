package workerapi

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/setting"
	"github.com/millrace/millrace/internal/telemetry"
)

// Name is the name of the API among the handlers of a listener and among the OpenAPI documents.
const Name = "worker"

// OpenAPI is the OpenAPI document. The server serves it, and the tests check every exchange by it.
//
//go:embed openapi.yaml
var OpenAPI []byte

// maxBodyBytes bounds the body of every request, in bytes. A batch of a thousand outcomes has 4 KiB
// for each.
const maxBodyBytes = 4 << 20

// Adapter is what the API needs of a contract. The jobs that its functions get have no bodies,
// unless their comments say so.
type Adapter struct {
	Name string
	// JobType is the name of the job type; "" means Name.
	JobType string

	// Attempt returns the number of the present attempt, from 1 on.
	Attempt func(*job.Job) int
	// Complete and Fail return the outcome of a run. They are called in the transaction, see
	// engine.DecideFunc. result is nil when the worker sent none.
	Complete func(j *job.Job, result []byte) engine.Outcome
	Fail     func(j *job.Job, message, errorType string, retryable bool) engine.Outcome
	// VerifyResult replaces Complete in a contract that verifies a result by more than the job. It
	// is called before the transaction, with the job and its definition. An error refuses the
	// result, and the run continues.
	VerifyResult func(ctx context.Context, j *job.Job, result []byte) (engine.Outcome, error)

	// ID returns the identity of the job that the contract shows under an id; false if there can
	// be none. Nil means that the id is the key.
	ID func(jobID string) (job.ID, bool)
	// State returns the contract's name of a state; nil means the name in the engine.
	State func(job.State) string
	// Payload returns what a worker gets as the payload of a job, which has all its bodies; nil
	// means the payload as it was submitted.
	Payload func(*job.Job) []byte
	// RunsLocally reports whether the process executes the jobs of a queue itself, so that they
	// cannot be claimed here; for "" whether it executes all of them. Nil means none.
	RunsLocally func(queue string) bool
	// TimedOut returns the outcome of a run that has taken too long although its worker is alive;
	// nil while the run may continue. It is called for every request of the worker, which then
	// comes too late, in the transaction where Complete would be. Nil means that no run times out.
	TimedOut func(j *job.Job) *engine.Outcome
	// Check returns why this node must neither claim jobs of the contract nor accept outcomes; nil
	// means that it always may.
	Check func() error
	// OnHeartbeat, if set, is called after every heartbeat that was stored.
	OnHeartbeat func()
}

// id returns the identity of the job that the contract shows under an id; false means that there
// can be no such job.
func (c *Adapter) id(jobID string) (job.ID, bool) {
	if c.ID == nil {
		return job.ID{JobType: c.jobType(), Key: jobID}, true
	}
	return c.ID(jobID)
}

// jobType returns the name of the job type, by which claims are made.
func (c *Adapter) jobType() string {
	if c.JobType == "" {
		return c.Name
	}
	return c.JobType
}

// state returns the name of a state as workers see it.
func (c *Adapter) state(s job.State) string {
	if c.State == nil {
		return string(s)
	}
	return c.State(s)
}

// payload returns the payload that a worker gets with a claimed job.
func (c *Adapter) payload(j *job.Job) []byte {
	if c.Payload == nil {
		return j.Payload
	}
	return c.Payload(j)
}

// timedOut returns the outcome of a run that has taken too long, nil for any other.
func (c *Adapter) timedOut(j *job.Job) *engine.Outcome {
	if c.TimedOut == nil {
		return nil
	}
	return c.TimedOut(j)
}

// check returns why this node must not serve the contract now, nil if it may.
func (c *Adapter) check() error {
	if c.Check == nil {
		return nil
	}
	return c.Check()
}

// runsLocally reports whether the jobs of a queue, or all jobs for "", are executed in the process.
func (c *Adapter) runsLocally(queue string) bool {
	return c.RunsLocally != nil && c.RunsLocally(queue)
}

// Config configures the API.
type Config struct {
	Engine    *engine.Engine
	Log       *slog.Logger
	Registry  prometheus.Registerer // for the metrics; nil keeps them to the API
	Tracing   *telemetry.Tracing    // nil makes no spans
	Token     setting.Secret        // empty: without authentication, on loopback only (G-X-20)
	Contracts []Adapter             // at least one
	// Refused reports whether an error comes from a contract's Check, and the message for workers
	// then; nil when no Check refuses.
	Refused func(error) (msg string, is bool)
}

// Server is the worker API. It serves every contract that is configured and knows nothing else of
// them.
type Server struct {
	Config

	contracts   map[string]*Adapter // by name
	byEngine    map[string]*Adapter // by name in the engine
	needsVerify bool                // one of them has VerifyResult
	metrics     *metrics
}

// New checks the config and makes the API. An error names the contract that is not configured
// rightly; it is a mistake in this program.
func New(c Config) (*Server, error) {
	if c.Engine == nil || c.Log == nil || len(c.Contracts) == 0 {
		return nil, errors.New("workerapi: Engine, Log and Contracts are required")
	}
	a := &Server{Config: c, contracts: map[string]*Adapter{}, byEngine: map[string]*Adapter{}}
	for i := range c.Contracts {
		contract := &c.Contracts[i]
		if !contract.isComplete() || a.contracts[contract.Name] != nil {
			return nil, fmt.Errorf("workerapi: contract %q needs a unique name, Attempt, "+
				"Complete or VerifyResult, and Fail", contract.Name)
		}
		a.contracts[contract.Name], a.byEngine[contract.jobType()] = contract, contract
		a.needsVerify = a.needsVerify || contract.VerifyResult != nil
	}
	if c.Registry == nil {
		c.Registry = prometheus.NewRegistry()
	}
	var err error
	a.metrics, err = newMetrics(c.Registry, c.Contracts)
	return a, err
}

// isComplete reports whether the required members are set. Complete may be missing where
// VerifyResult takes its place.
func (c *Adapter) isComplete() bool {
	completes := c.Complete != nil || c.VerifyResult != nil
	return c.Name != "" && c.Attempt != nil && completes && c.Fail != nil
}

// Mount returns the handler of the routes. It is called once.
func (a *Server) Mount() httpapi.PrefixHandler {
	router := httpapi.Router{
		Name:       Name,
		Prefixes:   []string{"/worker/v1/"},
		Routes:     a.routes(),
		Token:      a.Token,
		BodyLimit:  maxBodyBytes,
		WriteError: a.sendError,
		Log:        a.Log,
		Observe:    a.metrics.observeRoute,
		Tracing:    a.Tracing,
	}
	return router.MustMount()
}

// runPath is the path of a run. A run id has a fixed form, so it needs no escaping.
const runPath = "/worker/v1/runs/{run_id}"

// routes returns the routes. All of them change something, so all are POST, read a body and forbid
// that answers are cached.
func (a *Server) routes() []httpapi.Route {
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
