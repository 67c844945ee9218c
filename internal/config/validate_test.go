package config

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/setting"
)

// TestOpenContracts goes through the rule for contracts without credentials (G-X-01, G-RL-24).
func TestOpenContracts(t *testing.T) {
	t.Parallel()
	const (
		head     = `config: "listen" (flag --set listen): ":8080" is not loopback, and relay has no authentication but a token; `
		own      = `config: "relay.listen" (flag --set relay.listen): "0.0.0.0:9" is not loopback, and relay has no authentication but a token; `
		several  = `config: "listen" (flag --set listen): ":8080" is not loopback, and taskflow and relay have no authentication but a token; `
		tail     = "; or listen on 127.0.0.1"
		relay    = "set token or relay.token"
		oper     = "set operator.token"
		wire     = "set tls.cert and tls.key, or trusted_network = true"
		noWorker = `config: "worker.token" is missing: "listen" (flag --set listen), ":8080", is not loopback, and the worker API is served there with taskflow`
		clear    = `is not loopback and serves forgerun, whose API keys would travel in the clear; ` + wire + tail
	)
	tokens := map[string]string{"relay.token": "r", "operator.token": "o"}
	tls := map[string]string{"tls.cert": "c", "tls.key": "k"}
	trusted := map[string]string{"trusted_network": "true"}
	public := map[string]string{"listen": ":8080"}
	tests := []struct {
		name  string
		flags []map[string]string
		want  []string
	}{
		{"loopback", nil, nil},
		{"all missing", []map[string]string{public},
			[]string{head + relay + "; " + oper + "; " + wire + tail}},
		{"tokens missing", []map[string]string{public, tls},
			[]string{head + relay + "; " + oper + tail}},
		{"wire open", []map[string]string{public, tokens}, []string{head + wire + tail}},
		{"relay token missing", []map[string]string{public, trusted, {"operator.token": "o"}},
			[]string{head + relay + tail}},
		{"operator token missing", []map[string]string{public, trusted, {"relay.token": "r"}},
			[]string{head + oper + tail}},
		{"tokens and TLS", []map[string]string{public, tokens, tls}, nil},
		{"tokens and trust", []map[string]string{public, tokens, trusted}, nil},
		{"host name", []map[string]string{{"listen": "localhost.example.org:1"}, tokens, trusted},
			nil},
		{"own listener public", []map[string]string{{"relay.listen": "0.0.0.0:9"}},
			[]string{own + relay + "; " + oper + "; " + wire + tail}},
		{"own listener loopback", []map[string]string{public,
			{"relay.listen": "127.0.0.1:9", "contracts": "relay"}}, nil},
		{"keys in the clear", []map[string]string{public, {"relay.listen": "127.0.0.1:9"}},
			[]string{`config: "listen" (flag --set listen): ":8080" ` + clear}},
		{"keys in the clear on an own listener", []map[string]string{{"forgerun.listen": ":9"}},
			[]string{`config: "forgerun.listen" (flag --set forgerun.listen): ":9" ` + clear}},
		{"forgerun needs no token", []map[string]string{public, trusted, {"contracts": "forgerun"}},
			nil},
		{"forgerun and TLS", []map[string]string{public, tls, {"contracts": "forgerun"}}, nil},
		{"both public on their own", []map[string]string{{"forgerun.listen": ":9",
			"relay.listen": "0.0.0.0:9"}},
			[]string{`config: "forgerun.listen" (flag --set forgerun.listen): ":9" ` + clear,
				own + relay + "; " + oper + "; " + wire + tail}},
		{"heartbeat as long as the lease", []map[string]string{{"forgerun.heartbeat": "30s"}},
			[]string{`config: "forgerun.heartbeat" (flag --set forgerun.heartbeat): 30s must be below "forgerun.lease", which is 30s (default)`}},
		{"backoffs the wrong way round",
			[]map[string]string{{"forgerun.backoff_base": "61s", "webhook.backoff_max": "999ms"}},
			[]string{`config: "forgerun.backoff_base" (flag --set forgerun.backoff_base): 1m1s must not be above "forgerun.backoff_max", which is 1m (default)`,
				`config: "webhook.backoff_base" (default): 1s must not be above "webhook.backoff_max", which is 999ms (flag --set webhook.backoff_max)`}},
		{"equal backoffs", []map[string]string{{"forgerun.backoff_base": "60s",
			"webhook.backoff_max": "1s"}}, nil},
		{"cert alone", []map[string]string{{"tls.cert": "c"}},
			[]string{`config: "tls.key" is missing: "tls.cert" is set (flag --set tls.cert), and one needs the other`}},
		{"key alone", []map[string]string{public, tokens, {"tls.key": "k"}},
			[]string{head + wire + tail,
				`config: "tls.cert" is missing: "tls.key" is set (flag --set tls.key), and one needs the other`}},
		{"all contracts", []map[string]string{public, {"contracts": "forgerun,taskflow,relay"}},
			[]string{several +
				"set token, which is one for all of them, or each of taskflow.token, relay.token and worker.token; " + oper + "; " + wire + tail}},
		{"a common token", []map[string]string{public, trusted,
			{"contracts": "images,fetchbox,taskflow,relay", "token": "t",
				"operator.token": "o"}}, nil},
		{"a common token needs the rest", []map[string]string{public, {"token": "t"}},
			[]string{head + oper + "; " + wire + tail}},
		{"a wrong common token", []map[string]string{public, {"token": "a b"}},
			[]string{`config: wrong value for "token" (flag --set token): ***; expected a string of printable ASCII without spaces or line ends`}},
		{"several, the worker API with its token",
			[]map[string]string{public, {"contracts": "taskflow,relay", "worker.token": "w",
				"relay.token": "r"}},
			[]string{several + "set token or taskflow.token; " + oper + "; " + wire + tail}},
		{"several and a wrong worker token",
			[]map[string]string{public, trusted,
				{"contracts": "taskflow,relay", "worker.token": "a b"}},
			[]string{several +
				"set token, which is one for all of them, or each of taskflow.token and relay.token; " + oper + tail,
				`config: wrong value for "worker.token" (flag --set worker.token): ***; expected a string of printable ASCII without spaces or line ends`}},
		{"several on addresses of their own",
			[]map[string]string{public, tls,
				{"contracts": "taskflow,relay", "relay.listen": "0.0.0.0:9",
					"taskflow.token": "t"}},
			[]string{strings.ReplaceAll(head, "relay", "taskflow") + "set token or worker.token; " +
				oper + tail, own + relay + "; " + oper + tail}},
		{"the worker API beside keys in the clear",
			[]map[string]string{public, {"contracts": "forgerun,taskflow",
				"taskflow.listen": "127.0.0.1:9"}},
			[]string{`config: "listen" (flag --set listen): ":8080" ` + clear, noWorker}},
		{"G-X-20 taskflow brings the worker API",
			[]map[string]string{public, trusted,
				{"contracts": "taskflow", "taskflow.token": "t", "operator.token": "o"}},
			[]string{noWorker}},
		{"G-TF-28 taskflow is open", []map[string]string{public, trusted,
			{"contracts": "taskflow", "worker.token": "w"}},
			[]string{strings.ReplaceAll(head, "relay", "taskflow") +
				"set token or taskflow.token; " + oper + tail}},
		{"taskflow and its tokens", []map[string]string{public, tls,
			{"contracts": "taskflow", "taskflow.token": "t", "worker.token": "w",
				"operator.token": "o"}}, nil},
		{"worker token in the clear", []map[string]string{public,
			{"contracts": "taskflow", "taskflow.listen": "127.0.0.1:9", "worker.token": "w"}},
			[]string{`config: "listen" (flag --set listen): ":8080" is not loopback and serves the worker API, whose token would travel in the clear; ` + wire + tail}},
		{"AD-005 one token for both",
			[]map[string]string{{"operator.token": "o", "operator.read_token": "o"}},
			[]string{`config: "operator.read_token" (flag --set operator.read_token): it is the same as operator.token, and may only read`}},
		{"a wrong worker token is one problem",
			[]map[string]string{public, trusted,
				{"contracts": "taskflow", "taskflow.token": "t", "operator.token": "o",
					"worker.token": "a b"}},
			[]string{`config: wrong value for "worker.token" (flag --set worker.token): ***; ` +
				`expected a string of printable ASCII without spaces or line ends`}},
		{"a wrong token is one problem",
			[]map[string]string{public, trusted, {"operator.token": "o", "relay.token": "a b"}},
			[]string{`config: wrong value for "relay.token" (flag --set relay.token): ***; ` +
				`expected a string of printable ASCII without spaces or line ends`}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			flags := map[string]string{"contracts": "forgerun,relay"}
			for _, f := range tt.flags {
				maps.Copy(flags, f)
			}
			if tt.want == nil {
				mustLoad(t, Sources{Flags: flags})
				return
			}
			if got := loadProblems(t, Sources{Flags: flags}); !slices.Equal(got, tt.want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(tt.want, "\n"))
			}
		})
	}
}

