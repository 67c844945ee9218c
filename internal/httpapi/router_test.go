package httpapi_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/setting"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const testBodyLimit = 4 << 20

// newTestRouter is a mount whose errors are recognisable as its own.
func newTestRouter(log *slog.Logger, token string) *httpapi.Router {
	echo := func(c *httpapi.Call) error {
		body, err := c.Body()
		if err != nil {
			return err
		}
		c.Send(200, httpapi.Text, body)
		return nil
	}
	member := func(c *httpapi.Call) error {
		c.Send(200, httpapi.Text, []byte(c.Route.Pattern+" "+c.PathValue("a")))
		return nil
	}
	return &httpapi.Router{
		Name: "made", Prefixes: []string{"/made/"}, BodyLimit: testBodyLimit, Log: log,
		Token: setting.NewSecret(token),
		Routes: []httpapi.Route{
			{Method: "POST", Pattern: "/made/echo", Handle: echo, ReadsBody: true},
			{Method: "GET", Pattern: "/made/{a}", Handle: member, NoStore: true},
			{Method: "GET", Pattern: "/made/{a}/x/{b}", Handle: member},
			{Method: "PUT", Pattern: "/made/{a}/x/{b}", Handle: member},
			{Method: "GET", Pattern: "/made/fixed/x/y", Handle: func(c *httpapi.Call) error {
				c.WriteHeader(204)
				return nil
			}},
			{Method: "GET", Pattern: "/made/panic", Handle: func(*httpapi.Call) error {
				panic("the secret cause")
			}},
			{Method: "GET", Pattern: "/made/late-panic", Handle: func(c *httpapi.Call) error {
				c.Send(200, httpapi.Text, nil)
				panic("late")
			}},
			{Method: "GET", Pattern: "/made/half", Handle: func(c *httpapi.Call) error {
				_, _ = c.Write([]byte("half"))
				return errors.New("and then it broke")
			}},
			{Method: "GET", Pattern: "/made/full", Handle: func(*httpapi.Call) error {
				return &job.Error{Kind: job.Full}
			}},
			{Method: "GET", Pattern: "/made/large", Handle: func(c *httpapi.Call) error {
				c.Send(200, httpapi.Text, bytes.Repeat([]byte("0123456789abcdef"), 1<<18))
				return nil
			}},
			{Method: "GET", Pattern: "/made/query", Handle: func(c *httpapi.Call) error {
				v, given, err := c.Query("q")
				if err != nil {
					return err
				}
				c.Send(200, httpapi.Text, []byte(fmt.Sprint(v, given)))
				return nil
			}},
		},
		WriteError: func(c *httpapi.Call, err error) {
			status := map[job.Kind]int{job.Malformed: 400, job.Full: 429}[job.KindOf(err)]
			if status == 0 {
				status = 500
			}
			msg := "made: failed"
			var statusErr *httpapi.StatusError
			if errors.As(err, &statusErr) {
				status, msg = statusErr.Status, "made: "+statusErr.Msg
			}
			c.Send(status, httpapi.Text, []byte(msg))
		},
	}
}

// logBuffer is a log that is written and read at once.
type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *logBuffer) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(p)
}

// drain returns what was logged since the last time.
func (j *logBuffer) drain() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	defer j.text.Reset()
	return j.text.String()
}

type server struct {
	*httptest.Server
	log *logBuffer
}

func newServer(t *testing.T, token string, level slog.Level) *server {
	t.Helper()
	s := &server{log: &logBuffer{}}
	log := slog.New(slog.NewJSONHandler(s.log, &slog.HandlerOptions{Level: level}))
	router := newTestRouter(log, token)
	s.Server = httptest.NewUnstartedServer(nil)
	s.Config = httpapi.NewServer(httpapi.NewMux(router.MustMount(), httpapi.Health()), log)
	s.Start()
	t.Cleanup(func() { s.Client().CloseIdleConnections(); s.Close() })
	return s
}

func (s *server) do(t *testing.T, method, path string, body io.Reader,
	header ...string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequest(method, s.URL+path, body)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Add(header[i], header[i+1])
	}
	resp, err := s.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(got)
}

