package httpapi

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// TrustProxies replaces RemoteAddr by the address of the client, without a port, in requests
// that come from trusted proxies. The address is taken from X-Forwarded-For or, where that is
// absent, from Forwarded (RFC 7239). In requests of any other peer both are ignored.
func TrustProxies(proxies []netip.Prefix, next http.Handler) http.Handler {
	if len(proxies) == 0 {
		return next
	}
	trusted := func(a netip.Addr) bool {
		return slices.ContainsFunc(proxies, func(p netip.Prefix) bool { return p.Contains(a) })
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if peer, ok := parseAddr(r.RemoteAddr); ok && trusted(peer) {
			r.RemoteAddr = clientAddr(peer, forwardedHops(r.Header), trusted).String()
		}
		next.ServeHTTP(w, r)
	})
}

// clientAddr walks back from the peer as long as the proxies are trusted, since each has
// appended the address of its own peer. Entries before an address that is not trusted, or that
// cannot be parsed, may be forged and do not count.
func clientAddr(peer netip.Addr, hops []string, trusted func(netip.Addr) bool) netip.Addr {
	for _, hop := range slices.Backward(hops) {
		if !trusted(peer) {
			break
		}
		previous, ok := parseAddr(hop)
		if !ok {
			break
		}
		peer = previous
	}
	return peer
}

// forwardedHops returns the addresses that proxies have recorded, the nearest last.
func forwardedHops(h http.Header) (all []string) {
	if lines := h["X-Forwarded-For"]; len(lines) > 0 {
		return strings.Split(strings.Join(lines, ","), ",")
	}
	for rest := strings.Join(h["Forwarded"], ","); rest != ""; {
		var hop string
		hop, rest = cutUnquoted(rest, ',')
		all = append(all, forParameter(hop))
	}
	return all
}

// forParameter returns the parameter "for" of an element of Forwarded.
func forParameter(hop string) string {
	for hop != "" {
		var pair string
		pair, hop = cutUnquoted(hop, ';')
		name, value, _ := strings.Cut(pair, "=")
		if strings.EqualFold(strings.TrimSpace(name), "for") {
			return strings.Trim(strings.TrimSpace(value), `"`)
		}
	}
	return ""
}

// parseAddr reads an address, with a port or without.
func parseAddr(text string) (netip.Addr, bool) {
	text = strings.TrimSpace(text)
	addrPort, err := netip.ParseAddrPort(text)
	addr := addrPort.Addr()
	if err != nil {
		addr, err = netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(text, "["), "]"))
	}
	return addr.WithZone("").Unmap(), err == nil
}
