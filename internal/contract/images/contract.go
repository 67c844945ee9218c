package images

import (
	"context"
	_ "embed"
	"errors"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/internal/config"
	"github.com/millrace/millrace/internal/contract/images/cdn"
	"github.com/millrace/millrace/internal/contract/images/picture"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/message"
	"github.com/millrace/millrace/internal/object"
	"github.com/millrace/millrace/internal/places"
	"github.com/millrace/millrace/internal/telemetry"
	"github.com/millrace/millrace/internal/uuids"
)

// OpenAPI is the contract's description, as it is served and as the tests
// check every exchange against it.
//
//go:embed openapi.yaml
var OpenAPI []byte

// Processor makes the variants of a picture; see picture.Processor.
type Processor interface {
	Run(ctx context.Context, original io.Reader, sizes []int, workDir string) (picture.Info,
		[]picture.Variant, error)
}

// Config is what Images is made of.
type Config struct {
	Log     *slog.Logger
	API     prometheus.Registerer // the contract's own for what it serves
	Worker  prometheus.Registerer // and for what runs its jobs (G-IP-09)
	Now     func() time.Time      // what ids begin with; the store's clock decides what a job does
	Random  func() [16]byte       // of cryptographic quality
	Token   config.Secret         // empty: open
	Tracing *telemetry.Tracing    // nil makes no spans
	Node    string                // names this node's workers

	Objects *object.Objects // closed by whoever opened them, as is the queue
	// refuses a node whose objects and streams are not the database's; nil where no other node can
	// have it
	Shared *places.Places
	Bucket string // the default one of Objects, for metrics
	Queue  message.Queue
	CDN    cdn.CDN // nil: none

	Processor Processor
	WorkDir   string // where the work directories of attempts are made; it exists

	LockTimeout time.Duration // IP-048
	MaxAttempts int
	BackoffBase time.Duration
	BackoffMax  time.Duration
	Sizes       []int // where an upload asks for none
	MaxUpload   int64 // bytes
	// of an original that a worker outside may have decoded; the Processor has a limit of its own
	MaxPixels int64

	NoLocalWorkers bool // no attempts in this process
	Workers        int
	Grace          time.Duration // that attempts get to end in when the node stops
}

func (c *Config) validate() error {
	for problem, is := range map[string]bool{
		"Log, API, Worker, Now and Random are needed": c.Log == nil || c.API == nil ||
			c.Worker == nil || c.Now == nil || c.Random == nil,
		"Node, Objects, Bucket and Queue are needed": c.Node == "" || c.Objects == nil ||
			c.Bucket == "" || c.Queue == nil,
		"Processor, WorkDir and Workers are needed": !c.NoLocalWorkers &&
			(c.Processor == nil || c.WorkDir == "" || c.Workers < 1),
		"LockTimeout must be above 0":                  c.LockTimeout <= 0,
		"MaxAttempts and MaxUpload must be 1 or more":  c.MaxAttempts < 1 || c.MaxUpload < 1,
		"MaxPixels must be 1 or more":                  c.MaxPixels < 1,
		"BackoffBase and BackoffMax must be 0 or more": c.BackoffBase < 0 || c.BackoffMax < 0,
		"Sizes must be 1 to 20 whole numbers to 8192":  !validSizes(c.Sizes),
	} {
		if is {
			return errors.New("images: " + problem)
		}
	}
	return nil
}

// Images is the contract. It is made before the engine, which needs Contracts,
// and mounted after it.
type Images struct {
	Config

	ids              *uuids.Source
	api              *apiMetrics
	worker           *workerMetrics
	proposals        chan message.Delivery // from the queue to whichever worker is free
	unclaimedWorkers atomic.Int64          // workers that have not claimed yet

	engine *engine.Engine                // set by Mount
	bound  atomic.Pointer[engine.Engine] // the same, for scrapes, which may come before
}

// New checks the config and registers the metrics.
func New(c Config) (*Images, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	m := &Images{Config: c, ids: &uuids.Source{Now: c.Now, Random: c.Random},
		proposals: make(chan message.Delivery)}
	var err error
	if m.api, err = newAPIMetrics(c.API); err != nil {
		return nil, err
	}
	m.worker, err = newWorkerMetrics(c.Worker, c.Bucket, m.bound.Load)
	return m, err
}

// Contract is what the engine is told of the jobs.
func (m *Images) Contract() engine.Contract {
	return engine.Contract{Name: Name, Machine: machine, History: true, Publish: true,
		Searchable: true, RetryDelay: m.retryDelay, Body: messageBody, Moved: m.onTransitions,
		MovedOn: []job.Cause{job.Claimed, job.Succeeded, job.Failed, job.FailedForGood, job.Expired,
			job.ExpiredForGood, job.Released}}
}

// Contracts are all that the engine is to serve: the jobs, and the purges.
func (m *Images) Contracts() []engine.Contract {
	return []engine.Contract{m.Contract(),
		{Name: Purges, Machine: purgeMachine, History: true, RetryDelay: purgeDelay,
			Retention: purgeRetention,
			Moved:     m.onPurgeFailed, MovedOn: []job.Cause{job.Failed, job.FailedForGood,
				job.Expired, job.ExpiredForGood}}}
}

// retryDelay is how long a job waits after the failure just counted (IP-055); what was lost or
// given back waits for nothing.
func (m *Images) retryDelay(j *job.Job) time.Duration {
	if j.State != retryable {
		return 0
	}
	return job.Backoff{Strategy: job.Exponential, Base: m.BackoffBase,
		Max: m.BackoffMax}.Delay(j.FailedAttempts)
}

// Checks are what Images needs to be of use: where the objects are, and the queue that proposes
// jobs. Other contracts can do without.
func (m *Images) Checks() []httpapi.Check {
	objects := func(ctx context.Context) error {
		if err := m.Shared.Check(); err != nil {
			return err
		}
		return m.Objects.Ping(ctx)
	}
	return []httpapi.Check{{Name: Name + " objects", Run: objects, Optional: true},
		{Name: Name + " messages", Run: m.Queue.Ping, Optional: true}}
}

// Await waits until the node is known to have the database's objects and streams; false is that ctx
// has ended. No message is sent before.
func (m *Images) Await(ctx context.Context) bool { return m.Shared.Await(ctx) }

// Run does what is due without a request until ctx ends: attempts, purges, and the sweeps. It does
// nothing while the node has not the database's objects and streams.
func (m *Images) Run(ctx context.Context) { m.Shared.Run(ctx, m.runTasks) }

func (m *Images) runTasks(ctx context.Context) {
	tasks := []func(context.Context){m.runSweeps, m.runPurges}
	if !m.NoLocalWorkers {
		tasks = append(tasks, m.runReceiver, m.runAttempts)
	}
	var all sync.WaitGroup
	for _, task := range tasks {
		all.Go(func() { task(ctx) })
	}
	all.Wait()
}
