package config

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/setting"
)

func TestTable(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	s := defaultSettings()
	for _, k := range s.keys {
		if seen[k.Name] || s.isSection(k.Name) || strings.Count(k.Name, ".") >= maxDepth ||
			k.Name != strings.ToLower(k.Name) {
			t.Errorf("%s is a bad name", k.Name)
		}
		seen[k.Name] = true
		if !strings.HasSuffix(k.Description, ".") || len(k.Description) > 120 {
			t.Errorf("%s: %q is no sentence", k.Name, k.Description)
		}
		if err := k.Value.Set(setting.Input{Raw: k.Default, IsText: true}); err != nil {
			t.Errorf("%s: its default: %v", k.Name, err)
		}
	}
	for _, section := range s.sections {
		for _, k := range section.Items.Members("none") {
			if k.Default != "" {
				t.Errorf("%s: nothing reads the default of %s", section.Name, k.Name)
			}
		}
	}
	for _, g := range s.groups {
		lacksToken := g.Token != nil && !seen[g.Name+".token"]
		if lacksToken || !seen[g.Name+".listen"] || g.Listen == nil {
			t.Errorf("%s lacks a key", g.Name)
		}
	}
}

func TestResolved(t *testing.T) {
	t.Parallel()
	s := mustLoad(t, Sources{Flags: map[string]string{"relay.token": "hush",
		"data_dir": "mein Ordner\u2028", "store": "postgres://u:hush@h/a&b",
		"egress.allow": "10.0.0.0/8, fd00::/8"}})
	const want = `contracts forgerun,images,taskflow,fetchbox,relay default
data_dir "mein Ordner\u2028" flag --set data_dir
egress.allow 10.0.0.0/8,fd00::/8 flag --set egress.allow
fetchbox.backoff_base 1s default
fetchbox.callback_secret "" default
fetchbox.connect_timeout 10s default
fetchbox.dlq_retention 2160h default
fetchbox.download_timeout 1m default
fetchbox.idempotency_window 336h default
fetchbox.lease 30s default
fetchbox.ledger_max_bytes 5GB default
fetchbox.ledger_retention 720h default
fetchbox.listen "" default
fetchbox.logs_retention 720h default
fetchbox.max_download 1GiB default
fetchbox.max_lost_runs 10 default
fetchbox.max_manifest 5MiB default
fetchbox.max_per_host 16 default
fetchbox.max_resources 1000 default
fetchbox.tasks_retention 168h default
fetchbox.token "" default
fetchbox.tries 3 default
forgerun.anonymous_rate_limit_per_minute 60 default
forgerun.auto_retry false default
forgerun.backoff_base 1s default
forgerun.backoff_max 1m default
forgerun.body_limit 1MiB default
forgerun.cancel_window 0s default
forgerun.duration_scale 1 default
forgerun.failure_probability 0.2 default
forgerun.heartbeat 5s default
forgerun.jobs_per_worker 1 default
forgerun.key_lifetime 2160h default
forgerun.lease 30s default
forgerun.listen "" default
forgerun.log_requests true default
forgerun.max_active_jobs 1000 default
forgerun.max_retries 3 default
forgerun.max_run_time 2m default
forgerun.payload_limit 256KiB default
forgerun.queue_size 100000 default
forgerun.quota_per_day 0 default
forgerun.rate_limit_per_minute 600 default
forgerun.retention 720h default
forgerun.revoked_key_retention 2160h default
forgerun.types EXECUTE,DEFERRED,EMIT_EVENT default
forgerun.workers 4 default
ignore_local_store false default
images.backoff_base 5s default
images.backoff_max 5m default
images.callback_secret "" default
images.cdn none default
images.cdn_url "" default
images.cloudfront_distribution "" default
images.listen "" default
images.lock_timeout 10m default
images.max_attempts 3 default
images.max_pixels 50000000 default
images.max_upload 32MiB default
images.queue_url "" default
images.sizes 100,400,800,1600 default
images.token "" default
images.workers 0 default
inbox.retention 168h default
job_types.default.command "" default
job_types.default.default_headers "" default
job_types.default.directory "" default
job_types.default.environment "" default
job_types.default.events prepare,tasks,finalize default
job_types.default.handler default default
job_types.default.max_output 16MiB default
job_types.default.memory 512MiB default
job_types.default.options "" default
job_types.default.proxy.fallbacks "" default
job_types.default.proxy.primary "" default
job_types.default.secret "" default
job_types.default.storage.bucket "" default
job_types.default.storage.key_prefix "" default
job_types.default.timeout 30s default
job_types.default.url "" default
listen 127.0.0.1:8080 default
log.format text default
log.level info default
objects.bucket millrace default
objects.url "" default
operator.audit_retention 2160h default
operator.read_payloads true default
operator.read_token "" default
operator.token "" default
postgres.max_connections 16 default
prune_interval 1m default
rebind_storage false default
relay.body_limit 64MiB default
relay.callback_secret "" default
relay.listen "" default
relay.max_num_jobs 1000 default
relay.retryable_status 429 default
relay.token *** flag --set relay.token
relay.v1 true default
secrets.pepper_file "" default
shutdown_grace 25s default
store postgres://u:***@h/a&b flag --set store
stream.listen "" default
stream.token "" default
stream.url "" default
taskflow.callback_secret "" default
taskflow.idempotency_window 24h default
taskflow.lease 1m default
taskflow.listen "" default
taskflow.max_concurrent 10 default
taskflow.token "" default
telemetry.otlp_endpoint "" default
telemetry.trace_url "" default
tls.cert "" default
tls.key "" default
token "" default
trusted_network false default
trusted_proxies "" default
webhook.backoff_base 1s default
webhook.backoff_factor 5 default
webhook.backoff_max 2h default
webhook.callbacks true default
webhook.max_tries 8 default
webhook.timeout 5s default
worker.token "" default
`
	for range 3 {
		var b bytes.Buffer
		if err := s.Resolved().WriteText(&b); err != nil ||
			strings.Join(strings.Fields(b.String()), " ") != strings.Join(strings.Fields(want),
				" ") {
			t.Fatalf("%v, got\n%s\nwant\n%s", err, b.String(), want)
		}
	}
	var b bytes.Buffer
	if err := s.Resolved().WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	printed := s.Resolved()
	for i := range printed {
		printed[i].Default = "" // the console alone shows it
	}
	var entries []Entry
	if err := json.Unmarshal(b.Bytes(), &entries); err != nil || !slices.Equal(entries, printed) {
		t.Errorf("%v, got %s", err, b.String())
	}
	const first = "[\n  {\n    \"key\": \"contracts\",\n    \"value\": " +
		"\"forgerun,images,taskflow,fetchbox,relay\",\n    \"origin\": \"default\",\n" +
		"    \"doc\": \"Contracts that are served.\"\n  },\n"
	if !strings.HasPrefix(b.String(), first) || !strings.Contains(b.String(), "a&b") ||
		strings.Contains(b.String(), "hush") {
		t.Errorf("got %s", b.String())
	}
}
