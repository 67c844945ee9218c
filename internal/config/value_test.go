package config

import (
	"strings"
	"testing"
)

var valueTests = []struct {
	key  string
	toml string // "" leaves the file out
	text string // "" leaves environment and flags out
	want string // as resolved; "!" and what is expected when it is wrong
}{
	{"listen", `":8080"`, "",
		"!relay.token and worker.token; set operator.token; set tls.cert and tls.key, or trusted_network = true"},
	{"listen", `"[::1]:0"`, "[::1]:0", "[::1]:0"},
	{"listen", `"localhost:65535"`, "localhost:65535", "localhost:65535"},
	{"listen", `""`, "", "!an address"},
	{"listen", `"127.0.0.1"`, "127.0.0.1", "!an address"},
	{"listen", `"127.0.0.1:"`, "127.0.0.1:", "!an address"},
	{"listen", `"127.0.0.1:http"`, "127.0.0.1:http", "!an address"},
	{"listen", `"127.0.0.1:65536"`, "127.0.0.1:65536", "!an address"},
	{"listen", `"127.0.0.1:-1"`, "127.0.0.1:+1", "!an address"},
	{"listen", `"127.1:80"`, "127.0.0.256:80", "!an address"},
	{"listen", `"::1:80"`, "::1:80", "!an address"},
	{"listen", `"a b:80"`, "a b:80", "!an address"},
	{"listen", `"http://x:80"`, "http://x:80", "!an address"},
	{"listen", `"u:hush@x:80"`, "u:hush@x:80", "!an address"},
	{"data_dir", `"/var/lib/millrace"`, "/var/lib/millrace", "/var/lib/millrace"},
	{"data_dir", `"a\nb"`, "a\nb", "!a path"},
	{"data_dir", `5`, "", "!a path"},
	{"store", `"sqlite"`, "sqlite", "sqlite"},
	{"store", `"postgres://u:hush@h:5432/db?sslmode=require"`,
		"postgres://u:hush@h:5432/db?sslmode=require",
		"postgres://u:***@h:5432/db?sslmode=require"},
	{"store", `"mysql://u:hush@h/db"`, "mysql://u:hush@h/db", `!expected sqlite, or postgres://`},
	{"store", `"host=h password=hush"`, "host=h password=hush", `!expected sqlite, or postgres://`},
	{"store", `"postgre"`, "postgre", `!"postgre"; expected sqlite, or postgres://`},
	{"contracts", `["relay"]`, " relay ", "relay"},
	{"contracts", `[]`, ",", "!expected"},
	{"contracts", `"relay"`, "", `!"relay"; expected a list such as ["forgerun"]`},
	{"contracts", `["relai"]`, "relai",
		`!expected names out of forgerun, images, taskflow, fetchbox, relay; unknown "relai", did you mean "relay"?`},
	{"contracts", `["relay", "relay"]`, "relay,relay",
		`!expected each name once; "relay" comes twice`},
	{"contracts", `["relay", 5]`, "", `!["relay", 5]; expected a list such as ["forgerun"]`},
	{"contracts", `["a://u:hush@h"]`, "a://u:hush@h", `!unknown "a://u:***@h"`},
	{"contracts", `[[1,2,3,4,5,6,7,8,9],{a=1}]`, "",
		`![[1, 2, 3, 4, 5, 6, 7, 8, …], a table]; expected`},
	{"contracts", `["relay", "forgerun"]`, "relay, forgerun", "relay,forgerun"},
	{"trusted_network", `true`, "true", "true"},
	{"trusted_network", `false`, "false", "false"},
	{"trusted_network", `"true"`, "yes", "!expected true or false"},
	{"trusted_network", `1`, "1", "!expected true or false"},
	{"trusted_network", `{a = 1}`, "", "!unknown key"},
	{"postgres.max_connections", `4`, "4", "4"},
	{"postgres.max_connections", `0`, "1001", "!"},
	{"shutdown_grace", `"0s"`, "0s", "0s"},
	{"shutdown_grace", `"1h"`, "60m", "1h"},
	{"shutdown_grace", `"1500ms"`, "1.5s", "1.5s"},
	{"shutdown_grace", `25`, "25", "!a duration with its unit, such as 30s or 10m, from 0s to 1h"},
	{"shutdown_grace", `"0"`, "0", "!a duration"},
	{"shutdown_grace", `"-1s"`, "-1s", "!a duration"},
	{"shutdown_grace", `"61m"`, "1h1ns", "!a duration"},
	{"shutdown_grace", `07:32:00`, "30 s", "!a duration"},
	{"prune_interval", `"10m"`, "10m", "10m"},
	{"prune_interval", `"999ms"`, "24h1s", "!from 1s to 24h"},
	{"operator.read_token", `"reader"`, "reader", "***"},
	{"operator.read_token", `"a b"`, "a b", "!***; expected a string of printable ASCII"},
	{"operator.read_payloads", `false`, "false", "false"},
	{"operator.read_payloads", `"no"`, "2", "!"},
	{"operator.audit_retention", `"1h"`, "1h", "1h"},
	{"operator.audit_retention", `"59m"`, "87601h", "!"},
	{"operator.token", `"a-b_c.~9"`, "a-b_c.~9", "***"},
	{"operator.token", `""`, "", ""},
	{"operator.token", `5`, "hush hush", "!***; expected a string of printable ASCII"},
	{"operator.token", `"hush\n"`, "hush\n", "!***; expected a string of printable ASCII"},
	{"operator.token", `["hush"]`, "hüsh", "!***; expected a string of printable ASCII"},
	{"log.format", `"json"`, "json", "json"},
	{"log.format", `"JSON"`, "JSON", "!expected text or json"},
	{"log.level", `"error"`, "error", "error"},
	{"log.level", `"trace"`, "trace", "!expected debug, info, warn or error"},
	{"tls.key", `"-----BEGIN hush"`, "", "!tls.cert"},
	{"tls.key", `"-----BEGIN\nhush"`, "-----BEGIN\nhush", `!"***"; expected a path`},
	{"relay.listen", `"127.0.0.1:9"`, "127.0.0.1:9", "127.0.0.1:9"},
	{"relay.listen", `""`, "", ""},
	{"relay.listen", `"9"`, "9", "!an address"},
	{"relay.token", `"hush"`, "hush", "***"},
	{"relay.v1", `false`, "false", "false"},
	{"relay.max_num_jobs", `1`, "1", "1"},
	{"relay.max_num_jobs", `100_000`, "100000", "100000"},
	{"relay.max_num_jobs", `0`, "0", "!a whole number from 1 to 100000"},
	{"relay.max_num_jobs", `100001`, "100001", "!a whole number"},
	{"relay.max_num_jobs", `1000.0`, "1e3", "!a whole number"},
	{"relay.max_num_jobs", `"1000"`, "99999999999999999999", "!a whole number"},
	{"relay.body_limit", `"1KiB"`, "1024B", "1KiB"},
	{"relay.body_limit", `"1GiB"`, "1024MiB", "1GiB"},
	{"relay.body_limit", `"1MB"`, "1000KB", "1MB"},
	{"relay.body_limit", `1024`, "1024", "!a size with its unit, such as 64MiB, from 1KiB to 1GiB"},
	{"relay.body_limit", `"1023B"`, "2GiB", "!a size"},
	{"relay.body_limit", `"64mib"`, "64 MiB", "!a size"},
	{"relay.body_limit", `"-1KiB"`, "1.5MiB", "!a size"},
	{"relay.body_limit", `"KiB"`, "9223372036854775807TiB", "!a size"},
	{"relay.retryable_status", `503`, "503", "503"},
	{"relay.retryable_status", `500`, "500", "!500"},
	{"relay.retryable_status", `"429"`, "429 ", "!expected 429 or 503"},
	{"secrets.pepper_file", `"/run/pepper"`, "/run/pepper", "/run/pepper"},
	{"secrets.pepper_file", `"a\nb"`, "a\nb", "!a path"},
	{"egress.allow", `["10.0.0.0/8", "fd00::/8"]`, "10.0.0.0/8, fd00::/8", "10.0.0.0/8,fd00::/8"},
	{"egress.allow", `[]`, "", ""},
	{"egress.allow", `["10.1.2.3/32"]`, "10.1.2.3/32", "10.1.2.3/32"},
	{"egress.allow", `"10.0.0.0/8"`, "", `!expected a list of networks such as ["10.0.0.0/8"]`},
	{"egress.allow", `["10.0.0.1/8"]`, "10.0.0.1/8",
		"!without a host part; for 10.0.0.1/8 that is 10.0.0.0/8"},
	{"egress.allow", `["10.1.2.3"]`, "10.1.2.3",
		`!a single address as 10.1.2.3/32; "10.1.2.3" is none`},
	{"egress.allow", `["::ffff:10.0.0.0/104"]`, "::ffff:10.0.0.0/104", "!is IPv4 within IPv6"},
	{"egress.allow", `["10.0.0.0/33"]`, "fe80::%eth0/64", "!expected networks such as"},
	{"egress.allow", `["example.org", "10.0.0.0/8"]`, ",", "!expected networks such as"},
	{"egress.allow", `["10.0.0.0/8", "10.0.0.0/8"]`, "10.0.0.0/8,10.0.0.0/8",
		"!10.0.0.0/8 comes twice"},
	{"telemetry.otlp_endpoint", `"http://127.0.0.1:4318"`, "http://127.0.0.1:4318",
		"http://127.0.0.1:4318"},
	{"telemetry.otlp_endpoint", `"https://otel.example.org/base"`, "",
		"https://otel.example.org/base"},
	{"telemetry.otlp_endpoint", "", "https://[::1]:4318/", "https://[::1]:4318/"},
	{"telemetry.otlp_endpoint", `""`, "", ""},
	{"telemetry.otlp_endpoint", `"127.0.0.1:4318"`, "otel:4318", "!a URL"},
	{"telemetry.otlp_endpoint", `"ftp://otel"`, "http://", "!a URL"},
	{"telemetry.otlp_endpoint", `"http://u:hush@otel"`, "http://u:hush@otel", "!a URL"},
	{"telemetry.otlp_endpoint", `"http://otel?key=x"`, "http://otel#x", "!a URL"},
	{"telemetry.otlp_endpoint", `"http://otel:70000"`, "http://a,b", "!a URL"},
	{"forgerun.listen", `"127.0.0.1:9"`, "127.0.0.1:9", "127.0.0.1:9"},
	{"forgerun.types", `["EXECUTE"]`, "EXECUTE", "EXECUTE"},
	{"forgerun.types", `["execute"]`, "EXECUTES", `!did you mean "EXECUTE"?`},
	{"forgerun.types", `[]`, ",", "!expected"},
	{"forgerun.workers", `1`, "1", "1"},
	{"forgerun.workers", `0`, "1001", "!from 1 to 1000"},
	{"forgerun.jobs_per_worker", `0`, "0", "!from 1 to 1000"},
	{"forgerun.lease", `"10s"`, "10s", "10s"},
	{"forgerun.lease", `"0s"`, "99ms", "!from 100ms to 1h"},
	{"forgerun.heartbeat", `"0s"`, "0s", "!from 10ms to 1h"},
	{"forgerun.max_run_time", `"1m"`, "60s", "1m"},
	{"forgerun.max_run_time", `"0s"`, "0s", "!from 1s to 24h"},
	{"forgerun.cancel_window", `"2s"`, "2s", "2s"},
	{"forgerun.max_retries", `0`, "0", "0"},
	{"forgerun.max_retries", `-1`, "-1", "!from 0 to 1000"},
	{"forgerun.auto_retry", `true`, "true", "true"},
	{"forgerun.rate_limit_per_minute", `0`, "0", "!from 1 to"},
	{"forgerun.quota_per_day", `0`, "0", "0"},
	{"forgerun.quota_per_day", `-1`, "-1", "!from 0 to"},
	{"forgerun.anonymous_rate_limit_per_minute", `0`, "0", "!from 1 to"},
	{"forgerun.max_active_jobs", `0`, "0", "!from 1 to 1000000"},
	{"forgerun.queue_size", `0`, "0", "!from 1 to"},
	{"forgerun.body_limit", `"2MiB"`, "2MiB", "2MiB"},
	{"forgerun.payload_limit", `"1B"`, "17MiB", "!from 1KiB to 16MiB"},
	{"forgerun.failure_probability", `0.25`, "0.25", "0.25"},
	{"forgerun.failure_probability", `1`, "1", "1"},
	{"forgerun.failure_probability", `0.0`, "0", "0"},
	{"forgerun.failure_probability", `1.01`, "-0.1", "!a number from 0 to 1"},
	{"forgerun.failure_probability", `nan`, "NaN", "!a number"},
	{"forgerun.failure_probability", `"0.5"`, "0x1p-2", "!a number"},
	{"forgerun.failure_probability", `inf`, "0,5", "!a number"},
	{"forgerun.failure_probability", `true`, "1e400", "!a number"},
	{"forgerun.duration_scale", `0.001`, "1e-3", "0.001"},
	{"forgerun.duration_scale", `0`, "0", "!a number from 0.00001 to 1000"},
	{"forgerun.retention", `"0s"`, "0s", "!from 1s to 87600h"},
	{"forgerun.revoked_key_retention", `"0s"`, "0s", "!from 1s to 87600h"},
	{"forgerun.key_lifetime", `"0s"`, "0s", "0s"},
	{"webhook.timeout", `"250ms"`, "250ms", "250ms"},
	{"webhook.timeout", `"0s"`, "0s", "!from 10ms to 5m"},
	{"webhook.max_tries", `0`, "101", "!from 1 to 100"},
	{"webhook.backoff_factor", `1.5`, "1.5", "1.5"},
	{"webhook.backoff_factor", `0.9`, "0.9", "!a number from 1 to 100"},
	{"webhook.backoff_max", `"0s"`, "169h", "!from 1ms to 168h"},
	{"taskflow.max_concurrent", `3`, "3", "3"},
	{"taskflow.max_concurrent", `0`, "0", "!from 1 to 1000000"},
	{"taskflow.lease", `"2m"`, "2m", "2m"},
	{"taskflow.lease", `"0s"`, "25h", "!from 100ms to 24h"},
	{"taskflow.token", `"t"`, "t", "***"},
	{"taskflow.token", `"hush hush"`, "hush hush", "!printable ASCII"},
	{"worker.token", `"t"`, "t", "***"},
	{"taskflow.listen", `"127.0.0.1:1"`, "127.0.0.1:1", "127.0.0.1:1"},
	{"taskflow.queues.mail_2.handler", `"simulate"`, "simulate", "simulate"},
	{"taskflow.queues.mail.handler", `"none"`, "none", "none"},
	{"taskflow.queues.mail.handler", `""`, "exec", "!expected none, http or simulate"},
	{"taskflow.queues.mail.handler", `"http"`, "http",
		`!"taskflow.queues.mail.url" is missing: "taskflow.queues.mail.handler" is http`},
	{"taskflow.queues.mail.url", `"http://h/p"`, "http://h/p",
		`!is for the handler http, and "taskflow.queues.mail.handler" is none (default)`},
	{"taskflow.queues.mail.url", `"http://u:hush@h/"`, "ftp://h/", "!expected a URL such as"},
	{"taskflow.queues.mail.secret", `"hush"`, "whsec_hush",
		"!expected whsec_ and the base64 of 24 to 64 bytes"},
	{"taskflow.queues.mail.timeout", `"1s"`, "1s", "1s"},
	{"taskflow.queues.mail.timeout", `"0s"`, "61m", "!from 100ms to 1h"},
	{"taskflow.queues.mail.max_concurrent", `0`, "0", "0"},
	{"taskflow.queues.mail.max_concurrent", `-1`, "1000001", "!from 0 to 1000000"},
	{"taskflow.queues.mail.rate", `"100/1m"`, "100/60s", "100/1m"},
	{"taskflow.queues.mail.rate", `"1/100ms"`, "1/0.1s", "1/100ms"},
	{"taskflow.queues.mail.rate", `""`, "", ""},
	{"taskflow.queues.mail.rate", `100`, "100", "!a rate such as 100/1m: from 1 to 1000000 starts"},
	{"taskflow.queues.mail.rate", `"0/1m"`, "1000001/1m", "!in 100ms to 744h"},
	{"taskflow.queues.mail.rate", `"1/99ms"`, "1/745h", "!in 100ms to 744h"},
	{"taskflow.queues.mail.rate", `"1/60"`, "1/1m/1m", "!a rate such as 100/1m"},
	{"relay.queues.mail.rate", `"5/1s"`, "5/1s", "5/1s"},
	{"relay.queues.mail.rate", `"-5/1s"`, "5", "!a rate such as 100/1m"},
	{"objects.url", `"s3://?region=eu-central-1&endpoint=http://h:1&use_path_style=true"`,
		"s3://?region=eu-central-1&endpoint=http://h:1&use_path_style=true",
		"s3://?region=eu-central-1&endpoint=http://h:1&use_path_style=true"},
	{"objects.url", `"s3://bucket?region=x"`, "s3://?secret=hush",
		"!the bucket stands in objects.bucket, and keys where AWS clients look"},
	{"objects.url", `"s3://?endpoint=http://u:hush@h"`, "file:///x",
		"!expected s3://?region=REGION"},
	{"objects.bucket", `"my-bucket.1"`, "my-bucket.1", "my-bucket.1"},
	{"objects.bucket", `""`, "../x", "!expected 3 to 63 lower-case letters"},
	{"stream.url", `"nats://h:4222,tls://[::1]:4222"`, "nats://h:4222,tls://[::1]:4222",
		"nats://h:4222,tls://[::1]:4222"},
	{"stream.url", `"nats://u:hush@h:4222"`, "nats://h", "!the token stands in stream.token"},
	{"stream.url", `"http://h:4222"`, "nats://h:4222,", "!expected nats://HOST:PORT"},
	{"stream.token", `"t"`, "t", "***"},
	{"fetchbox.max_resources", `1`, "1", "1"},
	{"fetchbox.max_resources", `0`, "50001", "!from 1 to 50000"},
	{"fetchbox.max_manifest", `"1KiB"`, "1KiB", "1KiB"},
	{"fetchbox.tries", `0`, "101", "!from 1 to 100"},
	{"fetchbox.max_per_host", `0`, "0", "!from 1 to 10000"},
	{"fetchbox.max_lost_runs", "0", "10001", "!from 1 to 10000"},
	{"fetchbox.max_download", `"64GiB"`, "64GiB", "64GiB"},
	{"fetchbox.lease", `"0s"`, "25h", "!from 100ms to 24h"},
	{"fetchbox.token", `"t"`, "t", "***"},
	{"job_types.x.handler", `""`, "a b", "!expected a name"},
	{"job_types.x.proxy.fallbacks", `["a", "a"]`, "a,a", "!each once"},
	{"job_types.x.options", "", "5", "!expected a table such as"},
}

