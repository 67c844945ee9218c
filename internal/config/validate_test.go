package config

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

func TestIsLoopback(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]bool{
		"127.0.0.1:8080": true, "127.8.9.1:0": true, "[::1]:80": true, "localhost:80": true, "LocalHost:80": true,
		"[::ffff:127.0.0.1]:80": true,
		":8080":                 false, "0.0.0.0:80": false, "[::]:80": false, "10.0.0.1:80": false, "[fe80::1%eth0]:80": false,
		"example.org:80": false, "localhost.example.org:80": false, "127.0.0.1.example.org:80": false, "127.0.0.1": false, "": false,
	} {
		if got := IsLoopback(address); got != want {
			t.Errorf("%s: got %v", address, got)
		}
	}
}

// TestOpenContracts goes through the security rule of design section 8 (G-X-01, G-RL-24).
func TestOpenContracts(t *testing.T) {
	t.Parallel()
	const (
		head  = `config: "listen" (flag --set listen): ":8080" is not loopback and serves relay, which is open by its document; `
		own   = `config: "relay.listen" (flag --set relay.listen): "0.0.0.0:9" is not loopback and serves relay, which is open by its document; `
		tail  = "; or listen on 127.0.0.1"
		relay = "set relay.token"
		oper  = "set operator.token"
		wire  = "set tls.cert and tls.key, or trusted_network = true"
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
		{"all missing", []map[string]string{public}, []string{head + relay + "; " + oper + "; " + wire + tail}},
		{"tokens missing", []map[string]string{public, tls}, []string{head + relay + "; " + oper + tail}},
		{"wire open", []map[string]string{public, tokens}, []string{head + wire + tail}},
		{"relay token missing", []map[string]string{public, trusted, {"operator.token": "o"}}, []string{head + relay + tail}},
		{"operator token missing", []map[string]string{public, trusted, {"relay.token": "r"}}, []string{head + oper + tail}},
		{"tokens and TLS", []map[string]string{public, tokens, tls}, nil},
		{"tokens and trust", []map[string]string{public, tokens, trusted}, nil},
		{"host name", []map[string]string{{"listen": "localhost.example.org:1"}, tokens, trusted}, nil},
		{"own listener public", []map[string]string{{"relay.listen": "0.0.0.0:9"}},
			[]string{own + relay + "; " + oper + "; " + wire + tail}},
		{"own listener loopback", []map[string]string{public, {"relay.listen": "127.0.0.1:9"}}, nil},
		{"cert alone", []map[string]string{{"tls.cert": "c"}},
			[]string{`config: "tls.key" is missing: "tls.cert" is set (flag --set tls.cert), and one needs the other`}},
		{"key alone", []map[string]string{public, tokens, {"tls.key": "k"}},
			[]string{head + wire + tail, `config: "tls.cert" is missing: "tls.key" is set (flag --set tls.key), and one needs the other`}},
		{"a wrong token is one problem", []map[string]string{public, trusted, {"operator.token": "o", "relay.token": "a b"}},
			[]string{`config: wrong value for "relay.token" (flag --set relay.token): ***; ` +
				`expected a string of printable ASCII without spaces or line ends`}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			flags := map[string]string{}
			for _, f := range tt.flags {
				maps.Copy(flags, f)
			}
			if tt.want == nil {
				if err := mustLoad(t, Sources{Flags: flags}).Validate(); err != nil {
					t.Errorf("Validate: %v", err)
				}
				return
			}
			if got := problems(t, Sources{Flags: flags}); !slices.Equal(got, tt.want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(tt.want, "\n"))
			}
		})
	}
	if err := (Settings{Listen: ":1", Contracts: []string{"relay"}}).Validate(); err == nil {
		t.Error("settings made by hand are not checked")
	}
	if err := (Settings{Listen: ":1"}).Validate(); err != nil {
		t.Errorf("no open contract: %v", err)
	}
}
