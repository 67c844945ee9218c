package client

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Config is the address of a server and how to reach it. BaseURL is required; the zero value of
// every other field is a good default.
type Config struct {
	// BaseURL is the server's address, such as "https://jobs.example.org" or, behind a proxy,
	// "https://example.org/millrace". A URL with a query or a fragment is refused.
	BaseURL string

	// Token, when set, is sent as a bearer token with every request (G-RL-24).
	Token string

	// HTTPClient sends the requests. New copies it. The copy does not follow redirects unless
	// CheckRedirect is set, because no Millrace contract redirects. Leave its Timeout zero, which
	// would also end long polls; use RequestTimeout. Nil means a client with a connection pool
	// of its own.
	HTTPClient *http.Client

	// UserAgent is sent with every request. Empty means "millrace-go/1.2.3", with the version of
	// this module in the program.
	UserAgent string

	// RequestTimeout limits one try, from connecting to the last byte of the answer. A long poll
	// gets the time it asked the server to wait on top. To limit a whole call, which may take
	// several tries, use its context. Zero means 30 s.
	RequestTimeout time.Duration

	// MaxResponseBytes limits the body of an answer, after decompression. It must be large enough
	// for the payloads and states of all jobs of one claim: jobs in an answer that is too large are
	// claimed and return only after their timeout. Zero means 256 MiB.
	MaxResponseBytes int64

	// Retry sets how often failed tries are repeated, and after which pauses.
	Retry Retry
}

// Client sends requests to one Millrace server, for all contracts. It is safe for concurrent use
// and should be made once, as it keeps a pool of connections.
type Client struct {
	base           *url.URL
	token          string
	userAgent      string
	http           *http.Client
	requestTimeout time.Duration
	maxResponse    int64
	maxTries       int
	backoff        backoff
}

// New checks the config and makes a client. It does not connect. Its error is an [*Error] that is
// [ErrInvalid].
func New(cfg Config) (*Client, error) {
	base, err := parseBase(cfg.BaseURL)
	if err != nil {
		return nil, invalid("new client", "%v", err)
	}
	if cfg.RequestTimeout < 0 || cfg.MaxResponseBytes < 0 {
		return nil, invalid("new client", "RequestTimeout or MaxResponseBytes is negative")
	}
	retry := cfg.Retry.resolve()
	return &Client{
		base:           base,
		token:          cfg.Token,
		userAgent:      orDefault(cfg.UserAgent, defaultUserAgent()),
		http:           httpClient(cfg.HTTPClient),
		requestTimeout: orDefault(cfg.RequestTimeout, 30*time.Second),
		maxResponse:    orDefault(cfg.MaxResponseBytes, 256<<20),
		maxTries:       retry.MaxTries,
		backoff: backoff{
			base:   retry.BaseDelay,
			max:    retry.MaxDelay,
			random: rand.N[time.Duration],
		},
	}, nil
}

// CloseIdleConnections closes the connections that no call is using. The client stays usable.
func (c *Client) CloseIdleConnections() { c.http.CloseIdleConnections() }

// address returns the base URL without the credentials that it may have.
func (c *Client) address() string {
	base := *c.base
	base.User = nil
	return strings.TrimRight(base.String(), "/")
}

// parseBase checks a base URL and drops the slashes at its end.
func parseBase(raw string) (*url.URL, error) {
	base, err := url.Parse(raw)
	switch {
	case err != nil:
		return nil, err
	case base.Scheme != "http" && base.Scheme != "https":
		return nil, fmt.Errorf("base URL %q does not start with http:// or https://", raw)
	case base.Host == "":
		return nil, fmt.Errorf("base URL %q names no host", raw)
	case base.RawQuery != "" || base.Fragment != "":
		return nil, errors.New("base URL has a query or a fragment")
	}
	// The path stays escaped, because the paths of the contracts, escaped too, are appended to it.
	base.RawPath = strings.TrimRight(base.EscapedPath(), "/")
	return base, nil
}

// httpClient copies a client, or makes one, that leaves redirects unfollowed by default.
func httpClient(base *http.Client) *http.Client {
	clone := http.Client{}
	if base != nil {
		clone = *base
	} else {
		clone.Transport = newTransport()
	}
	if clone.CheckRedirect == nil {
		clone.CheckRedirect = func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		}
	}
	return &clone
}

// newTransport keeps more idle connections per host than http.DefaultTransport: the polls,
// heartbeats and completions of a worker all go to one host.
func newTransport() *http.Transport {
	return &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		ForceAttemptHTTP2:   true,
		MaxIdleConns:        128,
		MaxIdleConnsPerHost: 64,
		IdleConnTimeout:     90 * time.Second,
		TLSHandshakeTimeout: 10 * time.Second,
	}
}

// orDefault returns the value, or the fallback if the value is zero.
func orDefault[T comparable](value, fallback T) T {
	var zero T
	if value == zero {
		return fallback
	}
	return value
}
