package testkit

import (
	"bufio"
	"encoding/base64"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// Proxy is a real proxy that records its targets. It resolves names that end in .test to this
// machine. Tests of egress and of downloads go through it. It fails on demand, since only a proxy
// that fails shows whether its client tells a broken proxy from a broken target.
type Proxy struct {
	URL string // with the credentials it requires

	user    string // USER:PASSWORD; "" requires none
	mu      sync.Mutex
	targets []string // host and port as clients named them
	broken  bool
	refusal byte // a reply code of SOCKS5 with which requests are refused; 0 for none
	conns   map[net.Conn]struct{}
}

// Targets returns the targets of all requests, as clients named them. A test finds by them whether
// a name or an address was sent, and that a request went through the proxy at all.
func (p *Proxy) Targets() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.targets...)
}

// SetBroken makes the proxy close every new connection at once, or stops that. Connections that are
// open stay open.
func (p *Proxy) SetBroken(broken bool) { p.mu.Lock(); defer p.mu.Unlock(); p.broken = broken }

// RefuseWith makes the proxy refuse requests with a reply code of SOCKS5, or with 503 over HTTP; 0
// stops that. A client then reports the target and not the proxy.
func (p *Proxy) RefuseWith(reply byte) { p.mu.Lock(); defer p.mu.Unlock(); p.refusal = reply }

// recordTarget keeps the target of a request and returns how to refuse it, 0 to serve it.
func (p *Proxy) recordTarget(target string) (refusal byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.targets = append(p.targets, target)
	return p.refusal
}

// isBroken reports whether new connections are to be closed.
func (p *Proxy) isBroken() bool { p.mu.Lock(); defer p.mu.Unlock(); return p.broken }

// listen serves connections until the test ends, which closes them.
func (p *Proxy) listen(tb testing.TB, scheme string, serve func(net.Conn)) {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	u := url.URL{Scheme: scheme, Host: l.Addr().String()}
	if name, password, ok := strings.Cut(p.user, ":"); ok {
		u.User = url.UserPassword(name, password)
	}
	p.URL, p.conns = u.String(), map[net.Conn]struct{}{}
	var all sync.WaitGroup
	tb.Cleanup(func() {
		l.Close()
		p.mu.Lock()
		for c := range p.conns {
			c.Close()
		}
		p.mu.Unlock()
		all.Wait()
	})
	all.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { p.serveTracked(conn, serve) })
		}
	})
}

// serveTracked serves a connection, which the end of the test closes, or closes it at once while
// the proxy is broken.
func (p *Proxy) serveTracked(conn net.Conn, serve func(net.Conn)) {
	defer conn.Close()
	p.track(conn, true)
	defer p.track(conn, false)
	if !p.isBroken() {
		serve(conn)
	}
}

// track adds a connection to those that are open, or removes it.
func (p *Proxy) track(conn net.Conn, open bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !open {
		delete(p.conns, conn)
		return
	}
	p.conns[conn] = struct{}{}
}

// splice connects a client with a target until one of them closes its connection. Bytes go both
// ways at the same time, as TLS needs it.
func (p *Proxy) splice(client io.ReadWriter, target string) {
	upstream, err := net.Dial("tcp", resolveTarget(target))
	if err != nil {
		return
	}
	defer upstream.Close()
	p.track(upstream, true)
	defer p.track(upstream, false)
	done := make(chan struct{}, 2)
	for _, pair := range [][2]io.ReadWriter{{upstream, client}, {client, upstream}} {
		go func() { _, _ = io.Copy(pair[0], pair[1]); done <- struct{}{} }()
	}
	<-done
	upstream.Close()
	if c, ok := client.(io.Closer); ok {
		c.Close()
	}
	<-done
}

// resolveTarget returns the address that the proxy connects to for a target. So a test can use
// names without a resolver that has them.
func resolveTarget(target string) string {
	host, port, err := net.SplitHostPort(target)
	if err != nil || !strings.HasSuffix(host, ".test") {
		return target
	}
	return net.JoinHostPort("127.0.0.1", port)
}

// HTTPProxy starts an HTTP proxy, which forwards requests for http:// and tunnels all others. user
// is USER:PASSWORD, or "" for a proxy without authentication. It answers 502 where a target cannot
// be reached.
func HTTPProxy(tb testing.TB, user string) *Proxy {
	tb.Helper()
	p := &Proxy{user: user}
	forward := &http.Transport{Proxy: nil}
	tb.Cleanup(forward.CloseIdleConnections)
	p.listen(tb, "http", func(conn net.Conn) {
		r := bufio.NewReader(conn)
		for {
			req, err := http.ReadRequest(r)
			if err != nil || !p.answer(conn, req, forward) {
				return
			}
		}
	})
	return p
}

