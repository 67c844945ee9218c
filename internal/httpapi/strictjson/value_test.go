package strictjson

import (
	"encoding/json"
	"errors"
	"math/big"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func TestKindOf(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]Kind{
		"null": KindNull, "true": KindBool, " false": KindBool, "-1": KindNumber, "0": KindNumber,
		`"null"`: KindString,
		"\n[]":   KindArray, "{}": KindObject, "": KindInvalid, "  ": KindInvalid, "x": KindInvalid,
	} {
		if got := KindOf([]byte(raw)); got != want {
			t.Errorf("KindOf(%q) = %v, want %v", raw, got, want)
		}
		if got := IsNull([]byte(raw)); got != (want == KindNull) {
			t.Errorf("IsNull(%q) = %v", raw, got)
		}
	}
	if got := KindObject.String() + Kind(99).String(); got != "objectinvalid" {
		t.Errorf("names of kinds: %q", got)
	}
}

func TestBool(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]bool{"true": true, " false\n": false} {
		if got, err := Bool([]byte(raw)); got != want || err != nil {
			t.Errorf("Bool(%s) = %v, %v", raw, got, err)
		}
	}
	for _, raw := range []string{"null", "1", "0", `"true"`, "[]", "{}", ""} {
		if got, err := Bool([]byte(raw)); got || err != ErrKind {
			t.Errorf("Bool(%s) = %v, %v, want ErrKind", raw, got, err)
		}
	}
}

// G-RL-27: what a text column cannot hold is an error, one for each of the two.
func TestString(t *testing.T) {
	t.Parallel()
	tests := []struct {
		raw, want string
		err       error
	}{
		{`""`, "", nil},
		{` "a" `, "a", nil},
		{`"Grüße 日本 😀"`, "Grüße 日本 😀", nil},
		{`"\"\\\/\b\f\n\r\t"`, "\"\\/\b\f\n\r\t", nil},
		{`"\u0041\u00e9\u65e5\uFFFD"`, "Aé日\uFFFD", nil},
		{`"x\ud83d\ude00y"`, "x😀y", nil},
		{`"\uD83D\uDE00"`, "😀", nil},
		{`"\\ud800"`, `\ud800`, nil},
		{`"\ud800"`, "\uFFFD", ErrSurrogate},
		{`"a\udc00b"`, "a\uFFFDb", ErrSurrogate},
		{`"\ude00\ud83d"`, "\uFFFD\uFFFD", ErrSurrogate},
		{`"\ud83d\ud83d\ude00"`, "\uFFFD😀", ErrSurrogate},
		{`"\ud83d\u0041"`, "\uFFFDA", ErrSurrogate},
		{`"\ud83d\\ude00"`, "\uFFFD\\ude00", ErrSurrogate},
		{`"\ud83dx\ude00"`, "\uFFFDx\uFFFD", ErrSurrogate},
		{`"a\u0000b"`, "a\x00b", ErrNUL},
		{`"\u0000\ud800"`, "\x00\uFFFD", ErrNUL},
		{`"\ud800\u0000"`, "\uFFFD\x00", ErrSurrogate},
		{`1`, "", ErrKind},
		{`null`, "", ErrKind},
		{`["a"]`, "", ErrKind},
		{``, "", ErrKind},
	}
	for _, tt := range tests {
		if got, err := String([]byte(tt.raw)); got != tt.want || err != tt.err {
			t.Errorf("String(%s) = %q, %v, want %q, %v", tt.raw, got, err, tt.want, tt.err)
		}
	}
}

