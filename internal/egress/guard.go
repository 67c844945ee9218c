package egress

import (
	"fmt"
	"net/netip"
	"slices"
	"syscall"
)

// Class is whether an address is public, and otherwise what it is for.
type Class string

// The classes. Only Public is called without permission.
const (
	Public      Class = "public"
	Unspecified Class = "unspecified"
	Loopback    Class = "loopback"
	Private     Class = "private"
	LinkLocal   Class = "link-local"
	CarrierNAT  Class = "carrier-grade NAT"
	Multicast   Class = "multicast"
	Reserved    Class = "reserved"
	Embedded    Class = "IPv4 in IPv6"
)

// RefusedError reports an address that may not be called. Client.Do wraps it.
type RefusedError struct {
	Address netip.Addr
	Class   Class
}

// Error implements error. Callers show the class to clients and not the address, which may
// disclose something of a private network.
func (r *RefusedError) Error() string {
	return fmt.Sprintf("egress: the address %s is refused: %s", r.Address, r.Class)
}

// classes are the special-purpose blocks of IANA's registries. The first that contains an address
// decides. Of IPv6 only 2000::/3 is in use as public, so the rest needs no list.
var classes = []classRule{
	{netip.MustParsePrefix("0.0.0.0/32"), Unspecified},
	{netip.MustParsePrefix("0.0.0.0/8"), Reserved}, // loopback on some systems
	{netip.MustParsePrefix("10.0.0.0/8"), Private},
	{netip.MustParsePrefix("100.64.0.0/10"), CarrierNAT},
	{netip.MustParsePrefix("127.0.0.0/8"), Loopback},
	{netip.MustParsePrefix("169.254.0.0/16"), LinkLocal}, // where clouds keep credentials
	{netip.MustParsePrefix("172.16.0.0/12"), Private},
	{netip.MustParsePrefix("192.0.0.0/24"), Reserved},
	{netip.MustParsePrefix("192.0.2.0/24"), Reserved},
	{netip.MustParsePrefix("192.88.99.0/24"), Reserved}, // relays of 6to4
	{netip.MustParsePrefix("192.168.0.0/16"), Private},
	{netip.MustParsePrefix("198.18.0.0/15"), Reserved},
	{netip.MustParsePrefix("198.51.100.0/24"), Reserved},
	{netip.MustParsePrefix("203.0.113.0/24"), Reserved},
	{netip.MustParsePrefix("224.0.0.0/4"), Multicast},
	{netip.MustParsePrefix("240.0.0.0/4"), Reserved}, // broadcast is in it
	{netip.MustParsePrefix("0.0.0.0/0"), Public},

	{netip.MustParsePrefix("::/128"), Unspecified},
	{netip.MustParsePrefix("::1/128"), Loopback},
	{netip.MustParsePrefix("::/96"), Embedded},           // IPv4-compatible
	{netip.MustParsePrefix("::ffff:0:0:0/96"), Embedded}, // IPv4-translated
	{netip.MustParsePrefix("64:ff9b:1::/48"), Embedded},  // NAT64 of a site's own
	{netip.MustParsePrefix("2001::/32"), Embedded},       // Teredo
	{netip.MustParsePrefix("2002::/16"), Embedded},       // 6to4
	{netip.MustParsePrefix("2001::/23"), Reserved},
	{netip.MustParsePrefix("2001:db8::/32"), Reserved},
	{netip.MustParsePrefix("3fff::/20"), Reserved},
	{netip.MustParsePrefix("2000::/3"), Public},
	{netip.MustParsePrefix("fc00::/7"), Private},
	{netip.MustParsePrefix("fe80::/10"), LinkLocal},
	{netip.MustParsePrefix("ff00::/8"), Multicast},
	{netip.MustParsePrefix("::/0"), Reserved},
}

// classRule gives the addresses of a prefix their class.
type classRule struct {
	netip.Prefix
	Class
}

// nat64 is the prefix behind which networks translate IPv6 to any IPv4 address (RFC 6052).
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

// Classify returns the class of an address. An IPv4-mapped address has the class of the IPv4
// address. An IPv4 address behind the common NAT64 prefix, by which networks without IPv4 reach
// public addresses, or in an ISATAP address is Embedded unless it is public.
func Classify(a netip.Addr) Class {
	a = a.WithZone("").Unmap()
	if !a.IsValid() {
		return Unspecified
	}
	if v4, embedded := embeddedIPv4(a); embedded && Classify(v4) != Public {
		return Embedded
	}
	if nat64.Contains(a) {
		return Public
	}
	index := slices.IndexFunc(classes, func(c classRule) bool { return c.Contains(a) })
	return classes[index].Class // the last rule of each family contains all addresses
}

// embeddedIPv4 returns the IPv4 address to which the network translates a NAT64 or ISATAP address.
func embeddedIPv4(a netip.Addr) (netip.Addr, bool) {
	if !a.Is6() {
		return netip.Addr{}, false
	}
	b := a.As16()
	isatap := b[8]&^0x03 == 0 && b[9] == 0 && b[10] == 0x5e && b[11] == 0xfe
	if !isatap && !nat64.Contains(a) {
		return netip.Addr{}, false
	}
	return netip.AddrFrom4([4]byte(b[12:])), true
}

// guard decides which addresses may be called.
type guard struct {
	allowLocal bool
	allow      []netip.Prefix
}

// checkAddress returns a RefusedError for an address that may not be called.
func (g *guard) checkAddress(a netip.Addr) error {
	unmapped := a.WithZone("").Unmap()
	class := Classify(unmapped)
	local := class == Loopback || class == Private
	listed := func(p netip.Prefix) bool { return p.Contains(unmapped) }
	if class == Public || (local && g.allowLocal) || slices.ContainsFunc(g.allow, listed) {
		return nil
	}
	return &RefusedError{Address: a, Class: class}
}

// control is the Control of a net.Dialer, called with the resolved address of each connection
// before it is made. The kernel connects to exactly this address, so nothing can change between the
// check and the connection.
func (g *guard) control(network, address string, _ syscall.RawConn) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("egress: %s address %q: %w", network, address, err)
	}
	return g.checkAddress(to.Addr())
}
