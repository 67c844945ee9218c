package testkit

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/internal/contract/relay"
	"github.com/millrace/millrace/internal/duty"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/store/sqlite"
)

// Serve starts a whole server on a store in memory, with its duties and the
// real time, for what talks to it from outside: examples, clients. stop ends it.
func Serve() (baseURL string, stop func(), err error) {
	log := slog.New(slog.DiscardHandler)
	s, err := sqlite.Open(context.Background(), sqlite.Config{Path: sqlite.Memory, Now: time.Now})
	if err != nil {
		return "", nil, fmt.Errorf("testkit: %w", err)
	}
	room, err := relay.New(relay.Config{Log: log, Registry: prometheus.NewRegistry(), V1: true, MaxNumJobs: 1000,
		BodyLimit: 1 << 20, RetryableStatus: 429})
	if err != nil {
		return "", nil, fmt.Errorf("testkit: %w", err)
	}
	began := time.Now()
	e, err := engine.New(engine.Config{Store: s, Contracts: []engine.Contract{room.Contract()}, Node: rand.Text(), Random: Random,
		Monotonic: func() time.Duration { return time.Since(began) }, Log: log})
	if err != nil {
		return "", nil, fmt.Errorf("testkit: %w", err)
	}
	ctx, end := context.WithCancel(context.Background())
	var duties sync.WaitGroup
	duties.Go(func() { (&duty.Runner{Engine: e, Log: log, PruneEvery: time.Minute}).Run(ctx) })
	server := httptest.NewServer(httpapi.Root(room.Mount(e)))
	return server.URL, func() {
		e.Close()
		server.Close()
		end()
		duties.Wait()
		s.Close()
	}, nil
}
