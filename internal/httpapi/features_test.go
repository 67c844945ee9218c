package httpapi_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/telemetry"
	"github.com/millrace/millrace/internal/testkit"
)

// writeErrorKind writes an error as its kind, or as the text of a refusal.
func writeErrorKind(c *httpapi.Call, err error) {
	var statusErr *httpapi.StatusError
	switch {
	case errors.As(err, &statusErr):
		c.Send(statusErr.Status, httpapi.Text, []byte(statusErr.Msg))
	case job.IsKind(err, job.Timeout):
		c.Send(http.StatusGatewayTimeout, httpapi.Text, []byte(err.(*job.Error).Msg))
	default:
		c.Send(http.StatusInternalServerError, httpapi.Text, []byte(job.KindOf(err).String()))
	}
}

// serveRoute serves one request by a table of one route, POST /made/{a}.
func serveRoute(t *testing.T, router *httpapi.Router, handle httpapi.Handler,
	req *http.Request) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	mountRoute(router, handle).ServeHTTP(w, req)
	return w
}

// mountRoute returns the handler of a table of one route, POST /made/{a}.
func mountRoute(router *httpapi.Router, handle httpapi.Handler) http.Handler {
	router.Name, router.Prefixes, router.WriteError = "made", []string{"/made/"}, writeErrorKind
	router.BodyLimit = 1 << 10
	if router.Log == nil {
		router.Log = slog.New(slog.DiscardHandler)
	}
	router.Routes = []httpapi.Route{{Method: "POST", Pattern: "/made/{a}", Action: "submit",
		Handle: handle, ReadsBody: true}}
	return router.MustMount().Handler
}

func post(path, body string) *http.Request {
	return httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
}

func TestRequestLine(t *testing.T) {
	t.Parallel()
	handle := func(c *httpapi.Call) error {
		c.AddAttrs(slog.String(telemetry.ClientID, "c1"),
			slog.String(telemetry.JobID, c.PathValue("a")))
		if c.PathValue("a") == "wrong" {
			c.AddAttrs(slog.String(telemetry.ErrorCode, "E1"))
			return &job.Error{Kind: job.Conflict, Msg: "it is so"}
		}
		c.Send(202, httpapi.Text, nil)
		return nil
	}
	for path, want := range map[string][]string{
		"/made/j1": {"level=INFO", "status=202", "client_id=c1", "job_id=j1", "action=submit",
			"request_id=r-1"},
		"/made/wrong": {"level=ERROR", "client_id=c1", "error_code=E1", `error_message="it is so"`,
			"action=submit"},
		"/made/": {"level=INFO", "status=404"},
	} {
		for _, timeout := range []time.Duration{0, time.Minute} {
			var log bytes.Buffer
			req := post(path, "")
			req.Header.Set("X-Request-Id", "r-1")
			serveRoute(t, &httpapi.Router{Info: true, Timeout: timeout,
				Log: slog.New(slog.NewTextHandler(&log, nil))}, handle, req)
			for _, w := range want {
				if strings.Count(log.String(), w) != 1 || strings.Count(log.String(), "\n") != 1 {
					t.Errorf("FR-215 FR-216 FR-217 FR-218 FR-220 %s: %q is not there once: %s",
						path, w, log.String())
				}
			}
		}
	}
	var log bytes.Buffer
	serveRoute(t, &httpapi.Router{Log: slog.New(slog.NewTextHandler(&log, nil))}, handle,
		post("/made/j1", ""))
	if log.Len() != 0 {
		t.Errorf("a table that does not ask for it logs: %s", log.String())
	}
}

