package server_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/testkit"
)

// cleartextHTTP2 is a client that speaks HTTP/2 with prior knowledge, and nothing else.
func cleartextHTTP2(t *testing.T) *http.Client {
	t.Helper()
	only := &http.Protocols{}
	only.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: only}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// TestCleartextHTTP2: listeners without TLS serve HTTP/2 with prior knowledge, the common one and
// those of contracts, and HTTP/1.1 to everybody else.
func TestCleartextHTTP2(t *testing.T) {
	t.Parallel()
	r := newFakeContract(func(_ *engine.Engine, w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(w, r.Body)
	})
	n := startNode(t, nil, at("127.0.0.1:0", r.served()))
	body := strings.Repeat("a body of more than one frame ", 10_000)
	for want, client := range map[string]*http.Client{"HTTP/2.0": cleartextHTTP2(t),
		"HTTP/1.1": n.http} {
		for _, url := range []string{n.URLs()[0] + "/health", n.URLs()[1] + "/health"} {
			resp, err := client.Get(url)
			if err != nil {
				t.Fatal(want, err)
			}
			resp.Body.Close()
			if resp.Proto != want || resp.StatusCode != http.StatusOK {
				t.Errorf("GET %s: %s %s, want %s", url, resp.Proto, resp.Status, want)
			}
		}
		resp, err := client.Post(n.URLs()[1]+"/made/echo", "text/plain", strings.NewReader(body))
		if err != nil {
			t.Fatal(want, err)
		}
		got, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.Proto != want || string(got) != body {
			t.Errorf("%s, want %s: %d bytes of %d, %v", resp.Proto, want, len(got), len(body), err)
		}
	}
}

// TestStopWakesLongPollsOfHTTP2: requests of one HTTP/2 connection are answered when the node
// stops.
func TestStopWakesLongPollsOfHTTP2(t *testing.T) {
	t.Parallel()
	r := newFakeContract(longPoll)
	n := startNode(t, nil, r.served())
	client := cleartextHTTP2(t)
	answers := make(chan string, 8)
	for range 8 {
		go func() {
			resp, err := client.Get(n.URLs()[0] + "/made/next")
			if err != nil {
				answers <- err.Error()
				return
			}
			resp.Body.Close()
			answers <- resp.Proto + " " + resp.Status
		}()
	}
	for range 8 {
		testkit.Receive(t, "a request to be under way", r.requested)
	}
	n.stop()
	for range 8 {
		if got := testkit.Receive(t, "an answer", answers); got != "HTTP/2.0 204 No Content" {
			t.Error("got ", got)
		}
	}
	if err := testkit.Receive(t, "the node to end", n.ended); err != nil {
		t.Error(err)
	}
}
