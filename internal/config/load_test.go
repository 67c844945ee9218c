package config

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/contract/forgerun"
	"github.com/millrace/millrace/internal/contract/relay"
)

// mustFile writes a settings file and gives its path.
func mustFile(tb testing.TB, text string) string {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "millrace.toml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		tb.Fatal(err)
	}
	return path
}

func mustLoad(tb testing.TB, src Sources) *loaded {
	tb.Helper()
	return mustLoadWith(tb, nil, src)
}

// mustLoadWith is mustLoad where handlers of FetchBox are compiled in.
func mustLoadWith(tb testing.TB, handlers map[string][]string, src Sources) *loaded {
	tb.Helper()
	s, err := loadWith(handlers, src)
	if err != nil {
		tb.Fatalf("Load: %v", err)
	}
	return s
}

// loadProblems loads what must not load and gives the lines of the error, with the file's directory
// cut off.
func loadProblems(tb testing.TB, src Sources) []string {
	tb.Helper()
	s, err := load(src)
	if err == nil {
		tb.Fatalf("Load succeeded with %+v", *s.Settings)
	}
	if s != nil {
		tb.Error("settings together with an error")
	}
	text := err.Error()
	if src.File != "" {
		text = strings.ReplaceAll(text, filepath.Dir(src.File)+"/", "")
	}
	return strings.Split(text, "\n")
}

func TestDefaults(t *testing.T) {
	t.Parallel()
	s := mustLoad(t, Sources{})
	got := s
	store, contracts := got.Store, got.Contracts
	if store.Reveal() != "sqlite" {
		t.Errorf("store %v", store)
	}
	if !slices.Equal(contracts, []string{"forgerun", "images", "taskflow", "fetchbox", "relay"}) ||
		!got.Serves("relay") || !got.Serves("forgerun") || !got.Serves("images") {
		t.Errorf("contracts %v", contracts)
	}
	if got.Listen != "127.0.0.1:8080" || got.DataDir != "millrace-data" || got.TrustedNetwork ||
		got.TLS.Enabled() || !got.Callbacks {
		t.Errorf("got %+v", got)
	}
	if got.ShutdownGrace != 25*time.Second || got.PruneInterval != time.Minute {
		t.Errorf("grace %v, prune %v", got.ShutdownGrace, got.PruneInterval)
	}
	if got.Log != (Log{"text", "info"}) || !got.Operator.Token.Empty() {
		t.Errorf("log %+v, operator %+v", got.Log, got.Operator)
	}
	if got.InboxRetention != 7*24*time.Hour || got.Operator.AuditRetention != 90*24*time.Hour ||
		!got.Operator.ReadToken.Empty() || !got.Operator.ReadPayloads { // AD-005, AD-006
		t.Errorf("operator %+v", got.Operator)
	}
	// G-RL-09, G-RL-11, G-RL-13, G-RL-22, G-RL-24
	want := relay.Settings{V1: true, MaxNumJobs: 1000, BodyLimit: 64 << 20, RetryableStatus: 429}
	if !reflect.DeepEqual(got.Relay, want) {
		t.Errorf("relay %+v, want %+v", got.Relay, want)
	}
	checkForgeRunDefaults(t, got)
	for _, e := range s.Resolved() {
		if e.Origin != "default" {
			t.Errorf("%s has origin %q", e.Key, e.Origin)
		}
	}
}

