package egress

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Config says what a client may do. The zero value calls public addresses, follows nothing, and
// waits as long as its requests' contexts do.
type Config struct {
	// every listener is on loopback: loopback and private addresses may be called
	AllowLocal bool
	Allow      []netip.Prefix // what else may be called, whatever it is

	// MaxRedirects is how many are followed, at most 10. With 0 the answer that redirects is the
	// answer; beyond more it is ErrRedirects.
	MaxRedirects int

	ConnectTimeout time.Duration // 0 is 10 s; the TLS handshake has as long again
	// from the request sent to the header of the answer; 0 is no limit but the context's
	HeaderTimeout time.Duration
	// of the whole exchange, reading the body included; 0 is no limit but the context's
	Timeout time.Duration

	UserAgent string        // of requests that name none; "" is millrace
	Resolver  *net.Resolver // nil is the system's
	TLS       *tls.Config   // nil trusts what the system trusts
	Proxy     *url.URL      // as ParseProxy reads it; nil is none. It may be called wherever it is
}

const (
	maxRedirects          = 10
	defaultConnectTimeout = 10 * time.Second
	maxHeaderBytes        = 64 << 10
	idleTimeout           = 60 * time.Second
	maxIdlePerHost        = 32
	maxIdleConns          = 256
)

// ErrRedirects says that an answer redirects once more than is followed.
var ErrRedirects = errors.New("egress: too many redirects")

// ErrProtocolSwitch says that the other end wants to go on in another protocol, which nobody asked
// for.
var ErrProtocolSwitch = errors.New("egress: the answer switches protocols")

// Client makes requests. It may be used by many at a time.
type Client struct {
	http  *http.Client
	agent string
}

// New makes a client. Close it when no request is under way any more.
func New(c Config) (*Client, error) {
	if c.MaxRedirects < 0 || c.MaxRedirects > maxRedirects {
		return nil, fmt.Errorf("egress: MaxRedirects is %d, not 0 to %d", c.MaxRedirects,
			maxRedirects)
	}
	if slices.ContainsFunc(c.Allow, func(p netip.Prefix) bool { return !p.IsValid() }) {
		return nil, errors.New("egress: Allow holds a prefix that is none")
	}
	if c.ConnectTimeout <= 0 {
		c.ConnectTimeout = defaultConnectTimeout
	}
	if c.UserAgent == "" {
		c.UserAgent = "millrace"
	}
	g := &guard{allowLocal: c.AllowLocal, allow: unmapPrefixes(c.Allow)}
	var transport http.RoundTripper
	if c.Proxy != nil {
		proxied, err := newProxyTransport(c, g)
		if err != nil {
			return nil, err
		}
		transport = proxied
	} else {
		dialer := &net.Dialer{Timeout: c.ConnectTimeout, Control: g.control, Resolver: c.Resolver}
		transport = newTransport(c, dialer.DialContext)
	}
	return &Client{agent: c.UserAgent, http: &http.Client{Transport: transport, Timeout: c.Timeout,
		CheckRedirect: redirectPolicy(c.MaxRedirects)}}, nil
}

// newTransport speaks HTTP over connections that dial makes.
func newTransport(c Config, dial func(ctx context.Context, network, address string) (net.Conn,
	error)) *http.Transport {
	return &http.Transport{
		Proxy:                  nil, // never the environment's
		DialContext:            dial,
		TLSHandshakeTimeout:    c.ConnectTimeout,
		ResponseHeaderTimeout:  c.HeaderTimeout,
		MaxResponseHeaderBytes: maxHeaderBytes,
		DisableCompression:     true,
		ForceAttemptHTTP2:      true,
		IdleConnTimeout:        idleTimeout,
		MaxIdleConns:           maxIdleConns,
		MaxIdleConnsPerHost:    maxIdlePerHost,
		TLSClientConfig:        c.TLS.Clone(),
	}
}

// unmapPrefixes writes prefixes the way addresses are compared.
func unmapPrefixes(prefixes []netip.Prefix) []netip.Prefix {
	all := make([]netip.Prefix, len(prefixes))
	for i, p := range prefixes {
		if p.Addr().Is4In6() && p.Bits() >= 96 {
			p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
		}
		all[i] = p
	}
	return all
}

// Do makes a request whose URL is as ParseURL wants it. A Refused is in the chain of the error when
// the address is not to be called.
func (c *Client) Do(req *http.Request) (*http.Response, error) {
	if err := checkURL(req.URL); err != nil {
		return nil, err
	}
	if req.Header == nil {
		req.Header = http.Header{}
	}
	if req.Header.Get("User-Agent") == "" {
		req.Header.Set("User-Agent", c.agent)
	}
	resp, err := c.http.Do(req)
	if err == nil && resp.StatusCode == http.StatusSwitchingProtocols {
		resp.Body.Close() // it is the bare connection, which no deadline ends
		return nil, ErrProtocolSwitch
	}
	return resp, err
}

// Close ends connections that nothing is using.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// redirectPolicy decides on each redirect; the guard sees the connection as well.
func redirectPolicy(limit int) func(*http.Request, []*http.Request) error {
	return func(next *http.Request, via []*http.Request) error {
		if limit == 0 {
			return http.ErrUseLastResponse
		}
		if len(via) > limit {
			return ErrRedirects
		}
		if err := checkURL(next.URL); err != nil {
			return err
		}
		next.Header.Del("Referer")
		// Once away from where it was meant to go a request stays without credentials, also when it
		// is sent back there.
		crossOrigin := func(u *url.URL) bool { return origin(u) != origin(via[0].URL) }
		if crossOrigin(next.URL) || slices.ContainsFunc(via, func(r *http.Request) bool {
			return crossOrigin(r.URL)
		}) {
			keepSafeHeaders(next.Header)
		}
		return nil
	}
}

// origin is scheme, host and port.
func origin(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return u.Scheme + "://" + net.JoinHostPort(strings.ToLower(u.Hostname()), port)
}

// safeHeaders are the headers that go along to another host: any other may be a credential.
var safeHeaders = []string{"Accept", "Accept-Language", "Accept-Encoding", "Content-Type", "Range",
	"User-Agent"}

func keepSafeHeaders(h http.Header) {
	for name := range h {
		if !slices.Contains(safeHeaders, name) {
			delete(h, name)
		}
	}
}
