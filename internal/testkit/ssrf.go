package testkit

import (
	"fmt"
	"net/netip"
	"strings"
)

// forbidden are addresses of every kind that no guard of outbound requests lets through.
var forbidden = []string{"127.0.0.1", "127.1.2.3", "0.0.0.0", "0.0.0.1", "10.0.0.1", "172.16.0.1",
	"192.168.1.1", "169.254.169.254", "100.64.0.1", "192.0.0.1", "198.18.0.1", "224.0.0.1",
	"240.0.0.1", "255.255.255.255"}

// ForbiddenHosts returns the ways to write an IPv4 address as a host: those of inet_aton, digits of
// other scripts, escapes, and all forms of IPv6 that an IPv4 address is embedded in.
func ForbiddenHosts(address string) (all []string) {
	b := netip.MustParseAddr(address).As4()
	n := uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])
	for _, part := range []string{"%d", "0x%x", "0X%X", "0%o", "0000%o"} {
		four := strings.Join([]string{part, part, part, part}, ".")
		three := strings.Join([]string{part, part, part}, ".")
		all = append(all, fmt.Sprintf(part, n), fmt.Sprintf(part+"."+part, b[0], n&0xffffff),
			fmt.Sprintf(three, b[0], b[1], n&0xffff), fmt.Sprintf(four, b[0], b[1], b[2], b[3]))
	}
	all = append(all, address+".", strings.Map(fullWidth, address),
		strings.ReplaceAll(address, ".", "\u3002"), escapeDigits(address))
	hi, lo := n>>16, n&0xffff
	for _, form := range []string{"[::ffff:%[1]x:%[2]x]", "[::%[1]x:%[2]x]", "[::ffff:0:%[1]x:%[2]x]",
		"[64:ff9b::%[1]x:%[2]x]", "[64:ff9b:1::%[1]x:%[2]x]", "[2002:%[1]x:%[2]x::1]",
		"[fe80::5efe:%[1]x:%[2]x]", "[fe80::200:5efe:%[1]x:%[2]x]", "[2001:0:%[1]x:%[2]x::]",
		"[0:0:0:0:0:ffff:%[1]x:%[2]x]", "[::ffff:%[1]x:%[2]x%%25lo]"} {
		all = append(all, fmt.Sprintf(form, hi, lo))
	}
	return append(all, "[::ffff:"+address+"]", "[::"+address+"]")
}

// fullWidth returns the wide form of a digit.
func fullWidth(r rune) rune {
	if r >= '0' && r <= '9' {
		return r - '0' + '\uff10'
	}
	return r
}

// escapeDigits percent-encodes a host.
func escapeDigits(host string) string {
	var b strings.Builder
	for i := range len(host) {
		fmt.Fprintf(&b, "%%%02x", host[i])
	}
	return b.String()
}

// SSRFVectors returns URLs that lead, by one or another reader of URLs, to a port of an address
// that is forbidden.
func SSRFVectors(port string) (all []string) {
	forms := []string{"http://%s:%s/", "HTTP://%s:%s/latest/meta-data/?x=y#z", "http://u:p@%s:%s/",
		"http://public.example@%s:%s/", "http://%s:%s\\@public.example/", "//%s:%s/"}
	hosts := []string{"[::1]", "[::]", "[0:0:0:0:0:0:0:1]", "[fe80::1]", "[fc00::1]", "[ff02::1]",
		"[fe80::1%25eth0]", "localhost", "LOCALHOST.", "ip6-localhost", "metadata.internal"}
	for _, address := range forbidden {
		hosts = append(hosts, ForbiddenHosts(address)...)
	}
	for _, host := range hosts {
		for _, form := range forms {
			all = append(all, fmt.Sprintf(form, host, port))
		}
	}
	return all
}

// HostileURLs are URLs that no request may go to, where only public addresses may be called: each
// with a word of why. They are refused as soon as they are named.
var HostileURLs = map[string]string{
	"ftp://example.com/":                       "http",
	"file:///etc/passwd":                       "http",
	"javascript:alert(1)":                      "http",
	"//example.com/":                           "http",
	"example.com":                              "http",
	"http://":                                  "host",
	"http:///path":                             "host",
	"http://user:secret@example.com/":          "credentials",
	"http://example.com:0/":                    "port",
	"http://example.com:99999/":                "port",
	"http://[fe80::1%25eth0]/":                 "zone",
	"http://example.com/a b":                   "spaces",
	"http://example.com/\nhost: other":         "control",
	"http://127.0.0.1:8080/admin/v1/jobs":      "loopback",
	"http://[::1]/":                            "loopback",
	"http://[::ffff:127.0.0.1]/":               "loopback",
	"http://10.0.0.1/":                         "private",
	"http://192.168.1.1/":                      "private",
	"http://169.254.169.254/latest/meta-data/": "link-local",
	"http://0.0.0.0/":                          "unspecified",
	"http://224.0.0.1/":                        "multicast",
	"http://[64:ff9b::a00:1]/":                 "IPv4 in IPv6",
}
