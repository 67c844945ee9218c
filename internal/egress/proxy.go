package egress

import (
	"bufio"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"
)

// ProxyError reports that a proxy failed, and not the target behind it. Callers retry it and may
// choose another proxy.
type ProxyError struct {
	Proxy string // host and port
	Err   error
}

// Error implements error.
func (p *ProxyError) Error() string {
	return fmt.Sprintf("egress: the proxy %s: %v", p.Proxy, p.Err)
}

// Unwrap returns the cause.
func (p *ProxyError) Unwrap() error { return p.Err }

// ParseProxy reads the URL of a proxy: http or socks5, a host, and optional credentials. Its errors
// do not repeat the URL, since they are logged.
func ParseProxy(raw string) (*url.URL, error) {
	u, err := url.Parse(raw)
	if err != nil || len(raw) > MaxURL {
		return nil, errors.New("the proxy's URL cannot be parsed")
	}
	if u.Scheme != "http" && u.Scheme != "socks5" {
		return nil, errors.New("the proxy's URL is neither http nor socks5")
	}
	if (u.Path != "" && u.Path != "/") || strings.ContainsAny(raw, "?#") {
		return nil, errors.New("the proxy's URL has more than a host")
	}
	user := u.User
	u.User = nil
	if err := checkURL(&url.URL{Scheme: "http", Host: u.Host, Opaque: u.Opaque}); err != nil {
		return nil, fmt.Errorf("a proxy: %w", err)
	}
	password, _ := user.Password()
	if max(len(user.Username()), len(password)) > maxSOCKSCredential {
		return nil, fmt.Errorf("the proxy's credentials have more than %d bytes",
			maxSOCKSCredential)
	}
	u.User, u.Path = user, ""
	if u.Port() == "" {
		u.Host = net.JoinHostPort(u.Hostname(),
			map[string]string{"http": "80", "socks5": "1080"}[u.Scheme])
	}
	return u, nil
}

// proxyTransport makes connections through a proxy. The operator chooses the proxy, which may have
// any address; the targets behind it are checked as without a proxy. This transport resolves names
// itself and gives the proxy the address that was checked, where the protocol of the proxy permits
// it:
//
//	proxy   target  request to the proxy     addresses of the target that must be allowed
//	socks5  any     connect to an address    the one that is used
//	http    https   CONNECT to an address    the one that is used
//	http    http    the URL, with its host   all, since the proxy resolves the host again
type proxyTransport struct {
	proxy    *url.URL
	guard    *guard
	resolver *net.Resolver
	dialer   *net.Dialer     // to the proxy
	tunnel   *http.Transport // through a connection to the target
	plain    *http.Transport // of http:// through an HTTP proxy; nil for SOCKS5
}

// newProxyTransport makes the transport of a client whose Config.Proxy is set.
func newProxyTransport(c Config, g *guard) (*proxyTransport, error) {
	u, err := ParseProxy(c.Proxy.String())
	if err != nil {
		return nil, fmt.Errorf("egress: %w", err)
	}
	p := &proxyTransport{proxy: u, guard: g, resolver: c.Resolver,
		dialer: &net.Dialer{Timeout: c.ConnectTimeout, Resolver: c.Resolver}}
	p.tunnel = newTransport(c, p.dialTarget)
	if u.Scheme == "http" {
		p.plain = newTransport(c, p.dialProxy)
		p.plain.Proxy = http.ProxyURL(u)
	}
	return p, nil
}

// RoundTrip implements http.RoundTripper.
func (p *proxyTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	if p.plain == nil || req.URL.Scheme != "http" {
		return p.tunnel.RoundTrip(req)
	}
	if _, err := p.resolveAllowed(req.Context(), req.URL.Hostname(), true); err != nil {
		if req.Body != nil {
			req.Body.Close()
		}
		return nil, err
	}
	resp, err := p.plain.RoundTrip(req)
	switch {
	case err != nil && req.Context().Err() == nil:
		return nil, &ProxyError{p.proxy.Host, err} // the answer comes from the proxy
	case err != nil:
		return nil, err
	case resp.StatusCode == http.StatusProxyAuthRequired:
		resp.Body.Close()
		return nil, &ProxyError{p.proxy.Host, errProxyCredentials}
	}
	return resp, nil
}

// errProxyCredentials reports that the proxy wants other credentials than it was sent.
var errProxyCredentials = errors.New("it refuses the credentials")

// CloseIdleConnections is called by http.Client.
func (p *proxyTransport) CloseIdleConnections() {
	p.tunnel.CloseIdleConnections()
	if p.plain != nil {
		p.plain.CloseIdleConnections()
	}
}

