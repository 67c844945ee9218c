package config

import (
	"slices"
	"strings"
	"time"
)

// key declares one setting. bind returns its field in a Settings, with the rules for its values.
type key struct {
	name         string
	defaultValue string // as it would be written in the environment
	description  string
	bind         func(*Settings) value
}

// ContractNames returns the names of all contracts, served or not.
func ContractNames() []string { return slices.Clone(contractNames) }

// contractNames are the values of the setting contracts.
var contractNames = []string{"forgerun", "images", "taskflow", "fetchbox", "relay"}

// forgeRunTypes are the values of the setting forgerun.types.
var forgeRunTypes = []string{"EXECUTE", "DEFERRED", "EMIT_EVENT"}

// The bounds of durations and numbers that have no bound of their own.
const (
	tenYears = 10 * 365 * 24 * time.Hour
	billion  = 1_000_000_000
)

// keys is the table of all settings, in the order of the documentation.
var keys = slices.Concat(nodeKeys, forgeRunKeys, webhookKeys, imagesKeys, taskFlowKeys,
	fetchBoxKeys, relayKeys, workerKeys, storageKeys)

// nodeKeys are the settings of the node, whatever it serves.
var nodeKeys = []key{
	{"listen", "127.0.0.1:8080",
		"Address that every contract without a listener of its own is served on.",
		func(s *Settings) value { return addressValue{p: &s.Listen} }},
	{"data_dir", "millrace-data",
		"Directory for the database, objects and generated secrets of this node.",
		func(s *Settings) value { return pathValue{p: &s.DataDir} }},
	{"store", "sqlite", "Where jobs live: sqlite (a file in data_dir) or a postgres:// URL.",
		func(s *Settings) value { return storeValue{&s.Store} }},
	{"postgres.max_connections", "16",
		"Most connections of this node to PostgreSQL, beside one that listens.",
		func(s *Settings) value { return intValue{&s.Postgres.MaxConnections, 1, 1000} }},
	{"contracts", "forgerun,images,taskflow,fetchbox,relay", "Contracts that are served.",
		func(s *Settings) value { return namesValue{&s.Contracts, contractNames} }},
	{"token", "", "Token of relay, taskflow, fetchbox and images, and of their workers, for each " +
		"that has none of its own.",
		func(s *Settings) value { return secretValue{&s.Token} }},
	{"tls.cert", "", "Certificate file (PEM) of all listeners; needs tls.key.",
		func(s *Settings) value { return pathValue{p: &s.TLS.Cert, optional: true} }},
	{"tls.key", "", "Private key file (PEM) of tls.cert.",
		func(s *Settings) value { return pathValue{p: &s.TLS.Key, optional: true} }},
	{"trusted_network", "false",
		"Allows listening beyond loopback without TLS, on a network where nobody listens in.",
		func(s *Settings) value { return boolValue{&s.TrustedNetwork} }},
	{"trusted_proxies", "",
		"Networks (CIDR) of proxies that are believed about the client's address (X-Forwarded-For or Forwarded).",
		func(s *Settings) value { return networksValue{&s.TrustedProxies} }},
	{"shutdown_grace", "25s",
		"Time that running work gets to finish when the process is asked to stop.",
		func(s *Settings) value { return durationValue{&s.ShutdownGrace, 0, time.Hour} }},
	{"prune_interval", "60s", "Time between two removals of what is past its retention.",
		func(s *Settings) value {
			return durationValue{&s.PruneInterval, time.Second, 24 * time.Hour}
		}},
	{"ignore_local_store", "false",
		"Starts on PostgreSQL although data_dir holds a SQLite database with jobs, which are left there.",
		func(s *Settings) value { return boolValue{&s.IgnoreLocalStore} }},
	{"rebind_storage", "false",
		"Makes this node's objects and streams those of the PostgreSQL database, in place of the ones that other nodes had.",
		func(s *Settings) value { return boolValue{&s.RebindStorage} }},
	{"operator.token", "",
		"Token of the admin API and the console; made on first start when empty.",
		func(s *Settings) value { return secretValue{&s.Operator.Token} }},
	{"log.format", "text", "How log lines are written: text or json.",
		func(s *Settings) value { return choiceValue{&s.Log.Format, []string{"text", "json"}} }},
	{"log.level", "info", "Least severe level that is logged: debug, info, warn or error.",
		func(s *Settings) value {
			return choiceValue{&s.Log.Level, []string{"debug", "info", "warn", "error"}}
		}},
	{"secrets.pepper_file", "",
		"File with the secret that API keys are hashed under, the same on every node; pepper in data_dir when empty.",
		func(s *Settings) value { return pathValue{p: &s.Secrets.PepperFile, optional: true} }},
	{"egress.allow", "", "Networks (CIDR) beside the public ones that calls to others may go to.",
		func(s *Settings) value { return networksValue{&s.Egress.Allow} }},
	{"telemetry.otlp_endpoint", "",
		"URL of an OpenTelemetry collector (OTLP over HTTP) that traces go to; none when empty.",
		func(s *Settings) value { return urlValue{&s.Telemetry.OTLPEndpoint} }},
}

// relayKeys are the settings of Relay.
var relayKeys = []key{
	{"relay.listen", "", "Address of a listener for Relay alone; the common one when empty.",
		func(s *Settings) value { return addressValue{p: &s.Relay.Listen, optional: true} }},
	{"relay.token", "", "Token that Relay clients send; open on loopback when empty.",
		func(s *Settings) value { return secretValue{&s.Relay.Token} }},
	{"relay.v1", "true", "Serves the older paths under /v1/queues as well.",
		func(s *Settings) value { return boolValue{&s.Relay.V1} }},
	{"relay.max_num_jobs", "1000",
		"Most jobs that one Relay poll is given, however many it asks for.",
		func(s *Settings) value { return intValue{&s.Relay.MaxNumJobs, 1, 100_000} }},
	{"relay.body_limit", "64MiB", "Largest request body that Relay takes.",
		func(s *Settings) value { return sizeValue{&s.Relay.BodyLimit, 1 << 10, 1 << 30} }},
	{"relay.retryable_status", "429", "Status that tells Relay clients to try again: 429 or 503.",
		func(s *Settings) value { return statusValue{&s.Relay.RetryableStatus, []int{429, 503}} }},
}

func findKey(name string) (key, bool) {
	for _, k := range keys {
		if k.name == name {
			return k, true
		}
	}
	return findNamedKey(name)
}

// isSection reports whether a name is a section, as relay is of relay.token.
func isSection(name string) bool {
	for _, k := range keys {
		if strings.HasPrefix(k.name, name+".") {
			return true
		}
	}
	_, _, ok := findNamedSection(name)
	return ok
}

func envName(name string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(name, ".", "__"))
}