func TestOnLoopback(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		contract        string
		listen          string
		relay, forgerun string // their own listeners
		want            bool
	}{
		{"", "127.0.0.1:1", "", "", true},
		{"", ":1", "", "", false},
		{"relay", "127.0.0.1:1", "[::1]:2", "", true},
		{"relay", "127.0.0.1:1", ":2", "", false},
		{"forgerun", "127.0.0.1:1", "", ":2", false},
		{"relay", "127.0.0.1:1", "", ":2", true},
	} {
		var l loaded
		l.Settings = &Settings{Listen: tt.listen, Contracts: []string{tt.contract},
			groups: l.groups(nil)}
		l.Relay.Listen, l.ForgeRun.Listen = tt.relay, tt.forgerun
		if got := l.OnLoopback(); got != tt.want {
			t.Errorf("%+v: got %v", tt, got)
		}
	}
}

func TestPepperFile(t *testing.T) {
	t.Parallel()
	if got := (&Settings{DataDir: "d"}).PepperFile(); got != "d/pepper" {
		t.Errorf("got %q", got)
	}
	if got := (&Settings{DataDir: "d",
		Secrets: Secrets{PepperFile: "/run/secrets/p"}}).PepperFile(); got != "/run/secrets/p" {
		t.Errorf("got %q", got)
	}
}

