package httpapi_test

import (
	"bufio"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"time"
)

// A refusal does not wait for a body that never comes.
func TestRefusalDoesNotWaitForTheBody(t *testing.T) {
	t.Parallel()
	s := newServer(t, "a token that is not sent", slog.LevelError)
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "POST /made/echo HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nfive.")
	_ = conn.SetReadDeadline(time.Now().Add(20 * time.Second)) // a third of what a body may take
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("got %d", resp.StatusCode)
	}
}
