package server_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/server"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/testkit"
)

// On each address of a node the client's address is what a proxy says that the settings trust, and
// without such a setting it is the address of the connection.
func TestTrustedProxies(t *testing.T) {
	t.Parallel()
	r := newFakeContract(func(_ *engine.Engine, w http.ResponseWriter, req *http.Request) {
		_, _ = io.WriteString(w, req.RemoteAddr)
	})
	for proxies, want := range map[string]string{"": "127.0.0.1:", "127.0.0.0/8": "203.0.113.9",
		"10.0.0.0/8": "127.0.0.1:"} {
		n := startNode(t, map[string]string{"trusted_proxies": proxies}, r.served(),
			at("127.0.0.1:0", newFakeContract(r.serve).offer("other")))
		urls := n.URLs()
		if len(urls) != 2 {
			t.Fatalf("the node has the addresses %q", urls)
		}
		for _, url := range urls {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/made/x", nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("X-Forwarded-For", "203.0.113.9")
			resp, err := n.http.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if err != nil || !strings.HasPrefix(string(body), want) {
				t.Errorf("with trusted_proxies %q %s sees %s, want %s: %v", proxies, url, body,
					want, err)
			}
		}
	}
}

// readOnly is a store that refuses writes, as a database does that is read-only.
type readOnly struct{ store.Store }

func (readOnly) Ping(context.Context) error {
	return &job.Error{Kind: job.Unavailable, Op: "store.ping", Msg: "the store is read-only"}
}

// On a read-only database readiness is 503 and names it, while the process is alive.
func TestReadinessNamesAReadOnlyStore(t *testing.T) {
	t.Parallel()
	n := startNodeWith(t, nil, func(c *server.Config) {
		c.Engine = testkit.NewEngine(t, readOnly{c.Store}, testkit.NewClock())
	}, newFakeContract(nil).served())
	for path, want := range map[string]int{"/health/ready": 503, "/health/live": 200} {
		status, body := n.get(n.URLs()[0] + path)
		if status != want {
			t.Errorf("GET %s: %d %q, want %d", path, status, body, want)
		}
		if status == 503 && !strings.Contains(body, "store fails: the store is read-only\n") {
			t.Errorf("GET %s does not name what is wrong: %q", path, body)
		}
	}
}
