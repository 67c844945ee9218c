package account

import (
	"bytes"
	"crypto/rand"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
)

var exampleID = uuid.MustParse("01890a5d-ac96-774b-bcce-b302099a8057")

func TestToken(t *testing.T) {
	t.Parallel()
	for name, secret := range map[string][secretBytes]byte{"small": {31: 1},
		"large": [secretBytes]byte(bytes.Repeat([]byte{255}, secretBytes))} {
		text := formatToken(exampleID, secret)
		if id, ok := parseToken(text); !ok || id != exampleID || len(text) != tokenLen {
			t.Errorf("%s: %q is read as %v, %v", name, text, id, ok)
		}
	}
	if got, want := formatToken(exampleID, [secretBytes]byte{31: 61}),
		"mr_01890a5dac96774bbcceb302099a8057_"+strings.Repeat("0", 42)+
			"z"; !strings.HasPrefix(got, want) {
		t.Errorf("got %q, want %q and a checksum: clients hold such keys", got, want)
	}
	t.Run("FR-012 every mistyped character is noticed", func(t *testing.T) {
		t.Parallel()
		text := formatToken(exampleID, [secretBytes]byte{7, 31: 9})
		for i := range text {
			for _, c := range []byte("0aA_ \x00\xff") {
				if text[i] == c {
					continue
				}
				if wrong := text[:i] + string([]byte{c}) + text[i+1:]; isToken(wrong) {
					t.Errorf("%q was taken for %q", wrong, text)
				}
			}
			if isToken(text[:i]) || isToken(text[:i]+text[i+1:]) {
				t.Errorf("shortened at %d it was taken", i)
			}
		}
		for _, wrong := range []string{text + "0", " " + text, strings.ToUpper(text), text + "\n"} {
			if isToken(wrong) {
				t.Errorf("%q was taken", wrong)
			}
		}
	})
	t.Run("ids sort by time", func(t *testing.T) {
		t.Parallel()
		now := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
		var last string
		for range 100 {
			id, text, err := newToken(rand.Reader, now)
			if err != nil || id.String() <= last || id.Version() != 7 ||
				id.Variant() != uuid.RFC4122 || !isToken(text) {
				t.Fatalf("%v after %v, %v", id, last, err)
			}
			last, now = id.String(), now.Add(time.Millisecond)
		}
	})
	t.Run("FR-028 only one Bearer credential", func(t *testing.T) {
		t.Parallel()
		for _, c := range []struct {
			header []string
			want   string
		}{
			{nil, ""},
			{[]string{"Bearer k"}, "k"},
			{[]string{"bearer  k "}, "k"},
			{[]string{"Bearer"}, ""},
			{[]string{"Bearer "}, ""},
			{[]string{"k"}, malformedKey},
			{[]string{""}, malformedKey},
			{[]string{"Basic k"}, malformedKey},
			{[]string{"Bearer k", "Bearer k"}, malformedKey},
		} {
			if got := Bearer(c.header); got != c.want {
				t.Errorf("%q: got %q, want %q", c.header, got, c.want)
			}
		}
		if isToken(malformedKey) {
			t.Error("what is no key is one")
		}
	})
}

func isToken(text string) bool {
	_, ok := parseToken(text)
	return ok
}

// FuzzToken checks that what is taken for a key is one, in its one spelling.
func FuzzToken(f *testing.F) {
	f.Add("", []byte{1}, true)
	f.Add(formatToken(exampleID, [secretBytes]byte{1}), []byte("secret"), false)
	f.Add("mr_01890a5dac96774bbcceb302099a8057_"+strings.Repeat("z", 49), []byte{}, true)
	f.Fuzz(func(t *testing.T, text string, raw []byte, _ bool) {
		if id, ok := parseToken(text); ok {
			body := text[:checksumOffset]
			if len(text) != tokenLen ||
				body[idOffset:secretOffset-1] != strings.ReplaceAll(id.String(), "-", "") ||
				text != body+checksum(body) {
				t.Errorf("%q was taken for a key", text)
			}
		}
		var id uuid.UUID
		var secret [secretBytes]byte
		copy(secret[:], raw)
		copy(id[:], text)
		if got, ok := parseToken(formatToken(id, secret)); !ok || got != id {
			t.Errorf("the key of %v is read as %v, %v", id, got, ok)
		}
	})
}

func TestNeighbourhood(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"192.0.2.1":                     "192.0.2.1",
		"192.0.2.1:80":                  "192.0.2.1",
		"::ffff:192.0.2.1":              "192.0.2.1",
		"[::ffff:192.0.2.1]:80":         "192.0.2.1",
		"2001:db8:1:2:3:4:5:6":          "2001:db8:1:2::/64",
		"[2001:db8:1:2:ffff::1]:443":    "2001:db8:1:2::/64",
		"fe80::1%eth0":                  "fe80::/64",
		"":                              "unknown",
		"@":                             "unknown",
		"example.org:80":                "unknown",
		strings.Repeat("9", 1<<10):      "unknown",
		"2001:db8:1:2:3:4:5:6, 1.2.3.4": "unknown",
	} {
		if got := addressBucket(address); got != want {
			t.Errorf("G-FR-16 %q: got %q, want %q", address, got, want)
		}
	}
}

// FuzzBearer: the key of a header is what stands behind the scheme Bearer, and of any other header
// there is none.
func FuzzBearer(f *testing.F) {
	for _, text := range []string{"", "Bearer", "Bearer ", "bearer x", "Basic x", "Bearer  a b", "\x00",
		"Bearer\tx", "BEARER \u00a0x", "Bearer mr_" + strings.Repeat("0", 82)} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, header string) {
		scheme, rest, _ := strings.Cut(header, " ")
		want := malformedKey
		if strings.EqualFold(scheme, "Bearer") {
			want = strings.TrimSpace(rest)
		}
		if got := Bearer([]string{header}); got != want {
			t.Fatalf("%q has the key %q", header, got)
		}
		if got := Bearer([]string{header, header}); got != malformedKey {
			t.Fatalf("%q twice has the key %q", header, got)
		}
	})
}
