package setting

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

func TestEmptySecret(t *testing.T) {
	t.Parallel()
	for _, s := range []Secret{{}, NewSecret("")} {
		text, err := json.Marshal(s)
		if !s.Empty() || s.Reveal() != "" || fmt.Sprint(s) != "" || string(text) != `""` ||
			err != nil {
			t.Errorf("got %v, %s, %v", s, text, err)
		}
	}
	if (StoreURL{}).String() != "" {
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
		if got := validStoreURL(tt.url, []string{"postgres", "postgresql"}); got != tt.valid {
			t.Errorf("%s: valid is %v", tt.url, got)
		}
		if got := NewStoreURL(tt.url).String(); got != tt.shown || strings.Contains(got, "hush") {
			t.Errorf("%s is shown as %s, want %s", tt.url, got, tt.shown)
		}
	}
}

// FuzzStoreURL holds the two readings of a URL together: what is accepted shows no part of its
// password.
func FuzzStoreURL(f *testing.F) {
	f.Add("p@ss/w?rd#", "h:5432/db?sslmode=require")
	f.Add("%41", "[::1]/db")
	f.Fuzz(func(t *testing.T, around, rest string) {
		const secret = "7316058429731605842973160584"
		if strings.ContainsAny(around, ":") || strings.Contains(rest, secret) {
			return
		}
		shown := NewStoreURL("postgres://u:" + around + secret + "@" + rest).String()
		if strings.Contains(shown, secret) {
			t.Errorf("shown: %s", shown)
		}
	})
}
