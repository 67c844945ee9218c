package main

import (
	"context"
	"html"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/config"
)

// asBrowser gets a page as browsers do.
func asBrowser(t *testing.T, url string) (status int, body string) {
	t.Helper()
	return sendTo(t, http.DefaultClient, http.MethodGet, url, "", "Accept", "text/html,*/*;q=0.8")
}

var (
	linkPattern    = regexp.MustCompile(`href="([^"]+)"`)
	commandPattern = regexp.MustCompile(`<pre><code>(.+)</code></pre>`)
)

// What the page at "/" says is true: each link leads somewhere and the first command works as it
// stands there.
func TestPageOfAServer(t *testing.T) {
	t.Parallel()
	s := launchNode(t, "data")
	status, page := asBrowser(t, s.url+"/")
	if status != 200 {
		t.Fatalf("GET / answers %d: %s", status, page)
	}
	for _, want := range []string{"<dt>serves</dt><dd>forgerun, images, taskflow, fetchbox, " +
		"relay</dd>",
		"<dt>open</dt><dd>without a token: images, taskflow, fetchbox, relay, /worker, /operators, /v1/clients (to this machine alone)</dd>",
		"<code>/v2/queues/</code> <code>/v1/queues/</code>", "<code>/v1/</code>",
		"<code>/api/v1/</code>", "<code>/jobs</code>",
		"<code>/images/v1/</code>", "<code>/worker/v1/</code>", "<code>/admin/v1</code>"} {
		if !strings.Contains(page, want) {
			t.Errorf("there is no %s in\n%s", want, page)
		}
	}
	if strings.Contains(page, filepath.Dir(s.cmd.Dir)) {
		t.Errorf("strangers learn where the data are:\n%s", page)
	}
	links := linkPattern.FindAllStringSubmatch(page, -1)
	if len(links) != 11 { // documents of seven APIs, documentation, console, readiness, metrics
		t.Errorf("CO-009 %d links, want 11: %v", len(links), links)
	}
	for _, link := range links {
		want := 200
		if link[1] == "/console" {
			want = 401 // the login page
		}
		if status, body := asBrowser(t, s.url+link[1]); status != want || body == "" {
			t.Errorf("the link %s leads to %d", link[1], status)
		}
	}
	commands := commandPattern.FindAllStringSubmatch(page, -1)
	if len(commands) != 2 {
		t.Fatalf("%d commands, want 2:\n%s", len(commands), page)
	}
	first := html.UnescapeString(commands[0][1])
	if out, err := boundedCommand(t, "sh", "-c", first).CombinedOutput(); err != nil {
		t.Errorf("%s: %v\n%s", first, err, out)
	}
}

// The page goes with the settings: what has a token is not open, and a node that only runs jobs
// offers none.
func TestPageGoesWithTheSettings(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		args     []string
		has, not []string
	}{
		"tokens": {[]string{"--set", "relay.token=0123456789abcdef0123", "--set",
			"contracts=relay,forgerun"},
			[]string{"<dd>without a token: /worker, /v1/clients (to this machine alone)</dd>",
				"millrace simulate --server", "<code>/v1/</code>"},
			[]string{"millrace enqueue", "/images/v1/", "openapi/taskflow.yaml"}},
		"workers only": {[]string{"--workers-only"},
			[]string{"<dd>health and metrics alone; it runs jobs</dd>", `href="/metrics"`},
			[]string{"/v2/queues/", "openapi", "<dt>open</dt>"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			status, page := asBrowser(t, launchNode(t, "data", c.args...).url+"/")
			if status != 200 {
				t.Fatalf("GET / answers %d: %s", status, page)
			}
			for _, want := range c.has {
				if !strings.Contains(page, want) {
					t.Errorf("there is no %s in\n%s", want, page)
				}
			}
			for _, banned := range c.not {
				if strings.Contains(page, banned) {
					t.Errorf("there is %s in\n%s", banned, page)
				}
			}
		})
	}
}

// TestConsoleLinkIsForLoopback (AD-003): a start prints a link to the console where its listener is
// on loopback alone; elsewhere the code would go out with the log, and none is made.
func TestConsoleLinkIsForLoopback(t *testing.T) {
	t.Parallel()
	for listen, want := range map[string]string{"127.0.0.1:0": "http://a/login",
		"[::1]:0": "http://a/login", ":0": "", "0.0.0.0:0": "", "192.0.2.1:0": ""} {
		d := &deps{settings: &nodeSettings{Settings: &config.Settings{Listen: listen}}}
		d.loginPath = func(context.Context) (string, error) {
			if want == "" {
				t.Errorf("%s: a code is made", listen)
			}
			return "/login", nil
		}
		if got := d.consoleLink(t.Context(), "http://a"); got != want {
			t.Errorf("%s: got %q, want %q", listen, got, want)
		}
	}
}
