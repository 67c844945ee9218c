package setting

import (
	"net"
	"net/netip"
	"strconv"
	"strings"
)

const addressExpected = "an address such as 127.0.0.1:8080, :8080 or [::1]:8080"

// Address is host:port, [v6]:port, or :port for every interface.
func Address(p *string) Value { return Text(p, addressExpected, ValidAddress) }

// OptionalAddress is an Address or empty.
func OptionalAddress(p *string) Value { return Text(p, addressExpected, orEmpty(ValidAddress)) }

// ValidAddress reports whether a text is an Address.
func ValidAddress(s string) bool {
	host, port, err := net.SplitHostPort(s)
	if err != nil || port == "" || strings.Trim(port, "0123456789") != "" {
		return false
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return false
	}
	return host == "" || validHost(host)
}

// validHost reports whether a text is an IP address or a host name.
func validHost(host string) bool {
	if _, err := netip.ParseAddr(host); err != nil {
		return validHostname(host)
	}
	return true
}

// validHostname checks a host name. It refuses names that end in a number, since they are misspelt
// IP addresses.
func validHostname(host string) bool {
	labels := strings.Split(strings.TrimSuffix(host, "."), ".")
	for _, l := range labels {
		if l == "" || strings.Trim(l, NameCharacters+"-") != "" {
			return false
		}
	}
	return strings.Trim(labels[len(labels)-1], "0123456789") != ""
}

// IsLoopback reports whether a listening address can be reached from this machine only. Host names
// other than localhost are not resolved and count as reachable from outside.
func IsLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return false
	}
	return ip.Unmap().IsLoopback()
}
