package egress

import (
	"net"
	"net/netip"
)

// CheckDial is what the guard of a client says just before a connection to an address.
func CheckDial(c Config, a netip.Addr) error {
	g := &guard{allowLocal: c.AllowLocal, allow: unmapPrefixes(c.Allow)}
	return g.control("tcp", net.JoinHostPort(a.String(), "80"), nil)
}
