package egress_test

import (
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/egress"
)

// corpus is one address of every kind there is to be refused, and the public neighbours of the
// blocks' borders.
var corpus = map[egress.Class][]string{
	egress.Public: {"1.1.1.1", "8.8.8.8", "9.255.255.255", "11.0.0.0", "100.63.255.255",
		"100.128.0.0", "126.255.255.255", "128.0.0.0",
		"169.253.255.255", "169.255.0.0", "172.15.255.255", "172.32.0.0", "192.0.1.0",
		"192.167.255.255", "192.169.0.0",
		"198.17.255.255", "198.20.0.0", "223.255.255.255", "2606:4700::1111", "2a00:1450:4001::8a",
		"::ffff:8.8.8.8", "64:ff9b::8.8.8.8", "2606:4700::5efe:8.8.8.8"},
	egress.Unspecified: {"0.0.0.0", "::", "::ffff:0.0.0.0"},
	egress.Loopback: {"127.0.0.1", "127.1.2.3", "127.255.255.255", "::1", "::ffff:127.0.0.1",
		"::ffff:7f00:1", "::1%lo"},
	egress.Private: {"10.0.0.0", "10.255.255.255", "172.16.0.1", "172.31.255.255", "192.168.0.1",
		"192.168.255.255", "fc00::1",
		"fd12:3456:789a::1", "fdff::%eth0", "::ffff:10.0.0.1", "::ffff:c0a8:1"},
	egress.LinkLocal: {"169.254.0.1", "169.254.169.254", "fe80::1", "fe80::1%eth0", "febf::1",
		"::ffff:169.254.169.254"},
	egress.CarrierNAT: {"100.64.0.0", "100.127.255.255", "::ffff:100.64.0.1"},
	egress.Multicast: {"224.0.0.1", "239.255.255.255", "ff02::1", "ff02::1%eth0", "ff0e::1",
		"::ffff:224.0.0.1"},
	egress.Reserved: {"0.0.0.1", "0.255.255.255", "192.0.0.1", "192.0.2.1", "192.88.99.1",
		"198.18.0.1", "198.19.255.255", "198.51.100.1",
		"203.0.113.1", "240.0.0.1", "255.255.255.255", "2001:2::1", "2001:db8::1", "3fff::1",
		"100::1", "5f00::1", "fec0::1", "4000::1"},
	egress.Embedded: {
		"::127.0.0.1", "::8.8.8.8", // compatible
		"::ffff:0:127.0.0.1", "::ffff:0:8.8.8.8", // translated
		// NAT64
		"64:ff9b::127.0.0.1", "64:ff9b::a9fe:a9fe", "64:ff9b::10.0.0.1", "64:ff9b::0.0.0.0",
		"64:ff9b:1::10.0.0.1", "64:ff9b:1:ffff::1",
		"2002:7f00:1::", "2002:a00:1::1", "2002:808:808::1", // 6to4
		"2001::1", "2001:0:4136:e378:8000:63bf:3fff:fdd2", "2001:0:7f00:1::", // Teredo
		// ISATAP
		"2606:4700::5efe:127.0.0.1", "2606:4700::200:5efe:10.0.0.1", "fe80::5efe:192.168.0.1",
		"fd00::5efe:169.254.169.254",
	},
}

func TestClassify(t *testing.T) {
	t.Parallel()
	for want, all := range corpus {
		for _, text := range all {
			if got := egress.Classify(netip.MustParseAddr(text)); got != want {
				t.Errorf("%s is %s, want %s", text, got, want)
			}
		}
	}
	if got := egress.Classify(netip.Addr{}); got != egress.Unspecified {
		t.Errorf("no address is %s", got)
	}
}

// Every address of the corpus that is not public is refused when a connection is about to be made
// to it, and what a setting lets through is exactly what it says.
func TestGuardOfTheCorpus(t *testing.T) {
	t.Parallel()
	strict := egress.Config{}
	local := egress.Config{AllowLocal: true}
	for class, all := range corpus {
		for _, text := range all {
			a := netip.MustParseAddr(text)
			if err := egress.CheckDial(strict, a); (err == nil) != (class == egress.Public) {
				t.Errorf("%s: %v", text, err)
			}
			home := class == egress.Public || class == egress.Loopback || class == egress.Private
			if err := egress.CheckDial(local, a); (err == nil) != home {
				t.Errorf("%s on a developer's machine: %v", text, err)
			}
			var refused *egress.RefusedError
			listed := egress.Config{Allow: []netip.Prefix{netip.PrefixFrom(a.WithZone(""),
				a.BitLen())}}
			if err := egress.CheckDial(listed, a); err != nil {
				t.Errorf("%s is listed and refused: %v", text, err)
			}
			elsewhere := egress.Config{Allow: parsePrefixes("198.18.7.7/32", "2001:db8:7::/48")}
			if err := egress.CheckDial(elsewhere, a); class != egress.Public &&
				(!errors.As(err, &refused) || refused.Class != class) {
				t.Errorf("%s with others listed: %v", text, err)
			}
		}
	}
}

