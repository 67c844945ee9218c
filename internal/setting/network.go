package setting

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// Networks is a list of networks in CIDR form; it may be empty.
func Networks(p *[]netip.Prefix) Value {
	return Value{
		Set: func(in Input) error {
			networks, err := in.networks()
			if err != nil {
				return err
			}
			*p = networks
			return nil
		},
		Show: func() string {
			words := make([]string, len(*p))
			for i, network := range *p {
				words[i] = network.String()
			}
			return strings.Join(words, ",")
		},
	}
}

func (in Input) networks() ([]netip.Prefix, error) {
	if in.IsText && in.Raw == "" {
		return nil, nil
	}
	words, ok := in.List()
	if !ok {
		return nil, errors.New(`expected a list of networks such as ["10.0.0.0/8"]`)
	}
	var networks []netip.Prefix
	for _, w := range words {
		network, err := parseNetwork(w)
		if err != nil {
			return nil, err
		}
		if slices.Contains(networks, network) {
			return nil, fmt.Errorf("expected each network once; %s comes twice", network)
		}
		networks = append(networks, network)
	}
	return networks, nil
}

// parseNetwork refuses spellings that may contain other addresses than their author meant.
func parseNetwork(s string) (netip.Prefix, error) {
	network, err := netip.ParsePrefix(s)
	switch {
	case err != nil:
		return network, fmt.Errorf(
			"expected networks such as 10.0.0.0/8 or fd00::/8, a single address as 10.1.2.3/32; "+
				"%s is invalid", Quote(MaskUnknown(s)))
	case network.Addr().Is4In6():
		return network, fmt.Errorf(
			"expected IPv4 networks in their own form, such as 10.0.0.0/8; %s is IPv4 within IPv6",
			network)
	case network != network.Masked():
		return network, fmt.Errorf("expected networks without a host part; for %s that is %s",
			network, network.Masked())
	}
	return network, nil
}

// URL is the URL of an HTTP service, or empty. It must not contain credentials, since it is shown.
func URL(p *string) Value {
	return Text(p, "a URL such as https://example.org:8443/path, without user, password, query "+
		"and fragment", orEmpty(ValidServiceURL))
}

// TraceIDMark is the placeholder of a TraceURL for the id of a trace.
const TraceIDMark = "{trace_id}"

// TraceURL is the URL of the page of a trace, or empty. It is shown to browsers, so it must not
// contain credentials.
func TraceURL(p *string) Value {
	return Text(p, "a URL such as https://traces.example.org/trace/"+TraceIDMark+
		", of http or https, without user and password", orEmpty(validTraceURL))
}

func validTraceURL(s string) bool {
	u, err := url.Parse(s)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.User != nil {
		return false
	}
	return validHosts(u.Host) && validHost(u.Hostname()) && strings.Contains(s, TraceIDMark)
}

// ValidServiceURL reports whether a text is the URL of an HTTP service, without credentials.
func ValidServiceURL(s string) bool {
	u, err := url.Parse(s)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") ||
		strings.ContainsAny(s, "?#@ ") || !validHosts(u.Host) {
		return false
	}
	return validHost(u.Hostname())
}
