package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"image"
	"image/jpeg"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/millrace/millrace/internal/console"
	"github.com/millrace/millrace/internal/store/storetest/pgtest"
	"github.com/millrace/millrace/internal/testkit"
)

// hostileNode is a server of the real binary with all contracts, which logs all it can. Each kind
// of caller has a secret of its own, and there is one thing of each kind to ask for.
type hostileNode struct {
	*launchedServer
	client *http.Client // checks every exchange by the documents
	raw    *http.Client // checks nothing
	routes []hostileRoute
	// secrets are those that callers authenticate with, by the name of the caller.
	secrets map[string]string
	// values are members of paths: what was planted, by the API and the name of the member or the
	// part of the path before it.
	values map[string]string
	// hidden are further secrets, which no log may have.
	hidden []string
}

// hostileRoute is a route of an OpenAPI document, or a page of the console.
type hostileRoute struct {
	api, method, pattern string
	operation            *openapi3.Operation // nil for a page
	parameters           openapi3.Parameters // of the operation and its path
	query                []string
}

func (r hostileRoute) String() string { return r.method + " " + r.pattern }

// isEndless reports whether the answer of a route goes on until the caller hangs up.
func (r hostileRoute) isEndless() bool { return r.pattern == "/admin/v1/events" }

// hostileTokens are the tokens of settings, by the callers who have them.
var hostileTokens = map[string]string{"operator": "operator.token", "reader": "operator.read_token",
	"worker": "worker.token", "relay": "relay.token", "taskflow": "taskflow.token",
	"fetchbox": "fetchbox.token", "images": "images.token"}

// startHostile starts a node on SQLite, or on the PostgreSQL of a URL, with further arguments.
func startHostile(t *testing.T, database string, more ...string) *hostileNode {
	t.Helper()
	n := &hostileNode{secrets: map[string]string{}, values: map[string]string{}}
	args := []string{"--set", "log.level=debug", "--set", "log.format=json",
		"--set", "operator.read_payloads=false",
		"--set", "forgerun.rate_limit_per_minute=1000000000",
		"--set", "forgerun.anonymous_rate_limit_per_minute=1000000000",
		"--set", "forgerun.duration_scale=0.001", "--set", "fetchbox.tries=1",
		"--set", "webhook.max_tries=1",
		"--set", "taskflow.max_concurrent=1000000"}
	for caller, key := range hostileTokens {
		n.secrets[caller] = "secret-of-" + caller + "-4f1d9c"
		args = append(args, "--set", key+"="+n.secrets[caller])
	}
	if database != "" {
		u, err := url.Parse(database)
		if err != nil {
			t.Fatal(err)
		}
		if _, isSet := u.User.Password(); !isSet { // one that nobody asks for
			u.User = url.UserPassword(u.User.Username(), "secret-of-database-4f1d9c")
		}
		password, _ := u.User.Password()
		n.hidden = append(n.hidden, password)
		args = append(args, "--set", "store="+u.String())
	}
	args = append(args, more...)
	n.launchedServer = launchIn(t, filepath.Join(t.TempDir(), "data"), args...)
	n.readDocuments(t)
	return n
}

// onHostile runs a test with a node on each database.
func onHostile(t *testing.T, test func(t *testing.T, n *hostileNode)) {
	t.Helper()
	t.Run("sqlite", func(t *testing.T) { test(t, startHostile(t, "")) })
	t.Run("postgres", func(t *testing.T) { test(t, startHostile(t, pgtest.URL(t))) })
}