func TestRouting(t *testing.T) {
	t.Parallel()
	s := newServer(t, "", slog.LevelInfo)
	for _, c := range []struct {
		method, path string
		status       int
		body         string
	}{
		{"GET", "/made/a%2Fb", 200, "/made/{a} a/b"},
		{"GET", "/made/%252F", 200, "/made/{a} %2F"},
		{"GET", "/made/+", 200, "/made/{a} +"},
		{"GET", "/made/%2e%2e", 200, "/made/{a} .."},
		{"GET", "/made/1/x/2", 200, "/made/{a}/x/{b} 1"},
		{"GET", "/made/fixed/x/y", 204, ""},
		{"GET", "/made/fixed/x/z", 200, "/made/{a}/x/{b} fixed"},
		{"GET", "/made/fixedx/x/y", 200, "/made/{a}/x/{b} fixedx"},
		{"PUT", "/made/fixed/x/y", 200, "/made/{a}/x/{b} fixed"},
		{"GET", "/made/", 404, "made: there is nothing at this path"},
		{"GET", "/made//x/2", 404, "made: there is nothing at this path"},
		{"PUT", "/made/1/x/", 404, "made: there is nothing at this path"},
		{"DELETE", "/made//x/2", 404, "made: there is nothing at this path"},
		{"GET", "/made/%00", 404, "made: there is nothing at this path"},
		{"GET", "/made/%ff", 404, "made: there is nothing at this path"},
		{"GET", "/made/1/x/2/3", 404, "made: there is nothing at this path"},
		{"DELETE", "/made/1/x/2", 405, "made: this path takes GET, PUT"},
		{"HEAD", "/made/1/x/2", 405, ""},
		{"PROPFIND", "/made/1/x/2", 405, "made: this path takes GET, PUT"},
		{"GET", "/made", 404, "there is nothing at this path\n"},
		{"GET", "/", 404, "there is nothing at this path\n"},
		{"GET", "/%6Dade/1", 404, "there is nothing at this path\n"},
	} {
		resp, body := s.do(t, c.method, c.path, nil)
		if resp.StatusCode != c.status || body != c.body {
			t.Errorf("%s %s: got %d %q, want %d %q", c.method, c.path, resp.StatusCode, body,
				c.status, c.body)
		}
	}
	resp, _ := s.do(t, "GET", "/made/1", nil)
	if resp.Header.Get("Cache-Control") != "no-store" {
		t.Error("NoStore is not kept")
	}
}

func TestPanicsAndErrors(t *testing.T) {
	t.Parallel()
	s := newServer(t, "", slog.LevelInfo)
	resp, body := s.do(t, "GET", "/made/panic", nil)
	if resp.StatusCode != 500 || body != "made: failed" {
		t.Errorf("got %d %s", resp.StatusCode, body)
	}
	if log := s.log.drain(); strings.Count(log, "the secret cause") != 1 ||
		!strings.Contains(log, "router_test.go") {
		t.Errorf("the log has %s", log)
	}
	for _, path := range []string{"/made/half", "/made/late-panic"} {
		if resp, err := s.Client().Get(s.URL + path); err == nil {
			_, err = io.ReadAll(resp.Body)
			resp.Body.Close()
			if err == nil {
				t.Errorf("%s: half an answer looks whole", path)
			}
		}
	}
	s.log.drain()
	s.do(t, "GET", "/made/full", nil)
	s.do(t, "GET", "/made/", nil)
	s.do(t, "GET", "/made/1", nil)
	if log := s.log.drain(); log != "" {
		t.Errorf("the log has %s", log)
	}
}

func TestDebugLine(t *testing.T) {
	t.Parallel()
	s := newServer(t, "", slog.LevelDebug)
	s.do(t, "GET", "/made/1", nil, "X-Request-Id", "mine")
	s.do(t, "GET", "/made/1", nil, "X-Request-Id", "not\tplain")
	s.do(t, "GET", "/made/", nil)
	log := s.log.drain()
	lines := strings.Split(strings.TrimSpace(log), "\n")
	if len(lines) != 3 || !strings.Contains(lines[0], `"request_id":"mine"`) ||
		strings.Contains(lines[1], "plain") ||
		!strings.Contains(lines[0], `"route":"/made/{a}"`) ||
		!strings.Contains(lines[2], `"status":404`) {
		t.Errorf("the log has %s", log)
	}
	resp, _ := s.do(t, "GET", "/made/", nil, "X-Request-Id", "mine")
	if resp.Header.Get("X-Request-Id") != "mine" {
		t.Error("the answer does not name the request")
	}
}

func TestBearer(t *testing.T) {
	t.Parallel()
	s := newServer(t, "secret", slog.LevelInfo)
	for header, status := range map[string]int{"": 401, "Bearer secret": 200, "bearer  secret": 200,
		"Bearer secre": 401, "Bearer secretx": 401,
		"Basic secret": 401, "secret": 401, "Bearer": 401} {
		args := []string{"Authorization", header}
		if header == "" {
			args = nil
		}
		resp, body := s.do(t, "GET", "/made/1", nil, args...)
		if resp.StatusCode != status || (status == 401 &&
			(body != "made: a valid bearer token is needed" ||
				resp.Header.Get("WWW-Authenticate") == "")) {
			t.Errorf("%q: got %d %s", header, resp.StatusCode, body)
		}
	}
	if resp, _ := s.do(t, "GET", "/made/1", nil, "Authorization", "Bearer secret", "Authorization",
		"Bearer secret"); resp.StatusCode != 401 {
		t.Errorf("two tokens: got %d", resp.StatusCode)
	}
}

