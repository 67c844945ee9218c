package httpapi

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// limitedServer is a server whose listener has a limit. Requests of /wait wait for the test.
type limitedServer struct {
	address string
	started chan struct{}
	release chan struct{}
	idle    chan struct{} // has an element for each connection that became idle
}

func newLimitedServer(t *testing.T, limit int) *limitedServer {
	t.Helper()
	s := &limitedServer{started: make(chan struct{}), release: make(chan struct{}),
		idle: make(chan struct{}, 100)}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter,
		r *http.Request) {
		if r.URL.Path == "/wait" {
			s.started <- struct{}{}
			<-s.release
		}
	}))
	limited := newConnections(server.Listener, limit)
	server.Config.ConnState = func(conn net.Conn, state http.ConnState) {
		limited.noteState(conn, state)
		if state == http.StateIdle {
			s.idle <- struct{}{}
		}
	}
	server.Listener = limited
	server.Start()
	t.Cleanup(server.Close)
	s.address = server.Listener.Addr().String()
	return s
}

// request sends a request on a connection.
func request(t *testing.T, conn net.Conn, path string) {
	t.Helper()
	fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", path)
}

// answer reads an answer from a connection, which must come.
func answer(t *testing.T, conn net.Conn) {
	t.Helper()
	_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
}

func (s *limitedServer) dial(t *testing.T) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", s.address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// isClosed waits until the server has closed a connection.
func isClosed(t *testing.T, conn net.Conn) {
	t.Helper()
	_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := conn.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("a connection is not closed: %v", err)
	}
}

// TestIdleConnectionsAreClosed: connections that are only kept open do not lock others out. The one
// that has been idle for the longest is closed.
func TestIdleConnectionsAreClosed(t *testing.T) {
	t.Parallel()
	s := newLimitedServer(t, 2)
	first, second, third := s.dial(t), s.dial(t), s.dial(t)
	for _, conn := range []net.Conn{first, second} {
		request(t, conn, "/")
		answer(t, conn)
		<-s.idle
	}
	request(t, third, "/")
	answer(t, third)
	isClosed(t, first)
}

// TestBusyConnectionsStay: at the limit a connection whose request is under way is kept, and makes
// room once it is idle.
func TestBusyConnectionsStay(t *testing.T) {
	t.Parallel()
	s := newLimitedServer(t, 2)
	busy := []net.Conn{s.dial(t), s.dial(t)}
	for _, conn := range busy {
		request(t, conn, "/wait")
		<-s.started
	}
	other := s.dial(t)
	request(t, other, "/")
	for range busy {
		s.release <- struct{}{}
	}
	for _, conn := range busy {
		answer(t, conn)
	}
	answer(t, other)
}

// TestConnectionLimit: the connections leave files to the rest of the process.
func TestConnectionLimit(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ files, listeners, want int }{
		{unlimitedFiles, 1, maxConnections}, {unlimitedFiles, 6, maxConnections},
		{65536, 6, 8192}, {1024, 1, 768}, {256, 1, 128}, {256, 4, 32}, {64, 1, minConnections},
	} {
		if got := connectionLimit(c.files, c.listeners); got != c.want {
			t.Errorf("%d files, %d listeners: got %d, want %d", c.files, c.listeners, got, c.want)
		}
	}
	if n := maxOpenFiles(); n < 64 {
		t.Errorf("this process may open %d files", n)
	}
}
