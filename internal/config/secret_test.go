package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
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
		s.Store.Reveal() != url || !s.Store.Postgres() {
		t.Fatal("the secret is lost")
	}
	type holder struct{ settings Settings } // fmt asks no methods of unexported fields
	values := map[string]any{
		"secret": s.Relay.Token, "pointer": &s.Relay.Token, "store": s.Store, "settings": s,
		"value": *s, "holder": holder{*s},
		"slice": []any{s.Relay.Token, s.Store}, "map": map[Secret]StoreURL{s.Relay.Token: s.Store},
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

func TestEmptySecret(t *testing.T) {
	t.Parallel()
	for _, s := range []Secret{{}, NewSecret("")} {
		text, err := json.Marshal(s)
		if !s.Empty() || s.Reveal() != "" || fmt.Sprint(s) != "" || string(text) != `""` ||
			err != nil {
			t.Errorf("got %v, %s, %v", s, text, err)
		}
	}
	if (StoreURL{}).String() != "sqlite" {
		t.Error("zero StoreURL")
	}
}

func TestStoreURL(t *testing.T) {
	t.Parallel()
	tests := []struct {
		url   string
		valid bool
		shown string
	}{
		{"postgres://u:hush@h:5432/db", true, "postgres://u:***@h:5432/db"},
		{"postgresql://u:hush@h/db", true, "postgresql://u:***@h/db"},
		{"postgres://u@h/db", true, "postgres://u@h/db"},
		{"postgres://h/db", true, "postgres://h/db"},
		{"postgres://:hush@h/db", true, "postgres://:***@h/db"},
		{"postgres://u:@h/db", true, "postgres://u:***@h/db"},
		{"postgres://u:hu%2Fsh@h/db", true, "postgres://u:***@h/db"},
		{"postgres://u:hush@[::1]:5432/db", true, "postgres://u:***@[::1]:5432/db"},
		{"postgres://u:hush@a:1,b:2/db", true, "postgres://u:***@a:1,b:2/db"},
		{"postgres:///db?host=/run/postgresql", true, "postgres:///db?host=/run/postgresql"},
		{"postgres://h/db?user=u&password=hush&x=1", true,
			"postgres://h/db?user=u&password=***&x=1"},
		{"postgres://h/db?sslpassword=hush", true, "postgres://h/db?sslpassword=***"},
		{"postgres://h/db?p%61ssword=hush", true, "postgres://h/db?p%61ssword=***"},
		{"postgres://h/db?a=b;password=hush", false, "postgres://h/db?a=***"},
		{"postgres://h/db?application_name=a@b", true, "postgres://***"},
		{"postgres://u:hush@hush@h/db", false, "postgres://u:***@h/db"},
		{"postgres://u:12/hush@h/db", false, "postgres://***"},
		{"postgres://u:12?hush@h/db", true, "postgres://***"},
		{"postgres://u:12#hush@h/db", false, "postgres://***"},
		{"postgres://u:hush#hush", false, "postgres://***"},
		{"postgres://u:hush", false, "postgres://***"},
		{"postgres://u:hush/x", false, "postgres://***"},
		{"postgres://u:hu%zzsh@h/db", false, "postgres://u:***@h/db"},
		{"postgres://u:hu sh@h/db", false, "postgres://u:***@h/db"},
		{"postgres://u:hush@h:port/db", false, "postgres://u:***@h:port/db"},
		{"postgres://", false, "postgres://"},
		{"hush@x://y", false, "***"},
		{"POSTGRES://u:hush@h", false, "POSTGRES://u:***@h"},
		{"host=h password=hush", false, "***"},
		{"postgres:u:hush@h", false, "***"},
		{"", false, ""},
	}
	for _, tt := range tests {
		if got := validPostgresURL(tt.url); got != tt.valid {
			t.Errorf("%s: valid is %v", tt.url, got)
		}
		if got := NewStoreURL(tt.url).String(); got != tt.shown || strings.Contains(got, "hush") {
			t.Errorf("%s is shown as %s, want %s", tt.url, got, tt.shown)
		}
	}
}
