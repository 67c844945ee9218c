package main

import (
	"net/http"
	"strings"
	"testing"
)

// The documentation is public: also where every contract has a token, and of contracts that are not
// served. A node that only runs jobs has none.
func TestDocumentationOfAServer(t *testing.T) {
	t.Parallel()
	s := launchNode(t, "data", "--set", "contracts=relay", "--set", "token=0123456789abcdef0123",
		"--set", "operator.token=secret")
	for path, want := range map[string]string{"/docs": "Durable jobs over plain HTTP",
		"/docs/taskflow": "Graphs", "/docs/api/taskflow": "/api/v1/jobs",
		"/docs/api/relay": "/v2/queues/jobs", "/docs/search?q=pepper": "<mark>pepper</mark>",
		"/docs/style.css": "--ground"} {
		if status, body := asBrowser(t, s.url+path); status != 200 || !strings.Contains(body, want) {
			t.Errorf("%s answers %d without %s", path, status, want)
		}
	}
	_, page := sendTo(t, http.DefaultClient, http.MethodGet, s.url+"/console", "",
		"Authorization", "Bearer secret", "Accept", "text/html")
	if !strings.Contains(page, `<a href="/docs">Documentation</a>`) {
		t.Errorf("the console does not link to the documentation:\n%s", page)
	}
	alone := launchNode(t, "other", "--workers-only")
	if status, _ := asBrowser(t, alone.url+"/docs"); status != 404 {
		t.Errorf("a node that serves nothing answers %d", status)
	}
}
