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

	"github.com/millrace/millrace/internal/contract"
	"github.com/millrace/millrace/internal/contract/images/cdn"
	"github.com/millrace/millrace/internal/contract/images/picture"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/message"
	"github.com/millrace/millrace/internal/object"
	"github.com/millrace/millrace/internal/storageid"
	"github.com/millrace/millrace/internal/telemetry"
	"github.com/millrace/millrace/internal/uuids"
)

// OpenAPI is the description of the contract that the server serves, and that the tests check
// every exchange against.
//
//go:embed openapi.yaml
var OpenAPI []byte

// Processor makes the variants of a picture; see picture.Processor.
type Processor interface {
	Run(ctx context.Context, original io.Reader, sizes []int, workDir string) (picture.Info,
		[]picture.Variant, error)
}

// Config holds the settings of the contract and what it depends on.
type Config struct {
	Settings

	Engine  *engine.Engine // has JobTypes registered
	Log     *slog.Logger
	API     prometheus.Registerer // for the metrics of requests, of the contract alone
	Worker  prometheus.Registerer // for the metrics of attempts (G-IP-09)
	Now     func() time.Time      // for ids; the clock of the store decides about jobs
	Random  func() [16]byte       // of cryptographic quality
	Tracing *telemetry.Tracing    // nil makes no spans
	Node    string                // names the workers of this node

	Objects *object.Objects    // closed by the caller, like Queue
	Binding *storageid.Binding // checks that all nodes use the same objects; nil on a single node
	Bucket  string             // the default bucket of Objects, a label of metrics
	Queue   message.Queue
	CDN     cdn.CDN // nil: none

	Callbacks contract.Callbacks // of single jobs

	Processor Processor
	WorkDir   string // an existing directory, for the work directories of attempts

	NoLocalWorkers bool          // this process executes no jobs
	Grace          time.Duration // for running attempts when the node stops
}

// validate names fields that are missing or out of range. A node without local workers needs none
// of what attempts use.
func (c *Config) validate() error {
	switch {
	case c.Engine == nil || c.Log == nil || c.API == nil || c.Worker == nil || c.Now == nil ||
		c.Random == nil:
		return errors.New("images: Engine, Log, API, Worker, Now and Random are required")
	case c.Node == "" || c.Objects == nil || c.Bucket == "" || c.Queue == nil:
		return errors.New("images: Node, Objects, Bucket and Queue are required")
	case !c.NoLocalWorkers && (c.Processor == nil || c.WorkDir == "" || c.Workers < 1):
		return errors.New("images: Processor, WorkDir and Workers are required")
	case c.LockTimeout <= 0:
		return errors.New("images: LockTimeout must be above 0")
	case c.MaxAttempts < 1 || c.MaxUpload < 1:
		return errors.New("images: MaxAttempts and MaxUpload must be 1 or more")
	case c.MaxPixels < 1:
		return errors.New("images: MaxPixels must be 1 or more")
	case c.BackoffBase < 0 || c.BackoffMax < 0:
		return errors.New("images: BackoffBase and BackoffMax must be 0 or more")
	case !validSizes(c.Sizes):
		return errors.New("images: Sizes must be 1 to 20 whole numbers to 8192")
	}
	return nil
}

// Images is the contract. New makes it complete; its requests and Run need the engine to have its
// JobTypes.
type Images struct {
	Config

	ids              *uuids.Source
	metrics          *metrics // of requests
	worker           *workerMetrics
	proposals        chan message.Delivery // from the queue to the first idle worker
	unclaimedWorkers atomic.Int64          // workers that have not claimed anything yet
}

// New validates the config and registers the metrics. It starts nothing; Run does.
func New(c Config) (*Images, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	m := &Images{
		Config:    c,
		ids:       &uuids.Source{Now: c.Now, Random: c.Random},
		proposals: make(chan message.Delivery),
	}
	var err error
	if m.metrics, err = newMetrics(c.API); err != nil {
		return nil, err
	}
	m.worker, err = newWorkerMetrics(c.Worker, c.Bucket, c.Engine)
	return m, err
}

// JobType is the job type of the jobs. Their changes are events, some of which send messages
// through the outbox, and jobs are kept for ever, as files consist of them. Of the causes only
// those that begin or end an attempt are reported: the metrics and log lines of the document are
// about attempts.
func (m *Images) JobType() engine.JobType {
	return engine.JobType{
		Name:          Name,
		Machine:       machine,
		History:       true,
		Publish:       true,
		ByMessage:     true,
		Searchable:    true,
		MessageBody:   messageBody,
		OnTransitions: m.onTransitions,
		ReportedCauses: []job.Cause{job.Claimed, job.Succeeded, job.Failed, job.FailedForGood,
			job.Expired, job.ExpiredForGood, job.Released},
	}
}

// JobTypes returns the job types: the jobs, and the purges of the CDN, which are removed after
// purgeRetention.
func (m *Images) JobTypes() []engine.JobType {
	purges := engine.JobType{
		Name:          Purges,
		Machine:       purgeMachine,
		History:       true,
		Retention:     purgeRetention,
		OnTransitions: m.onPurgeFailed,
		ReportedCauses: []job.Cause{job.Failed, job.FailedForGood, job.Expired,
			job.ExpiredForGood},
	}
	return []engine.JobType{m.JobType(), purges}
}

// Mount returns the handler of the routes. It is called once. A node whose objects are not those of
// the database refuses all requests.
func (m *Images) Mount() httpapi.PrefixHandler {
	router := httpapi.Router{
		Name:             Name,
		Prefixes:         []string{prefix},
		Routes:           m.routes(),
		Token:            m.Token,
		BodyLimit:        maxJSONBody,
		WriteError:       m.sendError,
		Log:              m.Log,
		Observe:          m.metrics.observeRoute,
		ObserveUnmatched: m.metrics.unmatched,
		Tracing:          m.Tracing,
	}
	for i := range router.Routes {
		r := &router.Routes[i]
		r.Handle = m.Binding.Guard(r.Handle)
	}
	return router.MustMount()
}

// Checks are the readiness checks of what Images needs besides the store: the objects and the
// message queue. They are optional, as other contracts work without them.
func (m *Images) Checks() []httpapi.Check {
	objects := func(ctx context.Context) error {
		if err := m.Binding.Check(); err != nil {
			return err
		}
		return m.Objects.Ping(ctx)
	}
	return []httpapi.Check{
		{Name: Name + " objects", Run: objects, Optional: true},
		{Name: Name + " messages", Run: m.Queue.Ping, Optional: true},
	}
}

// Await waits until the node has verified that its objects and streams are those that the database
// names; it returns false if ctx ended before. No message is sent before.
func (m *Images) Await(ctx context.Context) bool { return m.Binding.Await(ctx) }

// Run executes everything that the contract does without a request, until ctx ends: attempts,
// purges and sweeps. It pauses while the objects and streams of the node are not those of the
// database.
func (m *Images) Run(ctx context.Context) { m.Binding.Run(ctx, m.runTasks) }

// runTasks runs all background work and returns when all of it has ended. Sweeps and purges also
// run on a node without local workers; the receiver does not, as it would take messages from the
// nodes that have workers.
func (m *Images) runTasks(ctx context.Context) {
	tasks := []func(context.Context){m.runSweeps, m.runPurges}
	if !m.NoLocalWorkers {
		tasks = append(tasks, m.runReceiver, m.runWorkers)
	}
	var all sync.WaitGroup
	for _, run := range tasks {
		all.Go(func() { run(ctx) })
	}
	all.Wait()
}