// checkForgeRunDefaults holds the figures of the requirements: FR-142, FR-172, FR-174, FR-176,
// FR-212, FR-055, G-FR-06, G-FR-14, G-FR-17, G-FR-27, G-FR-32, G-FR-37, G-FR-48.
func checkForgeRunDefaults(t *testing.T, got *loaded) {
	t.Helper()
	want := forgerun.Settings{LogRequests: true, Types: []string{"EXECUTE", "DEFERRED", "EMIT_EVENT"},
		Workers: 4, JobsPerWorker: 1, Lease: 30 * time.Second,
		Heartbeat: 5 * time.Second, MaxRunTime: 120 * time.Second, MaxRetries: 3,
		BackoffBase: time.Second, BackoffMax: time.Minute,
		RatePerMinute: 600, AnonymousPerMinute: 60, MaxActiveJobs: 1000,
		QueueSize: 100_000, BodyLimit: 1 << 20,
		PayloadLimit: 256 << 10, FailureProbability: 0.2, DurationScale: 1,
		Retention:           30 * 24 * time.Hour,
		RevokedKeyRetention: 90 * 24 * time.Hour, KeyLifetime: 90 * 24 * time.Hour,
		Webhook: forgerun.Webhook{Timeout: 5 * time.Second, MaxAttempts: 8, BackoffBase: time.Second,
			BackoffFactor: 5, BackoffMax: 2 * time.Hour}}
	if !reflect.DeepEqual(got.ForgeRun, want) {
		t.Errorf("forgerun %+v, want %+v", got.ForgeRun, want)
	}
	if got.Egress.Allow != nil || got.Telemetry != (Telemetry{}) ||
		got.PepperFile() != "millrace-data/pepper" {
		t.Errorf("egress %+v, telemetry %+v, pepper %s", got.Egress,
			got.Telemetry, got.PepperFile())
	}
}

func TestLayers(t *testing.T) {
	t.Parallel()
	path := mustFile(t, `
listen = "127.0.0.1:1"
data_dir = "from-file"
contracts = ["relay"]
[log]
level = "debug"
format = "json"
[relay]
body_limit = "1KiB"
max_num_jobs = 5
v1 = false
[tls]
`)
	s := mustLoad(t, Sources{
		File: path,
		Environ: []string{
			"MILLRACE__DATA_DIR=from-env", "MILLRACE__LOG__LEVEL=warn",
			"MILLRACE__RELAY__BODY_LIMIT=5GB",
			"MILLRACE__RELAY__MAX_NUM_JOBS=", "MILLRACE__RELAY__TYPO=", "MILLRACE_SERVER=http://x",
			"MILLRACE_TOKEN=t",
			"MILLRACE__RELAY__BODY_LIMIT=1MiB", "PATH=/bin", "=C:=C:\\", "NOVALUE",
		},
		Flags: map[string]string{"data_dir": "from-flag", "relay.listen": ""},
	})
	want := map[string][2]string{
		"listen":             {"127.0.0.1:1", "file " + path},
		"data_dir":           {"from-flag", "flag --set data_dir"},
		"contracts":          {"relay", "file " + path},
		"log.level":          {"warn", "environment MILLRACE__LOG__LEVEL"},
		"log.format":         {"json", "file " + path},
		"relay.body_limit":   {"1MiB", "environment MILLRACE__RELAY__BODY_LIMIT"},
		"relay.max_num_jobs": {"5", "file " + path},
		"relay.v1":           {"false", "file " + path},
		"relay.listen":       {"", "flag --set relay.listen"},
		"shutdown_grace":     {"25s", "default"},
	}
	for _, e := range s.Resolved() {
		if w, ok := want[e.Key]; ok && (e.Value != w[0] || e.Origin != w[1]) {
			t.Errorf("%s: got %q from %q, want %q from %q", e.Key, e.Value, e.Origin, w[0], w[1])
		}
	}
	if s.DataDir != "from-flag" || s.Relay.BodyLimit != 1<<20 || s.Relay.V1 {
		t.Errorf("got %+v", *s.Settings)
	}
}

