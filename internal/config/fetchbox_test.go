package config

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/contract/fetchbox"
)

const galleryConfig = `
[job_types.gallery]
handler = "gallery"
default_headers = { "User-Agent" = "x/1", "X.Dotted" = "hush" }
[job_types.gallery.proxy]
primary = "res.eu"
fallbacks = ["dc"]
[job_types.gallery.storage]
bucket = "photos"
key_prefix = "gallery/"
[job_types.gallery.options]
max_parallel_downloads = 8
"a.b" = { token = "hush", list = [1, "hush"] }
[job_types."v1.plain"]
[proxy.pools."res.eu"]
primary = ["http://u:hush@p1:3128", "socks5://p2:1080"]
fallbacks = ["dc"]
[proxy.pools.dc]
primary = ["http://p3:443/"]
`

// TestJobTypes goes through the settings of job types and proxy pools (FB-068, G-FB-26, G-FB-34).
func TestJobTypes(t *testing.T) {
	t.Parallel()
	s := mustLoadWith(t, map[string][]string{"default": nil, "gallery": {"a.b"}}, Sources{File: mustFile(t, galleryConfig),
		Environ: []string{"MILLRACE__JOB_TYPES__DEFAULT__STORAGE__BUCKET=things",
			"MILLRACE__PROXY__POOLS__DC__FALLBACKS="},
		Flags: map[string]string{"job_types.gallery.storage.key_prefix": "g"}})
	t.Run("FB-068 a table per job type", func(t *testing.T) {
		if got := slices.Sorted(maps.Keys(s.FetchBox.Types)); !slices.Equal(got,
			[]string{"default", "gallery", "v1.plain"}) {
			t.Errorf("got types %v", got)
		}
		g := s.FetchBox.Types["gallery"]
		if g.Handler != "gallery" || g.Proxy.Primary != "res.eu" ||
			!slices.Equal(g.Proxy.Fallbacks, []string{"dc"}) || g.Bucket != "photos" ||
			g.KeyPrefix != "g" ||
			g.DefaultHeaders["User-Agent"].Reveal() != "x/1" ||
			g.DefaultHeaders["X.Dotted"].Reveal() != "hush" || len(g.DefaultHeaders) != 2 {
			t.Errorf("got %+v", g)
		}
	})
	t.Run("FB-072 options are handed on as they are", func(t *testing.T) {
		g := s.FetchBox.Types["gallery"]
		nested, _ := g.Options["a.b"].(map[string]any)
		if g.MaxParallel() != 8 || nested["token"] != "hush" || len(g.Options) != 2 ||
			s.FetchBox.Types["default"].MaxParallel() != 0 {
			t.Errorf("got %v", g.Options)
		}
	})
	t.Run("FB-073 a default handler exists", func(t *testing.T) {
		if d := s.FetchBox.Types["default"]; d.Handler != "default" || d.Bucket != "things" ||
			s.FetchBox.Types["v1.plain"].Handler != "default" {
			t.Errorf("got %+v", d)
		}
	})
	t.Run("G-FB-34 pools", func(t *testing.T) {
		p := s.FetchBox.Pools["res.eu"]
		if len(s.FetchBox.Pools) != 2 || len(p.Primary) != 2 ||
			p.Primary[0].Reveal() != "http://u:hush@p1:3128" ||
			!slices.Equal(p.Fallbacks, []string{"dc"}) {
			t.Errorf("got %+v", p)
		}
	})
	var b strings.Builder
	if err := s.Resolved().WriteText(&b); err != nil {
		t.Fatal(err)
	}
	lines := strings.Join(strings.Fields(b.String()), " ")
	for _, want := range []string{"job_types.gallery.default_headers User-Agent: ***, X.Dotted: " +
		"*** file ",
		`job_types.gallery.options {"a.b":{"list":[1,"***"],"token":"***"},"max_parallel_downloads":8} file `,
		"job_types.gallery.storage.key_prefix g flag --set job_types.gallery.storage.key_prefix",
		"job_types.v1.plain.handler default default",
		"proxy.pools.res.eu.primary http://u:***@p1:3128,socks5://p2:1080 file "} {
		if !strings.Contains(lines, want) {
			t.Errorf("%q is missing in %s", want, b.String())
		}
	}
	if strings.Contains(lines, "hush") {
		t.Errorf("a secret is shown: %s", b.String())
	}
}

