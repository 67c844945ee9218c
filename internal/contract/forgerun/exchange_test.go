package forgerun_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"

	"github.com/millrace/millrace/internal/contract/forgerun"
)

var document = sync.OnceValues(func() (*openapi3.T, error) {
	loader := openapi3.NewLoader()
	doc, err := loader.LoadFromData(forgerun.OpenAPI)
	if err == nil {
		err = doc.Validate(loader.Context)
	}
	return doc, err
})

// beyondDocument marks a request that is accepted although the document
// promises less.
const beyondDocument = "X-Test-Beyond-Document"

// checked compares every exchange with openapi.yaml: each answer must be one
// that the document has, and each request that was accepted one that the
// document allows.
type checked struct {
	t    testing.TB
	next http.RoundTripper
}

func (c *checked) RoundTrip(r *http.Request) (*http.Response, error) {
	beyond := r.Header.Get(beyondDocument) != ""
	r.Header.Del(beyondDocument)
	var sent []byte
	if r.Body != nil && r.ContentLength >= 0 && r.ContentLength <= bodyLimit {
		sent, _ = io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(sent))
	}
	resp, err := c.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	got, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil {
		return nil, err
	}
	resp.Body = io.NopCloser(bytes.NewReader(got))
	c.check(r, sent, resp, got, beyond)
	return resp, nil
}

func (c *checked) check(r *http.Request, sent []byte, resp *http.Response, got []byte, beyond bool) {
	doc, err := document()
	if err != nil {
		return // TestDocument tells of it
	}
	path, item, members := find(doc, r.URL)
	if item == nil || item.GetOperation(r.Method) == nil {
		if s := resp.StatusCode; strings.HasPrefix(r.URL.Path, "/v") && s != 404 && s != 405 && s != 401 {
			c.t.Errorf("%s %s is answered with %d and is not in openapi.yaml", r.Method, r.URL, s)
		}
		return
	}
	again := r.Clone(context.Background())
	again.Body = io.NopCloser(bytes.NewReader(sent))
	again.ContentLength = int64(len(sent))
	input := &openapi3filter.RequestValidationInput{Request: again, PathParams: members,
		Route:   &routers.Route{Spec: doc, Path: path, PathItem: item, Method: r.Method, Operation: item.GetOperation(r.Method)},
		Options: &openapi3filter.Options{AuthenticationFunc: openapi3filter.NoopAuthenticationFunc, SkipSettingDefaults: true}}
	if resp.StatusCode < 300 && !beyond {
		if err := openapi3filter.ValidateRequest(context.Background(), input); err != nil {
			c.t.Errorf("%s %s was accepted, but the document does not allow it: %v", r.Method, r.URL, err)
		}
	}
	if item.GetOperation(r.Method).Responses.Status(resp.StatusCode) == nil { // HEAD as well
		c.t.Errorf("%s %s: the document has no status %d", r.Method, r.URL, resp.StatusCode)
	}
	answer := &openapi3filter.ResponseValidationInput{RequestValidationInput: input, Status: resp.StatusCode, Header: resp.Header,
		Options: &openapi3filter.Options{IncludeResponseStatus: true}}
	if err := openapi3filter.ValidateResponse(context.Background(), answer.SetBodyBytes(got)); err != nil {
		c.t.Errorf("%s %s is answered as the document does not allow: %v", r.Method, r.URL, err)
	}
}

// find returns the path of the document that a request is for.
func find(doc *openapi3.T, u *url.URL) (string, *openapi3.PathItem, map[string]string) {
	sent := strings.Split(u.EscapedPath(), "/")
next:
	for path, item := range doc.Paths.Map() {
		parts := strings.Split(path, "/")
		if len(parts) != len(sent) {
			continue
		}
		members := map[string]string{}
		for i, p := range parts {
			if name, ok := strings.CutPrefix(p, "{"); ok && sent[i] != "" {
				members[strings.TrimSuffix(name, "}")], _ = url.PathUnescape(sent[i])
			} else if p != sent[i] {
				continue next
			}
		}
		return path, item, members
	}
	return "", nil, nil
}

// TestDocument checks that routes.go and openapi.yaml hold the same routes.
func TestDocument(t *testing.T) {
	t.Parallel()
	doc, err := document()
	if err != nil {
		t.Fatal(err)
	}
	routes := map[string]bool{}
	for _, r := range forgerun.Routes() {
		routes[r] = true
	}
	documented := map[string]bool{}
	for path, item := range doc.Paths.Map() {
		for method := range item.Operations() {
			documented[method+" "+path] = true
		}
	}
	for r := range routes {
		if !documented[r] {
			t.Errorf("%s is missing in openapi.yaml", r)
		}
	}
	for r := range documented {
		if !routes[r] {
			t.Errorf("%s is in openapi.yaml and in no table", r)
		}
	}
	if len(routes) != 18 {
		t.Errorf("there are %d routes", len(routes))
	}
}
