package egress_test

import (
	"compress/gzip"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/egress"
)

func TestRedirectsAreNotFollowedUnlessAsked(t *testing.T) {
	t.Parallel()
	s := newTarget(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/again", http.StatusFound)
	})
	status, _, err := get(t, newClient(t, egress.Config{AllowLocal: true}), s.URL)
	if status != http.StatusFound || err != nil || s.hits.Load() != 1 {
		t.Errorf("got %d, %v after %d requests", status, err, s.hits.Load())
	}
}

func TestRedirectsAreCounted(t *testing.T) {
	t.Parallel()
	s := newTarget(t, func(w http.ResponseWriter, r *http.Request) {
		left, _ := strconv.Atoi(strings.TrimPrefix(r.URL.Path, "/"))
		if left > 0 {
			http.Redirect(w, r, fmt.Sprintf("/%d", left-1), http.StatusFound)
		}
	})
	c := newClient(t, egress.Config{AllowLocal: true, MaxRedirects: 3})
	if status, _, err := get(t, c, s.URL+"/3"); status != 200 || err != nil {
		t.Errorf("three: %d, %v", status, err)
	}
	if _, _, err := get(t, c, s.URL+"/4"); !errors.Is(err, egress.ErrRedirects) {
		t.Errorf("four: %v", err)
	}
	if _, err := egress.New(egress.Config{MaxRedirects: 11}); err == nil {
		t.Error("a client that follows eleven was made")
	}
	if _, err := egress.New(egress.Config{Allow: []netip.Prefix{{}}}); err == nil {
		t.Error("a client that allows nothing sensible was made")
	}
}

// Each hop is checked like the first: address, scheme, credentials.
func TestRedirectsToWhereNothingIsCalled(t *testing.T) {
	t.Parallel()
	inner := newTarget(t, nil)
	for _, to := range []string{"http://127.0.0.2:" + inner.port(),
		"http://0x7f.0.0.2:" + inner.port(), "http://[::1]:" + inner.port(),
		"http://0.0.0.0:" + inner.port(),
		"http://169.254.169.254/latest/meta-data", "file:///etc/passwd", "ftp://127.0.0.1/",
		"gopher://127.0.0.1:" + inner.port(),
		"http://u:p@127.0.0.1:" + inner.port(), "http://127.0.0.1:0/",
		"//127.0.0.2:" + inner.port() + "/x"} {
		outer := newTarget(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", to)
			w.WriteHeader(http.StatusTemporaryRedirect)
		})
		c := newClient(t, egress.Config{Allow: parsePrefixes("127.0.0.1/32"), MaxRedirects: 10,
			Resolver: resolverFor(t, func(string, int) netip.Addr {
				return netip.MustParseAddr("127.0.0.2")
			})})
		if status, _, err := get(t, c, outer.URL); err == nil || outer.hits.Load() != 1 {
			t.Errorf("%s: %d, %v after %d requests", to, status, err, outer.hits.Load())
		}
	}
	if inner.hits.Load() != 0 {
		t.Errorf("%d requests arrived", inner.hits.Load())
	}
}

// Credentials stay with the host they were given for, also when another one sends the request back.
func TestRedirectsDropCredentials(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var seen []http.Header
	note := func(h http.Header) { mu.Lock(); defer mu.Unlock(); seen = append(seen, h) }
	var home, other *target
	home = newTarget(t, func(w http.ResponseWriter, r *http.Request) {
		note(r.Header)
		switch r.URL.Path {
		case "/start":
			http.Redirect(w, r, "/same", http.StatusFound)
		case "/same":
			http.Redirect(w, r, other.URL+"/there?token=s3cret", http.StatusFound)
		}
	})
	other = newTarget(t, func(w http.ResponseWriter, r *http.Request) {
		note(r.Header)
		http.Redirect(w, r, home.URL+"/back", http.StatusFound)
	})
	c := newClient(t, egress.Config{AllowLocal: true, MaxRedirects: 10, UserAgent: "tester"})
	_, _, err := get(t, c, home.URL+"/start", "Authorization", "Bearer s3cret", "Cookie",
		"a=s3cret", "X-Api-Key", "s3cret", "Accept", "text/plain")
	if err != nil || len(seen) != 4 {
		t.Fatalf("%d requests, %v", len(seen), err)
	}
	for i, h := range seen {
		whole := i < 2
		if has := strings.Contains(fmt.Sprint(h), "s3cret"); has != whole {
			t.Errorf("request %d came with %v", i, h)
		}
		if h.Get("Accept") != "text/plain" || h.Get("User-Agent") != "tester" ||
			h.Get("Referer") != "" {
			t.Errorf("request %d came with %v", i, h)
		}
	}
}