func TestFile(t *testing.T) {
	t.Parallel()
	missing := filepath.Join(t.TempDir(), "none.toml")
	mustLoad(t, Sources{File: missing})
	_, err := load(Sources{File: missing, Explicit: true})
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing file: %v is not fs.ErrNotExist", err)
	}
	if want := "config: file " + missing +
		" cannot be read: no such file or directory"; err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %v", err, want)
	}
	tests := []struct{ name, text, want string }{
		{"syntax", "listen = \n", "line 1, column 10: "},
		{"unfinished", "[relay\n", "file millrace.toml is not valid TOML: line "},
		{"twice", "listen = \"a:1\"\nlisten = \"a:2\"\n",
			"not valid TOML: key listen is already defined"},
		{"not UTF-8", "listen = \"\xff\"\n", "invalid UTF-8"},
		{"long number", "listen = 1234567890123456789012\n", "couldn't parse decimal number"},
		{"long number, divided", "listen = 123456789_123456789_123456789\n",
			"couldn't parse decimal number"},
		{"large", "# " + strings.Repeat("x", maxFileSize), "larger than 1MiB"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			// A file that cannot be read leaves checks across keys aside: only it is reported.
			got := loadProblems(t, Sources{File: mustFile(t, tt.text),
				Flags: map[string]string{"listen": ":1"}})
			if len(got) != 1 || !strings.HasPrefix(got[0], "config: file millrace.toml ") ||
				!strings.Contains(got[0], tt.want) {
				t.Errorf("got %q, want %q in it", got, tt.want)
			}
			if strings.Contains(got[0], "123456789") {
				t.Errorf("the document's text is repeated: %q", got)
			}
		})
	}
	got := loadProblems(t, Sources{Explicit: true})
	if want := []string{"config: the path of the settings file is empty"}; !slices.Equal(got,
		want) {
		t.Errorf("got %q", got)
	}
	if got := loadProblems(t, Sources{File: t.TempDir()}); !strings.Contains(got[0],
		"is a directory") {
		t.Errorf("got %q", got)
	}
}

var unknownTests = []struct {
	name    string
	file    string
	environ string
	flag    string
	want    string
}{
	{"letter left out", "[relay]\nbody_limt = 1", "", "",
		`config: unknown key "relay.body_limt" (file millrace.toml); did you mean "relay.body_limit"?`},
	{"section left out", "body_limit = 1", "", "",
		`config: unknown key "body_limit" (file millrace.toml); did you mean "relay.body_limit"?`},
	{"wrong section", "[server]\nlisten = 1", "", "",
		`config: unknown key "server.listen" (file millrace.toml); did you mean "stream.listen"?`},
	{"upper case", `Listen = "x"`, "", "",
		`config: unknown key "Listen" (file millrace.toml); did you mean "listen"?`},
	{"dot in a member", `"relay.token" = "x"`, "", "",
		`config: unknown key "'relay.token'" (file millrace.toml); did you mean "relay.token"?`},
	{"empty member", `relay."" = "x"`, "", "",
		`config: unknown key "relay.''" (file millrace.toml); did you mean "relay.v1"?`},
	{"empty table", "[rely]", "", "",
		`config: unknown key "rely" (file millrace.toml); did you mean "relay.v1"?`},
	{"section as value", "relay = 5", "", "",
		`config: unknown key "relay" (file millrace.toml); did you mean "relay.v1"?`},
	{"array of tables", "[[log]]\nlevel = \"info\"", "", "",
		`config: unknown key "log" (file millrace.toml); did you mean "log.level"?`},
	{"value as section", "[listen]\nport = 1", "", "",
		`config: unknown key "listen.port" (file millrace.toml); did you mean "listen"?`},
	{"deep", "a.b.c.d.e.f.g.h.i.j = 1", "", "",
		`config: unknown key "a.b.c.d.e.f.g.h.…" (file millrace.toml); did you mean "tls.cert"?`},
	{"environment", "", "MILLRACE__RELAY__TOKN=hush", "",
		`config: unknown key "relay.tokn" (environment MILLRACE__RELAY__TOKN); did you mean "relay.token" (MILLRACE__RELAY__TOKEN)?`},
	{"environment, one underscore", "", "MILLRACE__RELAY_TOKEN=hush", "",
		`config: unknown key "relay_token" (environment MILLRACE__RELAY_TOKEN); did you mean "relay.token" (MILLRACE__RELAY__TOKEN)?`},
	{"environment, lower case", "", "MILLRACE__relay__token=hush", "",
		`config: unknown key "relay.token" (environment MILLRACE__relay__token); did you mean "relay.token" (MILLRACE__RELAY__TOKEN)?`},
	{"environment, no key", "", "MILLRACE__=1", "",
		`config: unknown key "" (environment MILLRACE__); did you mean "store" (MILLRACE__STORE)?`},
	{"member of a queue", "[taskflow.queues.Mail]\nhandlr = \"http\"", "", "",
		`config: unknown key "taskflow.queues.Mail.handlr" (file millrace.toml); did you mean "taskflow.queues.Mail.handler"?`},
	{"name of a queue", "[taskflow.queues.\"a-b\"]\nurl = \"http://h\"", "", "",
		`config: unknown key "taskflow.queues.a-b.url" (file millrace.toml); did you mean "taskflow.queues.NAME.url"? NAME is 1 to 64 letters, digits and underscores`},
	{"queue as value", "[taskflow.queues]\nmail = 5", "", "",
		`config: unknown key "taskflow.queues.mail" (file millrace.toml); did you mean "taskflow.queues.mail.url"?`},
	{"queues as value", "taskflow.queues = 5", "", "",
		`config: unknown key "taskflow.queues" (file millrace.toml); did you mean "taskflow.queues.NAME.url"? NAME is 1 to 64 letters, digits and underscores`},
	{"flag", "", "", "relay.tokn",
		`config: unknown key "relay.tokn" (flag --set relay.tokn); did you mean "relay.token"?`},
	{"flag with a line end", "", "", "lis\nten",
		`config: unknown key "lis\nten" (flag --set "lis\nten"); did you mean "listen"?`},
}

