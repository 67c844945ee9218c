package simulate

import (
	"context"
	"net"
	"testing"
	"time"
)

// A server that is back before anybody asks was unavailable nevertheless.
func TestAShortOutageIsNoticed(t *testing.T) {
	t.Parallel()
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	o := &outageLog{now: time.Now}
	ctx, stop := context.WithCancel(t.Context())
	over := make(chan struct{})
	go func() { defer close(over); o.probe(ctx, server.Addr().String()) }()
	for want := range 3 {
		conn, err := server.Accept()
		if err != nil {
			t.Fatal(err)
		}
		// the others are merged with the first
		if visited, _, _ := o.counts(); len(visited) != min(want, 1) {
			t.Errorf("%d outages noticed after %d", len(visited), want)
		}
		conn.Close()
	}
	stop()
	<-over
}
