package httpapi_test

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"

	"github.com/millrace/millrace/internal/httpapi"
)

// TestBehind: the client's address is what the nearest trusted proxies say, and no other else.
func TestBehind(t *testing.T) {
	t.Parallel()
	proxies := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"),
		netip.MustParsePrefix("fd00::/8")}
	const proxy, stranger = "10.0.0.1:5000", "203.0.113.9:5000"
	for name, c := range map[string]struct {
		peer   string
		header []string // pairs
		want   string
	}{
		"no proxy in between": {stranger, nil, stranger},
		"a stranger says so": {stranger,
			[]string{"X-Forwarded-For", "1.1.1.1", "Forwarded", "for=1.1.1.1"}, stranger},
		"a proxy": {proxy, []string{"X-Forwarded-For", "203.0.113.9"},
			"203.0.113.9"},
		"a proxy says nothing": {proxy, nil, "10.0.0.1"},
		"what the client had written": {proxy,
			[]string{"X-Forwarded-For", "1.1.1.1, 10.0.0.9, 203.0.113.9"}, "203.0.113.9"},
		"two proxies": {proxy,
			[]string{"X-Forwarded-For", "1.1.1.1, 203.0.113.9, 10.9.9.9"}, "203.0.113.9"},
		"two lines": {proxy,
			[]string{"X-Forwarded-For", "1.1.1.1", "X-Forwarded-For", "203.0.113.9"},
			"203.0.113.9"},
		"all are trusted": {proxy, []string{"X-Forwarded-For", "10.3.3.3, 10.2.2.2"},
			"10.3.3.3"},
		"no address": {proxy,
			[]string{"X-Forwarded-For", "203.0.113.9, unknown"}, "10.0.0.1"},
		"no address further away": {proxy, []string{"X-Forwarded-For", "unknown, 10.2.2.2"},
			"10.2.2.2"},
		"empty": {proxy, []string{"X-Forwarded-For", ""}, "10.0.0.1"},
		"with a port": {proxy, []string{"X-Forwarded-For", "203.0.113.9:4711"},
			"203.0.113.9"},
		"IPv6": {"[fd00::1]:5000",
			[]string{"X-Forwarded-For", "2001:db8::7"}, "2001:db8::7"},
		"IPv6 with a port": {proxy, []string{"X-Forwarded-For", "[2001:db8::7]:80"},
			"2001:db8::7"},
		"IPv4 in IPv6": {"[::ffff:10.0.0.1]:5000",
			[]string{"X-Forwarded-For", "::ffff:203.0.113.9"}, "203.0.113.9"},
		"Forwarded": {proxy,
			[]string{"Forwarded", `for=1.1.1.1, For="203.0.113.9:80";proto=https;by=10.0.0.1`},
			"203.0.113.9"},
		"Forwarded, IPv6": {proxy,
			[]string{"Forwarded", `proto=http; for="[2001:db8::7]:80"`}, "2001:db8::7"},
		"Forwarded, hidden": {proxy,
			[]string{"Forwarded", `for=203.0.113.9, for=_hidden`}, "10.0.0.1"},
		"Forwarded, quoted separators": {proxy,
			[]string{"Forwarded", `for="a,b;for=1.1.1.1", for=203.0.113.9`}, "203.0.113.9"},
		"Forwarded passed on unchanged": {proxy,
			[]string{"Forwarded", "for=1.1.1.1", "X-Forwarded-For", "203.0.113.9"}, "203.0.113.9"},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			h := httpapi.TrustProxies(proxies,
				http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					got = r.RemoteAddr
				}))
			r := httptest.NewRequest("GET", "/", nil)
			r.RemoteAddr = c.peer
			for i := 0; i < len(c.header); i += 2 {
				r.Header.Add(c.header[i], c.header[i+1])
			}
			h.ServeHTTP(httptest.NewRecorder(), r)
			if got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}
