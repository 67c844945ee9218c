package config

import (
	"net/netip"
	"path/filepath"
	"slices"
	"time"
)

// Settings are all settings of a node, resolved. Load fills them; they are passed by value and do
// not change.
type Settings struct {
	Listen           string   // address of the common listener
	DataDir          string   // directory of all files of this node
	Store            StoreURL // where jobs are stored
	Postgres         Postgres
	Contracts        []string // contracts that are served
	Token            Secret   // of the open contracts that have none of their own
	TLS              TLS
	TrustedNetwork   bool
	TrustedProxies   []netip.Prefix // proxies whose header names the client's address
	ShutdownGrace    time.Duration
	PruneInterval    time.Duration
	Operator         Operator
	Log              Log
	Secrets          Secrets
	Egress           Egress
	Telemetry        Telemetry
	ForgeRun         ForgeRun
	Webhook          Webhook
	Images           Images
	TaskFlow         TaskFlow
	FetchBox         FetchBox
	Relay            Relay
	Worker           Worker
	Objects          Objects
	Stream           Stream
	JobTypes         map[string]*JobType   // of FetchBox; default is always there
	Pools            map[string]*ProxyPool // of proxies
	IgnoreLocalStore bool                  // of SQLite, where Store is PostgreSQL
	RebindStorage    bool                  // this node's objects and streams become the database's

	unknownVariables []string
	// key → where its value was written; a key left out has its default
	origins map[string]string
}

// Postgres is how a node uses PostgreSQL.
type Postgres struct {
	MaxConnections int
}

// UnknownVariables returns a sentence about each environment variable that looks like a setting and
// is none, so that it has no effect.
func (s *Settings) UnknownVariables() []string { return s.unknownVariables }

// TLS names the certificate of all listeners; both files are set or neither is.
type TLS struct {
	Cert string
	Key  string
}

// Enabled reports whether listeners use TLS.
func (t TLS) Enabled() bool { return t.Cert != "" && t.Key != "" }

// Operator guards the admin API and the console.
type Operator struct {
	Token Secret // empty: made on first start
}

// Log says how the process logs.
type Log struct {
	Format string // text or json
	Level  string // debug, info, warn or error
}

// Secrets names the files with secrets.
type Secrets struct {
	PepperFile string // empty: see Settings.PepperFile
}

// PepperFile returns the file with the secret under which API keys are hashed.
func (s Settings) PepperFile() string {
	if s.Secrets.PepperFile != "" {
		return s.Secrets.PepperFile
	}
	return filepath.Join(s.DataDir, "pepper")
}

// Egress restricts requests to addresses that users name.
type Egress struct {
	Allow []netip.Prefix // beside public addresses (G-FR-50)
}

// Telemetry says where traces are sent.
type Telemetry struct {
	OTLPEndpoint string // empty: no traces
}

// ForgeRun holds the settings of the ForgeRun contract.
type ForgeRun struct {
	Listen                      string // empty: the common listener
	Types                       []string
	Workers                     int
	JobsPerWorker               int
	Lease                       time.Duration
	Heartbeat                   time.Duration
	MaxRunTime                  time.Duration
	CancelWindow                time.Duration // G-FR-32
	MaxRetries                  int
	BackoffBase                 time.Duration
	BackoffMax                  time.Duration
	AutoRetry                   bool // G-FR-06
	RateLimitPerMinute          int
	QuotaPerDay                 int // 0: none
	AnonymousRateLimitPerMinute int // of an address, G-FR-16
	MaxActiveJobs               int // over all nodes, G-FR-13
	QueueSize                   int
	BodyLimit                   int64 // bytes
	PayloadLimit                int64 // bytes, G-FR-17
	FailureProbability          float64
	DurationScale               float64 // G-FR-55
	Retention                   time.Duration
	RevokedKeyRetention         time.Duration
	KeyLifetime                 time.Duration // 0: for ever, G-FR-27
	LogRequests                 bool          // at info and not at debug
}

// Webhook holds the settings of deliveries.
type Webhook struct {
	Timeout       time.Duration
	MaxAttempts   int
	BackoffBase   time.Duration
	BackoffFactor float64
	BackoffMax    time.Duration
}

// TaskFlow holds the settings of the TaskFlow contract.
type TaskFlow struct {
	Listen        string // empty: the common listener
	Token         Secret // empty: open, on loopback only (G-TF-28)
	MaxConcurrent int    // over all nodes, TF-059
	Lease         time.Duration
	Queues        map[string]*TaskFlowQueue // that have settings of their own
}

// TaskFlowQueue holds the settings of one queue (G-TF-37).
type TaskFlowQueue struct {
	Handler       string // one of the Handler... words
	URL           string // of the handler http
	Secret        Secret // that its requests are signed with; empty: unsigned
	Timeout       time.Duration
	MaxConcurrent int // over all nodes, 0: no limit of its own (G-TF-25)
}

// Worker holds the settings of the worker API.
type Worker struct {
	Token Secret // empty: open, on loopback only (G-X-20)
}

// Relay holds the settings of the Relay contract.
type Relay struct {
	Listen          string // empty: the common listener
	Token           Secret // empty: open, on loopback only (G-RL-24)
	V1              bool   // G-RL-22
	MaxNumJobs      int    // G-RL-11
	BodyLimit       int64  // bytes, G-RL-13
	RetryableStatus int    // 429 or 503, G-RL-09
}

// Listener is an address to listen on, with the setting it is from.
type Listener struct{ Setting, Address string }

// Listeners returns the addresses to listen on: the common one, those of contracts with their own,
// and that of the embedded NATS server. Contracts may share an address.
func (s Settings) Listeners() []Listener {
	all := []Listener{{"listen", s.Listen}}
	add := func(setting, address string, used bool) {
		same := func(l Listener) bool { return l.Address == address }
		if used && address != "" && (setting == "stream.listen" ||
			!slices.ContainsFunc(all, same)) {
			all = append(all, Listener{setting, address})
		}
	}
	add("forgerun.listen", s.ForgeRun.Listen, s.Serves("forgerun"))
	add("images.listen", s.Images.Listen, s.Serves("images"))
	add("taskflow.listen", s.TaskFlow.Listen, s.Serves("taskflow"))
	add("fetchbox.listen", s.FetchBox.Listen, s.Serves("fetchbox"))
	add("relay.listen", s.Relay.Listen, s.Serves("relay"))
	add("stream.listen", s.Stream.Listen, s.UsesStreams())
	return all
}

// UsesStreams reports whether a contract that is served needs streams.
func (s Settings) UsesStreams() bool {
	return s.Serves("fetchbox") || (s.Serves("images") && s.Images.QueueURL == "")
}

// OnLoopback reports whether every listener, that of the streams included, can be reached from this
// machine only.
func (s Settings) OnLoopback() bool {
	return (s.Stream.Listen == "" || IsLoopback(s.Stream.Listen)) &&
		!slices.ContainsFunc(s.Listeners(), func(l Listener) bool {
			return !IsLoopback(l.Address)
		})
}

// Serves reports whether a contract is served.
func (s Settings) Serves(contract string) bool {
	return slices.Contains(s.Contracts, contract)
}
