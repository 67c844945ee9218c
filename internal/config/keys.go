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
			"Address that every contract without a listener of its own is served on.",
			setting.Address(&s.Listen)),
		setting.Define("data_dir", "millrace-data",
			"Directory for the database, objects and generated secrets of this node.",
			setting.Path(&s.DataDir)),
		setting.Define("store", "sqlite",
			"Where jobs live: sqlite (a file in data_dir) or a postgres:// URL.",
			setting.Store(&s.Store)),
		setting.Define("postgres.max_connections", "16",
			"Most connections of this node to PostgreSQL, beside one that listens.",
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
			"Allows listening beyond loopback without TLS, on a network where nobody listens in.",
			setting.Bool(&s.TrustedNetwork)),
		setting.Define("trusted_proxies", "",
			"Networks (CIDR) of proxies that are believed about the client's address (X-Forwarded-For or Forwarded).",
			setting.Networks(&s.TrustedProxies)),
		setting.Define("shutdown_grace", "25s",
			"Time that running work gets to finish when the process is asked to stop.",
			setting.Duration(&s.ShutdownGrace, 0, time.Hour)),
		setting.Define("prune_interval", "60s",
			"Time between two removals of what is past its retention.",
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
			"Makes this node's objects and streams those of the PostgreSQL database, in place of the ones that other nodes had.",
			setting.Bool(&s.RebindStorage)),
		setting.Define("operator.token", "",
			"Token of the admin API and the console; made on first start when empty.",
			setting.Token(&s.Operator.Token)),
		setting.Define("log.format", "text", "How log lines are written: text or json.",
			setting.Choice(&s.Log.Format, "text", "json")),
		setting.Define("log.level", "info",
			"Least severe level that is logged: debug, info, warn or error.",
			setting.Choice(&s.Log.Level, "debug", "info", "warn", "error")),
		setting.Define("secrets.pepper_file", "",
			"File with the secret that API keys are hashed under, the same on every node; pepper in data_dir when empty.",
			setting.OptionalPath(&s.Secrets.PepperFile)),
		setting.Define("egress.allow", "",
			"Networks (CIDR) beside the public ones that calls to others may go to.",
			setting.Networks(&s.Egress.Allow)),
		setting.Define("telemetry.otlp_endpoint", "",
			"URL of an OpenTelemetry collector (OTLP over HTTP) that traces go to; none when empty.",
			setting.URL(&s.Telemetry.OTLPEndpoint)),
		setting.Define("worker.token", "",
			"Token that workers outside the server send; open on loopback when empty, needed elsewhere.",
			setting.Token(&s.Worker.Token)),
	}
}

// storageKeys declares where objects and streams are.
func (s *Settings) storageKeys() []setting.Key {
	return []setting.Key{
		setting.Define("objects.url", "",
			"S3 store, as s3://?region=REGION&endpoint=URL, that objects are kept in; a directory in data_dir when empty.",
			objectsURL(&s.Objects.URL)),
		setting.Define("objects.bucket", "millrace",
			"Bucket of what is not given a bucket of its own; in data_dir a directory.",
			setting.Bucket(&s.Objects.Bucket)),
		setting.Define("stream.url", "",
			"NATS cluster that streams are kept in, as nats://HOST:PORT,…; a server in the process when empty.",
			streamURLs(&s.Stream.URL)),
		setting.Define("stream.listen", "",
			"Address where the NATS server in the process can be reached; none when empty.",
			setting.OptionalAddress(&s.Stream.Listen)),
		setting.Define("stream.token", "",
			"Token that is sent to stream.url, and asked for on stream.listen; open on loopback when empty.",
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

func envName(name string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(name, ".", "__"))
}
