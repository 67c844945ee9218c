package egress_test

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/millrace/millrace/internal/egress"
	"github.com/millrace/millrace/internal/testkit"
)

// canaryPort listens on all addresses of the machine and counts connections. Nothing may come.
func canaryPort(t *testing.T) (port string, connects *atomic.Int64) {
	t.Helper()
	l, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	connects = &atomic.Int64{}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			connects.Add(1)
			conn.Close()
		}
	}()
	t.Cleanup(func() { l.Close() })
	_, port, _ = net.SplitHostPort(l.Addr().String())
	return port, connects
}

// allowedOrigin serves on the one address that the guard of TestSSRFVectors lets through.
func allowedOrigin(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.9.9.9:0")
	if err != nil {
		if os.Getenv("MILLRACE_TEST_REQUIRE") == "1" {
			t.Fatal(err)
		}
		t.Skip("127.9.9.9 is no address of this machine: ", err)
	}
	s := httptest.NewUnstartedServer(h)
	s.Listener.Close()
	s.Listener = l
	s.Start()
	t.Cleanup(s.Close)
	return s.URL
}

// inetAton is what the resolver of some systems makes of a name that is a number; loopback for all
// other names, so that one of them would arrive.
func inetAton(name string, _ int) netip.Addr {
	var n uint32
	if _, err := fmt.Sscan(name, &n); err == nil {
		return netip.AddrFrom4([4]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)})
	}
	return netip.MustParseAddr("127.0.0.1")
}

// TestSSRFVectors (I12): more than two thousand URLs that lead to forbidden addresses, each called
// directly by the client of webhooks and callbacks, which follows nothing, and of downloads, which
// follows redirects, and each as the redirect of an origin that may be called. None makes a
// connection.
func TestSSRFVectors(t *testing.T) {
	t.Parallel()
	port, connects := canaryPort(t)
	vectors := testkit.SSRFVectors(port)
	origin := allowedOrigin(t, func(w http.ResponseWriter, r *http.Request) {
		var n, status int
		_, _ = fmt.Sscanf(r.URL.Path, "/%d/%d", &n, &status)
		w.Header().Set("Location", vectors[n])
		w.WriteHeader(status)
	})
	c := egress.Config{Allow: parsePrefixes("127.9.9.9/32"), Resolver: resolverFor(t, inetAton)}
	hooks := newClient(t, c)
	c.MaxRedirects = 5
	downloads := newClient(t, c)
	statuses := []int{301, 302, 303, 307, 308}
	var asking sync.WaitGroup
	var asked, checked atomic.Int64
	for part := range 4 {
		asking.Go(func() {
			for i := part; i < len(vectors); i += 4 {
				for _, one := range []*egress.Client{hooks, downloads} {
					wantRefused(t, one, vectors[i])
				}
				redirect := fmt.Sprintf("%s/%d/%d", origin, i, statuses[i%len(statuses)])
				if strings.HasPrefix(vectors[i], "//") {
					redirect = strings.Replace(redirect, "/308", "/307", 1)
				}
				wantRefused(t, downloads, redirect)
				asked.Add(3)
				if c.CheckURL(vectors[i]) != nil {
					checked.Add(1)
				}
			}
		})
	}
	asking.Wait()
	if n := connects.Load(); n != 0 {
		t.Errorf("%d connections came", n)
	}
	if asked.Load() < 6000 || len(vectors) < 2000 || checked.Load() < int64(len(vectors)/2) {
		t.Errorf("only %d URLs, called %d times, %d of them refused before", len(vectors),
			asked.Load(), checked.Load())
	}
	t.Logf("%d URLs, called %d times", len(vectors), asked.Load())
}

// wantRefused fails unless a call ends with a refusal of the URL or of its address.
func wantRefused(t *testing.T, c *egress.Client, url string) {
	t.Helper()
	status, _, err := get(t, c, url)
	var refused *egress.RefusedError
	var invalid egress.InvalidURLError
	if status != 0 || err == nil {
		t.Errorf("I12 %s: %d", url, status)
		return
	}
	// Neither is a connection: the URL cannot be parsed, or its host is not resolved.
	isNone := strings.Contains(err.Error(), "parse") || strings.Contains(err.Error(), "no such host")
	if !errors.As(err, &refused) && !errors.As(err, &invalid) && !isNone {
		t.Errorf("I12 %s: %v", url, err)
	}
}

// TestRebindingVectors (I12): a name that leads to an allowed address at first, and elsewhere when
// it is asked for again, is refused then.
func TestRebindingVectors(t *testing.T) {
	t.Parallel()
	port, connects := canaryPort(t)
	for _, address := range []string{"127.0.0.1", "127.1.2.3", "0.0.0.0", "10.0.0.1",
		"169.254.169.254", "100.64.0.1", "224.0.0.1", "255.255.255.255"} {
		to := netip.MustParseAddr(address)
		flips := newClient(t, egress.Config{Allow: parsePrefixes("127.9.9.9/32"), MaxRedirects: 5,
			Resolver: resolverFor(t, func(_ string, n int) netip.Addr {
				if n == 0 {
					return netip.MustParseAddr("127.9.9.9")
				}
				return to
			})})
		// The canary has the port on the allowed address too, so the first try may connect there.
		before := connects.Load()
		_, _, _ = get(t, flips, "http://rebinding.example:"+port+"/")
		first := connects.Load() - before
		wantRefused(t, flips, "http://rebinding.example:"+port+"/")
		if now := connects.Load() - before; now != first {
			t.Errorf("I12 %s got %d connections", address, now-first)
		}
	}
}
