package main

import (
	"io"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/testkit/outside"
)

// blockableProxy forwards connections, or hangs up on whoever comes and counts them.
type blockableProxy struct {
	net.Listener
	target string

	mu      sync.Mutex
	closed  bool
	refused int
	conns   map[net.Conn]bool
}

func newBlockableProxy(t *testing.T, to string) *blockableProxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &blockableProxy{Listener: l, target: to, conns: map[net.Conn]bool{}}
	t.Cleanup(func() { l.Close(); p.setClosed(true) })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go p.forward(conn)
		}
	}()
	return p
}

func (p *blockableProxy) forward(conn net.Conn) {
	defer conn.Close()
	upstream, err := net.Dial("tcp", p.target)
	if err != nil {
		return
	}
	defer upstream.Close()
	if !p.track(conn, upstream) {
		return
	}
	go func() { _, _ = io.Copy(upstream, conn); upstream.Close() }()
	_, _ = io.Copy(conn, upstream)
}

// track records connections, to be closed later. It reports false when the proxy is closed.
func (p *blockableProxy) track(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		p.refused++
		return false
	}
	for _, c := range conns {
		p.conns[c] = true
	}
	return true
}

// setClosed shuts the passage, which ends all connections, or opens it.
func (p *blockableProxy) setClosed(closed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = closed
	for c := range p.conns {
		c.Close()
		delete(p.conns, c)
	}
}

func (p *blockableProxy) count() int { p.mu.Lock(); defer p.mu.Unlock(); return p.refused }

// retryPause is what a node leaves between two tries.
const retryPause = time.Second

// TestUnavailableStoreIsAskedSeldom: a node of all contracts with all its workers and loops, and
// callers beside them, ask a store that is unavailable twice a second at most.
func TestUnavailableStoreIsAskedSeldom(t *testing.T) {
	t.Parallel()
	direct, err := url.Parse(outside.NewPostgres(t).URL("postgres", "postgres"))
	if err != nil {
		t.Fatal(err)
	}
	proxy := newBlockableProxy(t, direct.Host)
	direct.Host = proxy.Addr().String()
	binary := mustMillrace(t)
	s, err := launch(binary, filepath.Join(t.TempDir(), "data"), nil, "--set",
		"store="+direct.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.kill)
	proxy.setClosed(true)
	tries, quiet := 0, time.Now()
	pollUntil(t.Fatalf, "all who were connected to notice", func() bool {
		if n := proxy.count(); n != tries {
			tries, quiet = n, time.Now()
		}
		return tries > 0 && time.Since(quiet) > retryPause/2
	})
	put := requestCheck{method: "POST", path: "/v2/queues/jobs",
		body: `[{"queue":"mail","id":"1","timeout":30,"payload":1}]`}
	started, before := time.Now(), proxy.count()
	pollUntil(t.Fatalf, "ten tries", func() bool {
		if status, body := put.send(t, s.url); status != http.StatusTooManyRequests {
			t.Fatalf("%d %s", status, body)
		}
		return proxy.count()-before >= 10
	})
	// The node pauses its loops and its callers apart, so two tries fall on each pause that has
	// begun. The slower the machine, the fewer there are in a second.
	tried := proxy.count() - before
	if limit := 2 * (int(time.Since(started)/retryPause) + 1); tried > limit {
		t.Errorf("%d tries where %d are allowed", tried, limit)
	}
	proxy.setClosed(false)
	pollUntil(t.Fatalf, "the store to be used again", func() bool {
		status, _ := put.send(t, s.url)
		return status == http.StatusAccepted
	})
	if err := s.terminate(); err != nil {
		t.Error(err)
	}
}
