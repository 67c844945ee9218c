package testkit

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
)

// HeaderUndocumented is a header for a request that the server accepts although the document does
// not allow it. The header is not sent. It is for what a server must take from old clients and does
// not promise to new ones.
const HeaderUndocumented = "X-Test-Beyond-Document"

// Document is the OpenAPI document of a contract. It is the promise to clients, so tests hold every
// exchange of the whole suite against it, and not only those of a test about the document.
type Document struct {
	Doc           *openapi3.T
	bodyValidator *bodyValidator
	maxBody       int64 // the size up to which request bodies are checked
}

// documents caches documents by their text, because reading one takes long.
var documents sync.Map

// ReadDocument reads a document, which must be valid. Request bodies above limit are not checked:
// tests send them to be refused. It fails the test for everything that documentProblems finds, so a
// contract's first test is that its document is one.
func ReadDocument(tb testing.TB, text []byte, limit int64) *Document {
	tb.Helper()
	if read, ok := documents.Load(string(text)); ok {
		doc := *read.(*Document)
		doc.maxBody = limit
		return &doc
	}
	loader := openapi3.NewLoader()
	doc, err := loader.LoadFromData(text)
	if err != nil {
		tb.Fatal(err)
	}
	if err := doc.Validate(loader.Context); err != nil {
		tb.Fatal(err)
	}
	for _, problem := range documentProblems(doc) {
		tb.Errorf("the document of %s: %s", doc.Info.Title, problem)
	}
	d := &Document{Doc: doc, bodyValidator: newBodyValidator(tb, doc), maxBody: limit}
	documents.Store(string(text), d)
	return d
}

// WantRoutes checks that the document has the same routes as the server, "METHOD PATTERN" each, and
// that there are number of them. The number is given by the test: a route that is forgotten in both
// would be found by nothing else.
func (d *Document) WantRoutes(tb testing.TB, routes []string, number int) {
	tb.Helper()
	inRouter := map[string]bool{}
	for _, r := range routes {
		inRouter[r] = true
	}
	documented := map[string]bool{}
	for path, item := range d.Doc.Paths.Map() {
		for method := range item.Operations() {
			documented[method+" "+path] = true
		}
	}
	for r := range inRouter {
		if !documented[r] {
			tb.Errorf("%s is missing in the document", r)
		}
	}
	for r := range documented {
		if !inRouter[r] {
			tb.Errorf("%s is in the document and has no route", r)
		}
	}
	if len(inRouter) != number {
		tb.Errorf("there are %d routes, want %d", len(inRouter), number)
	}
}

// Check makes a transport that checks every exchange by the document: the document must have each
// answer, and must allow each request that was accepted. Requests that were refused may be
// anything: tests send them to be refused.
func (d *Document) Check(tb testing.TB, next http.RoundTripper) http.RoundTripper {
	return &checkingTransport{tb: tb, document: d, next: next}
}

// checkingTransport is the transport of Check. It reads request and answer to their ends before it
// compares them.
type checkingTransport struct {
	tb       testing.TB
	document *Document
	next     http.RoundTripper
}