// TestValues writes each value into a file as TOML, or as text into the environment and a flag.
func TestValues(t *testing.T) {
	t.Parallel()
	for _, tt := range valueTests {
		var srcs []Sources
		if tt.toml != "" {
			srcs = append(srcs, Sources{File: mustFile(t, tt.key+" = "+tt.toml)})
		}
		if tt.text != "" {
			srcs = append(srcs, Sources{Environ: []string{envName(tt.key) + "=" + tt.text}},
				Sources{Flags: map[string]string{tt.key: tt.text}})
		}
		for _, src := range srcs {
			checkValue(t, src, tt.key, tt.want)
		}
	}
}

func checkValue(t *testing.T, src Sources, key, want string) {
	t.Helper()
	s, err := load(src)
	if text, wrong := strings.CutPrefix(want, "!"); wrong {
		if err == nil || !strings.Contains(err.Error(), text) ||
			!strings.Contains(err.Error(), `"`+key) {
			t.Errorf("%+v:\ngot  %v\nwant %s", src, err, text)
		} else if strings.Contains(err.Error(), "hush") {
			t.Errorf("%+v: a secret is shown: %v", src, err)
		}
		return
	}
	if err != nil {
		t.Errorf("%+v: %v", src, err)
		return
	}
	for _, e := range s.Resolved() {
		if e.Key == key && e.Value != want {
			t.Errorf("%+v: got %q, want %q", src, e.Value, want)
		}
	}
}
