package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/millrace/millrace/cmd/millrace/internal/cli"
	"github.com/millrace/millrace/internal/account"
)

// foreignServer is a program that listens where a server is expected, and keeps all that it is
// sent.
type foreignServer struct {
	*httptest.Server
	mu   sync.Mutex
	sent strings.Builder
}

// newForeignServer starts a program that answers as answer does.
func newForeignServer(t *testing.T, answer http.HandlerFunc) *foreignServer {
	t.Helper()
	f := &foreignServer{}
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, err := httputil.DumpRequest(r, true)
		if err != nil {
			t.Error(err)
		}
		f.mu.Lock()
		f.sent.Write(text)
		f.mu.Unlock()
		answer(w, r)
	}))
	t.Cleanup(f.Close)
	return f
}

// has reports whether the program was sent a text.
func (f *foreignServer) has(text string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return strings.Contains(f.sent.String(), text)
}

// TestTokenOfAFolder (AD-008): the token of a folder, that of its data directory or of its
// settings, is sent to the server of the folder, and to nobody else who listens where that one is
// expected: not to a program that knows nothing of it, none that repeats a proof, none that passes
// all on to the server, and not to the server of another folder.
func TestTokenOfAFolder(t *testing.T) {
	t.Parallel()
	const set = "the-token-of-the-settings"
	for _, one := range []struct{ name, arg string }{{"data directory", "log.level=warn"},
		{"settings", "operator.token=" + set}} {
		t.Run(one.name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "data")
			s, other := launchIn(t, dir, "--set", one.arg), launchNode(t, "other")
			token := set
			if one.name != "settings" {
				text, err := os.ReadFile(filepath.Join(dir, "operator.token"))
				if err != nil {
					t.Fatal(err)
				}
				token = strings.TrimSpace(string(text))
			}
			run := func(address string, environ []string, command ...string) (int, string) {
				code, _, errs := runCommand(t, environ, append(command, "--set", "data_dir="+dir,
					"--set", one.arg, "--set", "listen="+strings.TrimPrefix(address, "http://"))...)
				return code, errs
			}
			if code, errs := run(s.url, nil, "jobs", "list"); code != cli.ExitOK {
				t.Fatalf("AD-008 the server of the folder: exit code %d: %s", code, errs)
			}
			at, err := url.Parse(s.url)
			if err != nil {
				t.Fatal(err)
			}
			_, answer := challengeOf(t, s.url, "A")
			foreign := map[string]*foreignServer{
				"another program": newForeignServer(t, http.NotFound),
				"a repeated proof": newForeignServer(t, func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set(account.ProofHeader, answer)
				}),
				"a proxy": newForeignServer(t, httputil.NewSingleHostReverseProxy(at).ServeHTTP),
			}
			for name, f := range foreign {
				for _, command := range [][]string{{"jobs", "list"}, {"operator", "login"},
					{"why", "1"}, {"audit"}, {"nodes", "list"}} {
					code, errs := run(f.URL, nil, command...)
					if code != cli.ExitUnauthorized || f.has(token) || f.has("Authorization") ||
						!strings.Contains(errs, f.URL+" does not prove to be the one") {
						t.Errorf("AD-008 %v at %s: exit code %d, %s", command, name, code, errs)
					}
				}
				if !f.has(account.ChallengeHeader) {
					t.Errorf("AD-008 %s was not asked", name)
				}
			}
			if code, errs := run(other.url, nil, "jobs", "list"); code != cli.ExitUnauthorized ||
				!strings.Contains(errs, "does not prove") {
				t.Errorf("AD-008 the server of another folder: exit code %d, %s", code, errs)
			}
			// Who gives a token has it sent.
			proxy := foreign["a proxy"]
			if code, errs := run(proxy.URL, []string{"MILLRACE_OPERATOR_TOKEN=" + token}, "jobs",
				"list"); code != cli.ExitOK || !proxy.has(token) {
				t.Errorf("AD-008 a token that is given: exit code %d, %s", code, errs)
			}
		})
	}
}

// challengeOf sends a server a challenge, and returns its status and its proof.
func challengeOf(t *testing.T, server, challenge string) (status int, proof string) {
	t.Helper()
	req, err := http.NewRequest(http.MethodGet, server+"/admin/v1/health", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set(account.ChallengeHeader, challenge)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if proof = resp.Header.Get(account.ProofHeader); proof == "" {
		t.Fatal("there is no proof: ", fmt.Sprint(resp))
	}
	return resp.StatusCode, proof
}