// The standard decoder returns the same text. A flaw is reported exactly when the text, written
// back, would not be the same string.
func FuzzString(f *testing.F) {
	for _, seed := range append([]string{`"\ud800\udc00"`, `"\ud800"`, `"\u0000"`, `"\ufffd"`,
		`"\"`, `"`}, fuzzSeeds...) {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		got, err := String(raw) // on unchecked text: no panic
		if Check(raw) != nil {
			return
		}
		if KindOf(raw) != KindString {
			if err != ErrKind {
				t.Fatalf("String(%s) = %v, want ErrKind", raw, err)
			}
			return
		}
		var want string
		if err := json.Unmarshal(raw, &want); err != nil {
			t.Fatal(err)
		}
		if got != want || !utf8.ValidString(got) {
			t.Fatalf("String(%s) = %q, want %q", raw, got, want)
		}
		honest := strings.Count(string(raw), "\uFFFD") +
			strings.Count(strings.ToLower(string(raw)), `\ufffd`)
		replaced := strings.Count(got, "\uFFFD") > honest
		if nul := strings.Contains(got, "\x00"); (err != nil) != (replaced || nul) &&
			!strings.Contains(string(raw), `\\`) {
			t.Fatalf("String(%s) = %q, %v", raw, got, err)
		}
	})
}

// G-X-15, G-RL-26.
func TestInt(t *testing.T) {
	t.Parallel()
	zeros := strings.Repeat("0", 100_000)
	tests := []struct {
		raw   string
		width int
		want  int64
		err   error
	}{
		{"0", 32, 0, nil},
		{"-0", 32, 0, nil},
		{"-0.000e99999999999999999999", 8, 0, nil},
		{"7", 32, 7, nil},
		{" -7 ", 32, -7, nil},
		{"1.0", 32, 1, nil},
		{"1e1", 32, 10, nil},
		{"1E+1", 32, 10, nil},
		{"10e-1", 32, 1, nil},
		{"1.50e1", 32, 15, nil},
		{"0.0012e4", 32, 12, nil},
		{"100.00", 32, 100, nil},
		{"1" + zeros + "e-100000", 32, 1, nil},
		{"0." + zeros + "1e100001", 32, 1, nil},
		{"2147483647", 32, 2147483647, nil},
		{"-2147483648", 32, -2147483648, nil},
		{"9223372036854775807", 64, 1<<63 - 1, nil},
		{"-9223372036854775808", 64, -1 << 63, nil},
		{"-9223372036854775808", 0, -1 << 63, nil},
		{"127", 8, 127, nil},
		{"-1", 1, -1, nil},
		{"2147483648", 32, 0, ErrRange},
		{"-2147483649", 32, 0, ErrRange},
		{"9223372036854775808", 64, 0, ErrRange},
		{"-9223372036854775809", 64, 0, ErrRange},
		{"18446744073709551616", 64, 0, ErrRange},
		{"1e400", 64, 0, ErrRange},
		{"1.5e400", 64, 0, ErrRange},
		{"-1e999999999999999999999999999", 64, 0, ErrRange},
		{"1" + zeros, 64, 0, ErrRange},
		{"128", 8, 0, ErrRange},
		{"1", 1, 0, ErrRange},
		{"1.5", 32, 0, ErrNotInteger},
		{"-0.1", 32, 0, ErrNotInteger},
		{"1e-1", 32, 0, ErrNotInteger},
		{"1e-99999999999999999999", 32, 0, ErrNotInteger},
		{"123456789012345678901234567890.5", 64, 0, ErrNotInteger},
		{`"1"`, 32, 0, ErrKind},
		{"null", 32, 0, ErrKind},
		{"true", 32, 0, ErrKind},
		{"[1]", 32, 0, ErrKind},
		{"", 32, 0, ErrKind},
	}
	for _, tt := range tests {
		if got, err := Int([]byte(tt.raw), tt.width); got != tt.want || err != tt.err {
			t.Errorf("Int(%.40s, %d) = %d, %v, want %d, %v", tt.raw, tt.width, got, err, tt.want,
				tt.err)
		}
	}
}

