package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/setting"
)

const testSecret = "hush-hush-hush"

// renderings is every way a value leaves the process.
func renderings(tb testing.TB, v any) map[string]string {
	tb.Helper()
	out := map[string]string{}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%t", "%10s",
		"%p", "%U"} {
		out[verb] = fmt.Sprintf(verb, v)
	}
	text, err := json.Marshal(v)
	if err != nil {
		tb.Fatal(err)
	}
	out["JSON"] = string(text)
	out["Sprint"] = fmt.Sprint(v)
	var b bytes.Buffer
	slog.New(slog.NewTextHandler(&b, nil)).Info("m", "v", v)
	slog.New(slog.NewJSONHandler(&b, nil)).Info("m", "v", v)
	out["slog"] = b.String()
	return out
}

func TestSecretIsNeverPrinted(t *testing.T) {
	t.Parallel()
	url := "postgres://u:" + testSecret + "@h/db"
	s := mustLoad(t, Sources{Flags: map[string]string{"operator.token": testSecret,
		"relay.token": testSecret, "store": url}})
	if s.Relay.Token.Reveal() != testSecret || s.Operator.Token.Reveal() != testSecret ||
		s.Store.Reveal() != url {
		t.Fatal("the secret is lost")
	}
	type holder struct{ settings Settings } // fmt asks no methods of unexported fields
	values := map[string]any{
		"secret": s.Relay.Token, "pointer": &s.Relay.Token, "store": s.Store, "settings": s,
		"value": *s.Settings, "holder": holder{*s.Settings},
		"slice": []any{s.Relay.Token, s.Store}, "map": map[setting.Secret]setting.StoreURL{s.Relay.Token: s.Store},
		"resolved": s.Resolved(),
	}
	for name, v := range values {
		for how, text := range renderings(t, v) {
			if strings.Contains(text, testSecret) ||
				strings.Contains(text, fmt.Sprintf("%x", testSecret)) {
				t.Errorf("%s by %s: %s", name, how, text)
			}
		}
	}
	for how, text := range renderings(t, s.Relay.Token) {
		if how != "%p" && !strings.Contains(text, "***") {
			t.Errorf("%s: %q", how, text)
		}
	}
	if got := s.Relay.Token.String() + s.Relay.Token.GoString(); got != "******" {
		t.Errorf("got %q", got)
	}
	if got, err := s.Relay.Token.MarshalText(); string(got) != "***" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	if got, err := s.Store.MarshalText(); string(got) != "postgres://u:***@h/db" || err != nil ||
		s.Store.GoString() != string(got) {
		t.Errorf("got %q, %v", got, err)
	}
}
