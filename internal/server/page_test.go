package server_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/server"
)

// browser is what browsers send as Accept.
const browser = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"

// fetch sends a request and returns the answer with its body.
func (n *node) fetch(t *testing.T, method, url, accept, host string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequest(method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if accept != "" {
		req.Header.Set("Accept", accept)
	}
	req.Host = host
	resp, err := n.http.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(body)
}

func startWithPage(t *testing.T, contracts ...build) *node {
	t.Helper()
	return startNodeWith(t, nil, func(c *server.Config) {
		c.Page = &server.Page{Attrs: []server.Attr{{Name: "open", Text: "<b>all</b>"}},
			Commands: func(url string) []string { return []string{"curl " + url + "/made/x"} }}
	}, contracts...)
}

func answerText(_ *engine.Engine, w http.ResponseWriter, _ *http.Request) {
	_, _ = io.WriteString(w, "contract")
}

// Only a browser that asks for "/" gets the page; everybody else gets what was there without it.
func TestPageIsForBrowsers(t *testing.T) {
	t.Parallel()
	n := startWithPage(t, documented(newFakeContract(answerText).served(), "openapi: 3"))
	url := n.URLs()[0]
	for name, c := range map[string]struct {
		method, path, accept string
		status               int
		kind                 string
	}{
		"a browser":    {"GET", "/", browser, 200, "text/html; charset=utf-8"},
		"HEAD":         {"HEAD", "/", browser, 200, "text/html; charset=utf-8"},
		"with a query": {"GET", "/?a=b", browser, 200, "text/html; charset=utf-8"},
		"no Accept":    {"GET", "/", "", 404, "text/plain; charset=utf-8"},
		"a wildcard":   {"GET", "/", "*/*", 404, "text/plain; charset=utf-8"},
		"JSON":         {"GET", "/", "application/json", 404, "text/plain; charset=utf-8"},
		"anything but HTML": {"GET", "/", "text/html;q=0, */*", 404,
			"text/plain; charset=utf-8"},
		"POST":                  {"POST", "/", browser, 404, "text/plain; charset=utf-8"},
		"an unknown path":       {"GET", "/nowhere", browser, 404, "text/plain; charset=utf-8"},
		"a slash too many":      {"GET", "//", browser, 404, "text/plain; charset=utf-8"},
		"a contract goes first": {"GET", "/made/x", browser, 200, "text/plain; charset=utf-8"},
		"metrics go before":     {"GET", "/metrics", browser, 200, "text/plain; charset=utf-8"},
		"documents go before":   {"GET", "/openapi/made.yaml", browser, 200, "application/yaml"},
		"readiness goes first":  {"GET", "/health/ready", browser, 200, "text/plain; charset=utf-8"},
	} {
		t.Run(name, func(t *testing.T) {
			resp, body := n.fetch(t, c.method, url+c.path, c.accept, "")
			if kind := resp.Header.Get("Content-Type"); resp.StatusCode != c.status ||
				kind != c.kind {
				t.Errorf("%d %s, want %d %s", resp.StatusCode, kind, c.status, c.kind)
			}
			if c.status == 404 && body != "there is nothing at this path\n" {
				t.Errorf("it says %q", body)
			}
		})
	}
}

// The page names what is served where, with text as text, and the address that the caller has used
// unless that is more than a host and a port: people copy it into a shell.
func TestPageNamesWhatIsServed(t *testing.T) {
	t.Parallel()
	n := startWithPage(t, documented(newFakeContract(answerText).served(), "openapi: 3"))
	url := n.URLs()[0]
	resp, body := n.fetch(t, "GET", url+"/", browser, "millrace.test:8080")
	for _, want := range []string{"Millrace <small>v</small>", "<dt>made</dt>",
		"<code>/made/</code>", `href="/openapi/made.yaml"`,
		`href="/metrics"`, `href="/health/ready"`, "&lt;b&gt;all&lt;/b&gt;",
		"<code>curl http://millrace.test:8080/made/x</code>"} {
		if !strings.Contains(body, want) {
			t.Errorf("there is no %s in\n%s", want, body)
		}
	}
	if policy := resp.Header.Get("Content-Security-Policy"); !strings.HasPrefix(policy,
		"default-src 'none';") {
		t.Errorf("Content-Security-Policy is %q", policy)
	}
	if _, body := n.fetch(t, "GET", url+"/", browser, "a;reboot"); !strings.Contains(body,
		"<code>curl "+url+"/made/x</code>") {
		t.Errorf("with a Host for the shell it says\n%s", body)
	}
}

// A contract with an address of its own is named with it, and has no page there.
func TestPageOfOwnListener(t *testing.T) {
	t.Parallel()
	n := startWithPage(t, at("127.0.0.1:0", newFakeContract(answerText).served()))
	if _, body := n.fetch(t, "GET", n.URLs()[0]+"/", browser, ""); !strings.Contains(body,
		"<code>/made/</code> on 127.0.0.1:0") {
		t.Errorf("it says\n%s", body)
	}
	if resp, _ := n.fetch(t, "GET", n.URLs()[1]+"/", browser, ""); resp.StatusCode != 404 {
		t.Errorf("its own address answers %d, want 404", resp.StatusCode)
	}
}
