package testkit

import (
	"net"
	"testing"
)

// ClosedAddress returns an address that refuses connections until the test ends. Its port is that
// of the calling end of a connection: nobody listens there, and no server that asks the system for
// a free port is given it meanwhile.
func ClosedAddress(tb testing.TB) string {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { l.Close() })
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { conn.Close() })
	return conn.LocalAddr().String()
}
