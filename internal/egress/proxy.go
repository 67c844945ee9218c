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
	"time"
)

// ProxyError says that a proxy failed, and not what lies behind it.
type ProxyError struct {
	Proxy string // host and port
	Err   error
}

func (p *ProxyError) Error() string {
	return fmt.Sprintf("egress: the proxy %s: %v", p.Proxy, p.Err)
}
func (p *ProxyError) Unwrap() error { return p.Err }

// ParseProxy reads the URL of a proxy: http or socks5, a host, and credentials if it wants some.
// Errors do not repeat it, as they are logged.
func ParseProxy(raw string) (*url.URL, error) {
	u, err := url.Parse(raw)
	if err != nil || len(raw) > MaxURL {
		return nil, errors.New("the proxy's URL cannot be parsed")
	}
	if u.Scheme != "http" && u.Scheme != "socks5" {
		return nil, errors.New("the proxy's URL is neither http nor socks5")
	}
	if (u.Path != "" && u.Path != "/") || u.RawQuery != "" || u.Fragment != "" {
		return nil, errors.New("the proxy's URL has more than a host")
	}
	user := u.User
	u.User = nil
	if err := checkURL(&url.URL{Scheme: "http", Host: u.Host, Opaque: u.Opaque}); err != nil {
		return nil, fmt.Errorf("a proxy: %w", err)
	}
	if password, _ := user.Password(); len(user.Username()) > maxSOCKSCredential ||
		len(password) > maxSOCKSCredential {
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

// proxyTransport makes each hop's connection through a proxy, which is an operator's choice and may
// be anywhere; what lies behind it may not. Names are looked up here, and the proxy is given the
// address that was checked, wherever its protocol has a place for one: in SOCKS5, and in CONNECT,
// which carries https. A plain request to an HTTP proxy names the host, and the proxy looks it up
// once more by itself: there all its addresses must be allowed.
type proxyTransport struct {
	proxy    *url.URL
	guard    *guard
	resolver *net.Resolver
	dialer   *net.Dialer // to the proxy
	tunnel   *http.Transport
	plain    *http.Transport // of http:// through an HTTP proxy
}

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
	// who it asked is the proxy, and the proxy did not answer
	if err != nil && req.Context().Err() == nil {
		err = &ProxyError{p.proxy.Host, err}
	}
	if err == nil && resp.StatusCode == http.StatusProxyAuthRequired {
		resp.Body.Close()
		return nil, &ProxyError{p.proxy.Host, errors.New("it refuses the credentials")}
	}
	return resp, err
}

// CloseIdleConnections is called by http.Client.
func (p *proxyTransport) CloseIdleConnections() {
	p.tunnel.CloseIdleConnections()
	if p.plain != nil {
		p.plain.CloseIdleConnections()
	}
}

// resolveAllowed looks a host up and returns those of its addresses that may be called. With all,
// one that may not is an error, else only none that may.
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

// dialProxy connects to the proxy, whatever address is asked for.
func (p *proxyTransport) dialProxy(ctx context.Context, _, _ string) (net.Conn, error) {
	conn, err := p.dialer.DialContext(ctx, "tcp", p.proxy.Host)
	if err != nil {
		return nil, &ProxyError{p.proxy.Host, err}
	}
	return conn, nil
}

// dialTarget connects to an address of a host through the proxy: the first that can be reached.
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
		if conn, err = p.dialThroughProxy(ctx, net.JoinHostPort(a.String(), port)); err == nil {
			return conn, nil
		}
		if proxyErr := (*ProxyError)(nil); errors.As(err, &proxyErr) || ctx.Err() != nil {
			break
		}
	}
	return nil, err
}

// pastDeadline is a deadline that ends what is being read or written.
var pastDeadline = time.Unix(1, 0)

// dialThroughProxy has the proxy connect to an address. The end of ctx ends it.
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
	if err == nil {
		return conn, nil
	}
	conn.Close()
	if target := (*targetError)(nil); errors.As(err, &target) {
		return nil, err
	}
	return nil, &ProxyError{p.proxy.Host, err}
}

// targetError says that a proxy works and could not reach an address.
type targetError struct{ reason string }

func (u *targetError) Error() string { return "egress: through the proxy: " + u.reason }

// connect asks an HTTP proxy for a tunnel.
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
		return errors.New("it speaks before it is spoken to")
	case resp.StatusCode == http.StatusOK:
		return nil
	case resp.StatusCode == http.StatusProxyAuthRequired:
		return errors.New("it refuses the credentials")
	case resp.StatusCode < http.StatusInternalServerError &&
		resp.StatusCode != http.StatusForbidden:
		return fmt.Errorf("it answers a CONNECT with %d", resp.StatusCode)
	}
	return &targetError{fmt.Sprintf("it answers %d", resp.StatusCode)}
}

// Ping reports whether the client's proxy takes connections; a client without one is well.
func (c *Client) Ping(ctx context.Context) error {
	p, ok := c.http.Transport.(*proxyTransport)
	if !ok {
		return nil
	}
	conn, err := p.dialProxy(ctx, "", "")
	if err == nil {
		conn.Close()
	}
	return err
}