func FuzzInt(f *testing.F) {
	for _, seed := range []string{"0", "-1.0", "1e1", "10e-1", "1.5", "9223372036854775808",
		"-9223372036854775808.00", "12.3400e2", "1e400", "0e9", "5e-3"} {
		f.Add(seed, 64)
	}
	f.Fuzz(func(t *testing.T, raw string, width int) {
		got, err := Int([]byte(raw), width)
		if width < 1 || width > 64 || Check([]byte(raw)) != nil ||
			KindOf([]byte(raw)) != KindNumber {
			return
		}
		if _, exponent, _ := strings.Cut(strings.ToLower(raw),
			"e"); len(Trim([]byte(exponent))) > 5 {
			return // math/big would fill the memory, which is the reason for Int
		}
		exact, ok := new(big.Rat).SetString(string(Trim([]byte(raw))))
		if !ok {
			t.Fatalf("math/big does not read %q", raw)
		}
		limit := new(big.Int).Lsh(big.NewInt(1), uint(width-1))
		var want error
		switch {
		case !exact.IsInt():
			want = ErrNotInteger
		case exact.Num().Cmp(limit) >= 0 || exact.Num().Cmp(new(big.Int).Neg(limit)) < 0:
			want = ErrRange
		}
		if err != want || (err == nil && got != exact.Num().Int64()) {
			t.Fatalf("Int(%s, %d) = %d, %v, want %s, %v", raw, width, got, err, exact.RatString(),
				want)
		}
	})
}

// RL-011, G-X-16.
func TestTime(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"2026-01-02T03:04:05Z":                   "2026-01-02T03:04:05Z",
		"2026-01-02t03:04:05z":                   "2026-01-02T03:04:05Z",
		"2026-01-02T03:04:05.6Z":                 "2026-01-02T03:04:05.6Z",
		"2026-01-02T03:04:05.123456Z":            "2026-01-02T03:04:05.123456Z",
		"2026-01-02T03:04:05.123456999Z":         "2026-01-02T03:04:05.123456Z",
		"2026-01-02T03:04:05.99999999999999999Z": "2026-01-02T03:04:05.999999Z",
		"1969-12-31T23:59:59.9999999Z":           "1969-12-31T23:59:59.999999Z",
		"2026-01-02T03:04:05+02:00":              "2026-01-02T01:04:05Z",
		"2026-01-01T00:30:00+01:00":              "2025-12-31T23:30:00Z",
		"2026-12-31T23:59:59.5-23:59":            "2027-01-01T23:58:59.5Z",
		"2026-01-02T03:04:05-00:00":              "2026-01-02T03:04:05Z",
		"2024-02-29T00:00:00Z":                   "2024-02-29T00:00:00Z",
		"2016-12-31T23:59:60Z":                   "2017-01-01T00:00:00Z",
		"2016-12-31T15:59:60.5-08:00":            "2017-01-01T00:00:00.5Z",
		"0000-01-01T00:00:00Z":                   "0000-01-01T00:00:00Z",
		"9999-12-31T23:59:59.999999Z":            "9999-12-31T23:59:59.999999Z",
	} {
		got, err := Time(AppendString(nil, in))
		if err != nil || got.Location() != time.UTC ||
			string(AppendTime(nil, got)) != `"`+want+`"` {
			t.Errorf("Time(%s) = %v, %v, want %s", in, got, err, want)
		}
	}
	if got, err := Time([]byte(`"2026\u002d01-02T03:04:05Z"`)); err != nil || got.Second() != 5 {
		t.Errorf("with an escape: %v, %v", got, err)
	}
	for _, in := range []string{
		"", "Z", "2026-01-02", "2026-01-02T03:04:05", "2026-01-02 03:04:05Z", "2026-01-02T03:04Z",
		"26-01-02T03:04:05Z",
		"2026-1-02T03:04:05Z", "2026-06-02T3:04:05Z", "2026-13-02T03:04:05Z",
		"2026-00-02T03:04:05Z", "2026-01-00T03:04:05Z", "2026-01-32T03:04:05Z",
		"2026-02-29T03:04:05Z", "2026-04-31T03:04:05Z", "2026-01-02T24:00:00Z",
		"2026-01-02T03:60:05Z", "2026-01-02T03:04:61Z",
		"2026-01-02T03:04:60Z", "2026-12-30T23:59:60Z", "2026-12-31T23:59:60+01:00",
		"2026-01-02T03:04:05.Z", "2026-01-02T03:04:05,5Z",
		"2026-01-02T03:04:05+0100", "2026-01-02T03:04:05+01", "2026-01-02T03:04:05+24:00",
		"2026-01-02T03:04:05+01:60",
		"2026-01-02T03:04:05*01:00", "2026-01-02T03:04:05ZZ", "2026-01-02T03:04:05Z ",
		" 2026-01-02T03:04:05Z", "+2026-01-02T03:04:05Z",
		"9999-12-31T23:59:59-01:00", "0000-01-01T00:00:00+01:00", "9999-12-31T23:59:60Z", "now",
		"1767322800", "２026-01-02T03:04:05Z",
	} {
		if got, err := ParseTime(in); err != ErrTime || !got.IsZero() {
			t.Errorf("ParseTime(%q) = %v, %v, want ErrTime", in, got, err)
		}
	}
	for _, raw := range []string{"1767322800", "null", "{}", ""} {
		if _, err := Time([]byte(raw)); err != ErrKind {
			t.Errorf("Time(%s) = %v, want ErrKind", raw, err)
		}
	}
}