func TestUnknownKeys(t *testing.T) {
	t.Parallel()
	for _, tt := range unknownTests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			src := Sources{File: mustFile(t, tt.file), Environ: []string{tt.environ}}
			if tt.flag != "" {
				src.Flags = map[string]string{tt.flag: "hush"}
			}
			if got := loadProblems(t, src); !slices.Equal(got, []string{tt.want}) {
				t.Errorf("got  %q\nwant %q", got, tt.want)
			}
		})
	}
}

func TestAllProblemsAtOnceSorted(t *testing.T) {
	t.Parallel()
	src := Sources{
		File: mustFile(t,
			"zebra = 1\nlisten = 8080\ndata_dir = \"\"\n[relay]\nv1 = \"yes\"\n[tls]\ncert = \"c.pem\"\n"),
		Environ: []string{"MILLRACE__RELAY__V1=no", "MILLRACE__LOG__FORMAT=xml"},
		Flags:   map[string]string{"relay.v1": "true", "relay.max_num_jobs": "0"},
	}
	want := []string{
		`config: wrong value for "data_dir" (file millrace.toml): ""; expected a path`,
		`config: wrong value for "listen" (file millrace.toml): 8080; expected an address such as 127.0.0.1:8080, :8080 or [::1]:8080`,
		`config: wrong value for "log.format" (environment MILLRACE__LOG__FORMAT): "xml"; expected text or json`,
		`config: wrong value for "relay.max_num_jobs" (flag --set relay.max_num_jobs): "0"; expected a whole number from 1 to 100000`,
		`config: wrong value for "relay.v1" (environment MILLRACE__RELAY__V1): "no"; expected true or false`,
		`config: wrong value for "relay.v1" (file millrace.toml): "yes"; expected true or false`,
		`config: "tls.key" is missing: "tls.cert" is set (file millrace.toml), and one needs the other`,
		`config: unknown key "zebra" (file millrace.toml); did you mean "store"?`,
	}
	for range 5 {
		if got := loadProblems(t, src); !slices.Equal(got, want) {
			t.Fatalf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	_, err := load(src)
	e, ok := errors.AsType[*Error](err)
	if !ok || len(e.Problems) != len(want) || e.Problems[0].Key != "data_dir" ||
		e.Problems[0].Origin != "file "+src.File {
		t.Errorf("got %#v", err)
	}
}

func TestSyntaxErrorStaysOnItsLine(t *testing.T) {
	t.Parallel()
	got := loadProblems(t, Sources{File: mustFile(t, "[\n")})
	if want := `config: file millrace.toml is not valid TOML: line 1, column 2: "invalid character at start of key: \n"`; len(got) != 1 || got[0] != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}