// readDocuments reads the routes of all contracts and services from the documents that the server
// serves. The tests of each see to it that its document has all of its routes.
func (n *hostileNode) readDocuments(t *testing.T) {
	t.Helper()
	names := []string{"worker", "admin"}
	for _, d := range defineContracts() {
		names = append(names, d.Name())
	}
	checks := documentTransports{next: &http.Transport{MaxIdleConnsPerHost: 32}}
	t.Cleanup(checks.next.CloseIdleConnections)
	for _, name := range names {
		status, text := sendTo(t, http.DefaultClient, "GET", n.url+"/openapi/"+name+".yaml", "")
		if status != http.StatusOK {
			t.Fatalf("the document of %s is %d", name, status)
		}
		document := testkit.ReadDocument(t, []byte(text), 1<<20)
		checks.add(document, document.Check(t, checks.next))
		for pattern, item := range document.Doc.Paths.Map() {
			for method, operation := range item.Operations() {
				n.routes = append(n.routes, hostileRoute{api: name, method: method,
					pattern: pattern, operation: operation,
					parameters: slices.Concat(item.Parameters, operation.Parameters)})
			}
		}
	}
	for _, page := range console.New(nil).Pages() {
		n.routes = append(n.routes, hostileRoute{api: "console", method: page.Method,
			pattern: page.Pattern, query: page.Query})
	}
	slices.SortFunc(n.routes, func(a, b hostileRoute) int {
		return strings.Compare(a.pattern+a.method, b.pattern+b.method)
	})
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	n.client = &http.Client{Transport: &checks, CheckRedirect: stay}
	n.raw = &http.Client{Transport: checks.next, CheckRedirect: stay, Timeout: testTimeout}
}

// documentTransports sends each request through the check of the document that has its path.
type documentTransports struct {
	next    *http.Transport
	checked []documentTransport
}

type documentTransport struct {
	patterns [][]string
	http.RoundTripper
}

func (d *documentTransports) add(document *testkit.Document, check http.RoundTripper) {
	checked := documentTransport{RoundTripper: check}
	for pattern := range maps.Keys(document.Doc.Paths.Map()) {
		checked.patterns = append(checked.patterns, strings.Split(pattern, "/"))
	}
	d.checked = append(d.checked, checked)
}

// RoundTrip implements http.RoundTripper.
func (d *documentTransports) RoundTrip(r *http.Request) (*http.Response, error) {
	parts := strings.Split(r.URL.EscapedPath(), "/")
	for _, document := range d.checked {
		for _, pattern := range document.patterns {
			if patternMatches(pattern, parts) {
				return document.RoundTripper.RoundTrip(r)
			}
		}
	}
	return d.next.RoundTrip(r)
}

func patternMatches(pattern, parts []string) bool {
	if len(pattern) != len(parts) {
		return false
	}
	for i, part := range pattern {
		if part != parts[i] && !strings.HasPrefix(part, "{") {
			return false
		}
	}
	return true
}

// hostileReply is an answer.
type hostileReply struct {
	status int
	header http.Header
	body   string
}

// do sends a request and returns its answer. An answer of 5xx fails the test.
func (n *hostileNode) do(t testing.TB, method, path, body string, header ...string) hostileReply {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, n.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	return n.send(t, req)
}

// send sends a request as it is.
func (n *hostileNode) send(t testing.TB, req *http.Request) hostileReply {
	t.Helper()
	resp, err := n.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode >= 500 {
		t.Errorf("%s %.300s: got %d %.300s", req.Method, req.URL, resp.StatusCode, text)
	}
	return hostileReply{resp.StatusCode, resp.Header, string(text)}
}

// bearer is the header of a caller; nil for "", who is nobody.
func (n *hostileNode) bearer(caller string) []string {
	if caller == "" {
		return nil
	}
	return []string{"Authorization", "Bearer " + n.secrets[caller]}
}

// as sends a request as a caller, which must be answered with a status, and decodes the answer.
func (n *hostileNode) as(t testing.TB, caller, method, path, body string, want int, into any,
	header ...string) {
	t.Helper()
	r := n.do(t, method, path, body, append(header, n.bearer(caller)...)...)
	if r.status != want {
		t.Fatalf("%s %s as %s: got %d %s, want %d", method, path, caller, r.status, r.body, want)
	}
	if into == nil {
		return
	}
	if err := json.Unmarshal([]byte(r.body), into); err != nil {
		t.Fatalf("%s: %v", r.body, err)
	}
}

// path fills in what was planted.
func (n *hostileNode) path(t testing.TB, r hostileRoute) string { return r.path(t, n.values) }

