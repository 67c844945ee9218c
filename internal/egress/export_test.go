package egress

import (
	"net"
	"net/netip"
)

// Checked is what the guard of a client says just before a connection to an address.
func Checked(c Config, a netip.Addr) error {
	g := &guard{local: c.Local, allow: unmapped(c.Allow)}
	return g.control("tcp", net.JoinHostPort(a.String(), "80"), nil)
}
