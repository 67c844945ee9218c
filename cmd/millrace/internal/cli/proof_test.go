package cli

import (
	"encoding/pem"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/client"
	"github.com/millrace/millrace/internal/account"
)

// folder is a folder whose server listens at an address.
type folder struct {
	address string
	stored  Stored
}

// Register implements LocalServer.
func (folder) Register(*cobra.Command) {}

// Find implements LocalServer.
func (f folder) Find(Process, *cobra.Command) (string, func() (Stored, error), error) {
	return f.address, func() (Stored, error) { return f.stored, nil }, nil
}

// AD-008: a command that has begun with the server of its folder sends nothing to another one that
// listens there afterwards: each connection is asked.
func TestLaterConnections(t *testing.T) {
	t.Setenv("HOME", t.TempDir()) // has no profiles
	t.Setenv("XDG_CONFIG_HOME", "")
	for _, scheme := range []string{"http", "https"} {
		var isForeign atomic.Bool
		var token atomic.Pointer[string]
		key := []byte("key")
		handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if given := r.Header.Get("Authorization"); given != "" {
				token.Store(&given)
			}
			if challenge := r.Header.Get(account.ChallengeHeader); challenge != "" && !isForeign.Load() {
				at := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr).AddrPort()
				w.Header().Set(account.ProofHeader, account.Proof(key, challenge, at))
			}
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(`{"items":[],"next_cursor":null}`))
		})
		server := httptest.NewUnstartedServer(handler)
		server.EnableHTTP2 = true
		if scheme == "https" {
			server.StartTLS()
		} else {
			server.Start()
		}
		t.Cleanup(server.Close)
		o := &Operator{Retry: client.Retry{MaxTries: 1},
			Local: folder{server.URL, Stored{Token: "secret", Source: "here", ProofKey: key}}}
		o.remote.cacert = certificateOf(t, server)
		c := &cobra.Command{}
		c.SetContext(t.Context())
		admin, _, err := o.Connect(Process{}, c)
		if err != nil {
			t.Fatal(err)
		}
		list := func() error {
			for _, err := range admin.Nodes(t.Context()) {
				if err != nil {
					return o.Error(t.Context(), err)
				}
			}
			return nil
		}
		if err := list(); err != nil || token.Load() == nil {
			t.Errorf("AD-008 %s: the server of the folder: %v", scheme, err)
		}
		isForeign.Store(true)
		token.Store(nil)
		server.CloseClientConnections()
		if err := list(); ExitCode(err) != ExitUnauthorized ||
			!strings.Contains(err.Error(), "does not prove to be") || token.Load() != nil {
			t.Errorf("AD-008 %s: another server got %v: %v", scheme, token.Load(), err)
		}
		if _, _, err := o.Connect(Process{}, c); ExitCode(err) != ExitUnauthorized ||
			token.Load() != nil {
			t.Errorf("AD-008 %s: another server got %v: %v", scheme, token.Load(), err)
		}
	}
}

// certificateOf writes the certificate of a server to a file; "" for one without.
func certificateOf(t *testing.T, server *httptest.Server) string {
	t.Helper()
	if server.Certificate() == nil {
		return ""
	}
	file := filepath.Join(t.TempDir(), "certificate")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
