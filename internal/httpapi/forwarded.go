package httpapi

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// TrustProxies gives the requests that come from trusted proxies the address of the client
// as RemoteAddr, without a port: that of X-Forwarded-For or, where there is none, of
// Forwarded (RFC 7239). Of anybody else both are ignored.
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

// clientAddr walks back from a peer as long as the proxies are trusted: each has added
// the address of whoever it was asked by. What stands before an address that is
// not trusted, or that cannot be read, was written by nobody who is believed.
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

// forwardedHops are the addresses that proxies have written down, the nearest last.
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

// forParameter is the parameter "for" of an element of Forwarded.
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
	if withPort, err := netip.ParseAddrPort(text); err == nil {
		return withPort.Addr().WithZone("").Unmap(), true
	}
	a, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(text, "["), "]"))
	return a.WithZone("").Unmap(), err == nil
}