// TestCommonToken: the common token counts where there is no other, and is shown as what it is.
func TestCommonToken(t *testing.T) {
	t.Parallel()
	load := func(flags map[string]string) *loaded {
		return mustLoad(t, Sources{Flags: flags})
	}
	s := load(map[string]string{"token": "common", "relay.token": "own"})
	for name, c := range map[string]struct {
		got  setting.Secret
		want string
	}{"relay": {s.Relay.Token, "own"}, "taskflow": {s.TaskFlow.Token, "common"},
		"fetchbox": {s.FetchBox.Token, "common"},
		"images":   {s.Images.Token, "common"}, "worker": {s.Worker.Token, "common"},
		"operator": {s.Operator.Token, ""},
		"stream":   {s.Stream.Token, ""}} {
		if c.got.Reveal() != c.want {
			t.Errorf("%s.token is %q, want %q", name, c.got.Reveal(), c.want)
		}
	}
	origins := map[string]string{"token": "flag --set token",
		"relay.token":  "flag --set relay.token",
		"images.token": "token, flag --set token", "operator.token": "default"}
	for _, e := range s.Resolved() {
		if want := origins[e.Key]; want != "" &&
			(e.Origin != want || strings.Contains(e.Value, "common")) {
			t.Errorf("%s comes from %s as %s, want %s", e.Key, e.Origin, e.Value, want)
		}
	}
	if only := load(map[string]string{"token": "common",
		"contracts": "forgerun,relay"}); !only.Worker.Token.Empty() {
		t.Error("the workers of ForgeRun, which is not open, are let in by the common token")
	}
	if none := load(nil); !none.TaskFlow.Token.Empty() {
		t.Error("there is a token that nobody set")
	}
}