// answer serves one request and reports whether another may come. A request without the right
// credentials is answered 407 and is not counted as a target.
func (p *Proxy) answer(conn net.Conn, req *http.Request, forward *http.Transport) bool {
	respond := func(status int) bool {
		resp := http.Response{StatusCode: status, ProtoMajor: 1, ProtoMinor: 1, Request: req,
			Header: http.Header{"Content-Length": {"0"}}}
		if err := resp.Write(conn); err != nil {
			return false
		}
		return req.Method != http.MethodConnect
	}
	want := "Basic " + base64.StdEncoding.EncodeToString([]byte(p.user))
	if p.user != "" && req.Header.Get("Proxy-Authorization") != want {
		return respond(http.StatusProxyAuthRequired)
	}
	if p.recordTarget(req.Host) != 0 {
		return respond(http.StatusServiceUnavailable)
	}
	if req.Method == http.MethodConnect {
		if _, err := io.WriteString(conn, "HTTP/1.1 200 Connected\r\n\r\n"); err != nil {
			return false
		}
		p.splice(conn, req.Host)
		return false
	}
	req.RequestURI, req.URL.Host = "", resolveTarget(req.URL.Host)
	req.Header.Del("Proxy-Authorization")
	resp, err := forward.RoundTrip(req)
	if err != nil {
		return respond(http.StatusBadGateway)
	}
	defer resp.Body.Close()
	return resp.Write(conn) == nil
}

// SOCKSProxy starts a SOCKS5 proxy. user is as in HTTPProxy. The codes are from RFC 1928 and RFC
// 1929.
func SOCKSProxy(tb testing.TB, user string) *Proxy {
	tb.Helper()
	p := &Proxy{user: user}
	p.listen(tb, "socks5", func(conn net.Conn) {
		if !p.handshake(conn) {
			return
		}
		var head [4]byte
		if _, err := io.ReadFull(conn, head[:]); err != nil {
			return
		}
		target, ok := readTarget(conn, head[3])
		if !ok {
			return
		}
		refusal := p.recordTarget(target)
		reply := []byte{5, refusal, 0, 3, 4, 'h', 'o', 's', 't', 0, 80}
		if _, err := conn.Write(reply); err != nil || refusal != 0 {
			return
		}
		p.splice(conn, target)
	})
	return p
}

// handshake reads the greeting and the credentials. It reports whether the client may go on.
func (p *Proxy) handshake(conn net.Conn) bool {
	methods, ok := readText(conn, 1)
	method := byte(0)
	if p.user != "" {
		method = 2
	}
	if !ok || !strings.Contains(methods, string([]byte{method})) {
		_, _ = conn.Write([]byte{5, 255})
		return false
	}
	if _, err := conn.Write([]byte{5, method}); err != nil {
		return false
	}
	if p.user == "" {
		return true
	}
	name, named := readText(conn, 1)
	password, _ := readText(conn, 0)
	status := byte(0)
	if !named || name+":"+password != p.user {
		status = 1
	}
	if _, err := conn.Write([]byte{1, status}); err != nil {
		return false
	}
	return status == 0
}

// readText skips some bytes and reads a text that has its length before it.
func readText(r io.Reader, skip int) (string, bool) {
	head := make([]byte, skip+1)
	if _, err := io.ReadFull(r, head); err != nil {
		return "", false
	}
	text := make([]byte, head[skip])
	_, err := io.ReadFull(r, text)
	return string(text), err == nil
}

// readTarget reads the target of a request in SOCKS5: an IPv4 address (kind 1), a name (3) or an
// IPv6 address (4), then the port.
func readTarget(r io.Reader, kind byte) (string, bool) {
	var host string
	if kind == 3 {
		name, ok := readText(r, 0)
		if !ok {
			return "", false
		}
		host = name
	} else {
		raw := make([]byte, map[byte]int{1: 4, 4: 16}[kind])
		if _, err := io.ReadFull(r, raw); err != nil {
			return "", false
		}
		a, ok := netip.AddrFromSlice(raw)
		if !ok {
			return "", false
		}
		host = a.String()
	}
	var port [2]byte
	if _, err := io.ReadFull(r, port[:]); err != nil {
		return "", false
	}
	return net.JoinHostPort(host, strconv.Itoa(int(binary.BigEndian.Uint16(port[:])))), true
}
