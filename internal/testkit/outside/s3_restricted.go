package outside

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
)

// RestrictedS3 is an S3 server whose clients may get, put and delete objects and nothing else.
// It answers as AWS does: a client without the right to list a bucket does not learn that an
// object is missing.
//
// It is a proxy in front of an S3Server. It refuses listings, replaces the answer that an object is
// missing, and can be made unavailable as a whole while the server behind it keeps its objects.
type RestrictedS3 struct {
	URL      string
	Listings atomic.Int64 // how many listings were refused
	Missing  atomic.Int64 // how many requests were for a missing object

	unavailable      atomic.Bool
	unavailableCount atomic.Int64
}

// Restricted starts one in front of the server and ends it with the test.
func (s *S3Server) Restricted(tb testing.TB) *RestrictedS3 {
	tb.Helper()
	behind, err := url.Parse(s.URL)
	if err != nil {
		tb.Fatal(err)
	}
	r := &RestrictedS3{}
	transport := &http.Transport{}
	proxy := &httputil.ReverseProxy{
		Transport:      transport,
		ModifyResponse: r.modifyResponse,
		Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(behind)
			p.Out.Host = p.In.Host // clients sign it
		},
	}
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, in *http.Request) {
		_, key, _ := strings.Cut(strings.TrimPrefix(in.URL.Path, "/"), "/")
		switch {
		case r.unavailable.Load():
			r.unavailableCount.Add(1)
			writeS3Error(w, http.StatusServiceUnavailable, "ServiceUnavailable")
		case key == "" && in.Method != http.MethodPost:
			r.Listings.Add(1)
			writeS3Error(w, http.StatusForbidden, "AccessDenied")
		default:
			proxy.ServeHTTP(w, in)
		}
	}))
	r.URL = front.URL
	tb.Cleanup(func() { front.Close(); transport.CloseIdleConnections() })
	return r
}

// Setting is the setting objects.url for its clients.
func (r *RestrictedS3) Setting() string { return (&S3Server{URL: r.URL}).Setting() }

// SetUnavailable makes it answer all requests with 503, or stops that.
func (r *RestrictedS3) SetUnavailable(unavailable bool) { r.unavailable.Store(unavailable) }

// UnavailableCount returns how many requests were answered with 503.
func (r *RestrictedS3) UnavailableCount() int64 { return r.unavailableCount.Load() }

// writeS3Error answers with an error in the form of S3.
func writeS3Error(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, errorXML(code))
}

// errorXML is the body of an error. Clients decide by the code.
func errorXML(code string) string {
	return `<?xml version="1.0" encoding="UTF-8"?>` +
		"<Error><Code>" + code + "</Code><Message>" + code + "</Message></Error>"
}

// modifyResponse turns the answer that an object is missing into a denied access, as a store does
// for a client that may not list. A missing bucket stays one.
func (r *RestrictedS3) modifyResponse(a *http.Response) error {
	reads := a.Request.Method == http.MethodGet || a.Request.Method == http.MethodHead
	if a.StatusCode != http.StatusNotFound || !reads {
		return nil
	}
	text, err := io.ReadAll(a.Body)
	if err != nil {
		return err
	}
	a.Body.Close()
	if !bytes.Contains(text, []byte("NoSuchBucket")) {
		r.Missing.Add(1)
		a.StatusCode, a.Status = http.StatusForbidden, "403 Forbidden"
		if text = nil; a.Request.Method == http.MethodGet {
			text = []byte(errorXML("AccessDenied"))
		}
	}
	a.Header.Del("Content-Length")
	a.ContentLength, a.Body = int64(len(text)), io.NopCloser(bytes.NewReader(text))
	return nil
}
