package contract

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"path/filepath"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/internal/account"
	"github.com/millrace/millrace/internal/child"
	"github.com/millrace/millrace/internal/egress"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/external"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/object"
	"github.com/millrace/millrace/internal/outage"
	"github.com/millrace/millrace/internal/setting"
	"github.com/millrace/millrace/internal/storageid"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/stream"
	"github.com/millrace/millrace/internal/telemetry"
	"github.com/millrace/millrace/internal/webhook"
	"github.com/millrace/millrace/internal/workerapi"
)

// Definition is what a contract declares. Settings and Build are required.
type Definition struct {
	Settings *setting.Group
	// Build makes the contract, complete, after its settings were read and the store was tried.
	Build func(*Deps) (*Contract, error)

	// OpenAPI is as that of Contract, and Errors says how requests are refused: for the
	// documentation, which also has the contracts that are not served.
	OpenAPI []byte
	Errors  httpapi.ErrorTable

	UsesPepper  bool // API keys are hashed under Deps.Pepper
	UsesObjects bool // Build gets Deps.Objects
	// CheckQueue returns why no queue has a name; nil where all names may be used.
	CheckQueue func(name string) error
	// Streams returns the streams that Build finds in Deps.Streams, where Settings.UsesStreams.
	Streams func() []stream.Spec
	// Webhooks makes the webhooks of operators on a node that does not serve the contract, where
	// Contract.Webhooks would have them; nil: it has none.
	Webhooks func(*Deps) (*webhook.Webhooks, error)
	// Export returns the jobs of its ledger as JSON, the newest first, for the command export:
	// those created at or after from and earlier than before; zero times are no bounds. Nil: there
	// is no ledger.
	Export func(ctx context.Context, view View, from, before time.Time) iter.Seq2[[]byte, error]
	// Accounts makes the accounts of its clients by its settings, for commands that have no node;
	// nil: it has none.
	Accounts func(account.Config) (*account.Accounts, error)
	// Connect opens services outside of the node, before anything is made in the data directory.
	// The node has no engine, objects, streams and binding yet.
	Connect func(context.Context, *Deps) error
}

// Name is the name of the contract.
func (d *Definition) Name() string { return d.Settings.Name }

// View runs a function in a read transaction of a store.
type View func(context.Context, func(store.Reader) error) error

// Deps are what a process gives each of its contracts.
type Deps struct {
	Name   string         // unique among the nodes of the store
	Engine *engine.Engine // used by requests and background work; Build only keeps it
	Log    *slog.Logger   // its lines name the contract
	// WebhookLog is the log of webhooks, whose deliveries are about jobs of many contracts.
	WebhookLog     *slog.Logger
	Now            func() time.Time     // the process's clock; the store's decides about jobs
	Elapsed        func() time.Duration // a monotonic clock
	Random         func() [16]byte      // of cryptographic quality
	NoLocalWorkers bool                 // other nodes execute the jobs
	Grace          time.Duration        // how long attempts may continue when the node stops

	// Registry returns the registry of the contract's metrics that have a role; "" is none.
	Registry func(role string) prometheus.Registerer
	Tracing  *telemetry.Tracing // nil makes no spans

	Callbacks Callbacks // of single jobs
	// ContractSecret returns the secret that signs the callbacks of the jobs of a contract.
	ContractSecret func(ctx context.Context, contract string) (string, error)

	Client *egress.Client // every outbound HTTP request goes through it or a client like it
	Egress egress.Config  // what Client was made with
	// NewMonitor makes what logs the outages of something that is elsewhere, with the setting that
	// names it.
	NewMonitor func(name, setting, address string) *outage.Monitor

	DataDir string
	Objects *object.Objects // closed by the process, as are the streams
	Bucket  string          // the default bucket of Objects
	Streams *stream.Streams
	Binding *storageid.Binding // checks that all nodes use the same objects; nil on a single node

	Pepper        func() ([]byte, error) // the secret under which API keys are hashed
	OperatorToken setting.Secret         // of the operators' routes; empty: they are open
	PruneInterval time.Duration
	// Command returns how the process starts one of its own subcommands.
	Command func(name string) ([]string, error)
	Environ []string // of the commands of operators; it has nothing that is a setting
	// OnClose registers a function that is called when the process has stopped, before the objects
	// and the streams are closed.
	OnClose func(func())
}

