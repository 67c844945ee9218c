package config

import (
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/setting"
)

// nodeKeys declares the settings of the node, whatever it serves.
func (s *Settings) nodeKeys() []setting.Key {
	return slices.Concat(s.serviceKeys(), s.operatorKeys(), s.storageKeys())
}

// serviceKeys declares what the node serves, and where.
func (s *Settings) serviceKeys() []setting.Key {
	names := s.ContractNames()
	return []setting.Key{
		setting.Define("listen", "127.0.0.1:8080",
			"Address of the common listener, which serves all contracts without a listener of their own.",
			setting.Address(&s.Listen)),
		setting.Define("data_dir", "millrace-data",
			"Directory for the database, objects and generated secrets of this node.",
			setting.Path(&s.DataDir)),
		setting.Define("store", "sqlite",
			"Database of the jobs: sqlite (a file in data_dir) or a postgres:// URL.",
			setting.Store(&s.Store, s.stores)),
		setting.Define("postgres.max_connections", "16",
			"Maximum number of connections of this node to PostgreSQL, besides one for notifications.",
			setting.Int(&s.Postgres.MaxConnections, 1, 1000)),
		setting.Define("contracts", strings.Join(names, ","), "Contracts that are served.",
			setting.Names(&s.Contracts, names...)),
		setting.Define("token", "",
			"Token of "+joinAnd(s.unauthenticatedNames())+", and of their workers, for each "+
				"that has none of its own.",
			setting.Token(&s.Token)),
		setting.Define("tls.cert", "", "Certificate file (PEM) of all listeners; needs tls.key.",
			setting.OptionalPath(&s.TLS.Cert)),
		setting.Define("tls.key", "", "Private key file (PEM) of tls.cert.",
			setting.OptionalPath(&s.TLS.Key)),
		setting.Define("trusted_network", "false",
			"Allows listening beyond loopback without TLS, on a network that is private.",
			setting.Bool(&s.TrustedNetwork)),
		setting.Define("trusted_proxies", "",
			"Networks (CIDR) of proxies whose X-Forwarded-For or Forwarded names the client's address.",
			setting.Networks(&s.TrustedProxies)),
		setting.Define("shutdown_grace", "25s",
			"Time that requests and running jobs get to finish when the process stops.",
			setting.Duration(&s.ShutdownGrace, 0, time.Hour)),
		setting.Define("prune_interval", "60s",
			"Interval at which data past its retention is deleted.",
			setting.Duration(&s.PruneInterval, time.Second, 24*time.Hour)),
	}
}

// operatorKeys declares how the node is operated, and what it may reach.
func (s *Settings) operatorKeys() []setting.Key {
	return []setting.Key{
		setting.Define("ignore_local_store", "false",
			"Starts on PostgreSQL although data_dir holds a SQLite database with jobs, which are left there.",
			setting.Bool(&s.IgnoreLocalStore)),
		setting.Define("rebind_storage", "false",
			"Binds the PostgreSQL database to the objects and streams of this node, instead of those of other nodes.",
			setting.Bool(&s.RebindStorage)),
		setting.Define("operator.token", "",
			"Token of the operator; one is generated on the first start when empty.",
			setting.Token(&s.Operator.Token)),
		setting.Define("operator.read_token", "",
			"Token that reads everything in the admin API and changes nothing; none when empty.",
			setting.Token(&s.Operator.ReadToken)),
		setting.Define("operator.read_payloads", "true",
			"Shows the read token payloads, results, progress and the texts of failures.",
			setting.Bool(&s.Operator.ReadPayloads)),
		setting.Define("operator.audit_retention", "2160h",
			"How long the entries of the audit are kept.",
			setting.Duration(&s.Operator.AuditRetention, time.Hour, 87600*time.Hour)),
		setting.Define("inbox.retention", "168h",
			"How long requests that were submitted by SQL are kept when they are submitted or refused.",
			setting.Duration(&s.InboxRetention, time.Hour, 87600*time.Hour)),
		setting.Define("log.format", "text", "Format of the log: text or json.",
			setting.Choice(&s.Log.Format, "text", "json")),
		setting.Define("log.level", "info",
			"Least severe level that is logged: debug, info, warn or error.",
			setting.Choice(&s.Log.Level, "debug", "info", "warn", "error")),
		setting.Define("secrets.pepper_file", "",
			"File with the secret that API keys are hashed under, the same on every node; pepper in data_dir when empty.",
			setting.OptionalPath(&s.Secrets.PepperFile)),
		setting.Define("webhook.callbacks", "true",
			"Takes callbacks of single jobs; when false a request with one is refused.",
			setting.Bool(&s.Callbacks)),
		setting.Define("egress.allow", "",
			"Networks (CIDR) that outbound requests may reach besides public addresses.",
			setting.Networks(&s.Egress.Allow)),
		setting.Define("telemetry.otlp_endpoint", "",
			"URL of an OpenTelemetry collector (OTLP over HTTP) that receives traces; none when empty.",
			setting.URL(&s.Telemetry.OTLPEndpoint)),
		setting.Define("telemetry.trace_url", "",
			"URL of the page of a trace, with {trace_id} in it, to which the console links jobs; no links when empty.",
			setting.TraceURL(&s.Telemetry.TraceURL)),
		setting.Define("worker.token", "",
			"Token of remote workers; open on loopback when empty, required elsewhere.",
			setting.Token(&s.Worker.Token)),
	}
}

// storageKeys declares where objects and streams are.
func (s *Settings) storageKeys() []setting.Key {
	return []setting.Key{
		setting.Define("objects.url", "",
			"S3 storage of the objects, as s3://?region=REGION&endpoint=URL; a directory in data_dir when empty.",
			objectsURL(&s.Objects.URL)),
		setting.Define("objects.bucket", "millrace",
			"Default bucket of the objects; a directory of that name in data_dir.",
			setting.Bucket(&s.Objects.Bucket)),
		setting.Define("stream.url", "",
			"NATS cluster of the streams, as nats://HOST:PORT,…; an embedded server when empty.",
			streamURLs(&s.Stream.URL)),
		setting.Define("stream.listen", "",
			"Address on which the embedded NATS server listens; none when empty.",
			setting.OptionalAddress(&s.Stream.Listen)),
		setting.Define("stream.token", "",
			"Token that stream.url gets and stream.listen requires; open on loopback when empty.",
			setting.Token(&s.Stream.Token)),
	}
}

// find returns the setting of a name. One of a section that names an item without settings belongs
// to nothing; see bind.
func (s *Settings) find(name string) (setting.Key, bool) {
	for _, k := range s.keys {
		if k.Name == name {
			return k, true
		}
	}
	return s.findNamed(name)
}

// bind returns the setting of a name, and gives the item that it names its defaults if it has no
// settings yet.
func (s *Settings) bind(name string) (setting.Key, bool) {
	if section, item, ok := s.findItem(name); ok {
		section.Items.Add(item)
	}
	return s.find(name)
}

// isSection reports whether a name is a section, as relay is of relay.token.
func (s *Settings) isSection(name string) bool {
	for _, k := range s.keys {
		if strings.HasPrefix(k.Name, name+".") {
			return true
		}
	}
	_, _, ok := s.findSection(name)
	return ok
}

// envName returns the environment variable of a key.
func envName(name string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(name, ".", "__"))
}