// TestJobTypesRefused stops the start where a setting refers to what is not there (FB-069,
// G-FB-26).
func TestJobTypesRefused(t *testing.T) {
	t.Parallel()
	const proxies = "[proxy.pools.a]\nprimary = [\"http://h:1\"]\n"
	for _, tt := range []struct{ name, toml, want string }{
		{"FB-069 an unknown handler", "[job_types.x]\nhandler = \"galery\"",
			`"job_types.x.handler" (file millrace.toml): there is no handler "galery"; did you mean "gallery"?`},
		{"G-FB-26 an unknown pool", "[job_types.x.proxy]\nprimary = \"b\"\n" + proxies,
			`"job_types.x.proxy.primary" (file millrace.toml): there is no proxy.pools.b`},
		{"G-FB-26 an unknown fallback",
			"[job_types.x.proxy]\nprimary = \"a\"\nfallbacks = [\"b\"]\n" + proxies,
			`there is no proxy.pools.b`},
		{"G-FB-26 an unknown fallback of a pool", proxies + "fallbacks = [\"b\"]",
			`"proxy.pools.a.fallbacks" (file millrace.toml): there is no proxy.pools.b`},
		{"G-FB-26 a pool that is its own fallback", proxies + "fallbacks = [\"a\"]",
			"the pool comes back to itself: a → a"},
		{"G-FB-26 a circle of pools", proxies +
			"fallbacks = [\"b\"]\n[proxy.pools.b]\nprimary = [\"http://h:1\"]\nfallbacks = [\"c\"]\n" +
			"[proxy.pools.c]\nprimary = [\"http://h:1\"]\nfallbacks = [\"a\"]",
			"the pool comes back to itself: a → b → c → a"},
		{"a pool without proxies", "[proxy.pools.a]", `"proxy.pools.a.primary" is missing`},
		{"fallbacks without a primary", "[job_types.x.proxy]\nfallbacks = [\"a\"]\n" + proxies,
			"it needs job_types.x.proxy.primary"},
		{"G-FB-15 a name that begins with a dot", "[job_types.\".x\"]\nhandler = \"default\"",
			`unknown key "job_types..x.handler"`},
		{"a name with a slash", "[job_types.\"a/b\"]\nhandler = \"default\"",
			`did you mean "job_types.NAME.handler"? NAME is 1 to 64 letters, digits, dots, hyphens and underscores, and does not begin with a dot`},
		{"an unknown member", "[job_types.x]\nhandlr = \"default\"",
			`did you mean "job_types.x.handler"?`},
		{"a type as value", "[job_types]\nx = 5", `unknown key "job_types.x"`},
		{"a header of another kind", "[job_types.x]\ndefault_headers = { a = 5 }",
			`expected headers with text; "a" is invalid`},
		{"a header with a line end", "[job_types.x]\ndefault_headers = { a = \"b\\r\\nc\" }",
			`expected headers with text; "a" is invalid`},
		{"no headers", "[job_types.x]\ndefault_headers = 5", "expected a table of headers"},
		{"no options", "[job_types.x]\noptions = 5", "expected a table such as"},
		{"FB-072 an option that is misspelt", "[job_types.x.options]\nmax_parallel_download = 3",
			`"job_types.x.options" (file millrace.toml): ` +
				`the handler default has no option "max_parallel_download"; did you mean "max_parallel_downloads"?`},
		{"FB-072 an option of another handler", "[job_types.x.options]\nalbum = \"hush\"",
			`the handler default has no option "album"`},
		{"FB-072 an option of the handler that is misspelt",
			"[job_types.x]\nhandler = \"gallery\"\noptions = { albums = \"hush\", max_parallel_downloads = 3 }",
			`the handler gallery has no option "albums"; did you mean "album"?`},
		{"FB-074 a limit of nothing", "[job_types.x.options]\nmax_parallel_downloads = 0",
			"a whole number from 1 to 10000"},
		{"FB-085 a prefix that climbs", "[job_types.x.storage]\nkey_prefix = \"a/../../b\"",
			"expected the beginning of a key"},
		{"FB-085 a prefix from the root", "[job_types.x.storage]\nkey_prefix = \"/etc\"",
			"expected the beginning of a key"},
		{"a bucket of capitals", "[job_types.x.storage]\nbucket = \"Photos\"",
			"expected 3 to 63 lower-case letters"},
		{"a pool of an empty part", "[proxy.pools.\"a//b\"]\nprimary = [\"http://h:1\"]",
			"with slashes between them"},
		{"a proxy of another kind", "[proxy.pools.a]\nprimary = [\"ftp://u:hush@h:1\"]",
			"expected a list of http or socks5 URLs"},
		{"a proxy with TLS", "[proxy.pools.a]\nprimary = [\"https://u:hush@h:1\"]",
			`"proxy.pools.a.primary" (file millrace.toml)`},
		{"a proxy that no connection can be made to",
			"[proxy.pools.a]\nprimary = [\"socks5://u:hush@p_1.2:1\"]", "no valid host and port"},
		{"a proxy with a path", "[proxy.pools.a]\nprimary = [\"http://h:1/x\"]",
			"expected a list of http or socks5 URLs"},
		{"G-FB-46 a command that is missing", "[job_types.x]\nhandler = \"exec\"",
			`"job_types.x.command" is missing: "job_types.x.handler" is exec`},
		{"G-FB-46 a URL of no handler", "[job_types.x]\nurl = \"http://h/\"",
			`is for the handler http, and "job_types.x.handler" is default (default)`},
		{"G-FB-46 an unknown event",
			"[job_types.x]\nhandler = \"exec\"\ncommand = [\"a\"]\nevents = [\"finalise\"]",
			`unknown "finalise", did you mean "finalize"?`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := loadWith(map[string][]string{"default": nil, "gallery": {"album"}, "exec": nil},
				Sources{File: mustFile(t, tt.toml)})
			if err == nil {
				t.Fatal("it is taken")
			}
			text := strings.ReplaceAll(err.Error(), "\n", " ")
			if i, j := strings.Index(text, "(file "),
				strings.Index(text, "millrace.toml)"); i >= 0 && j > i {
				text = strings.ReplaceAll(text, text[i:j], "(file ")
			}
			if !strings.Contains(text, tt.want) || strings.Contains(text, "hush") {
				t.Errorf("got %s, want %s", text, tt.want)
			}
		})
	}
}