// External is what the handlers of a contract that are not compiled in are made with.
func (d *Deps) External(contract string) (external.Factory, error) {
	args, err := d.Command(child.Subcommand)
	if err != nil {
		return external.Factory{}, err
	}
	return external.Factory{Child: args, Environ: d.Environ, Client: d.Client, Now: d.Now,
		Dir: filepath.Join(d.DataDir, "commands", contract)}, nil
}

// Contract is what a contract offers the process. Name, JobTypes and Mount are required.
type Contract struct {
	Name    string
	Listen  string // its own address; empty means the common one
	OpenAPI []byte // its OpenAPI document, served as /openapi/NAME.yaml; nil means none

	// JobTypes are its job types, one for each state machine. The process registers them.
	JobTypes []engine.JobType
	// Mount returns the API of the contract. It is called once.
	Mount func() httpapi.PrefixHandler
	// Run executes the background work, such as jobs and deliveries. It returns, with everything it
	// has started, within the grace after ctx has ended.
	Run func(ctx context.Context)
	// Outbox takes the messages of the jobs with Publish. Without it, no job may have Publish.
	Outbox *Outbox
	// Checks are the readiness checks of what the contract depends on besides the store.
	Checks []httpapi.Check
	// Workers describes the jobs to the worker API, where remote workers may execute them.
	Workers *workerapi.Adapter
	// Operators say what operators may do with the jobs, one for each of JobTypes.
	Operators []Operator
	// Webhooks are the webhooks of its clients and of operators; Accounts are its clients, for
	// operators. nil means that it has none.
	Webhooks *webhook.Webhooks
	Accounts *account.Accounts
	// Manifests and Files are what it keeps besides jobs, for operators; nil: nothing.
	Manifests *Manifests
	Files     Files
	// Open names what can be used without credentials, besides a contract without a token.
	Open []string
}

// Outbox publishes the messages of a contract.
type Outbox struct {
	// Deliver receives messages oldest first and at least once; after an error it receives the
	// same ones again.
	Deliver func(ctx context.Context, messages []job.Message) error
	// Await waits while this node may not deliver, and reports false when ctx has ended. Nil means
	// that it always may.
	Await func(ctx context.Context) bool
}

// Validate returns an error that names missing fields. The outbox of a contract is switched on by
// its jobs alone, so one without the other is a defect.
func (c *Contract) Validate() error {
	switch {
	case c.Name == "" || len(c.JobTypes) == 0 || c.Mount == nil:
		return fmt.Errorf("contract %q: Name, JobTypes and Mount are required", c.Name)
	case len(c.PublishingJobTypes()) > 0 && (c.Outbox == nil || c.Outbox.Deliver == nil):
		return fmt.Errorf("contract %s: its jobs publish messages that no Outbox takes", c.Name)
	case len(c.PublishingJobTypes()) == 0 && c.Outbox != nil:
		return fmt.Errorf("contract %s: it has an Outbox and no jobs that publish", c.Name)
	}
	for _, o := range c.Operators {
		isType := func(t engine.JobType) bool { return t.Name == o.JobType }
		if o.Answer == nil || !slices.ContainsFunc(c.JobTypes, isType) {
			return fmt.Errorf("contract %s: Operators for %q need Answer and such jobs", c.Name,
				o.JobType)
		}
	}
	return nil
}

// PublishingJobTypes returns the names of the job types that publish messages.
func (c *Contract) PublishingJobTypes() []string {
	var names []string
	for _, t := range c.JobTypes {
		if t.Publish {
			names = append(names, t.Name)
		}
	}
	return names
}

// SettingError is an error that an operator ends by changing a setting.
type SettingError struct {
	Setting string
	Err     error
}

func (e *SettingError) Error() string { return e.Setting + ": " + e.Err.Error() }

// Unwrap returns the cause.
func (e *SettingError) Unwrap() error { return e.Err }
