package strictjson

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

func TestAppendString(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]string{
		"":                       `""`,
		"plain":                  `"plain"`,
		`a"b\c/d`:                `"a\"b\\c/d"`,
		"\b\f\n\r\t\x00\x1f":     `"\b\f\n\r\t\u0000\u001f"`,
		"<a href='x'>&\x7f":      "\"<a href='x'>&\x7f\"",
		"Grüße 日本 😀\u2028\uFFFD": "\"Grüße 日本 😀\u2028\uFFFD\"",
		"a\xffb\xc3":             "\"a\uFFFDb\uFFFD\"",
		"\xed\xa0\x80":           "\"\uFFFD\uFFFD\uFFFD\"",
	} {
		if got := string(AppendString([]byte("x"), s)); got != "x"+want {
			t.Errorf("AppendString(%q) = %s, want %s", s, got, want)
		}
	}
}

// For any bytes, the outcome passes Check and is the string the standard encoder means.
func FuzzAppendString(f *testing.F) {
	for _, seed := range []string{"", "a\"b\\", "\x00\x1f\x7f", "é😀\u2029", "\xff\xed\xa0\x80",
		"<&>"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := AppendString(nil, s)
		if err := Check(got); err != nil {
			t.Fatalf("AppendString(%q) = %s: %v", s, got, err)
		}
		back, err := String(got)
		if err != nil && err != ErrNUL {
			t.Fatalf("String(AppendString(%q)) = %v", s, err)
		}
		standard, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		var want string
		if err := json.Unmarshal(standard, &want); err != nil || back != want {
			t.Fatalf("AppendString(%q) reads back as %q, want %q", s, back, want)
		}
	})
}

// G-X-16: UTC, Z, at most six decimals.
func TestAppendTime(t *testing.T) {
	t.Parallel()
	zone := time.FixedZone("", -3600)
	for want, in := range map[string]time.Time{
		`"2026-01-02T03:04:05Z"`:        time.Date(2026, 1, 2, 3, 4, 5, 999, time.UTC),
		`"2026-01-02T03:04:05.6Z"`:      time.Date(2026, 1, 2, 3, 4, 5, 600_000_000, time.UTC),
		`"2026-01-02T03:04:05.999999Z"`: time.Date(2026, 1, 2, 3, 4, 5, 999_999_999, time.UTC),
		`"2026-01-02T04:04:05.00001Z"`:  time.Date(2026, 1, 2, 3, 4, 5, 10_000, zone),
		`"1969-12-31T23:59:59.999999Z"`: time.Unix(0, -1),
		`"0001-01-01T00:00:00Z"`:        {},
	} {
		if got := string(AppendTime(nil, in)); got != want {
			t.Errorf("AppendTime(%v) = %s, want %s", in, got, want)
		}
	}
}

func BenchmarkAppendString(b *testing.B) {
	text := strings.Repeat("The quick \"brown\" fox, Grüße.\n", 30)
	b.Run("strictjson", func(b *testing.B) {
		b.SetBytes(int64(len(text)))
		var buf []byte
		for b.Loop() {
			buf = AppendString(buf[:0], text)
		}
	})
	b.Run("encoding-json", func(b *testing.B) {
		b.SetBytes(int64(len(text)))
		for b.Loop() {
			if _, err := json.Marshal(text); err != nil {
				b.Fatal(err)
			}
		}
	})
}