func TestBodies(t *testing.T) {
	t.Parallel()
	s := newServer(t, "", slog.LevelInfo)
	for _, size := range []int{0, 1, 4095, 4096, 4097, 1 << 20, 1<<20 + 1, testBodyLimit} {
		body := strings.Repeat("x", size)
		for name, r := range map[string]io.Reader{"announced": strings.NewReader(body),
			"chunked": io.MultiReader(strings.NewReader(body))} {
			if resp, got := s.do(t, "POST", "/made/echo", r); resp.StatusCode != 200 ||
				got != body {
				t.Errorf("%s %d: got %d with %d bytes", name, size, resp.StatusCode, len(got))
			}
			if resp, _ := s.do(t, "PUT", "/made/1/x/2",
				io.MultiReader(strings.NewReader(body))); resp.StatusCode != 200 {
				t.Errorf("%s %d unwanted: got %d", name, size, resp.StatusCode)
			}
		}
	}
	over := strings.Repeat("x", testBodyLimit+1)
	for _, path := range []string{"POST /made/echo", "PUT /made/1/x/2"} {
		method, path, _ := strings.Cut(path, " ")
		for name, r := range map[string]io.Reader{"announced": strings.NewReader(over),
			"chunked": io.MultiReader(strings.NewReader(over))} {
			if resp, got := s.do(t, method, path, r); resp.StatusCode != 413 ||
				!strings.HasPrefix(got, "made: ") {
				t.Errorf("%s %s: got %d %s", name, path, resp.StatusCode, got)
			}
		}
	}
	if resp, got := s.do(t, "GET", "/made/large", nil); resp.StatusCode != 200 ||
		len(got) != 4<<20 {
		t.Errorf("got %d with %d bytes", resp.StatusCode, len(got))
	}
}

// TestAnnouncedBody: an announced body that is too large is refused before a byte of it has come,
// and one that never comes ends as malformed.
func TestAnnouncedBody(t *testing.T) {
	t.Parallel()
	s := newServer(t, "", slog.LevelInfo)
	for _, c := range []struct {
		length, sent string
		status       int
	}{{fmt.Sprint(testBodyLimit + 1), "", 413}, {"100", "short", 400}} {
		conn, err := net.Dial("tcp", s.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(conn, "POST /made/echo HTTP/1.1\r\nHost: x\r\nContent-Length: %s\r\n\r\n%s",
			c.length, c.sent)
		if c.sent != "" {
			_ = conn.(*net.TCPConn).CloseWrite()
		}
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode != c.status {
			t.Errorf("Content-Length %s: got %d", c.length, resp.StatusCode)
		}
		resp.Body.Close()
		conn.Close()
	}
}

func TestQuery(t *testing.T) {
	t.Parallel()
	s := newServer(t, "", slog.LevelInfo)
	for query, want := range map[string]string{"": "false", "q=": "true", "q": "true",
		"q=1": "1true", "x=2&q=a+b%2B&y": "a b+true",
		"%71=1": "1true", "qq=1": "false", "Q=1": "false", "%zz=1&q=2": "2true"} {
		if resp, got := s.do(t, "GET", "/made/query?"+query, nil); resp.StatusCode != 200 ||
			got != want {
			t.Errorf("%s: got %d %s, want %s", query, resp.StatusCode, got, want)
		}
	}
	for _, query := range []string{"q=1&q=1", "q=%", "q=%zz"} {
		if resp, got := s.do(t, "GET", "/made/query?"+query, nil); resp.StatusCode != 400 {
			t.Errorf("%s: got %d %s", query, resp.StatusCode, got)
		}
	}
}

func TestMountsAreChecked(t *testing.T) {
	t.Parallel()
	log := slog.New(slog.DiscardHandler)
	handle := func(*httpapi.Call) error { return nil }
	for name, invalidate := range map[string]func(*httpapi.Router){
		"no name":    func(t *httpapi.Router) { t.Name = "" },
		"no limit":   func(t *httpapi.Router) { t.BodyLimit = 0 },
		"no answer":  func(t *httpapi.Router) { t.WriteError = nil },
		"no handler": func(t *httpapi.Router) { t.Routes[0].Handle = nil },
		"twice":      func(t *httpapi.Router) { t.Routes = append(t.Routes, t.Routes[0]) },
		"outside":    func(t *httpapi.Router) { t.Routes[0].Pattern = "/other" },
		"many members": func(t *httpapi.Router) {
			t.Routes[0].Pattern = "/made/{a}/{b}/{c}/{d}/{e}"
		},
		"nothing spoilt": func(*httpapi.Router) {},
	} {
		router := newTestRouter(log, "")
		router.Routes = append(router.Routes,
			httpapi.Route{Method: "GET", Pattern: "/made/more", Handle: handle})
		invalidate(router)
		if _, err := router.Mount(); (err == nil) != (name == "nothing spoilt") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestRoot(t *testing.T) {
	t.Parallel()
	says := func(text string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, text)
		})
	}
	root := httpapi.NewMux(httpapi.PrefixHandler{Prefixes: []string{"/v1/", "/jobs"},
		Handler: says("short")},
		httpapi.PrefixHandler{Prefixes: []string{"/v1/queues/"}, Handler: says("long")})
	for path, want := range map[string]string{"/v1/": "short", "/v1/x": "short",
		"/v1/queues/x": "long", "/v1/queues": "short", "/jobs": "short",
		"/jobs/1": "short", "/jobsite": "", "/v1": "", "/v1%2Fx": "", "/": ""} {
		w := httptest.NewRecorder()
		root.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		if (want == "" && w.Code != 404) || (want != "" && w.Body.String() != want) {
			t.Errorf("%s: got %d %s, want %s", path, w.Code, w.Body, want)
		}
	}
}