// The environment's proxies are for others: through one the guard would see nothing. (t.Setenv: not
// parallel.)
func TestNoProxyOfTheEnvironment(t *testing.T) {
	proxy, s := newTarget(t, nil), newTarget(t, nil)
	for _, name := range []string{"HTTP_PROXY", "http_proxy", "ALL_PROXY", "HTTPS_PROXY"} {
		t.Setenv(name, proxy.URL)
	}
	c := newClient(t, egress.Config{AllowLocal: true,
		Resolver: resolverFor(t, func(string, int) netip.Addr {
			return netip.MustParseAddr("127.0.0.1")
		})})
	if _, _, err := get(t, c, "http://some.example:"+s.port()); err != nil ||
		proxy.hits.Load() != 0 || s.hits.Load() != 1 {
		t.Errorf("%v; the proxy got %d requests, the host %d", err, proxy.hits.Load(),
			s.hits.Load())
	}
}

func TestAnswersAreBounded(t *testing.T) {
	t.Parallel()
	large := newTarget(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Large", strings.Repeat("x", 100_000))
	})
	if _, _, err := get(t, newClient(t, egress.Config{AllowLocal: true}), large.URL); err == nil {
		t.Error("a header of 100 kB was taken")
	}
	packed := newTarget(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Accept-Encoding") != "" {
			w.WriteHeader(http.StatusTeapot)
		}
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		_, _ = z.Write(make([]byte, 1<<20))
		z.Close()
	})
	if status, body, err := get(t, newClient(t, egress.Config{AllowLocal: true}),
		packed.URL); err != nil || status != 200 || len(body) > 10_000 {
		t.Errorf("a compressed answer came as %d with %d bytes: %v", status, len(body), err)
	}
}

func TestStallingReceivers(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	silent := newTarget(t, func(http.ResponseWriter, *http.Request) { <-release })
	dripping := newTarget(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		<-release
	})
	defer close(release)
	if _, _, err := get(t, newClient(t, egress.Config{AllowLocal: true,
		HeaderTimeout: 20 * time.Millisecond}), silent.URL); err == nil {
		t.Error("no header came and there is no error")
	}
	if _, _, err := get(t, newClient(t, egress.Config{AllowLocal: true,
		Timeout: 50 * time.Millisecond}), dripping.URL); err == nil {
		t.Error("no body came and there is no error")
	}
}