// TestTableEntries sets entries of tables where there is only text (FB-072).
func TestTableEntries(t *testing.T) {
	t.Parallel()
	s := mustLoad(t, Sources{File: mustFile(t, galleryConfig),
		Environ: []string{"MILLRACE__JOB_TYPES__DEFAULT__OPTIONS__MAX_PARALLEL_DOWNLOADS=3"},
		Flags: map[string]string{"job_types.gallery.options.max_parallel_downloads": "5",
			"job_types.gallery.options.deep": "true",
			"job_types.gallery.options.word": "plain text",
			"job_types.gallery.options.list": `["a", 1]`, "job_types.v1.plain.options.size": "1.5",
			"job_types.v1.plain.options.lines":          "1\nother = 2",
			"job_types.gallery.default_headers.X-Count": "7"}})
	g, plain := s.FetchBox.Types["gallery"], s.FetchBox.Types["v1.plain"]
	list, _ := g.Options["list"].([]any)
	if g.MaxParallel() != 5 || g.Options["deep"] != true || g.Options["word"] != "plain text" ||
		len(list) != 2 || list[0] != "a" || len(g.Options) != 5 {
		t.Errorf("got %v", g.Options)
	}
	if s.FetchBox.Types["default"].MaxParallel() != 3 || plain.Options["size"] != 1.5 ||
		plain.Options["lines"] != "1\nother = 2" {
		t.Errorf("got %v, %v", s.FetchBox.Types["default"].Options, plain.Options)
	}
	if g.DefaultHeaders["X-Count"].Reveal() != "7" ||
		g.DefaultHeaders["User-Agent"].Reveal() != "x/1" {
		t.Errorf("got %d headers", len(g.DefaultHeaders))
	}
	if got := s.Settings.origin("job_types.gallery.options"); !strings.HasPrefix(got,
		"flag --set job_types.gallery.options.") {
		t.Errorf("the options come from %s", got)
	}
	for flag, want := range map[string]string{"job_types.x.options.max_parallel_downloads": "a whole number from 1 to 10000",
		"job_types.x.default_headers.X-A": `expected headers with text; "X-A" is invalid`,
		"job_types.x.options.":            "unknown key", "job_types.x.handler.y": "unknown key"} {
		_, err := load(Sources{Flags: map[string]string{flag: "hush\n"}})
		if err == nil || !strings.Contains(err.Error(), want) ||
			(strings.Contains(err.Error(), "hush") && !strings.HasPrefix(want, "unknown")) {
			t.Errorf("%s: got %v", flag, err)
		}
	}
}