func TestHealth(t *testing.T) {
	t.Parallel()
	down := errors.New("down")
	unavailable := &job.Error{Kind: job.Unavailable, Msg: "it is unavailable",
		Err: errors.New("a cause for the log alone")}
	lasting := &job.Error{Kind: job.ReadOnly, Msg: "somebody must act"}
	var store, objects error
	m := httpapi.Health(httpapi.Check{Name: "store", Run: func(context.Context) error {
		return store
	}},
		httpapi.Check{Name: "objects", Run: func(context.Context) error {
			return objects
		}, Optional: true})
	for _, c := range []struct {
		method, path   string
		store, objects error
		status         int
		body           string
	}{
		{"GET", "/health", down, nil, 200, ""}, {"GET", "/health/live", down, down, 200, ""},
		{"HEAD", "/health", nil, nil, 200, ""},
		{"GET", "/health/ready", nil, nil, 200, "store ok\nobjects ok\n"},
		{"GET", "/health/ready", down, nil, 503, "store fails\nobjects ok\n"},
		{"GET", "/health/ready", nil, down, 200, "store ok\nobjects fails\n"},
		{"GET", "/health/ready", down, down, 503, "store fails\nobjects fails\n"},
		{"GET", "/health/ready", unavailable, unavailable, 503,
			"store fails: it is unavailable\nobjects fails: it is unavailable\n"},
		{"GET", "/health/ready", nil, unavailable, 200, "store ok\nobjects fails: it is unavailable\n"},
		{"GET", "/health/ready", nil, lasting, 503, "store ok\nobjects fails: somebody must act\n"},
		{"POST", "/health", nil, nil, 405, "this path takes GET, HEAD\n"},
		{"GET", "/health/x", nil, nil, 404, "there is nothing at this path\n"},
	} {
		store, objects = c.store, c.objects
		w := httptest.NewRecorder()
		httpapi.NewMux(m).ServeHTTP(w, httptest.NewRequest(c.method, c.path, nil))
		if w.Code != c.status || w.Body.String() != c.body {
			t.Errorf("%s %s: got %d %q, want %d %q", c.method, c.path, w.Code, w.Body, c.status,
				c.body)
		}
	}
}

// A part that does not answer at all takes nothing from the others: it alone is named.
func TestHealthOfPartsThatHang(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hangs := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		answers := func(ctx context.Context) error { return ctx.Err() }
		w := httptest.NewRecorder()
		httpapi.NewMux(httpapi.Health(httpapi.Check{Name: "a", Run: hangs},
			httpapi.Check{Name: "b", Run: answers}, httpapi.Check{Name: "c", Run: hangs},
			httpapi.Check{Name: "d", Run: answers})).ServeHTTP(w,
			httptest.NewRequest("GET", "/health/ready", nil))
		if w.Code != 503 || w.Body.String() != "a fails\nb ok\nc fails\nd ok\n" {
			t.Errorf("got %d %q", w.Code, w.Body)
		}
	})
}

func TestServerLimits(t *testing.T) {
	t.Parallel()
	s := httpapi.NewServer(http.NotFoundHandler(), slog.New(slog.DiscardHandler))
	if s.ReadHeaderTimeout != 5*time.Second || s.ReadTimeout != time.Minute ||
		s.IdleTimeout != time.Minute || s.MaxHeaderBytes != 32<<10 ||
		s.WriteTimeout <= 30*time.Second {
		t.Errorf("got %+v", s)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if limited := httpapi.LimitConnections(s, l, 1); limited.Addr().String() != l.Addr().String() ||
		limited.Close() != nil {
		t.Error("Limit changes the listener")
	}
}
