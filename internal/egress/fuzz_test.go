package egress_test

import (
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/egress"
)

// FuzzClassify: what the standard library takes for no address of the Internet is not public, and
// neither is an address that stands in another one.
func FuzzClassify(f *testing.F) {
	for _, all := range corpus {
		for _, text := range all {
			b := netip.MustParseAddr(text).As16()
			f.Add(b[:])
		}
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		a, ok := netip.AddrFromSlice(raw)
		if !ok || egress.Classify(a) != egress.Public {
			return
		}
		u := a.Unmap()
		if !u.IsGlobalUnicast() || u.IsPrivate() || u.IsLoopback() || u.IsLinkLocalUnicast() ||
			u.IsMulticast() || u.IsUnspecified() {
			t.Fatalf("%s is public", a)
		}
		if u.Is4() {
			return
		}
		b := u.As16()
		first, last := netip.AddrFrom4([4]byte(b[2:6])), netip.AddrFrom4([4]byte(b[12:16]))
		if b[0] == 0x20 && b[1] == 2 && egress.Classify(first) != egress.Public {
			t.Fatalf("%s is public, and 6to4 of %s", a, first)
		}
		if strings.HasPrefix(u.String(), "64:ff9b:") && egress.Classify(last) != egress.Public {
			t.Fatalf("%s is public, and leads to %s", a, last)
		}
	})
}

// FuzzCheckHeader: a header that may be set is one that Go sends as it is, and none of the
// connection. Its error does not have its value.
func FuzzCheckHeader(f *testing.F) {
	for _, name := range []string{"Accept", "host", "TE", "Proxy-X", "Sec-X", "", "a b", "a\r\nb", "ü"} {
		f.Add(name, "value")
		f.Add(name, "a\r\nHost: b")
		f.Add(name, "\x00\x7f")
	}
	f.Fuzz(func(t *testing.T, name, value string) {
		err := egress.CheckHeader(name, value)
		if err != nil {
			if len(value) > 20 && !strings.Contains(name, value) && strings.Contains(err.Error(), value) {
				t.Fatalf("%q: %v", value, err)
			}
			return
		}
		var b strings.Builder
		if err := (http.Header{name: {value}}).Write(&b); err != nil {
			t.Fatal(err)
		}
		if lines := strings.Count(b.String(), "\n"); lines != 1 {
			t.Fatalf("%q: %q are %d lines: %q", name, value, lines, b.String())
		}
		switch http.CanonicalHeaderKey(name) {
		case "Host", "Content-Length", "Transfer-Encoding", "Connection", "Te", "Upgrade", "Trailer":
			t.Fatalf("%q may be set", name)
		}
	})
}
