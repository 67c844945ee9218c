package config

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// networksValue is a list of networks in CIDR form; it may be empty.
type networksValue struct{ p *[]netip.Prefix }

func (v networksValue) set(in input) error {
	if in.isText && in.raw == "" {
		*v.p = nil
		return nil
	}
	words, ok := in.list()
	if !ok {
		return errors.New(`expected a list of networks such as ["10.0.0.0/8"]`)
	}
	var networks []netip.Prefix
	for _, w := range words {
		network, err := parseNetwork(w)
		if err != nil {
			return err
		}
		if slices.Contains(networks, network) {
			return fmt.Errorf("expected each network once; %s comes twice", network)
		}
		networks = append(networks, network)
	}
	*v.p = networks
	return nil
}

// parseNetwork refuses spellings that may contain other addresses than their author meant.
func parseNetwork(s string) (netip.Prefix, error) {
	network, err := netip.ParsePrefix(s)
	switch {
	case err != nil:
		return network, fmt.Errorf(
			"expected networks such as 10.0.0.0/8 or fd00::/8, a single address as 10.1.2.3/32; "+
				"%s is none", quote(maskUnknown(s)))
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

func (v networksValue) show() string {
	words := make([]string, len(*v.p))
	for i, network := range *v.p {
		words[i] = network.String()
	}
	return strings.Join(words, ",")
}

// urlValue is the URL of an HTTP service, or empty. It must not contain credentials, since it is
// shown.
type urlValue struct{ p *string }

func (v urlValue) set(in input) error {
	s, ok := in.textValue()
	if !ok || (s != "" && !validServiceURL(s)) {
		return errors.New("expected a URL such as https://example.org:8443/path, without user, " +
			"password, query and fragment")
	}
	*v.p = s
	return nil
}

func (v urlValue) show() string { return *v.p }

func validServiceURL(s string) bool {
	u, err := url.Parse(s)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") ||
		strings.ContainsAny(s, "?#@ ") || !validHosts(u.Host) {
		return false
	}
	return validHost(u.Hostname())
}