// RoundTrip implements http.RoundTripper. The caller gets the answer unchanged; a mismatch fails
// the test.
func (c *checkingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	undocumented := r.Header.Get(HeaderUndocumented) != ""
	r.Header.Del(HeaderUndocumented)
	var sent []byte
	if r.Body != nil && r.ContentLength >= 0 && r.ContentLength <= c.document.maxBody {
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
	c.check(r, sent, resp, got, undocumented)
	return resp, nil
}

// check compares an exchange with the document:
//
//	accepted request   must be allowed by the document, unless it is marked as undocumented
//	any answer         must have a documented status, header and body
//	unknown path       must be refused, where it is a path of an API
func (c *checkingTransport) check(r *http.Request, sent []byte, resp *http.Response, got []byte,
	undocumented bool) {
	doc := c.document.Doc
	path, item, members := findPath(doc, r.URL)
	if item == nil || item.GetOperation(r.Method) == nil {
		if s := resp.StatusCode; strings.HasPrefix(r.URL.Path, "/v") && !isRefusal(s) {
			c.tb.Errorf("%s %s is answered with %d and is not in the document", r.Method, r.URL, s)
		}
		return
	}
	repeated := r.Clone(context.Background())
	repeated.Body = io.NopCloser(bytes.NewReader(sent))
	repeated.ContentLength = int64(len(sent))
	input := &openapi3filter.RequestValidationInput{
		Request:    repeated,
		PathParams: members,
		Route: &routers.Route{
			Spec:      doc,
			Path:      path,
			PathItem:  item,
			Method:    r.Method,
			Operation: item.GetOperation(r.Method),
		},
	}
	if resp.StatusCode < 300 && !undocumented {
		if err := c.document.checkRequest(input, sent); err != nil {
			c.tb.Errorf("%s %s was accepted, but the document does not allow it: %v", r.Method,
				r.URL, err)
		}
	}
	if err := c.document.checkResponse(input, resp, got); err != nil {
		c.tb.Errorf("%s %s is answered as the document does not allow: %v", r.Method, r.URL, err)
	}
}

// isRefusal reports whether a status may answer a request for a route that does not exist. 401 is
// one, as a route is looked up after the token was checked.
func isRefusal(status int) bool {
	return status == http.StatusNotFound || status == http.StatusMethodNotAllowed ||
		status == http.StatusUnauthorized
}

// checkRequest validates a JSON body by its schema and leaves everything else to kin-openapi.
// Defaults are not filled in: the server has to do that, and the test sees whether it does.
func (d *Document) checkRequest(input *openapi3filter.RequestValidationInput, sent []byte) error {
	contentType := input.Request.Header.Get("Content-Type")
	body := input.Route.Operation.RequestBody
	isJSON := body != nil && len(sent) > 0 && isJSON(contentType)
	input.Options = &openapi3filter.Options{
		AuthenticationFunc:  openapi3filter.NoopAuthenticationFunc,
		SkipSettingDefaults: true,
		ExcludeRequestBody:  isJSON,
	}
	if err := openapi3filter.ValidateRequest(context.Background(), input); err != nil || !isJSON {
		return err
	}
	return d.bodyValidator.validate(schemaLocation(input.Route, body.Ref, "requestBody"),
		body.Value.Content, contentType, sent)
}

// checkResponse validates the body by its schema and leaves everything else to kin-openapi. A
// status that the document does not have is an error, since a generated client would not know what
// to do with it.
func (d *Document) checkResponse(input *openapi3filter.RequestValidationInput, resp *http.Response,
	got []byte) error {
	documented := input.Route.Operation.Responses.Status(resp.StatusCode) // of HEAD as well
	if documented == nil {
		return fmt.Errorf("the document has no status %d", resp.StatusCode)
	}
	answer := &openapi3filter.ResponseValidationInput{
		RequestValidationInput: input,
		Status:                 resp.StatusCode,
		Header:                 resp.Header,
		Options: &openapi3filter.Options{
			IncludeResponseStatus: true,
			ExcludeResponseBody:   true,
		},
	}
	err := openapi3filter.ValidateResponse(context.Background(), answer.SetBodyBytes(got))
	if err != nil || input.Request.Method == http.MethodHead {
		return err
	}
	status := fmt.Sprintf("responses/%d", resp.StatusCode)
	contentType := resp.Header.Get("Content-Type")
	return d.bodyValidator.validate(schemaLocation(input.Route, documented.Ref, status),
		documented.Value.Content, contentType, got)
}

// schemaLocation is the JSON pointer of a part of an operation: ref if that is set, else within the
// operation. The compiler takes it as the part of a URL behind the document's name.
func schemaLocation(route *routers.Route, ref, part string) string {
	if ref != "" {
		return ref
	}
	return "#/paths/" + escapePointer(route.Path) + "/" + strings.ToLower(route.Method) + "/" + part
}

// findPath returns the path of the document that a request is for, with the parameters in it. A
// path without parameters is preferred, because a brace is sorted behind letters. nil means that
// the document has no such path.
func findPath(doc *openapi3.T, u *url.URL) (string, *openapi3.PathItem, map[string]string) {
	segments := strings.Split(u.EscapedPath(), "/")
	paths := doc.Paths.Map()
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		if params, ok := matchPath(strings.Split(path, "/"), segments); ok {
			return path, paths[path], params
		}
	}
	return "", nil, nil
}

// matchPath compares a path of the document with that of a request, segment by segment, and returns
// the values of the parameters.
func matchPath(pattern, segments []string) (params map[string]string, ok bool) {
	if len(pattern) != len(segments) {
		return nil, false
	}
	params = map[string]string{}
	for i, p := range pattern {
		name, isParam := strings.CutPrefix(p, "{")
		switch {
		case isParam && segments[i] != "":
			params[strings.TrimSuffix(name, "}")], _ = url.PathUnescape(segments[i])
		case p != segments[i]:
			return nil, false
		}
	}
	return params, true
}

// CheckValue checks a text that is one JSON value by a schema of the document. location is the
// fragment that names the schema in the document, a JSON pointer.
func (d *Document) CheckValue(location string, text []byte) error {
	schema, err := d.bodyValidator.schema(location)
	if err != nil {
		return err
	}
	return validateJSON(schema, text)
}
