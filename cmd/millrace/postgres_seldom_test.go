package main

import (
	"io"
	"net"
	"net/http"
	"net/url"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/testkit/outside"
)

// passage forwards connections, or hangs up on whoever comes and counts them.
type passage struct {
	net.Listener
	to string

	mu      sync.Mutex
	shut    bool
	refused int
	open    map[net.Conn]bool
}

func newPassage(t *testing.T, to string) *passage {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &passage{Listener: l, to: to, open: map[net.Conn]bool{}}
	t.Cleanup(func() { l.Close(); p.set(true) })
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

func (p *passage) forward(conn net.Conn) {
	defer conn.Close()
	far, err := net.Dial("tcp", p.to)
	if err != nil {
		return
	}
	defer far.Close()
	if !p.enter(conn, far) {
		return
	}
	go func() { _, _ = io.Copy(far, conn); far.Close() }()
	_, _ = io.Copy(conn, far)
}

// enter lets a connection through unless the passage is shut.
func (p *passage) enter(ends ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.shut {
		p.refused++
		return false
	}
	for _, c := range ends {
		p.open[c] = true
	}
	return true
}

// set shuts the passage, which ends all connections, or opens it.
func (p *passage) set(shut bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.shut = shut
	for c := range p.open {
		c.Close()
		delete(p.open, c)
	}
}

func (p *passage) count() int { p.mu.Lock(); defer p.mu.Unlock(); return p.refused }

// retryPause is what a node leaves between two tries.
const retryPause = time.Second

// TestAwayStoreIsAskedSeldom: a node of all contracts with all its workers and loops, and callers
// beside them, ask a store that is away twice a second at most.
func TestAwayStoreIsAskedSeldom(t *testing.T) {
	t.Parallel()
	direct, err := url.Parse(outside.Postgres(t).URL("postgres", "postgres"))
	if err != nil {
		t.Fatal(err)
	}
	way := newPassage(t, direct.Host)
	direct.Host = way.Addr().String()
	binary, err := exec.LookPath("millrace")
	if err != nil {
		t.Fatal(err)
	}
	s, err := launch(binary, filepath.Join(t.TempDir(), "data"), nil, "--set", "store="+direct.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.kill)
	way.set(true)
	tries, quiet := 0, time.Now()
	until(t.Fatalf, "all who were connected to notice", func() bool {
		if n := way.count(); n != tries {
			tries, quiet = n, time.Now()
		}
		return tries > 0 && time.Since(quiet) > retryPause/2
	})
	put := probe{method: "POST", path: "/v2/queues/jobs", body: `[{"queue":"mail","id":"1","timeout":30,"payload":1}]`}
	began, before := time.Now(), way.count()
	until(t.Fatalf, "ten tries", func() bool {
		if status, body := put.sent(t, s.url); status != http.StatusTooManyRequests {
			t.Fatalf("%d %s", status, body)
		}
		return way.count()-before >= 10
	})
	// The slower the machine, the fewer there are in a second.
	if most := 2*time.Since(began).Seconds() + 1; float64(way.count()-before) > most {
		t.Errorf("%d tries where %.0f are allowed", way.count()-before, most)
	}
	way.set(false)
	until(t.Fatalf, "the store to be used again", func() bool { status, _ := put.sent(t, s.url); return status == http.StatusAccepted })
	if err := s.terminate(); err != nil {
		t.Error(err)
	}
}
