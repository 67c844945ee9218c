package egress_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/egress"
	"github.com/millrace/millrace/internal/testkit"
)

// proxyKinds of proxies, each with credentials and without.
var proxyKinds = map[string]func(testing.TB) *testkit.Proxy{
	"HTTP": func(tb testing.TB) *testkit.Proxy {
		return testkit.HTTPProxy(tb, "")
	},
	"HTTP with a password": func(tb testing.TB) *testkit.Proxy {
		return testkit.HTTPProxy(tb, "us:er:s3cret")
	},
	"SOCKS5": func(tb testing.TB) *testkit.Proxy {
		return testkit.SOCKSProxy(tb, "")
	},
	"SOCKS5 with a password": func(tb testing.TB) *testkit.Proxy {
		return testkit.SOCKSProxy(tb, "user:s3cret")
	},
	"SOCKS5 with an empty one": func(tb testing.TB) *testkit.Proxy {
		return testkit.SOCKSProxy(tb, "user:")
	},
}

// resolverAlways resolves every name to an address.
func resolverAlways(t *testing.T, address string) *net.Resolver {
	return resolverFor(t, func(string, int) netip.Addr { return netip.MustParseAddr(address) })
}

func newProxiedClient(t *testing.T, p *testkit.Proxy, c egress.Config) *egress.Client {
	t.Helper()
	var err error
	if c.Proxy, err = egress.ParseProxy(p.URL); err != nil {
		t.Fatal(err)
	}
	return newClient(t, c)
}

// newTLSServer is a target that speaks TLS under a name, and the config that trusts it.
func newTLSServer(t *testing.T) (*httptest.Server, *tls.Config) {
	t.Helper()
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "secure ", r.TLS.ServerName)
	}))
	t.Cleanup(s.Close)
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	return s, &tls.Config{RootCAs: roots}
}

func serverPort(s *httptest.Server) string {
	_, port, _ := net.SplitHostPort(s.Listener.Addr().String())
	return port
}

func TestThroughProxies(t *testing.T) {
	t.Parallel()
	for name, start := range proxyKinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			plain := newTarget(t, func(w http.ResponseWriter, r *http.Request) {
				fmt.Fprint(w, "plain ", r.Host, r.Header.Get("Proxy-Authorization"),
					r.Header.Get("X-Mine"))
			})
			secured, trust := newTLSServer(t)
			p := start(t)
			c := newProxiedClient(t, p, egress.Config{AllowLocal: true, TLS: trust,
				Resolver: resolverAlways(t, "127.0.0.1")})
			if status, body, err := get(t, c, "http://plain.test:"+plain.port()+"/x", "X-Mine",
				"!"); err != nil || status != 200 || body != "plain plain.test:"+plain.port()+"!" {
				t.Errorf("plain: %d %q %v", status, body, err)
			}
			if status, body, err := get(t, c,
				"https://example.com:"+serverPort(secured)+"/x"); err != nil || status != 200 ||
				body != "secure example.com" {
				t.Errorf("secure: %d %q %v", status, body, err)
			}
			// Only a plain request to an HTTP proxy names the host; all others name the address
			// that was checked.
			want := []string{"127.0.0.1:" + plain.port(), "127.0.0.1:" + serverPort(secured)}
			if strings.HasPrefix(name, "HTTP") {
				want[0] = "plain.test:" + plain.port()
			}
			if got := p.Targets(); !slices.Equal(got, want) {
				t.Errorf("asked for %v, want %v", got, want)
			}
		})
	}
}

// A proxy is no way around the guard: whatever is refused without one is refused before the proxy
// gets it.
func TestProxiesAndTheGuard(t *testing.T) {
	t.Parallel()
	for name, start := range proxyKinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inner := newTarget(t, nil)
			outer := newTarget(t, func(w http.ResponseWriter, r *http.Request) {
				http.Redirect(w, r, r.URL.Query().Get("to"), http.StatusFound)
			})
			p := start(t)
			resolver := resolverFor(t, func(name string, _ int) netip.Addr {
				if name == "outer.test" {
					// listed; where the proxy looks it is the outer server
					return netip.MustParseAddr("198.18.7.7")
				}
				return netip.MustParseAddr("127.0.0.1")
			})
			c := newProxiedClient(t, p, egress.Config{Allow: parsePrefixes("198.18.7.7/32"),
				MaxRedirects: 10, Resolver: resolver})
			targets := []string{}
			for _, host := range hosts {
				targets = append(targets, "http://"+host+":"+inner.port()+"/",
					"https://"+host+":"+inner.port()+"/")
			}
			proxy, _ := url.Parse(p.URL)
			targets = append(targets, "http://"+proxy.Host+"/", "https://"+proxy.Host+"/",
				"http://inner.test:"+inner.port())
			for _, to := range targets {
				if status, _, err := get(t, c, to); err == nil {
					t.Errorf("%s: %d", to, status)
				}
				if !strings.HasPrefix(name, "HTTP") {
					continue
				}
				// a redirect is checked like the first request
				if status, _, err := get(t, c,
					"http://outer.test:"+outer.port()+"/?to="+url.QueryEscape(to)); err == nil {
					t.Errorf("redirected to %s: %d", to, status)
				}
			}
			if n := inner.hits.Load(); n != 0 {
				t.Errorf("%d requests arrived", n)
			}
			for _, asked := range p.Targets() {
				if !strings.HasPrefix(asked, "outer.test:") {
					t.Errorf("the proxy was asked for %s", asked)
				}
			}
			if strings.HasPrefix(name, "HTTP") && outer.hits.Load() != int64(len(targets)) {
				t.Errorf("%d of %d redirects were reached", outer.hits.Load(), len(targets))
			}
		})
	}
}

