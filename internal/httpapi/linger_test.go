package httpapi_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// testTimeout is far beyond what anything here takes.
const testTimeout = time.Minute

// dial opens a connection that nothing waits on for ever.
func (s *server) dial(t *testing.T) *net.TCPConn {
	t.Helper()
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(testTimeout))
	return conn.(*net.TCPConn)
}

// chunkedBody is a body of n chunks of 1 MiB.
func chunkedBody(n int) []byte {
	one := append(append([]byte("100000\r\n"), make([]byte, 1<<20)...), "\r\n"...)
	return append(bytes.Repeat(one, n), "0\r\n\r\n"...)
}

// A client that sends all it has before it looks for the answer reads the refusal, whether it says
// how much comes, wants the connection closed, or has a wrong token.
func TestRefusalIsReadAfterTheBody(t *testing.T) {
	t.Parallel()
	const size = 40 << 20 // far more than any buffer between the two
	whole, inChunks := make([]byte, size), chunkedBody(40)
	open, closed := newServer(t, "", slog.LevelError),
		newServer(t, "a token that is not sent", slog.LevelError)
	announced := fmt.Sprintf("HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", size)
	for _, c := range []struct {
		name, header string
		server       *server
		body         []byte
		status       int
	}{
		{"announced", "POST /made/echo " + announced, open, whole, 413},
		{"chunked", "POST /made/echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n",
			open, inChunks, 413},
		{"unwanted", "PUT /made/a/x/b " + announced, open, whole, 413},
		{"without a token", "POST /made/echo " + announced, closed, whole, 401},
		{"HTTP/1.0", strings.Replace("POST /made/echo "+announced, "1.1", "1.0", 1), closed, whole,
			401},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for range 5 {
				conn := c.server.dial(t)
				sent := net.Buffers{[]byte(c.header), c.body}
				if _, err := sent.WriteTo(conn); err != nil {
					t.Fatalf("the body could not be sent: %v", err)
				}
				resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
				if err != nil {
					t.Fatal(err)
				}
				text, err := io.ReadAll(resp.Body)
				if resp.StatusCode != c.status || err != nil ||
					!bytes.HasPrefix(text, []byte("made: ")) {
					t.Errorf("got %d %q %v", resp.StatusCode, text, err)
				}
			}
		})
	}
	t.Run("a client of Go", func(t *testing.T) {
		t.Parallel()
		for range 5 {
			for name, body := range map[string]io.Reader{"announced": bytes.NewReader(whole),
				"chunked": io.MultiReader(bytes.NewReader(whole))} {
				if resp, text := open.do(t, "POST", "/made/echo", body); resp.StatusCode != 413 {
					t.Errorf("%s: got %d %s", name, resp.StatusCode, text)
				}
			}
		}
	})
}

// A client that sends nothing more, too slowly, or without end does not keep the connection.
func TestRefusedBodyHasAnEnd(t *testing.T) {
	t.Parallel()
	s := newServer(t, "", slog.LevelError)
	refused := func(t *testing.T) *net.TCPConn {
		t.Helper()
		conn := s.dial(t)
		fmt.Fprintf(conn, "POST /made/echo HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n",
			1<<40)
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil || resp.StatusCode != 413 {
			t.Fatalf("got %v %v", resp, err)
		}
		return conn
	}
	t.Run("nothing more", func(t *testing.T) {
		t.Parallel()
		if n, err := refused(t).Read(make([]byte, 1)); n > 0 || isTimeout(err) {
			t.Errorf("got %d bytes, %v", n, err)
		}
	})
	t.Run("a byte at a time", func(t *testing.T) {
		t.Parallel()
		conn := refused(t)
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for {
			if _, err := conn.Write([]byte{0}); err != nil {
				if isTimeout(err) {
					t.Error("it is read for ever")
				}
				return
			}
			<-tick.C
		}
	})
	t.Run("without end", func(t *testing.T) {
		t.Parallel()
		conn := refused(t)
		n, err := io.Copy(conn, endlessBody{})
		if isTimeout(err) || n > 128<<20 {
			t.Errorf("%d bytes were read: %v", n, err)
		}
	})
}

type endlessBody struct{}

func (endlessBody) Read(p []byte) (int, error) { return len(p), nil }

func isTimeout(err error) bool {
	e, ok := err.(net.Error)
	return ok && e.Timeout()
}

// A refusal of a small request leaves the connection to the next.
func TestRefusalKeepsTheConnection(t *testing.T) {
	t.Parallel()
	s := newServer(t, "secret", slog.LevelError)
	conn := s.dial(t)
	from := bufio.NewReader(conn)
	for _, size := range []int{0, 10, 100 << 10} {
		for _, token := range []string{"wrong", "secret"} {
			fmt.Fprintf(conn, "POST /made/echo HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "+
				"%s\r\nContent-Length: %d\r\n\r\n%s", token, size, make([]byte, size))
			resp, err := http.ReadResponse(from, nil)
			if err != nil {
				t.Fatal(err)
			}
			n, _ := io.Copy(io.Discard, resp.Body)
			if want := map[string]int{"wrong": 401,
				"secret": 200}[token]; resp.StatusCode != want ||
				(want == 200 && n != int64(size)) {
				t.Errorf("%d bytes, %s: got %d with %d bytes", size, token, resp.StatusCode, n)
			}
		}
	}
}
