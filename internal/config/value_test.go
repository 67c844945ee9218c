package config

import (
	"strings"
	"testing"
	"time"
)

var valueTests = []struct {
	key  string
	toml string // "" leaves the file out
	text string // "" leaves environment and flags out
	want string // as resolved; "!" and what is expected when it is wrong
}{
	{"listen", `":8080"`, "", "!set relay.token; set operator.token; set tls.cert and tls.key, or trusted_network = true"},
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
	{"store", `"postgres://u:hush@h:5432/db?sslmode=require"`, "postgres://u:hush@h:5432/db?sslmode=require",
		"postgres://u:***@h:5432/db?sslmode=require"},
	{"store", `"mysql://u:hush@h/db"`, "mysql://u:hush@h/db", `!expected sqlite, or postgres://`},
	{"store", `"host=h password=hush"`, "host=h password=hush", `!expected sqlite, or postgres://`},
	{"store", `"postgre"`, "postgre", `!"postgre"; expected sqlite, or postgres://`},
	{"contracts", `["relay"]`, " relay ", "relay"},
	{"contracts", `[]`, ",", "!expected"},
	{"contracts", `"relay"`, "", `!"relay"; expected a list such as ["relay"]`},
	{"contracts", `["relai"]`, "relai", `!expected names out of relay; unknown "relai", did you mean "relay"?`},
	{"contracts", `["relay", "relay"]`, "relay,relay", `!expected each name once; "relay" comes twice`},
	{"contracts", `["relay", 5]`, "", `!["relay", 5]; expected a list such as ["relay"]`},
	{"contracts", `["a://u:hush@h"]`, "a://u:hush@h", `!unknown "a://u:***@h"`},
	{"contracts", `[[1,2,3,4,5,6,7,8,9],{a=1}]`, "", `![[1, 2, 3, 4, 5, 6, 7, 8, …], a table]; expected`},
	{"trusted_network", `true`, "true", "true"},
	{"trusted_network", `false`, "false", "false"},
	{"trusted_network", `"true"`, "yes", "!expected true or false"},
	{"trusted_network", `1`, "1", "!expected true or false"},
	{"trusted_network", `{a = 1}`, "", "!unknown key"},
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
	s, err := Load(src)
	if text, wrong := strings.CutPrefix(want, "!"); wrong {
		if err == nil || !strings.Contains(err.Error(), text) || !strings.Contains(err.Error(), `"`+key) {
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

// TestShownIsAccepted keeps show and set each other's inverse.
func TestShownIsAccepted(t *testing.T) {
	t.Parallel()
	for _, d := range []time.Duration{0, 1, time.Second, 90 * time.Second, time.Minute, time.Hour, 61 * time.Minute, 720 * time.Hour,
		time.Hour + time.Second, 10 * time.Minute, 10 * time.Hour} {
		if got, ok := parseDuration(formatDuration(d)); !ok || got != d {
			t.Errorf("%v is shown as %q", d, formatDuration(d))
		}
	}
	for n, want := range map[int64]string{0: "0B", 1: "1B", 1000: "1KB", 1024: "1KiB", 64 << 20: "64MiB", 5e9: "5GB",
		1<<63 - 1: "9223372036854775807B", 1 << 40: "1TiB", 1500: "1500B"} {
		if got, ok := parseSize(formatSize(n)); !ok || got != n || formatSize(n) != want {
			t.Errorf("%d is shown as %q, want %q", n, formatSize(n), want)
		}
	}
	for d, want := range map[time.Duration]string{25 * time.Second: "25s", time.Minute: "1m", 720 * time.Hour: "720h",
		10 * time.Second: "10s", 10 * time.Minute: "10m", 90 * time.Minute: "1h30m"} {
		if got := formatDuration(d); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestNearest(t *testing.T) {
	t.Parallel()
	names := []string{"forgerun", "images", "taskflow", "fetchbox", "relay"}
	for word, want := range map[string]string{"relai": "relay", "Relay": "relay", "fetch": "fetchbox", "image": "images",
		strings.Repeat("x", 1<<20): "fetchbox"} {
		if got := nearest(word, names); got != want {
			t.Errorf("%.20s: got %s, want %s", word, got, want)
		}
	}
	for _, tt := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"", "abc", 3}, {"abc", "", 3}, {"kitten", "sitting", 3}, {"abc", "abc", 0}, {"ab", "ba", 2}} {
		if got := distance(tt.a, tt.b); got != tt.want {
			t.Errorf("%s to %s: got %d, want %d", tt.a, tt.b, got, tt.want)
		}
	}
}
