package docsite

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/internal/admin"
	"github.com/millrace/millrace/internal/console"
	"github.com/millrace/millrace/internal/contract/fetchbox"
	"github.com/millrace/millrace/internal/contract/forgerun"
	"github.com/millrace/millrace/internal/contract/images"
	"github.com/millrace/millrace/internal/contract/relay"
	"github.com/millrace/millrace/internal/contract/taskflow"
	"github.com/millrace/millrace/internal/workerapi"
)

// apis are the documents of a release.
var apis = []API{
	{relay.Name, "internal/contract/relay/openapi.yaml", relay.OpenAPI},
	{forgerun.Name, "internal/contract/forgerun/openapi.yaml", forgerun.OpenAPI},
	{taskflow.Name, "internal/contract/taskflow/openapi.yaml", taskflow.OpenAPI},
	{fetchbox.Name, "internal/contract/fetchbox/openapi.yaml", fetchbox.OpenAPI},
	{images.Name, "internal/contract/images/openapi.yaml", images.OpenAPI},
	{workerapi.Name, "internal/workerapi/openapi.yaml", workerapi.OpenAPI},
	{admin.Name, "internal/admin/openapi.yaml", admin.OpenAPI},
}

// world is the site of a release. Tests only read it, so they share one.
var world = sync.OnceValue(func() *Site {
	return New(Config{Papers: millrace.Papers, APIs: apis, Style: console.Style(),
		Icon: console.Icon(), Version: "v1.2.3"})
})

// get asks the site for a path.
func get(tb testing.TB, path string, header ...string) *httptest.ResponseRecorder {
	tb.Helper()
	return request(http.MethodGet, path, header...)
}

func request(method, path string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, nil)
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	world().ServeHTTP(w, r)
	return w
}

// Answers have the headers of the console, and are asked for again but not sent again.
func TestHeaders(t *testing.T) {
	t.Parallel()
	for path, contentType := range map[string]string{
		"/docs": "text/html; charset=utf-8", "/docs/": "text/html; charset=utf-8",
		"/docs/relay": "text/html; charset=utf-8", "/docs/relay.md": "text/markdown; charset=utf-8",
		"/docs/README.md":                        "text/markdown; charset=utf-8",
		"/docs/api/relay":                        "text/html; charset=utf-8",
		"/docs/search?q=lease":                   "text/html; charset=utf-8",
		"/docs/source/docs/img/queues.svg":       "image/svg+xml",
		"/docs/source/client/doc.go":             "text/html; charset=utf-8",
		"/docs/source/client/pgtx":               "text/html; charset=utf-8",
		"/docs/style.css":                        "text/css; charset=utf-8",
		"/docs/clients/python":                   "text/html; charset=utf-8",
		"/docs/decisions/0034-openapi-documents": "text/html; charset=utf-8",
	} {
		w := get(t, path)
		h := w.Header()
		if w.Code != 200 || h.Get("Content-Type") != contentType || w.Body.Len() == 0 {
			t.Errorf("%s answers %d %s", path, w.Code, h.Get("Content-Type"))
			continue
		}
		policy := h.Get("Content-Security-Policy")
		if !strings.HasPrefix(policy, "default-src 'none'") || strings.Contains(policy, "http") ||
			h.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s has the headers %v", path, h)
		}
		again := get(t, path, "If-None-Match", h.Get("ETag"))
		if again.Code != http.StatusNotModified || again.Body.Len() != 0 {
			t.Errorf("%s is sent again: %d", path, again.Code)
		}
	}
}

// What there is not is a page that says so; only reading is answered.
func TestNothingElse(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"/docs/none", "/docs/api/none", "/docs/source/",
		"/docs/source/../go.mod", "/docs/source/go.mod", "/docs/relay.md/x", "/docs//relay",
		"/docs/<script>alert(1)</script>"} {
		w := get(t, path)
		if w.Code != 404 || !strings.Contains(w.Body.String(), "There is no such page") ||
			strings.Contains(w.Body.String(), "<script>alert") {
			t.Errorf("%s answers %d: %s", path, w.Code, w.Body)
		}
	}
	w := request(http.MethodPost, "/docs/relay")
	if w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != "GET, HEAD" {
		t.Errorf("POST answers %d, %v", w.Code, w.Header())
	}
	if w := request(http.MethodHead, "/docs/relay"); w.Code != 200 {
		t.Errorf("HEAD answers %d", w.Code)
	}
}
