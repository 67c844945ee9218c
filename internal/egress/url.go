package egress

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/http/httpguts"
)

// MaxURL bounds the length of a URL in bytes.
const MaxURL = 2048

// ParseURL reads a URL to call: http or https with a host, and without credentials, which would end
// up in every log. Whether its address may be called is decided when the connection is made. Its
// errors may be shown to the sender of the URL.
func ParseURL(raw string) (*url.URL, error) {
	if len(raw) > MaxURL {
		return nil, InvalidURLError(fmt.Sprintf("the URL has more than %d bytes", MaxURL))
	}
	blank := func(r rune) bool { return r <= ' ' || r == 0x7f }
	if !utf8.ValidString(raw) || strings.ContainsFunc(raw, blank) {
		return nil, InvalidURLError(
			"the URL holds spaces, control characters, or bytes that are not UTF-8")
	}
	u, err := url.Parse(raw)
	if err != nil {
		return nil, InvalidURLError("the URL cannot be parsed")
	}
	return u, checkURL(u)
}

// CheckURL is ParseURL for a URL that a client with this config shall call later. It also refuses a
// host that is an address which the guard refuses; what a name leads to is known when it is called.
func (c *Config) CheckURL(raw string) error {
	u, err := ParseURL(raw)
	if err != nil {
		return err
	}
	address, err := netip.ParseAddr(u.Hostname())
	if err != nil {
		return nil // a name
	}
	g := guard{allowLocal: c.AllowLocal, allow: unmapPrefixes(c.Allow)}
	if refused, ok := errors.AsType[*RefusedError](g.checkAddress(address)); ok {
		return InvalidURLError("the URL's address is refused: " + string(refused.Class))
	}
	return nil
}

// InvalidURLError says why a URL is refused. Client.Do wraps one when it is redirected to such a
// URL.
type InvalidURLError string

// Error implements error.
func (b InvalidURLError) Error() string { return string(b) }

// checkURL returns the problem of a URL.
func checkURL(u *url.URL) error {
	switch {
	case u == nil || (u.Scheme != "http" && u.Scheme != "https"):
		return InvalidURLError("the URL is neither http nor https")
	case u.Hostname() == "" || u.Opaque != "":
		return InvalidURLError("the URL names no host")
	case u.User != nil:
		return InvalidURLError("the URL holds credentials")
	case strings.Contains(u.Hostname(), "%"):
		return InvalidURLError(
			"the URL's host has a zone, which means something on one machine only")
	}
	n, err := strconv.ParseUint(u.Port(), 10, 16)
	if u.Port() != "" && (err != nil || n == 0) {
		return InvalidURLError("the URL's port is not 1 to 65535")
	}
	return nil
}

// forbiddenHeaders belong to the connection or the transport, so users cannot set them; nor can
// they set headers that begin with Proxy- or Sec-.
var forbiddenHeaders = []string{"connection", "content-length", "expect", "host", "http2-settings",
	"keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "via"}

// CheckHeader returns the problem of a header that a user wants to be sent. Its errors may be
// shown to the user and do not repeat the value.
func CheckHeader(name, value string) error {
	lower := strings.ToLower(name)
	if !httpguts.ValidHeaderFieldName(name) {
		return fmt.Errorf("%q is not a valid name of a header", name)
	}
	if strings.HasPrefix(lower, "proxy-") || strings.HasPrefix(lower, "sec-") {
		return fmt.Errorf("the header %s cannot be set", name)
	}
	for _, f := range forbiddenHeaders {
		if lower == f {
			return fmt.Errorf("the header %s cannot be set", name)
		}
	}
	if !httpguts.ValidHeaderFieldValue(value) {
		return fmt.Errorf("the value of the header %s has invalid characters", name)
	}
	return nil
}
