package testkit

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/duty"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/store/sqlite"
)

// Serve starts a whole server of contracts on a store in memory, with its duties
// and the real time, for what talks to it from outside: examples, clients. stop
// ends it.
func Serve(contracts []engine.Contract, mounts ...func(*engine.Engine) httpapi.Mount) (baseURL string, stop func(), err error) {
	log := slog.New(slog.DiscardHandler)
	s, err := sqlite.Open(context.Background(), sqlite.Config{Path: sqlite.Memory, Now: time.Now})
	if err != nil {
		return "", nil, fmt.Errorf("testkit: %w", err)
	}
	began := time.Now()
	e, err := engine.New(engine.Config{Store: s, Contracts: contracts, Node: rand.Text(), Random: Random,
		Monotonic: func() time.Duration { return time.Since(began) }, Log: log})
	if err != nil {
		s.Close()
		return "", nil, fmt.Errorf("testkit: %w", err)
	}
	ctx, end := context.WithCancel(context.Background())
	var duties sync.WaitGroup
	duties.Go(func() { (&duty.Runner{Engine: e, Log: log, PruneEvery: time.Minute}).Run(ctx) })
	var mounted []httpapi.Mount
	for _, m := range mounts {
		mounted = append(mounted, m(e))
	}
	server := httptest.NewServer(httpapi.Root(mounted...))
	return server.URL, func() {
		e.Close()
		server.Close()
		end()
		duties.Wait()
		s.Close()
	}, nil
}