// hosts are spellings of this machine that parsers of addresses disagree about.
var hosts = []string{
	"127.0.0.1", "localhost", "LOCALHOST", "localhost.", "127.0.0.1.", "127.1", "127.0.1",
	"127.000.000.001", "0127.0.0.1", "127.0.0.01",
	"2130706433", "0x7f000001", "0X7F.0x0.0x0.0x1", "0x7f.1", "017700000001", "0177.0.0.01",
	"0177.1", "00000000177.0.0.1", "0x7f.0.0.0x1",
	"127.0.0.1.nip.io", "loopback.example", "xn--loopback", "１２７.０.０.１", "①②⑦.⓪.⓪.①", "127。0。0。1",
	"0.0.0.0", "0", "0x0", "[::]", "[::1]", "[0:0:0:0:0:0:0:1]", "[::ffff:127.0.0.1]",
	"[::ffff:7f00:1]", "[::127.0.0.1]",
	"[64:ff9b::127.0.0.1]", "[2002:7f00:1::]", "[2001:0:7f00:1::]", "[fe80::5efe:127.0.0.1]",
	"[::ffff:0:127.0.0.1]",
	"169.254.169.254", "2852039166", "0xa9fea9fe", "[::ffff:a9fe:a9fe]", "metadata.google.internal",
}

// No spelling reaches this machine, whatever a resolver makes of it: the one here, like that of
// many systems, takes numbers in any base, and any name, for 127.0.0.1.
func TestHostileSpellings(t *testing.T) {
	t.Parallel()
	s := newTarget(t, nil)
	c := newClient(t, egress.Config{Resolver: resolverFor(t, func(string, int) netip.Addr {
		return netip.MustParseAddr("127.0.0.1")
	})})
	six := true
	if l, err := net.Listen("tcp6", "[::1]:0"); err != nil {
		six = false
	} else {
		l.Close()
	}
	for _, host := range hosts {
		_, _, err := get(t, c, "http://"+host+":"+s.port()+"/")
		var refused *egress.RefusedError
		// Go's own resolver makes no request for a name that ends in a number.
		var unknown *net.DNSError
		if !errors.As(err, &refused) && !errors.As(err, &unknown) &&
			(six || !strings.HasPrefix(host, "[")) {
			t.Errorf("%s: got %v, want it refused", host, err)
		}
	}
	if n := s.hits.Load(); n != 0 {
		t.Errorf("%d requests arrived", n)
	}
}

// A name that leads somewhere harmless when it is looked at and to this machine when it is called.
func TestRebinding(t *testing.T) {
	t.Parallel()
	s := newTarget(t, nil)
	lying := resolverFor(t, func(_ string, n int) netip.Addr {
		if n == 0 {
			return netip.MustParseAddr("93.184.215.14")
		}
		return netip.MustParseAddr("127.0.0.1")
	})
	first, err := lying.LookupNetIP(t.Context(), "ip4", "rebind.example")
	if err != nil || egress.Classify(first[0]) != egress.Public {
		t.Fatalf("the first look gives %v, %v", first, err)
	}
	_, _, err = get(t, newClient(t, egress.Config{Resolver: lying}),
		"http://rebind.example:"+s.port())
	var refused *egress.RefusedError
	if !errors.As(err, &refused) || refused.Class != egress.Loopback || s.hits.Load() != 0 {
		t.Errorf("got %v after %d requests", err, s.hits.Load())
	}
}

func TestAllowed(t *testing.T) {
	t.Parallel()
	s := newTarget(t, nil)
	for name, c := range map[string]egress.Config{
		"G-FR-50 a developer's machine":        {AllowLocal: true},
		"G-FR-50 a listed network":             {Allow: parsePrefixes("10.0.0.0/8", "127.0.0.0/8")},
		"G-FR-50 a listed network, as mapped":  {Allow: parsePrefixes("::ffff:127.0.0.0/104")},
		"G-FR-50 a listed network and a name":  {Allow: parsePrefixes("127.0.0.1/32")},
		"G-FR-50 every network of the world 4": {Allow: parsePrefixes("0.0.0.0/0")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.Resolver = resolverFor(t, func(string, int) netip.Addr {
				return netip.MustParseAddr("127.0.0.1")
			})
			for _, host := range []string{"127.0.0.1", "[::ffff:127.0.0.1]", "some.example"} {
				if status, _, err := get(t, newClient(t, c),
					"http://"+host+":"+s.port()); err != nil || status != 200 {
					t.Errorf("%s: %d, %v", host, status, err)
				}
			}
		})
	}
}
