package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

const (
	// slowFiles is how many files the server may have open (testdata/few_files.sh). The clients
	// below want more connections than that leaves to them.
	slowFiles        = 256
	slowDripInterval = 200 * time.Millisecond
	slowLogLines     = 20
	slowMemory       = 512 // MiB
	slowRounds       = 8
)

// slowKind is a way to keep a connection open.
type slowKind struct {
	name    string
	clients int
	// hold holds a connection until the server ends it, or ctx ends.
	hold func(ctx context.Context, conn net.Conn)
	// isQuick says that the server ends such connections within seconds, and not in a minute.
	isQuick bool
	dropped atomic.Int64
}

const slowHead = "POST /v2/queues/jobs HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"

func slowKinds() []*slowKind {
	return []*slowKind{
		{name: "header", clients: 60, isQuick: true, hold: func(ctx context.Context, c net.Conn) {
			drip(ctx, c, slowHead+"X-Slow: ")
		}},
		{name: "nothing", clients: 60, isQuick: true, hold: func(_ context.Context, c net.Conn) {
			_, _ = io.Copy(io.Discard, c)
		}},
		{name: "keep-alive", clients: 60, isQuick: true, hold: func(_ context.Context, c net.Conn) {
			fmt.Fprint(c, "GET /health/live HTTP/1.1\r\nHost: x\r\n\r\n")
			_, _ = io.Copy(io.Discard, c)
		}},
		{name: "body", clients: 20, hold: func(ctx context.Context, c net.Conn) {
			drip(ctx, c, slowHead+"Content-Length: 1000000\r\n\r\n[")
		}},
		{name: "no reading", clients: 20, hold: func(_ context.Context, c net.Conn) {
			_ = c.(*net.TCPConn).SetReadBuffer(4 << 10)
			for err := error(nil); err == nil; { // blocks when the server does not read any more
				_, err = fmt.Fprint(c, "GET /openapi/admin.yaml HTTP/1.1\r\nHost: x\r\n\r\n")
			}
		}},
	}
}

// drip sends a text and then spaces, one after another, until the connection ends.
func drip(ctx context.Context, conn net.Conn, text string) {
	tick := time.NewTicker(slowDripInterval)
	defer tick.Stop()
	for {
		if _, err := fmt.Fprint(conn, text); err != nil {
			return
		}
		text = " "
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// attack holds connections in all ways, each again when the server has ended it, until ctx ends.
func attack(ctx context.Context, address string, kinds []*slowKind) (wait func()) {
	var all sync.WaitGroup
	for _, k := range kinds {
		for range k.clients {
			all.Go(func() {
				for ctx.Err() == nil {
					conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
					if err != nil {
						continue
					}
					stop := context.AfterFunc(ctx, func() { conn.Close() })
					k.hold(ctx, conn)
					conn.Close()
					if stop() {
						k.dropped.Add(1)
					}
				}
			})
		}
	}
	return all.Wait
}

// TestSlowClients: clients that send or read slowly, or only keep connections, up to the open files
// that the server may have, lock nobody out. It ends their connections, needs no more files or
// memory for them than it may have, and is as before when they have gone.
func TestSlowClients(t *testing.T) {
	t.Parallel()
	script, err := filepath.Abs("testdata/few_files.sh")
	if err != nil {
		t.Fatal(err)
	}
	s, err := launch(script, filepath.Join(t.TempDir(), "data"),
		append(os.Environ(), "MILLRACE_BINARY="+mustMillrace(t)), "--set", "contracts=relay",
		"--set", "log.level=warn")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.kill)
	n := &hostileNode{launchedServer: s}
	client := &http.Client{Timeout: testTimeout,
		Transport: &http.Transport{DisableKeepAlives: true}}
	before := s.openFiles(t)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	kinds := slowKinds()
	wait := attack(ctx, strings.TrimPrefix(s.url, "http://"), kinds)

	maxOpen := 0
	for round := range slowRounds {
		s.wantServing(t, client, fmt.Sprint("slow-", round))
		maxOpen = max(maxOpen, s.openFiles(t))
	}
	for _, k := range kinds {
		if k.isQuick || isFullHostile() {
			pollUntil(t.Fatalf, "the server to drop a client of "+k.name, func() bool {
				return k.dropped.Load() > 0
			})
		}
		t.Logf("%s: %d clients were dropped %d times", k.name, k.clients, k.dropped.Load())
	}
	if maxOpen = max(maxOpen, s.openFiles(t)); maxOpen < slowFiles/2 || maxOpen > slowFiles {
		t.Errorf("the server had %d files open: it is not under pressure, or over its limit", maxOpen)
	}
	stop()
	wait()
	pollUntil(t.Fatalf, "the connections to be closed", func() bool {
		return s.openFiles(t) <= before+slowRounds
	})
	s.wantServing(t, client, "slow-after")
	if peak := n.peakMemory(t); peak > slowMemory {
		t.Errorf("the server had %d MiB", peak)
	}
	if lines := strings.Count(s.stderr.String(), "\n"); lines > slowLogLines {
		t.Errorf("the log has %d lines:\n%.2000s", lines, s.stderr.String())
	}
	t.Logf("%d open files at first, %d at most, %d MiB", before, maxOpen, n.peakMemory(t))
}

// wantServing fails unless the server is ready and stores a job.
func (s *launchedServer) wantServing(t *testing.T, client *http.Client, job string) {
	t.Helper()
	if status, text := sendTo(t, client, "GET", s.url+"/health/ready", ""); status != 200 {
		t.Errorf("health: %d %s", status, text)
	}
	status, text := sendTo(t, client, "POST", s.url+"/v2/queues/jobs", jobsBody([]string{job}))
	if status != http.StatusAccepted {
		t.Errorf("a job: %d %s", status, text)
	}
}

// openFiles returns how many files and connections the server has open.
func (s *launchedServer) openFiles(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", s.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}
