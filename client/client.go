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

// Config says where the server is and how to talk to it. Only BaseURL is
// needed.
type Config struct {
	// BaseURL is the server's address, such as "https://jobs.example.org" or,
	// behind a proxy, "https://example.org/millrace". A query or a fragment is
	// refused.
	BaseURL string

	// Token, when set, is sent as a bearer token with every request (G-RL-24).
	Token string

	// HTTPClient carries the requests. It is copied, so that redirects can be
	// left unfollowed unless it says otherwise: no Millrace contract redirects.
	// A Timeout in it would also cut long polls short; use RequestTimeout.
	// Nil means a client with a connection pool of its own.
	HTTPClient *http.Client

	// UserAgent is sent with every request. Empty means "millrace-go".
	UserAgent string

	// RequestTimeout bounds one try, from connecting to the last byte of the
	// answer; a long poll may take as much longer as it asked to wait. A call
	// may take several tries: bound it with its context. Zero means 30 s.
	RequestTimeout time.Duration

	// MaxResponseBytes bounds the body of an answer, after decompression. It
	// should hold the payloads and states of all jobs asked for in one Next:
	// jobs in an answer that is too large have been handed out and return only
	// by their timeout. Zero means 256 MiB.
	MaxResponseBytes int64

	// Retry says how often and how fast failed tries are repeated.
	Retry Retry
}

// Client is a connection to one Millrace server, shared by all contracts. It
// is safe for concurrent use and should be made once.
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

// New checks the config and makes a client. It does not connect. The error is
// an [*Error] and [ErrInvalid].
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
		userAgent:      orDefault(cfg.UserAgent, "millrace-go"),
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

// CloseIdleConnections closes the connections that no call is using. The
// client stays usable.
func (c *Client) CloseIdleConnections() { c.http.CloseIdleConnections() }

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
	// Kept escaped: contract paths are appended to it as they are.
	base.RawPath = strings.TrimRight(base.EscapedPath(), "/")
	return base, nil
}

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

// newTransport keeps more idle connections per host than net/http does by
// itself: a worker's polls, heartbeats and completions all go to one host.
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

// orDefault gives the fallback in place of a zero value.
func orDefault[T comparable](value, fallback T) T {
	var zero T
	if value == zero {
		return fallback
	}
	return value
}
