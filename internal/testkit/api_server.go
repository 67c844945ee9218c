package testkit

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/millrace/millrace/internal/httpapi"
)

// APIServer is a real server of a contract, and a client for it. It listens on 127.0.0.1 with the
// limits and timeouts of a real node, so a test meets what a client meets.
type APIServer struct {
	URL       string
	Client    *http.Client // checks every exchange by the document
	ReadError ErrorReader
}

// ErrorReader reads the answer of an error. It fails the test if the answer does not have the form
// of the contract's errors. In a form without codes the code is "".
type ErrorReader func(tb testing.TB, r Reply) (code, text string)

// StartServer serves handlers until the test ends. The exchanges are checked by the document, and
// log gets what the server logs.
func StartServer(tb testing.TB, log *slog.Logger, document *Document, readError ErrorReader,
	mounts ...httpapi.PrefixHandler) *APIServer {
	tb.Helper()
	server := httptest.NewUnstartedServer(nil)
	server.Config = httpapi.NewServer(httpapi.NewMux(mounts...), log)
	server.Start()
	tb.Cleanup(server.Close)
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	tb.Cleanup(transport.CloseIdleConnections)
	return &APIServer{URL: server.URL, ReadError: readError, Client: &http.Client{
		Transport:     document.Check(tb, transport),
		CheckRedirect: leaveRedirect,
	}}
}

// leaveRedirect returns an answer that redirects as it is: a test wants to see it.
func leaveRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// Do sends a request. header are pairs of names and values; an empty value removes the header. A
// body is sent as JSON unless a header says otherwise. It waits for the whole answer and fails the
// test if there is none; an answer of any status is returned.
func (s *APIServer) Do(tb testing.TB, method, path, body string, header ...string) Reply {
	tb.Helper()
	var content io.Reader
	if body != "" {
		content = strings.NewReader(body)
	}
	req, err := http.NewRequest(method, s.URL+path, content)
	if err != nil {
		tb.Fatal(err)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		if header[i+1] == "" {
			req.Header.Del(header[i])
			continue
		}
		req.Header.Set(header[i], header[i+1])
	}
	return s.Send(tb, req)
}

// Send sends a request as it is.
func (s *APIServer) Send(tb testing.TB, req *http.Request) Reply {
	tb.Helper()
	resp, err := s.Client.Do(req)
	if err != nil {
		tb.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		tb.Fatal(err)
	}
	return Reply{resp.StatusCode, resp.Header, string(body), s.ReadError}
}

// Reply is an answer, read to its end. Its methods return it, so that checks can follow each other.
type Reply struct {
	Status    int
	Header    http.Header
	Body      string
	readError ErrorReader
}

// WantStatus fails the test unless the answer has a status. The test stops: what it does with
// another answer would only confuse.
func (r Reply) WantStatus(tb testing.TB, status int) Reply {
	tb.Helper()
	if r.Status != status {
		tb.Fatalf("got %d %s, want %d", r.Status, r.Body, status)
	}
	return r
}

// WantError fails the test unless the answer is an error with a status and a code, whose text
// contains all of the words.
func (r Reply) WantError(tb testing.TB, status int, code string, words ...string) Reply {
	tb.Helper()
	r.WantStatus(tb, status)
	if got, _ := r.readError(tb, r); got != code {
		tb.Errorf("got %s, want %s", r.Body, code)
	}
	return r.WantErrorText(tb, words...)
}

// WantErrorText fails the test unless the answer is an error whose text contains all of the words.
// A text is for people, so tests look for the words that matter in it and not for the whole.
func (r Reply) WantErrorText(tb testing.TB, words ...string) Reply {
	tb.Helper()
	_, text := r.readError(tb, r)
	if strings.TrimSpace(text) == "" {
		tb.Errorf("an error without a text: %s", r.Body)
	}
	for _, word := range words {
		if !strings.Contains(text, word) {
			tb.Errorf("%q does not contain %q", text, word)
		}
	}
	return r
}

// WantEmpty fails the test unless the answer has no body.
func (r Reply) WantEmpty(tb testing.TB) Reply {
	tb.Helper()
	if r.Body != "" {
		tb.Errorf("got a body: %s", r.Body)
	}
	return r
}

// DecodeReply decodes the JSON of an answer.
func DecodeReply[T any](tb testing.TB, r Reply) (v T) {
	tb.Helper()
	if err := json.Unmarshal([]byte(r.Body), &v); err != nil {
		tb.Fatalf("%s: %v", r.Body, err)
	}
	return v
}

// Problem is a problem document.
type Problem struct {
	Type, Title, Detail, Instance, Code string
	Status                              int
}

// ProblemReader reads the errors of contracts that send problem documents, with types that begin
// with a prefix. It checks the members that are the same for all of them: the status, the type, the
// request id as instance, and the media type.
func ProblemReader(prefix string) ErrorReader {
	return func(tb testing.TB, r Reply) (code, text string) {
		tb.Helper()
		p := DecodeReply[Problem](tb, r)
		if p.Status != r.Status || p.Title == "" || p.Type != prefix+p.Code ||
			r.Header.Get("Content-Type") != "application/problem+json" {
			tb.Errorf("a problem of type %q, answered with %d: %s", r.Header.Get("Content-Type"),
				r.Status, r.Body)
		}
		if p.Instance == "" || p.Instance != r.Header.Get("X-Request-Id") {
			tb.Errorf("instance %q of request %q", p.Instance, r.Header.Get("X-Request-Id"))
		}
		return p.Code, p.Detail
	}
}

// LogBuffer is a log that may be read while it is written. It is the writer of a slog handler.
type LogBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (j *LogBuffer) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(p)
}

// String returns what has been logged until now.
func (j *LogBuffer) String() string { j.mu.Lock(); defer j.mu.Unlock(); return j.text.String() }

// Lines returns the lines of a log in JSON that have all of the members. Numbers are float64, as
// encoding/json decodes them.
func (j *LogBuffer) Lines(tb testing.TB, members map[string]any) (found []map[string]any) {
	tb.Helper()
next:
	for text := range strings.Lines(j.String()) {
		var line map[string]any
		if err := json.Unmarshal([]byte(text), &line); err != nil {
			tb.Fatalf("the log has %q: %v", text, err)
		}
		for name, want := range members {
			if line[name] != want {
				continue next
			}
		}
		found = append(found, line)
	}
	return found
}
