package testkit

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"net"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/maintenance"
	"github.com/millrace/millrace/internal/store/sqlite"
)

// Serve starts a whole server on a store in memory, with its maintenance and the real time, for
// examples and clients. build makes the contracts, registers them and returns their APIs. stop ends
// the server. It takes no test, as an example has none; it returns the error of the store, the
// engine or build.
func Serve(build func(*engine.Engine) ([]httpapi.PrefixHandler, error)) (baseURL string,
	stop func(), err error) {
	log := slog.New(slog.DiscardHandler)
	s, err := sqlite.Open(context.Background(), sqlite.Config{Path: sqlite.Memory, Now: time.Now})
	if err != nil {
		return "", nil, fmt.Errorf("testkit: %w", err)
	}
	started := time.Now()
	e, err := engine.New(engine.Config{
		Store:     s,
		Node:      rand.Text(),
		Random:    RandomBytes,
		Monotonic: func() time.Duration { return time.Since(started) },
		Log:       log,
	})
	if err != nil {
		s.Close()
		return "", nil, fmt.Errorf("testkit: %w", err)
	}
	apis, err := build(e)
	if err != nil {
		s.Close()
		return "", nil, fmt.Errorf("testkit: %w", err)
	}
	ctx, end := context.WithCancel(context.Background())
	var background sync.WaitGroup
	background.Go(func() {
		r := maintenance.Runner{Engine: e, Log: log, PruneInterval: time.Minute}
		r.Run(ctx)
	})
	server := httptest.NewServer(httpapi.NewMux(apis...))
	return server.URL, func() {
		e.Close()
		server.Close()
		end()
		background.Wait()
		s.Close()
	}, nil
}

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
