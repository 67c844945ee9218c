package egress

import (
	"bytes"
	"errors"
	"net"
	"net/netip"
	"net/url"
	"testing"
)

// scriptedConn is a connection to a proxy that answers with what is given.
type scriptedConn struct {
	net.Conn
	answers *bytes.Reader
}

func (c scriptedConn) Read(p []byte) (int, error)  { return c.answers.Read(p) }
func (c scriptedConn) Write(p []byte) (int, error) { return len(p), nil }

// FuzzSOCKS: whatever a proxy answers, a connection counts as made only if it has said so, the
// target gets the blame only where it says that, and no more is read than belongs to the answer.
func FuzzSOCKS(f *testing.F) {
	f.Add([]byte{5, 0, 5, 0, 0, 1, 1, 2, 3, 4, 0, 80}, false)
	f.Add([]byte{5, 2, 1, 0, 5, 0, 0, 3, 1, 'a', 0, 80, 'x'}, true)
	f.Add([]byte{5, 0, 5, 5, 0, 1, 0}, false)
	f.Add([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"), false)
	f.Fuzz(func(t *testing.T, answers []byte, withUser bool) {
		var user *url.Userinfo
		head := 2 // the bytes before the answer to the request
		if withUser {
			user, head = url.UserPassword("u", "p"), 4
		}
		conn := scriptedConn{answers: bytes.NewReader(answers)}
		err := socksHandshake(conn, user, netip.MustParseAddrPort("1.2.3.4:80"))
		said := byte(255)
		if len(answers) > head+1 && answers[head] == socksVersion {
			said = answers[head+1]
		}
		var target *targetError
		switch read := len(answers) - conn.answers.Len(); {
		case err == nil && said != 0:
			t.Fatalf("%v counts as a connection", answers)
		case errors.As(err, &target) && targetReplies[said] == "":
			t.Fatalf("%v is %v", answers, err)
		case read > head+4+1+255+2:
			t.Fatalf("%d bytes of %v were read", read, answers)
		}
	})
}