func TestDoChecksTheURL(t *testing.T) {
	t.Parallel()
	c := newClient(t, egress.Config{AllowLocal: true})
	for _, u := range []*url.URL{nil, {Scheme: "file", Path: "/etc/passwd"}, {Scheme: "http"},
		{Scheme: "http", Host: "a", User: url.User("u")}} {
		if _, err := c.Do(&http.Request{URL: u}); err == nil {
			t.Errorf("%v was called", u)
		}
	}
	s := httptest.NewServer(http.NotFoundHandler())
	defer s.Close()
	u, _ := url.Parse(s.URL)
	resp, err := c.Do((&http.Request{URL: u}).WithContext(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
}

func TestParseURL(t *testing.T) {
	t.Parallel()
	good := []string{"http://a", "https://a.example/x?y=z", "HTTP://A.example:8080",
		"http://[::1]:80/", "http://127.0.0.1:1/", "http://0x7f.1/",
		"https://bücher.example/ü", "http://a#fragment", "http://a:65535",
		"http://a/" + strings.Repeat("x", egress.MaxURL-9)}
	bad := []string{"", " ", "a", "/x", "//a/x", "http:", "http://", "http:///x", "http:a",
		"http://:80", "ftp://a", "file:///etc/passwd", "javascript:alert(1)",
		"http://a b", "http://a/b c", "http://a\n", "http://a/\r\nHost: b", "http://a\x00",
		"http://u@a", "http://u:p@a", "http://@a", "http://example.com:80@127.0.0.1",
		"http://a:0", "http://a:65536", "http://a:-1", "http://a:x", "http://[::1",
		"http://[fe80::1%25eth0]/", "http://%zz/", "\xff://a", "http://a/\xff",
		"http://a/" + strings.Repeat("x", egress.MaxURL), "https:/a", "http//a"}
	for _, raw := range good {
		if u, err := egress.ParseURL(raw); err != nil || u.Hostname() == "" {
			t.Errorf("%q: %v", raw, err)
		}
	}
	for _, raw := range bad {
		if _, err := egress.ParseURL(raw); err == nil {
			t.Errorf("%q was taken", raw)
		}
	}
}

func TestCheckHeader(t *testing.T) {
	t.Parallel()
	for _, ok := range [][2]string{{"Authorization", "Bearer x"}, {"X-Any", ""}, {"accept", "*/*"},
		{"Cookie", "a=b"}, {"Proxied", "x"}} {
		if err := egress.CheckHeader(ok[0], ok[1]); err != nil {
			t.Error(err)
		}
	}
	for _, bad := range [][2]string{{"Host", "a"}, {"hOST", "a"}, {"Connection", "close"},
		{"Keep-Alive", "1"}, {"Proxy-Authorization", "x"}, {"proxy-connection", "x"},
		{"Transfer-Encoding", "chunked"}, {"Content-Length", "1"}, {"TE", "trailers"},
		{"Trailer", "x"}, {"Upgrade", "h2c"}, {"HTTP2-Settings", "x"},
		{"Expect", "100-continue"}, {"Sec-Fetch-Site", "x"}, {"", "x"}, {"a b", "x"}, {"a:", "x"},
		{"ü", "x"}, {"X-A\r\nHost", "x"}, {"X-A", "s3cret\r\nHost: b"}, {"X-A", "s3cret\x00"}} {
		err := egress.CheckHeader(bad[0], bad[1])
		if err == nil || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// An accepted URL can be called as it was checked: it stays the same through one more reading.
func FuzzParseURL(f *testing.F) {
	for _, s := range []string{"http://a", "http://[::1]:80/x?y#z", "http://u@a",
		"http://0x7f.1:0/", "http://a:80:90", "http://a\\@b", "http://１２７.0.0.1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		u, err := egress.ParseURL(raw)
		if err != nil {
			return
		}
		again, err := egress.ParseURL(u.String())
		if len(u.String()) > egress.MaxURL { // escaping made it longer
			return
		}
		if err != nil || again.Host != u.Host || u.User != nil ||
			(u.Scheme != "http" && u.Scheme != "https") {
			t.Fatalf("%q is %q, then %v, %v", raw, u, again, err)
		}
	})
}

// What follows a 101 is the bare connection: read as an answer it would last for ever, whatever the
// time-out says.
func TestProtocolsAreNotSwitched(t *testing.T) {
	t.Parallel()
	closed := make(chan struct{})
	s := newTarget(t, func(w http.ResponseWriter, _ *http.Request) {
		conn, rw, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		fmt.Fprint(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+
			"websocket\r\n\r\n")
		rw.Flush()
		_, _ = rw.ReadByte() // until the other end has gone
		conn.Close()
		close(closed)
	})
	if _, _, err := get(t, newClient(t, egress.Config{AllowLocal: true}), s.URL); !errors.Is(err,
		egress.ErrProtocolSwitch) {
		t.Errorf("got %v", err)
	}
	<-closed
}