// resolveAllowed resolves a host and returns those of its addresses that may be called. When all is
// true, an address that may not be called is an error; otherwise only when there is no other.
func (p *proxyTransport) resolveAllowed(ctx context.Context, host string,
	all bool) (allowed []netip.Addr, err error) {
	resolver := p.resolver
	if resolver == nil {
		resolver = net.DefaultResolver
	}
	found, err := resolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil, err
	}
	var refused error
	for _, a := range found {
		if err := p.guard.checkAddress(a); err != nil {
			refused = err
			continue
		}
		allowed = append(allowed, a.Unmap())
	}
	if refused != nil && (all || len(allowed) == 0) {
		return nil, refused
	}
	return allowed, nil
}

// dialProxy connects to the proxy, whatever address is requested.
func (p *proxyTransport) dialProxy(ctx context.Context, _, _ string) (net.Conn, error) {
	conn, err := p.dialer.DialContext(ctx, "tcp", p.proxy.Host)
	if err != nil {
		return nil, &ProxyError{p.proxy.Host, err}
	}
	return conn, nil
}

// dialTarget connects through the proxy to the first address of a host that can be reached.
func (p *proxyTransport) dialTarget(ctx context.Context, _, hostPort string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, p.dialer.Timeout)
	defer cancel()
	host, port, err := net.SplitHostPort(hostPort)
	if err != nil {
		return nil, err
	}
	found, err := p.resolveAllowed(ctx, host, false)
	if err != nil {
		return nil, err
	}
	err = &net.DNSError{Err: "no address", Name: host, IsNotFound: true}
	for _, a := range found {
		var conn net.Conn
		conn, err = p.dialThroughProxy(ctx, net.JoinHostPort(a.String(), port))
		var proxyErr *ProxyError
		isFinal := errors.As(err, &proxyErr) || ctx.Err() != nil
		if err != nil && !isFinal {
			continue
		}
		return conn, err
	}
	return nil, err
}

// pastDeadline is a deadline that interrupts reads and writes under way.
var pastDeadline = time.Unix(1, 0)

// dialThroughProxy connects to an address through the proxy. The end of ctx interrupts it.
func (p *proxyTransport) dialThroughProxy(ctx context.Context, address string) (net.Conn, error) {
	conn, err := p.dialProxy(ctx, "", "")
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(pastDeadline) })
	if p.proxy.Scheme == "socks5" {
		err = socksHandshake(conn, p.proxy.User, netip.MustParseAddrPort(address))
	} else {
		err = p.connect(conn, address)
	}
	if !stop() {
		err = ctx.Err()
	}
	if err != nil {
		conn.Close()
		return nil, p.wrapError(err)
	}
	return conn, nil
}

// wrapError makes any error a ProxyError, except for one about the target.
func (p *proxyTransport) wrapError(err error) error {
	var target *targetError
	if errors.As(err, &target) {
		return err
	}
	return &ProxyError{p.proxy.Host, err}
}

// targetError reports that a proxy works and could not reach the target.
type targetError struct{ reason string }

// Error implements error.
func (e *targetError) Error() string { return "egress: through the proxy: " + e.reason }

// connect requests a tunnel from an HTTP proxy.
func (p *proxyTransport) connect(conn net.Conn, address string) error {
	req := &http.Request{Method: http.MethodConnect, URL: &url.URL{Opaque: address}, Host: address,
		Header: http.Header{}}
	if user := p.proxy.User; user != nil {
		password, _ := user.Password()
		req.Header.Set("Proxy-Authorization",
			"Basic "+base64.StdEncoding.EncodeToString([]byte(user.Username()+":"+password)))
	}
	if err := req.Write(conn); err != nil {
		return err
	}
	r := bufio.NewReader(io.LimitReader(conn, maxHeaderBytes))
	resp, err := http.ReadResponse(r, req)
	switch {
	case err != nil:
		return err
	case resp.StatusCode == http.StatusOK && r.Buffered() > 0:
		return errors.New("it sends data before the first request")
	case resp.StatusCode == http.StatusOK:
		return nil
	case resp.StatusCode == http.StatusProxyAuthRequired:
		return errProxyCredentials
	case resp.StatusCode < http.StatusInternalServerError &&
		resp.StatusCode != http.StatusForbidden:
		return fmt.Errorf("it answers a CONNECT with %d", resp.StatusCode)
	}
	return &targetError{fmt.Sprintf("it answers %d", resp.StatusCode)}
}

// Ping checks that the client's proxy accepts connections. A client without a proxy needs no check.
// Health checks call it. It makes no request, so the proxy does not reach any target for it.
func (c *Client) Ping(ctx context.Context) error {
	if c.proxy == nil {
		return nil
	}
	conn, err := c.proxy.dialProxy(ctx, "", "")
	if err != nil {
		return err
	}
	conn.Close()
	return nil
}