// TestStreamListen is the security rule of the streams' listener (G-FB-36).
func TestStreamListen(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		flags map[string]string
		want  string
	}{
		{map[string]string{"stream.listen": "127.0.0.1:4222"}, ""},
		{map[string]string{"stream.listen": ":4222"},
			"set stream.token; set trusted_network = true"},
		{map[string]string{"stream.listen": ":4222", "stream.token": "t"},
			`":4222" is not loopback; set trusted_network = true`},
		{map[string]string{"stream.listen": ":4222", "stream.token": "t",
			"trusted_network": "true"}, ""},
		{map[string]string{"stream.listen": "127.0.0.1:4222", "stream.url": "nats://h:4222"},
			`"stream.url" is set (flag --set stream.url)`},
	} {
		s, err := load(Sources{Flags: tt.flags})
		if (tt.want == "" && err != nil) ||
			(tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want))) {
			t.Errorf("%v: got %v, want %s", tt.flags, err, tt.want)
		}
		if err == nil && s.OnLoopback() != (tt.flags["stream.token"] == "") {
			t.Errorf("%v: OnLoopback is %v", tt.flags, s.OnLoopback())
		}
	}
}

func TestFetchBoxDefaults(t *testing.T) {
	t.Parallel()
	got := mustLoad(t, Sources{}).FetchBox
	want := fetchbox.Settings{MaxResources: 1000, MaxManifest: 5 << 20, MaxAttempts: 3, MaxLostRuns: 10,
		BackoffBase: time.Second, Lease: 30 * time.Second,
		ConnectTimeout: 10 * time.Second, DownloadTimeout: time.Minute, MaxDownload: 1 << 30,
		MaxPerHost: 16, IdempotencyWindow: 14 * 24 * time.Hour,
		LedgerRetention: 30 * 24 * time.Hour, LedgerMaxBytes: 5_000_000_000,
		TasksRetention: 7 * 24 * time.Hour,
		LogsRetention:  30 * 24 * time.Hour, DLQRetention: 90 * 24 * time.Hour}
	for id, ok := range map[string]bool{"FB-088 30 days of the ledger": got.LedgerRetention == want.LedgerRetention,
		"FB-090 7 days of tasks":         got.TasksRetention == want.TasksRetention,
		"FB-091 30 days of logs":         got.LogsRetention == want.LogsRetention,
		"FB-092 90 days of dead letters": got.DLQRetention == want.DLQRetention,
		"FB-050 14 days of keys":         got.IdempotencyWindow == want.IdempotencyWindow} {
		if !ok {
			t.Errorf("%s: got %+v", id, got)
		}
	}
	got.Types, got.Pools = nil, nil
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// The names of the document's own sample are names of pools, wherever they are set.
func TestPoolsOfTheDocument(t *testing.T) {
	t.Parallel()
	const sample = `[job_types.gallery.proxy]
primary = "proxies/eu-primary"
fallbacks = ["proxies/global", "proxies/emergency"]
[proxy.pools."proxies/eu-primary"]
primary = ["http://h:1"]
fallbacks = ["proxies/global"]
[proxy.pools."proxies/global"]
primary = ["http://h:2"]
`
	s, err := loadWith(map[string][]string{"default": nil}, Sources{File: mustFile(t, sample),
		Environ: []string{`MILLRACE__PROXY__POOLS__PROXIES/EMERGENCY__PRIMARY=http://h:3`},
		Flags:   map[string]string{"proxy.pools.proxies/global.fallbacks": "proxies/emergency"}})
	if err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprint(s.FetchBox.Types["gallery"].Proxy.Primary, s.FetchBox.Types["gallery"].Proxy.Fallbacks,
		s.FetchBox.Pools["proxies/eu-primary"].Fallbacks, s.FetchBox.Pools["proxies/global"].Fallbacks,
		len(s.FetchBox.Pools["proxies/emergency"].Primary))
	want := "proxies/eu-primary[proxies/global proxies/emergency] [proxies/global] " +
		"[proxies/emergency] 1"
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
