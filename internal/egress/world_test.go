package egress_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/millrace/millrace/internal/egress"
)

// resolverFor is a DNS server of a test's own, as a resolver. answer gives the address of a name
// the n-th time its IPv4 address is asked for, counting from 0; it has no others.
func resolverFor(t *testing.T, answer func(name string, n int) netip.Addr) *net.Resolver {
	t.Helper()
	return serveDNS(t, func(name string, n int) []netip.Addr {
		return []netip.Addr{answer(name, n)}
	})
}

func serveDNS(t *testing.T, answer func(name string, n int) []netip.Addr) *net.Resolver {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() { conn.Close(); <-done })
	go func() {
		defer close(done)
		asked := map[string]int{}
		buf := make([]byte, 4096)
		for {
			n, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			if reply := dnsReply(buf[:n], asked, answer); reply != nil {
				_, _ = conn.WriteTo(reply, from)
			}
		}
	}()
	return &net.Resolver{PreferGo: true, StrictErrors: true,
		Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "udp", conn.LocalAddr().String())
		}}
}

// resolverWithTwo resolves every name to two addresses.
func resolverWithTwo(t *testing.T, one, other string) *net.Resolver {
	t.Helper()
	return serveDNS(t, func(string, int) []netip.Addr {
		return []netip.Addr{netip.MustParseAddr(one), netip.MustParseAddr(other)}
	})
}

func dnsReply(query []byte, asked map[string]int, answer func(string, int) []netip.Addr) []byte {
	var m dnsmessage.Message
	if m.Unpack(query) != nil || len(m.Questions) != 1 {
		return nil
	}
	q := m.Questions[0]
	m.Response, m.Additionals = true, nil
	if name := strings.TrimSuffix(q.Name.String(), "."); q.Type == dnsmessage.TypeA {
		for _, a := range answer(name, asked[name]) {
			m.Answers = append(m.Answers, dnsmessage.Resource{
				Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class},
				Body:   &dnsmessage.AResource{A: a.As4()},
			})
		}
		asked[name]++
	}
	reply, err := m.Pack()
	if err != nil {
		return nil
	}
	return reply
}

// target is a server that counts its requests.
type target struct {
	*httptest.Server
	hits atomic.Int64
}

func newTarget(t *testing.T, h http.HandlerFunc) *target {
	t.Helper()
	s := &target{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.hits.Add(1)
		if h != nil {
			h(w, r)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *target) port() string {
	_, port, _ := net.SplitHostPort(s.Listener.Addr().String())
	return port
}

func newClient(t *testing.T, c egress.Config) *egress.Client {
	t.Helper()
	made, err := egress.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(made.Close)
	return made
}

// get makes a request and returns status and body.
func get(t *testing.T, c *egress.Client, url string, headers ...string) (int, string, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		return 0, "", err
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := c.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body), err
}

func parsePrefixes(all ...string) (p []netip.Prefix) {
	for _, s := range all {
		p = append(p, netip.MustParsePrefix(s))
	}
	return p
}
