package config

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

func TestTable(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	var s Settings
	for _, k := range keys {
		if seen[k.name] || section(k.name) || strings.Count(k.name, ".") >= deepest || k.name != strings.ToLower(k.name) {
			t.Errorf("%s is a bad name", k.name)
		}
		seen[k.name] = true
		if !strings.HasSuffix(k.doc, ".") || len(k.doc) > 120 {
			t.Errorf("%s: %q is no sentence", k.name, k.doc)
		}
		if err := k.bind(&s).set(input{raw: k.def, text: true}); err != nil {
			t.Errorf("%s: its default: %v", k.name, err)
		}
	}
	for _, c := range openContracts {
		if !slices.Contains(knownContracts, c.name) || !seen[c.name+".listen"] || !seen[c.name+".token"] {
			t.Errorf("%s lacks a key", c.name)
		}
	}
}

func TestResolved(t *testing.T) {
	t.Parallel()
	s := mustLoad(t, Sources{Flags: map[string]string{"relay.token": "hush", "data_dir": "mein Ordner\u2028", "store": "postgres://u:hush@h/a&b"}})
	const want = `contracts               relay                      default
data_dir                "mein Ordner\u2028"        flag --set data_dir
listen                  127.0.0.1:8080             default
log.format              text                       default
log.level               info                       default
operator.token          ""                         default
prune_interval          1m                         default
relay.body_limit        64MiB                      default
relay.listen            ""                         default
relay.max_num_jobs      1000                       default
relay.retryable_status  429                        default
relay.token             ***                        flag --set relay.token
relay.v1                true                       default
shutdown_grace          25s                        default
store                   postgres://u:***@h/a&b     flag --set store
tls.cert                ""                         default
tls.key                 ""                         default
trusted_network         false                      default
`
	for range 3 {
		var b bytes.Buffer
		if err := s.Resolved().WriteText(&b); err != nil || strings.Join(strings.Fields(b.String()), " ") != strings.Join(strings.Fields(want), " ") {
			t.Fatalf("%v, got\n%s\nwant\n%s", err, b.String(), want)
		}
	}
	var b bytes.Buffer
	if err := s.Resolved().WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	var entries []Entry
	if err := json.Unmarshal(b.Bytes(), &entries); err != nil || !slices.Equal(entries, s.Resolved()) {
		t.Errorf("%v, got %s", err, b.String())
	}
	const first = "[\n  {\n    \"key\": \"contracts\",\n    \"value\": \"relay\",\n    \"origin\": \"default\",\n" +
		"    \"doc\": \"Contracts that are served.\"\n  },\n"
	if !strings.HasPrefix(b.String(), first) || !strings.Contains(b.String(), "a&b") || strings.Contains(b.String(), "hush") {
		t.Errorf("got %s", b.String())
	}
}
