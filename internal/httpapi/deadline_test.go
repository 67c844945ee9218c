package httpapi_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/testkit"
)

// pipeListener accepts one connection within the process, whose deadlines follow the time of the
// test.
type pipeListener struct {
	conns  chan net.Conn
	closed context.CancelFunc
	ctx    context.Context
}

// serveOnPipe serves a handler on one connection, and returns the other end of it.
func serveOnPipe(t *testing.T, handler http.Handler) net.Conn {
	t.Helper()
	client, served := net.Pipe()
	l := &pipeListener{conns: make(chan net.Conn, 1)}
	l.ctx, l.closed = context.WithCancel(t.Context())
	l.conns <- served
	server := httpapi.NewServer(handler, slog.New(slog.DiscardHandler))
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { client.Close(); server.Close() })
	return client
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.conns:
		return conn, nil
	case <-l.ctx.Done():
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error { l.closed(); return nil }

func (l *pipeListener) Addr() net.Addr { return &net.TCPAddr{} }

// busy is how long a machine that is busy takes before it goes on with a request.
const busy = 10 * time.Second

// busyWriter is the writer of a server on such a machine: it takes long to go on after a deadline
// was set.
type busyWriter struct{ http.ResponseWriter }

func (w busyWriter) SetReadDeadline(deadline time.Time) error {
	err := http.NewResponseController(w.ResponseWriter).SetReadDeadline(deadline)
	time.Sleep(busy)
	return err
}

func (w busyWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// TestSlowErrorLeavesTheConnection: an error that takes long to answer cancels neither its own
// request, so that it is logged, nor the next one of the connection. Where the body was not read,
// the connection may be closed instead.
func TestSlowErrorLeavesTheConnection(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		timeout time.Duration
	}{{"read", 0}, {"read", time.Minute}, {"unread", 0}} {
		t.Run(fmt.Sprint(c.name, c.timeout), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var log testkit.LogBuffer
				router := failingRouter(&log)
				router.Timeout = c.timeout
				handler := router.MustMount().Handler
				conn := serveOnPipe(t, http.HandlerFunc(func(w http.ResponseWriter,
					r *http.Request) {
					handler.ServeHTTP(busyWriter{w}, r)
				}))
				from := bufio.NewReader(conn)
				if status := exchange(t, conn, from, c.name); status != 500 {
					t.Errorf("the error is answered with %d", status)
				}
				time.Sleep(3 * busy) // a byte of the next request would end what waits for it
				status := exchange(t, conn, from, "next")
				if status != 200 && (status != 0 || c.name == "read") {
					t.Errorf("the next request is answered with %d", status)
				}
				if !strings.Contains(log.String(), "level=ERROR") {
					t.Errorf("the error is not logged: %s", log.String())
				}
			})
		})
	}
}

// failingRouter is the router of three requests: two fail, after their body was read and before,
// and the next one succeeds, unless it is canceled.
func failingRouter(log io.Writer) *httpapi.Router {
	handle := func(c *httpapi.Call) error {
		switch c.PathValue("a") {
		case "next":
			if err := c.Context().Err(); err != nil {
				return &job.Error{Kind: job.Aborted, Err: err}
			}
			c.Send(200, httpapi.Text, nil)
			return nil
		case "read":
			if _, err := c.Body(); err != nil {
				return err
			}
		}
		return &job.Error{Kind: job.Internal}
	}
	return &httpapi.Router{Name: "made", Prefixes: []string{"/made/"}, BodyLimit: 100,
		Log: slog.New(slog.NewTextHandler(log, nil)), WriteError: writeErrorKind,
		Routes: []httpapi.Route{{Method: "POST", Pattern: "/made/{a}", Action: "submit",
			Handle: handle, ReadsBody: true}}}
}

// exchange sends a request, and returns the status of its answer, 0 where there is none.
func exchange(t *testing.T, conn net.Conn, from *bufio.Reader, name string) int {
	t.Helper()
	_, err := fmt.Fprintf(conn, "POST /made/%s HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n"+
		"hello", name)
	if err != nil {
		return 0
	}
	resp, err := http.ReadResponse(from, nil)
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	if _, err := io.ReadAll(resp.Body); err != nil {
		t.Errorf("the answer to %s ends early: %v", name, err)
	}
	return resp.StatusCode
}
