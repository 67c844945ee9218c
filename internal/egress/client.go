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

// Config says what a client may do. The zero value calls public addresses, follows no redirects,
// and has no time limits but those of its requests' contexts.
type Config struct {
	// AllowLocal permits loopback and private addresses.
	AllowLocal bool
	// Allow permits further addresses, of any class.
	Allow []netip.Prefix

	// MaxRedirects is how many redirects are followed, at most 10; one more is ErrRedirects.
	// With 0 the answer that redirects is returned.
	MaxRedirects int

	// ConnectTimeout bounds the connecting, and once more the TLS handshake; 0 means 10 s.
	ConnectTimeout time.Duration
	// HeaderTimeout bounds the time from the request to the header of the answer; 0 means none.
	HeaderTimeout time.Duration
	// Timeout bounds the whole exchange, reading the body included; 0 means none.
	Timeout time.Duration

	UserAgent string        // of requests without one; "" means millrace
	Resolver  *net.Resolver // nil means the system's
	TLS       *tls.Config   // nil trusts what the system trusts
	// Proxy is a proxy's URL as ParseProxy returns it; nil means none. Its own address is not
	// checked.
	Proxy *url.URL
}

const (
	maxRedirects          = 10
	defaultConnectTimeout = 10 * time.Second
	maxHeaderBytes        = 64 << 10
	idleTimeout           = 60 * time.Second
	maxIdlePerHost        = 32
	maxIdleConns          = 256
)

// ErrRedirects reports more redirects than Config.MaxRedirects.
var ErrRedirects = errors.New("egress: too many redirects")

// ErrProtocolSwitch reports an answer that switches to another protocol, which was not requested.
var ErrProtocolSwitch = errors.New("egress: the answer switches protocols")

// Client makes requests. It may be used by several goroutines. Connections are kept and reused for
// a minute, so one Client serves all requests of a purpose.
type Client struct {
	http  *http.Client
	agent string
	proxy *proxyTransport // nil without a proxy
}

// New makes a client. Close it when no request is under way.
func New(c Config) (*Client, error) {
	if c.MaxRedirects < 0 || c.MaxRedirects > maxRedirects {
		return nil, fmt.Errorf("egress: MaxRedirects is %d, not 0 to %d", c.MaxRedirects,
			maxRedirects)
	}
	if slices.ContainsFunc(c.Allow, func(p netip.Prefix) bool { return !p.IsValid() }) {
		return nil, errors.New("egress: Allow has an invalid prefix")
	}
	if c.ConnectTimeout <= 0 {
		c.ConnectTimeout = defaultConnectTimeout
	}
	if c.UserAgent == "" {
		c.UserAgent = "millrace"
	}
	g := &guard{allowLocal: c.AllowLocal, allow: unmapPrefixes(c.Allow)}
	var transport http.RoundTripper
	var proxy *proxyTransport
	if c.Proxy != nil {
		var err error
		if proxy, err = newProxyTransport(c, g); err != nil {
			return nil, err
		}
		transport = proxy
	} else {
		dialer := &net.Dialer{Timeout: c.ConnectTimeout, Control: g.control, Resolver: c.Resolver}
		transport = newTransport(c, dialer.DialContext)
	}
	client := &http.Client{
		Transport:     transport,
		Timeout:       c.Timeout,
		CheckRedirect: redirectPolicy(c.MaxRedirects),
	}
	return &Client{agent: c.UserAgent, http: client, proxy: proxy}, nil
}

// dialFunc makes a connection, as net.Dialer.DialContext does.
type dialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// newTransport makes a transport over connections of dial.
func newTransport(c Config, dial dialFunc) *http.Transport {
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

// unmapPrefixes translates IPv4-mapped prefixes to IPv4, as addresses are before they are compared.
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

// Do makes a request, whose URL must satisfy ParseURL. Its error wraps a RefusedError when the
// address may not be called. A redirect to a URL or an address that is refused is an error as well.
// The caller closes the body, and bounds what it reads of it.
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
	if err != nil {
		return resp, err
	}
	if resp.StatusCode == http.StatusSwitchingProtocols {
		resp.Body.Close() // this is the bare connection, which no deadline ends
		return nil, ErrProtocolSwitch
	}
	return resp, nil
}

// Close closes idle connections. Requests under way continue.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// redirectPolicy decides about each redirect; the guard checks its connection too. With a limit of
// 0 the answer that redirects is returned, as webhooks need it (G-FR-48).
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
		// A request that has left its first origin stays without credentials, also when it is
		// redirected back.
		leftOrigin := func(r *http.Request) bool { return origin(r.URL) != origin(via[0].URL) }
		if leftOrigin(next) || slices.ContainsFunc(via, leftOrigin) {
			keepSafeHeaders(next.Header)
		}
		return nil
	}
}

// origin returns scheme, host and port.
func origin(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return u.Scheme + "://" + net.JoinHostPort(strings.ToLower(u.Hostname()), port)
}

// safeHeaders are the headers that are sent to another origin; any other may be a credential.
var safeHeaders = []string{"Accept", "Accept-Language", "Accept-Encoding", "Content-Type", "Range",
	"User-Agent"}

// keepSafeHeaders removes all headers but the safe ones.
func keepSafeHeaders(h http.Header) {
	for name := range h {
		if !slices.Contains(safeHeaders, name) {
			delete(h, name)
		}
	}
}
