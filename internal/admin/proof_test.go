package admin_test

import (
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/account"
)

// AD-008: any answer proves to whoever asks that the node has the pepper, for the address at which
// it was asked, and no challenge that is too long, or one of several, has an answer.
func TestChallenge(t *testing.T) {
	t.Parallel()
	w := inMemory(t, nil)
	key, err := account.ProofKey(pepper)
	if err != nil {
		t.Fatal(err)
	}
	at := netip.MustParseAddrPort(strings.TrimPrefix(w.URL, "http://"))
	for path, want := range map[string]int{"/admin/v1/health": 401, "/admin/v1/nothing": 401,
		"/console/login": 200} {
		for _, challenge := range []string{"A", strings.Repeat("b", 100)} {
			r := w.Do(t, http.MethodGet, path, "", account.ChallengeHeader, challenge)
			if got := r.Header.Get(account.ProofHeader); r.Status != want ||
				got != account.Proof(key, challenge, at) {
				t.Errorf("AD-008 %s: got %d with the proof %q", path, r.Status, got)
			}
		}
		r := w.Do(t, http.MethodGet, path, "", account.ChallengeHeader, strings.Repeat("b", 101))
		if r.Header.Get(account.ProofHeader) != "" {
			t.Errorf("AD-008 %s: a challenge of 101 bytes has the proof %v", path, r.Header)
		}
		req, err := http.NewRequest(http.MethodGet, w.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header[account.ChallengeHeader] = []string{"A", "B"}
		if r := w.Send(t, req); r.Header.Get(account.ProofHeader) != "" {
			t.Errorf("AD-008 %s: two challenges have the proof %v", path, r.Header)
		}
		if r := w.Do(t, http.MethodGet, path, ""); r.Header.Get(account.ProofHeader) != "" {
			t.Errorf("AD-008 %s: there is a proof without a challenge", path)
		}
	}
	r := w.do(t, w.api.Token(), http.MethodGet, "/admin/v1/health", "", account.ChallengeHeader, "A")
	if r.Status != 200 || r.Header.Get(account.ProofHeader) != account.Proof(key, "A", at) {
		t.Errorf("AD-008 with a token: got %d %v", r.Status, r.Header)
	}
}
