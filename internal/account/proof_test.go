package account_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/account"
)

// AD-008: a proof is of one pepper, one challenge and one address, and the same in all versions.
func TestProof(t *testing.T) {
	t.Parallel()
	proof := func(pepper, challenge, address string) string {
		key, err := account.ProofKey([]byte(strings.Repeat(pepper, 32)))
		if err != nil {
			t.Fatal(err)
		}
		return account.Proof(key, challenge, netip.MustParseAddrPort(address))
	}
	known := proof("p", "A", "127.0.0.1:8080")
	const want = "d27d944b1953a71aecf747ecd8370505a39ab426215f21ebd06c7e85a218a724"
	if known != want {
		t.Errorf("AD-008 the proof is %s, want %s", known, want)
	}
	if got := proof("p", "A", "[::ffff:127.0.0.1]:8080"); got != known {
		t.Errorf("AD-008 the same address in the form of IPv6 has the proof %s", got)
	}
	for _, other := range [][3]string{{"q", "A", "127.0.0.1:8080"}, {"p", "B", "127.0.0.1:8080"},
		{"p", "A", "127.0.0.1:8081"}, {"p", "A", "127.0.0.2:8080"}, {"p", "A 1", "27.0.0.1:8080"}} {
		if proof(other[0], other[1], other[2]) == known {
			t.Errorf("AD-008 %v has the same proof", other)
		}
	}
	if _, err := account.ProofKey([]byte("short")); err == nil {
		t.Error("a short pepper makes a key")
	}
}