// path fills in members. It fails the test for one that has no value: a new route needs something
// to ask for.
func (r hostileRoute) path(t testing.TB, values map[string]string) string {
	t.Helper()
	api := r.api
	if api == "console" {
		api = "admin" // its pages are about the same
	}
	parts := strings.Split(r.pattern, "/")
	filled := slices.Clone(parts)
	for i, part := range parts {
		if !strings.HasPrefix(part, "{") {
			continue
		}
		value, ok := values[api+" "+parts[i-1]+" "+part]
		if !ok {
			value, ok = values[api+" "+part]
		}
		if !ok {
			t.Errorf("%s: nothing is planted for the member %s (hostile_plant_test.go)", r, part)
		}
		filled[i] = url.PathEscape(value)
	}
	return strings.Join(filled, "/")
}

// session logs in as a caller and returns the header of the session.
func (n *hostileNode) session(t *testing.T, caller string) []string {
	t.Helper()
	r := n.do(t, "POST", "/console/login", "token="+n.secrets[caller], "Content-Type",
		"application/x-www-form-urlencoded")
	cookies := (&http.Response{Header: r.header}).Cookies()
	if len(cookies) != 1 {
		t.Fatalf("a login of %s is %d %s", caller, r.status, r.body)
	}
	n.hidden = append(n.hidden, cookies[0].Value)
	return []string{"Cookie", cookies[0].Name + "=" + cookies[0].Value}
}

// wantHealthy fails the test unless the server has logged no defect and is ready.
func (n *hostileNode) wantHealthy(t *testing.T) {
	t.Helper()
	if lines := n.stderr.Lines(t, map[string]any{"level": "ERROR"}); len(lines) > 0 {
		t.Errorf("the log has %v", lines[:min(3, len(lines))])
	}
	if r := n.do(t, "GET", "/health/ready", ""); r.status != http.StatusOK {
		t.Errorf("the server is not ready: %d %s", r.status, r.body)
	}
}

// wantNoSecrets fails the test when the log has a secret of anybody.
func (n *hostileNode) wantNoSecrets(t *testing.T) {
	t.Helper()
	log := n.stderr.String()
	all := slices.Concat(slices.Collect(maps.Values(n.secrets)), n.hidden)
	for _, secret := range all {
		for line := range strings.Lines(log) {
			if strings.Contains(line, secret) {
				t.Errorf("the log has the secret %s: %.500s", secret, line)
				break
			}
		}
	}
	if lines := strings.Count(log, "\n"); lines < 1000 {
		t.Errorf("the log has only %d lines at debug", lines)
	}
}

// newCanaryOrigin is a receiver of webhooks and an origin that has nothing; what it answers has a
// canary.
func newCanaryOrigin(t *testing.T) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if strings.Contains(r.URL.Path, "missing") {
			w.WriteHeader(http.StatusNotFound)
		}
		_, _ = io.WriteString(w, "canary-answer of a receiver")
	}))
	t.Cleanup(s.Close)
	return s
}

// canaryPicture is a JPEG with a canary behind its end, which its original keeps.
func canaryPicture(t *testing.T) string {
	t.Helper()
	var b bytes.Buffer
	if err := jpeg.Encode(&b, image.NewGray(image.Rect(0, 0, 64, 64)), nil); err != nil {
		t.Fatal(err)
	}
	return b.String() + "canary-images"
}

// awaitIn polls a list as a caller until it has an item, and returns a member of the first one.
func (n *hostileNode) awaitIn(t *testing.T, caller, path, member string) string {
	t.Helper()
	var list struct{ Items []map[string]any }
	testkit.WaitUntil(t, "an item of "+path, func() bool {
		list.Items = nil
		n.as(t, caller, "GET", path, "", http.StatusOK, &list)
		return len(list.Items) > 0
	})
	value := list.Items[0][member]
	if number, ok := value.(float64); ok {
		return fmt.Sprintf("%.0f", number)
	}
	return fmt.Sprint(value)
}
