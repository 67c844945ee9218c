package config

import (
	"net/netip"
	"path/filepath"
	"slices"
	"time"

	"github.com/millrace/millrace/internal/setting"
)

// Settings are the settings of a node, resolved. Load fills them together with what the contracts
// declare; they do not change.
type Settings struct {
	// Listen is the address of the common listener, which serves all contracts without one of
	// their own.
	Listen string
	// DataDir is the directory of all files of this node.
	DataDir string
	// Store is the database of the jobs: SQLite in DataDir, or the URL of a PostgreSQL.
	Store    setting.StoreURL
	Postgres Postgres
	// Contracts are the names of the contracts that are served.
	Contracts []string
	// Token is the token of the open contracts that have none of their own. Load has copied it to
	// them.
	Token setting.Secret
	TLS   TLS
	// TrustedNetwork allows listening beyond loopback without TLS.
	TrustedNetwork bool
	// TrustedProxies are the networks of proxies whose headers name the client's address.
	TrustedProxies []netip.Prefix
	// ShutdownGrace is the time that requests and running jobs get when the node stops.
	ShutdownGrace time.Duration
	// PruneInterval is the time between two deletions of data past its retention.
	PruneInterval time.Duration
	// InboxRetention is how long requests stay in the inbox that were submitted or refused.
	InboxRetention time.Duration
	Operator       Operator
	Log            Log
	Secrets        Secrets
	Egress         Egress
	// Callbacks says whether jobs may have callbacks (WH-005).
	Callbacks bool
	Telemetry Telemetry
	Worker    Worker
	Objects   Objects
	Stream    Stream
	// IgnoreLocalStore allows a start on PostgreSQL although DataDir has a SQLite database with
	// jobs.
	IgnoreLocalStore bool
	// RebindStorage binds the database to the objects and streams of this node.
	RebindStorage bool

	// stores are the kinds of database that Store can name.
	stores []setting.StoreKind
	// groups are what the contracts declare, served or not.
	groups []*setting.Group
	// parts are what other parts of the node declare.
	parts []*setting.Group
	// keys are all keys outside sections: those of the node, of the contracts, and of the parts.
	keys []setting.Key
	// sections are the tables whose members have names that users choose.
	sections []*setting.Section
	// unknownVariables are sentences about variables that look like settings and are none.
	unknownVariables []string
	// origins says of a key where its value was written. A key that is left out has its default.
	origins map[string]string
}

// Postgres is how a node uses PostgreSQL.
type Postgres struct {
	// MaxConnections is the size of the connection pool. One more connection listens for
	// notifications.
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
	Token setting.Secret // empty: made on first start
	// ReadToken reads everything and changes nothing; empty: there is none.
	ReadToken setting.Secret
	// ReadPayloads shows what jobs carry to it.
	ReadPayloads bool
	// AuditRetention is how long entries of the audit are kept.
	AuditRetention time.Duration
}

// Log says how the process logs.
type Log struct {
	// Format is text or json.
	Format string
	// Level is the least severe level that is logged: debug, info, warn or error.
	Level string
}

// Secrets names the files with secrets.
type Secrets struct {
	PepperFile string // empty: see Settings.PepperFile
}

// PepperFile returns the file with the secret under which API keys are hashed.
func (s *Settings) PepperFile() string {
	if s.Secrets.PepperFile != "" {
		return s.Secrets.PepperFile
	}
	return filepath.Join(s.DataDir, "pepper")
}

// Egress restricts requests to addresses that users name.
type Egress struct {
	Allow []netip.Prefix // besides public addresses (G-FR-50)
}

// Telemetry says where traces are sent, and where they are seen.
type Telemetry struct {
	OTLPEndpoint string // empty: no traces
	TraceURL     string // of the page of a trace; empty: there is none
}

// Objects says where objects are kept.
type Objects struct {
	URL    string // empty: a directory in DataDir
	Bucket string
}

// Stream says where streams are kept.
type Stream struct {
	// URL names the servers of a NATS cluster; empty for an embedded server.
	URL string
	// Listen is the address of the embedded server; empty if it is used in the process alone.
	Listen string
	Token  setting.Secret
}

// Worker holds the settings of the worker API.
type Worker struct {
	Token setting.Secret // empty: open, on loopback only (G-X-20)
}

// Listener is an address to listen on, with the setting it is from.
type Listener struct{ Setting, Address string }

// Listeners returns the addresses to listen on: the common one, those of contracts with their own,
// and that of the embedded NATS server. Contracts may share an address.
func (s *Settings) Listeners() []Listener {
	all := []Listener{{"listen", s.Listen}}
	for _, g := range s.served() {
		if *g.Listen != "" && !slices.ContainsFunc(all, func(l Listener) bool {
			return l.Address == *g.Listen
		}) {
			all = append(all, Listener{g.Name + ".listen", *g.Listen})
		}
	}
	if s.Stream.Listen != "" && s.UsesStreams() {
		all = append(all, Listener{"stream.listen", s.Stream.Listen})
	}
	return all
}

// UsesStreams reports whether a contract that is served needs streams.
func (s *Settings) UsesStreams() bool {
	return slices.ContainsFunc(s.served(), func(g *setting.Group) bool {
		return g.UsesStreams != nil && g.UsesStreams()
	})
}

// OnLoopback reports whether every listener, that of the streams included, can be reached from this
// machine only.
func (s *Settings) OnLoopback() bool {
	return (s.Stream.Listen == "" || setting.IsLoopback(s.Stream.Listen)) &&
		!slices.ContainsFunc(s.Listeners(), func(l Listener) bool {
			return !setting.IsLoopback(l.Address)
		})
}

// ContractNames returns the names of all contracts, served or not.
func (s *Settings) ContractNames() []string {
	names := make([]string, len(s.groups))
	for i, g := range s.groups {
		names[i] = g.Name
	}
	return names
}

// Serves reports whether a contract is served.
func (s *Settings) Serves(contract string) bool {
	return slices.Contains(s.Contracts, contract)
}

// served returns what the contracts declare that are served.
func (s *Settings) served() []*setting.Group {
	var all []*setting.Group
	for _, g := range s.groups {
		if s.Serves(g.Name) {
			all = append(all, g)
		}
	}
	return all
}

// OpenContracts returns the names of the contracts that are served and require no credentials.
func (s *Settings) OpenContracts() []string {
	var open []string
	for _, g := range s.served() {
		if g.Token != nil && g.Token.Empty() {
			open = append(open, g.Name)
		}
	}
	return open
}