// What an HTTP proxy looks up itself must be harmless whichever of its addresses it takes.
func TestEveryAddressOfANameForAProxy(t *testing.T) {
	t.Parallel()
	p := testkit.HTTPProxy(t, "")
	c := newProxiedClient(t, p, egress.Config{Resolver: resolverWithTwo(t, "1.1.1.1", "127.0.0.1")})
	var refused *egress.RefusedError
	if _, _, err := get(t, c, "http://both.test:9/"); !errors.As(err, &refused) ||
		refused.Class != egress.Loopback || len(p.Targets()) != 0 {
		t.Errorf("plain: got %v after %v", err, p.Targets())
	}
	p.RefuseWith(5)
	if _, _, err := get(t, c, "https://both.test:9/"); err == nil ||
		!slices.Equal(p.Targets(), []string{"1.1.1.1:9"}) {
		t.Errorf("secure: got %v after %v", err, p.Targets())
	}
}

func TestProxiesThatFail(t *testing.T) {
	t.Parallel()
	for name, start := range proxyKinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newTarget(t, nil)
			p := start(t)
			c := newProxiedClient(t, p, egress.Config{AllowLocal: true,
				Resolver: resolverAlways(t, "127.0.0.1")})
			for _, scheme := range []string{"http", "https"} {
				target := scheme + "://some.test:" + s.port()
				fails := func(what string, c *egress.Client, ofProxy bool) {
					t.Helper()
					status, _, err := get(t, c, target)
					var broken *egress.ProxyError
					if errors.As(err, &broken) != ofProxy ||
						(!ofProxy && err == nil && status != 503) ||
						(err != nil && strings.Contains(err.Error(), "s3cret")) {
						t.Errorf("%s, %s: %d %v", what, scheme, status, err)
					}
				}
				p.RefuseWith(5)
				fails("the target cannot be reached", c, false)
				p.RefuseWith(0)
				p.SetBroken(true)
				fails("it hangs up", newProxiedClient(t, p,
					egress.Config{AllowLocal: true, Resolver: resolverAlways(t, "127.0.0.1")}),
					true)
				p.SetBroken(false)
				u, _ := url.Parse(p.URL)
				if u.User != nil {
					u.User = url.UserPassword("user", "wrong")
					fails("wrong credentials",
						newClient(t, egress.Config{AllowLocal: true, Proxy: u,
							Resolver: resolverAlways(t, "127.0.0.1")}), true)
					u.User = nil
					fails("no credentials",
						newClient(t, egress.Config{AllowLocal: true, Proxy: u,
							Resolver: resolverAlways(t, "127.0.0.1")}), true)
				}
				fails("no proxy listens",
					newClient(t, egress.Config{AllowLocal: true,
						Proxy:    &url.URL{Scheme: u.Scheme, Host: testkit.ClosedAddress(t)},
						Resolver: resolverAlways(t, "127.0.0.1")}), true)
			}
			if s.hits.Load() != 0 {
				t.Errorf("%d requests arrived", s.hits.Load())
			}
		})
	}
}

// A proxy that accepts and sends nothing, or nonsense, does not block its client.
func TestProxiesThatStall(t *testing.T) {
	t.Parallel()
	for scheme, says := range map[string]string{"http": "nonsense\r\n\r\n",
		"socks5": "SSH-2.0-x\r\n"} {
		for _, say := range []string{"", says, strings.Repeat("x", 100_000)} {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				conn, err := l.Accept()
				if err != nil {
					return
				}
				defer conn.Close()
				_, _ = io.WriteString(conn, say)
				_, _ = io.Copy(io.Discard, conn)
			}()
			c := newClient(t, egress.Config{AllowLocal: true,
				ConnectTimeout: 200 * time.Millisecond, Resolver: resolverAlways(t, "127.0.0.1"),
				Proxy: &url.URL{Scheme: scheme, Host: l.Addr().String()}})
			_, _, err = get(t, c, "https://some.test:9/")
			if broken := (*egress.ProxyError)(nil); !errors.As(err, &broken) {
				t.Errorf("%s says %.10q: got %v", scheme, say, err)
			}
			<-ended // it was hung up on
			l.Close()
		}
	}
}

func TestParseProxy(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{"http://p": "http://p:80",
		"http://p:3128/": "http://p:3128", "socks5://u:s3cret@p": "socks5://u:s3cret@p:1080",
		"socks5://[::1]:99": "socks5://[::1]:99", "http://u@10.0.0.1:8": "http://u@10.0.0.1:8"} {
		if u, err := egress.ParseProxy(raw); err != nil || u.String() != want {
			t.Errorf("%s: %v, %v", raw, u, err)
		}
	}
	for _, raw := range []string{"", "p", "p:80", "https://p", "socks4://p", "socks5h://p",
		"ftp://p", "http://", "http://u:s3cret@", "http://u:s3cret@p/x", "http://p?s3cret",
		"http://p#s3cret", "http://u:s3cret@p:0", "http://u:s3cret@p:99999", "http:p",
		"http://u:s3cret\x00@p", "socks5://" + strings.Repeat("u", 256) + ":s3cret@p",
		"socks5://u:s3cret" + strings.Repeat("x", 250) + "@p", "http://u:s3cret@p q"} {
		if u, err := egress.ParseProxy(raw); err == nil || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%q: %v, %v", raw, u, err)
		}
	}
	if _, err := egress.New(egress.Config{Proxy: &url.URL{Scheme: "ftp", Host: "p"}}); err == nil {
		t.Error("a client through ftp was made")
	}
}
