package object_test

import (
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/millrace/millrace/internal/object"
	"github.com/millrace/millrace/internal/testkit/outside"
)

// policyOfTheDocs returns the actions of docs/operating.md: those on objects of a bucket, and those
// on the bucket itself.
func policyOfTheDocs(t *testing.T) (ofObjects, ofBuckets []string) {
	t.Helper()
	page, err := os.ReadFile("../../docs/operating.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "```json\n")
	block, _, _ := strings.Cut(rest, "```")
	var policy struct {
		Version   string
		Statement []struct {
			Effect, Resource string
			Action           any // a name, or several
		}
	}
	if err := json.Unmarshal([]byte(block), &policy); err != nil || policy.Version != "2012-10-17" {
		t.Fatalf("%v: %s", err, block)
	}
	for _, s := range policy.Statement {
		actions, several := s.Action.([]any)
		if !several {
			actions = []any{s.Action}
		}
		for _, action := range actions {
			switch {
			case s.Effect != "Allow":
				t.Errorf("a statement has the effect %s", s.Effect)
			case s.Resource == "arn:aws:s3:::millrace/*":
				ofObjects = append(ofObjects, action.(string))
			case s.Resource == "arn:aws:s3:::millrace":
				ofBuckets = append(ofBuckets, action.(string))
			default:
				t.Errorf("a statement is of %s", s.Resource)
			}
		}
	}
	slices.Sort(ofObjects)
	return ofObjects, ofBuckets
}

// actionOf is the right that S3 wants for a request, and whether that is of a bucket.
func actionOf(r *http.Request) (action string, ofBucket bool) {
	_, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	query := r.URL.Query()
	switch {
	case key == "" && r.Method == http.MethodPost && query.Has("delete"):
		return "s3:DeleteObject", false
	case key == "" && query.Has("list-type"):
		return "s3:ListBucket", true
	case key == "" || len(r.Header.Values("X-Amz-Copy-Source")) > 0:
		return r.Method + " " + r.URL.String(), true // nothing that the page knows
	case r.Method == http.MethodDelete && query.Has("uploadId"):
		return "s3:AbortMultipartUpload", false
	case r.Method == http.MethodDelete:
		return "s3:DeleteObject", false
	case r.Method == http.MethodGet, r.Method == http.MethodHead:
		return "s3:GetObject", false
	}
	return "s3:PutObject", false // also of the parts of an upload, its beginning and its end
}

// TestPolicyOfTheDocs: the policy of docs/operating.md has the rights that the store asks S3 for,
// and no others.
func TestPolicyOfTheDocs(t *testing.T) {
	behind := outside.NewS3(t, "millrace")
	at, err := url.Parse(behind.URL)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	asked := map[bool]map[string]bool{true: {}, false: {}}
	proxy := &httputil.ReverseProxy{Rewrite: func(p *httputil.ProxyRequest) {
		p.SetURL(at)
		p.Out.Host = p.In.Host // clients sign it
	}}
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		action, ofBucket := actionOf(r)
		mu.Lock()
		asked[ofBucket][action] = true
		mu.Unlock()
		proxy.ServeHTTP(w, r)
	}))
	defer front.Close()
	w := &fixture{mustOpen(t, object.Config{Bucket: "millrace",
		URL: (&outside.S3Server{URL: front.URL}).Setting()}), behind.Root}
	large := strings.Repeat("x", 20<<20) // which is sent in parts
	w.mustPut(t, "a/small", "text")
	w.mustPut(t, "a/large", large)
	if text, _ := w.mustGet(t, "", "a/large"); len(text) != len(large) {
		t.Errorf("got %d bytes", len(text))
	}
	broken := io.MultiReader(strings.NewReader(large), iotest.ErrReader(errors.New("broken")))
	if _, err := w.Put(t.Context(), "", "a/broken", broken, object.Attributes{}); err == nil {
		t.Error("a body that breaks off is stored")
	}
	_, idErr := w.CreateID(t.Context(), "id")
	exists, existsErr := w.Exists(t.Context(), "", "a/broken")
	keys, listErr := w.List(t.Context(), "", "a/", "", 9)
	err = errors.Join(idErr, existsErr, listErr, w.Delete(t.Context(), "", "a/small"),
		w.Ping(t.Context()))
	if err != nil || exists || len(keys) != 2 {
		t.Errorf("got %t, %v, %v", exists, keys, err)
	}
	ofObjects, ofBuckets := policyOfTheDocs(t)
	mu.Lock()
	defer mu.Unlock()
	if got := slices.Sorted(maps.Keys(asked[false])); !slices.Equal(got, ofObjects) {
		t.Errorf("the store asks for %q of objects, the page has %q", got, ofObjects)
	}
	if got := slices.Sorted(maps.Keys(asked[true])); !slices.Equal(got, ofBuckets) {
		t.Errorf("the store asks for %q of buckets, the page has %q", got, ofBuckets)
	}
}