// rfc3339 is the grammar, which time.Parse alone does not hold to: it takes one-digit hours, commas
// and +24:00.
var rfc3339 = regexp.MustCompile(
	`^\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]([01]\d|2[0-3]):[0-5]\d)$`)

// The result must agree with the grammar and time.Parse; the table covers leap seconds.
func FuzzTime(f *testing.F) {
	for _, seed := range []string{
		"2026-01-02T03:04:05Z", "2026-01-02t03:04:05.1234567z", "2016-12-31T23:59:60Z",
		"2026-06-02T3:04:05Z", "2024-02-29T23:59:59.999999999-12:34", "0000-01-01T00:00:00+00:01",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, err := ParseTime(s)
		if err == nil {
			if again, err := Time(AppendTime(nil, got)); err != nil || !again.Equal(got) {
				t.Fatalf("%q → %v → %v, %v", s, got, again, err)
			}
		}
		if len(s) > 19 && s[17:19] == "60" {
			return
		}
		want, wantErr := time.Parse(time.RFC3339, strings.ToUpper(s))
		year := want.UTC().Year()
		if ok := wantErr == nil && rfc3339.MatchString(s) && year >= 0 &&
			year <= 9999; (err == nil) != ok {
			t.Fatalf("ParseTime(%q) = %v, want ok %v", s, err, ok)
		}
		if err == nil && !got.Equal(want.Truncate(time.Microsecond)) {
			t.Fatalf("ParseTime(%q) = %v, want %v", s, got, want)
		}
	})
}

func BenchmarkTime(b *testing.B) {
	raw := []byte(`"2026-11-21T09:15:00.250+01:00"`)
	b.Run("strictjson", func(b *testing.B) {
		for b.Loop() {
			if _, err := Time(raw); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("time.UnmarshalJSON", func(b *testing.B) {
		for b.Loop() {
			var t time.Time
			if err := t.UnmarshalJSON(raw); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// Bytes is String without a copy where there are no escapes.
func TestBytes(t *testing.T) {
	t.Parallel()
	for _, raw := range []string{`"plain"`, ` "é" `, `"a\n\u00e9"`, `"\ud800"`, `"\u0000"`, `""`, `7`,
		`"`, ``} {
		want, wantErr := String([]byte(raw))
		got, err := Bytes([]byte(raw))
		if string(got) != want || !errors.Is(err, wantErr) {
			t.Errorf("Bytes(%s) = %q, %v, want %q, %v", raw, got, err, want, wantErr)
		}
	}
	raw := []byte(`"plain"`)
	text, err := Bytes(raw)
	if err != nil {
		t.Fatal(err)
	}
	_ = append(text, 'x')
	if raw[1] = 'P'; string(text) != "Plain" || string(raw) != `"Plain"` {
		t.Errorf("Bytes returned %s of %s, want a part that an append copies", text, raw)
	}
}
