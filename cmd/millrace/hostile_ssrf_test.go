package main

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/testkit"
)

// TestHostileURLs (I12): a server whose guard is closed, as it is beyond loopback, is given URLs
// that lead to forbidden addresses: as downloads, webhooks and callbacks. No connection comes to
// the machine, and each download fails for its URL or address.
func TestHostileURLs(t *testing.T) {
	t.Parallel()
	canary, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	defer canary.Close()
	connects := make(chan string, 1000)
	go func() {
		for {
			conn, err := canary.Accept()
			if err != nil {
				return
			}
			connects <- conn.RemoteAddr().String()
			conn.Close()
		}
	}()
	n := startHostile(t, "", "--set", "listen=0.0.0.0:0", "--set", "trusted_network=true",
		"--set", "fetchbox.max_resources=5000", "--set", "fetchbox.backoff_base=1ms")
	n.newForgeClient(t, "owner")
	_, port, _ := net.SplitHostPort(canary.Addr().String())
	var resources []string
	for i, vector := range testkit.SSRFVectors(port) {
		if !namesAddress(vector) || (!isFullHostile() && i%11 != 0) {
			continue
		}
		for _, request := range [][]string{
			{"owner", "/v1/webhooks", `{"events":["job_failed"],"url":%s}`},
			{"owner", "/v1/jobs", `{"type":"EXECUTE","work_kind":"FAIL_IMMEDIATE","callback":%s}`},
			{"relay", "/v2/queues/jobs", `[{"queue":"q","id":"n","timeout":1,"payload":1,
				"callback_url":%s}]`},
			{"taskflow", "/api/v1/jobs", `{"name":"n","queue":"q","callback":{"url":%s}}`},
			{"operator", "/admin/v1/webhooks", `{"events":["job.*"],"url":%s}`},
		} {
			if isFullHostile() || i%7 == 0 {
				_ = n.do(t, "POST", request[1], fmt.Sprintf(request[2], quoted(vector)),
					n.bearer(request[0])...)
			}
		}
		resource := fmt.Sprintf(`{"id":"r%d","url":%s}`, i, quoted(vector))
		got := n.do(t, "POST", "/jobs", `{"manifest_version":"v1","metadata":{},"resources":[`+
			resource+`]}`, append(n.bearer("fetchbox"), "X-Fetchbox-Job-Type", "default")...)
		if got.status == http.StatusAccepted {
			resources = append(resources, resource)
		}
	}
	if len(resources) < 20 {
		t.Errorf("only %d downloads", len(resources))
	}
	t.Logf("%d downloads", len(resources))
	n.waitDownloads(t, len(resources))
	select {
	case from := <-connects:
		t.Errorf("I12 a connection came from %s", from)
	default:
	}
	n.wantHealthy(t)
}

// namesAddress reports whether the host of a URL is an address, or a name that each machine has.
// The others are up to the resolver of the machine: package egress tests them with its own.
func namesAddress(vector string) bool {
	u, err := url.Parse(vector)
	if err != nil {
		return true // refused as it is
	}
	_, err = netip.ParseAddr(u.Hostname())
	return err == nil || u.Hostname() == "localhost"
}

// waitDownloads waits until all downloads have failed.
func (n *hostileNode) waitDownloads(t *testing.T, number int) {
	t.Helper()
	testkit.WaitUntil(t, "the end of all downloads", func() bool {
		open := n.do(t, "GET", "/operators/jobs?status=queued&limit=1", "",
			n.bearer("operator")...)
		running := n.do(t, "GET", "/operators/jobs?status=in_progress&limit=1", "",
			n.bearer("operator")...)
		return strings.Contains(open.body, `"items":[]`) &&
			strings.Contains(running.body, `"items":[]`)
	})
	done := n.do(t, "GET", "/operators/jobs?status=completed&limit=1", "",
		n.bearer("operator")...)
	if !strings.Contains(done.body, `"items":[]`) {
		t.Errorf("I12 of %d downloads one is completed: %s", number, done.body)
	}
}
