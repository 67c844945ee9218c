package httpapi_test

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/httpapi"
)

// FuzzCursor: a text is refused as a cursor, or is the position that was read from it.
func FuzzCursor(f *testing.F) {
	for _, text := range []string{"", "MTcwMDAwMDAwMDAwMDAwMC4wMTg5MDAwMC0wMDAwLTcwMDAtODAwMC0wMDAw",
		"am9iczox", "am9iczox=", "am9iczow", "am9iczotMQ", "am9iczowMQ", "01890000-0000-7000-8000-000000000000",
		"\x00", "////", "a b", strings.Repeat("A", 5000)} {
		f.Add(text)
	}
	named := httpapi.Named("jobs", httpapi.ByNumber)
	f.Fuzz(func(t *testing.T, text string) {
		if p, ok := httpapi.NewestFirst.Parse(text); ok {
			again, ok := httpapi.NewestFirst.Parse(httpapi.NewestFirst.Format(p))
			if !ok || !again.At.Equal(p.At) || again.ID != p.ID {
				t.Fatalf("%q is %v, then %v", text, p, again)
			}
		}
		if n, ok := named.Parse(text); ok && (n < 1 || named.Format(n) != text) {
			t.Fatalf("%q is %d, which is %q", text, n, named.Format(n))
		}
		if id, ok := httpapi.ByID.Parse(text); ok && !strings.EqualFold(id, text) {
			t.Fatalf("%q is %q", text, id)
		}
	})
}

// FuzzForwarded: whatever proxies say, the address of the caller is one, and without a proxy that
// is trusted it is the address of the connection.
func FuzzForwarded(f *testing.F) {
	for _, text := range []string{"", "1.2.3.4", "1.2.3.4, 5.6.7.8:90", "for=1.2.3.4", `for="[::1]:80"`,
		`for="_hidden"`, "[", "for=", ";;;for=1.1.1.1", `for="1.1.1.1`, "::ffff:1.2.3.4", "fe80::1%x",
		strings.Repeat("1.1.1.1,", 500)} {
		f.Add(text, text)
	}
	var got string
	note := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r.RemoteAddr })
	trusting := httpapi.TrustProxies([]netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, note)
	f.Fuzz(func(t *testing.T, forwarded, forwardedFor string) {
		for peer, trusted := range map[string]bool{"10.1.1.1:80": true, "9.9.9.9:80": false} {
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			r.RemoteAddr = peer
			r.Header["Forwarded"] = []string{forwarded}
			r.Header["X-Forwarded-For"] = []string{forwardedFor}
			trusting.ServeHTTP(httptest.NewRecorder(), r)
			if !trusted && got != peer {
				t.Fatalf("%q %q: the caller at %s is %s", forwarded, forwardedFor, peer, got)
			}
			if host := httpapi.RemoteHost(&http.Request{RemoteAddr: got}); !isAddress(host) {
				t.Fatalf("%q %q: the caller is %q", forwarded, forwardedFor, got)
			}
		}
	})
}

// isAddress reports whether a text is an address.
func isAddress(text string) bool { _, err := netip.ParseAddr(text); return err == nil }