// TestTimeout: a request is answered in time whatever its handler waits for.
func TestTimeout(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	ended := make(chan struct{})
	stuck := func(c *httpapi.Call) error { // as if the store hung, whatever the context says
		defer close(ended)
		<-release
		c.AddAttrs(slog.String("late", "note"))
		c.Send(200, httpapi.Text, []byte("too late"))
		return nil
	}
	server := httptest.NewServer(mountRoute(&httpapi.Router{Timeout: 10 * time.Millisecond}, stuck))
	defer server.Close()
	res, err := http.Post(server.URL+"/made/a", "text/plain", strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	if res.StatusCode != 504 || string(body) != "the request took longer than 10ms" ||
		res.Header.Get("X-Request-Id") == "" || !res.Close {
		t.Errorf("FR-203 got %d %s %v", res.StatusCode, body, res.Header)
	}
	close(release)
	<-ended
	listening := func(c *httpapi.Call) error {
		<-c.Context().Done()
		return &job.Error{Kind: job.Aborted, Err: c.Context().Err()}
	}
	if w := serveRoute(t, &httpapi.Router{Timeout: 10 * time.Millisecond}, listening,
		post("/made/a", "")); w.Code != 504 {
		t.Errorf("FR-203 got %d %s", w.Code, w.Body)
	}
	definite := func(c *httpapi.Call) error {
		<-c.Context().Done()
		return &httpapi.StatusError{Status: 409, Msg: "known all the same"}
	}
	if w := serveRoute(t, &httpapi.Router{Timeout: 10 * time.Millisecond}, definite,
		post("/made/a", "")); w.Code != 409 && w.Code != 504 {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
}

// TestWithinTimeout: an answer that is held back is the one that a handler gave.
func TestWithinTimeout(t *testing.T) {
	t.Parallel()
	serve := func(handle httpapi.Handler) *httptest.ResponseRecorder {
		return serveRoute(t, &httpapi.Router{Timeout: time.Minute}, handle, post("/made/a", "body"))
	}
	w := serve(func(c *httpapi.Call) error {
		body, err := c.Body()
		c.Header().Set("Location", "/x")
		c.Send(202, httpapi.JSON, append(body, c.PathValue("a")...))
		return err
	})
	if w.Code != 202 || w.Body.String() != "bodya" || w.Header().Get("Location") != "/x" ||
		w.Header().Get("Content-Type") != "application/json" {
		t.Errorf("got %d %s %v", w.Code, w.Body, w.Header())
	}
	w = serve(func(c *httpapi.Call) error { _, err := io.WriteString(c, "plain"); return err })
	if w.Code != 200 || w.Body.String() != "plain" {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
	if w = serve(func(*httpapi.Call) error { return nil }); w.Code != 200 || w.Body.Len() != 0 {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
	w = serve(func(c *httpapi.Call) error {
		c.Send(200, httpapi.Text, []byte("half"))
		panic("the secret cause")
	})
	if w.Code != 500 || w.Body.String() != "internal" {
		t.Errorf("a panic: got %d %s", w.Code, w.Body)
	}
	w = serve(func(c *httpapi.Call) error {
		c.Send(200, httpapi.Text, []byte("half"))
		return &job.Error{Kind: job.Full}
	})
	if w.Code != 500 || w.Body.String() != "full" {
		t.Errorf("an error after an answer: got %d %s", w.Code, w.Body)
	}
	func() {
		defer func() {
			if p := recover(); p != http.ErrAbortHandler {
				t.Errorf("got %v", p)
			}
		}()
		serve(func(*httpapi.Call) error { panic(http.ErrAbortHandler) })
	}()
}

func TestAccept(t *testing.T) {
	t.Parallel()
	for accept, want := range map[string]bool{
		"": true, "application/json": true, "*/*": true, "application/*": true,
		"text/html, application/json;q=0.5": true,
		"text/html, */*;q=0.1":              true, "APPLICATION/JSON": true,
		"application/json; charset=utf-8": true, "*/*;q=x": true,
		"text/html": false, "application/xml": false, "application/json;q=0": false,
		"application/json;q=0, */*": false,
		"*/*;q=0":                   false, "application/problem+json": false, ";;;": false,
		"application/json;q=0.000": false,
		"text/*, application/xml":  false, "application/*;q=0, application/json": true,
	} {
		c := &httpapi.Call{Request: post("/", "")}
		if accept != "" {
			c.Request.Header.Set("Accept", accept)
		}
		if got := c.AcceptsJSON(); got != want {
			t.Errorf("FR-010 %q: got %v", accept, got)
		}
	}
	two := &httpapi.Call{Request: post("/", "")}
	two.Request.Header["Accept"] = []string{"text/html", "application/json"}
	if !two.AcceptsJSON() {
		t.Error("the second line of Accept is not read")
	}
}

func TestContentType(t *testing.T) {
	t.Parallel()
	for kind, want := range map[string]bool{"application/json": true,
		"application/json; charset=utf-8": true, "Application/JSON": true,
		"": false, "application/problem+json": false, "text/json": false,
		"application/jsonx": false, "application/json;": true,
		"application/json; charset": false} {
		c := &httpapi.Call{Request: post("/", "")}
		if kind != "" {
			c.Request.Header.Set("Content-Type", kind)
		}
		if got := c.HasPlainJSONContentType(); got != want {
			t.Errorf("FR-008 %q: got %v", kind, got)
		}
	}
}

// A body in another form than its own is none that says it is JSON.
func TestEncoded(t *testing.T) {
	t.Parallel()
	for encoding, want := range map[string]bool{"": false, "identity": false, "Identity": false,
		"gzip": true, "identity, gzip": true, "br": true} {
		c := &httpapi.Call{Request: post("/", "")}
		c.Request.Header.Set("Content-Type", "application/json")
		c.Request.Header.Set("Content-Encoding", encoding)
		if got := httpapi.HasContentEncoding(c.Request.Header); got != want ||
			c.HasJSONContentType() == want {
			t.Errorf("%q: encoded %v, JSON %v", encoding, got, c.HasJSONContentType())
		}
	}
	if httpapi.HasContentEncoding(http.Header{}) ||
		!httpapi.HasContentEncoding(http.Header{"Content-Encoding": {"identity", "gzip"}}) {
		t.Error("no line, or a second one, is read wrongly")
	}
}

// TestSpans: a request is one span, named by its action, and goes on where the caller's trace is.
func TestSpans(t *testing.T) {
	t.Parallel()
	collector := testkit.NewCollector(t)
	tracing, err := telemetry.NewTracing(t.Context(), collector.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	const given = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	var carrier string
	handle := func(c *httpapi.Call) error {
		carrier = telemetry.Carrier(c.Context())
		c.AddAttrs(slog.String(telemetry.JobID, "j1"))
		if c.PathValue("a") == "panic" {
			panic("x")
		}
		c.Send(202, httpapi.Text, nil)
		return nil
	}
	for _, timeout := range []time.Duration{0, time.Minute} {
		req := post("/made/a", "")
		req.Header.Set("traceparent", given)
		serveRoute(t, &httpapi.Router{Tracing: tracing, Timeout: timeout}, handle, req)
	}
	serveRoute(t, &httpapi.Router{Tracing: tracing}, handle, post("/made/panic", ""))
	serveRoute(t, &httpapi.Router{Tracing: tracing}, handle, post("/made/a/b", ""))
	ctx, cancel := context.WithTimeout(context.Background(), testkit.WaitTimeout)
	defer cancel()
	if err := tracing.Shutdown(ctx); err != nil {
		t.Fatal(err)
	}
	spans := collector.Spans()
	if len(spans) != 4 {
		t.Fatalf("FR-242 got %d spans", len(spans))
	}
	for i, s := range spans[:2] {
		if s.Name != "submit" || hex.EncodeToString(s.ParentSpanId) != "b7ad6b7169203331" ||
			testkit.AttributeOf(s, "job_id") != "j1" ||
			testkit.AttributeOf(s, "http.route") != "/made/{a}" ||
			!strings.Contains(testkit.AttributeOf(s, "http.response.status_code"), "202") {
			t.Errorf("%d: got %v", i, s)
		}
	}
	if s := spans[2]; s.Name != "submit" || s.Status.GetCode() != 2 ||
		carrier != "00-"+hex.EncodeToString(s.TraceId)+"-"+hex.EncodeToString(s.SpanId)+"-01" {
		t.Errorf("got %v, the handler saw %s", s, carrier)
	}
	if s := spans[3]; s.Name != "unmatched" || s.Status.GetCode() != 0 {
		t.Errorf("got %v", s)
	}

	req := post("/made/a", "")
	req.Header.Set("traceparent", given)
	serveRoute(t, &httpapi.Router{Tracing: &telemetry.Tracing{}}, handle, req)
	if carrier != given {
		t.Errorf("without a collector the caller's trace is %q", carrier)
	}
}

// A route may have a body limit of its own, and read its body as a stream.
func TestReader(t *testing.T) {
	t.Parallel()
	read := func(c *httpapi.Call) error {
		body, err := io.ReadAll(c.Reader())
		if err != nil {
			return err
		}
		c.Send(http.StatusOK, httpapi.Text, body)
		return nil
	}
	router := &httpapi.Router{Name: "t", Prefixes: []string{"/t/"}, BodyLimit: 4,
		Log: slog.New(slog.DiscardHandler),
		Routes: []httpapi.Route{{Method: http.MethodPost, Pattern: "/t/usual", Handle: read,
			ReadsBody: true},
			{Method: http.MethodPost, Pattern: "/t/large", Handle: read, ReadsBody: true,
				BodyLimit: 3 << 20}},
		WriteError: func(c *httpapi.Call, err error) {
			var r *httpapi.StatusError
			if errors.As(err, &r) {
				c.Send(r.Status, httpapi.Text, []byte(r.Msg))
				return
			}
			c.Send(http.StatusBadRequest, httpapi.Text, []byte(err.Error()))
		}}
	server := httptest.NewServer(router.MustMount().Handler)
	defer server.Close()
	for _, c := range []struct {
		path      string
		size      int
		announced bool
		want      int
	}{{"usual", 4, true, 200}, {"usual", 5, true, 413}, {"usual", 5, false, 413},
		{"large", 3 << 20, true, 200}, {"large", 3 << 20, false, 200},
		{"large", 3<<20 + 1, true, 413}, {"large", 3<<20 + 1, false, 413}} {
		body := strings.Repeat("x", c.size)
		req, _ := http.NewRequest(http.MethodPost, server.URL+"/t/"+c.path, strings.NewReader(body))
		if !c.announced {
			req.ContentLength = -1
		}
		resp, err := server.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		got, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != c.want || (c.want == 200 && string(got) != body) {
			t.Errorf("%+v: %d, %d bytes", c, resp.StatusCode, len(got))
		}
	}
}
