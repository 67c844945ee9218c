package client_test

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/internal/contract/taskflow"
	"github.com/millrace/millrace/internal/duty"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/store/sqlite"
	"github.com/millrace/millrace/internal/testkit"
	workerapi "github.com/millrace/millrace/internal/worker/api"

	"github.com/millrace/millrace/client"
)

// serveFlow starts a real server of TaskFlow and the worker API, in memory.
func serveFlow() (baseURL string, stop func(), err error) {
	log := slog.New(slog.DiscardHandler)
	s, err := sqlite.Open(context.Background(), sqlite.Config{Path: sqlite.Memory, Now: time.Now})
	if err != nil {
		return "", nil, err
	}
	room, err := taskflow.New(taskflow.Config{Log: log, Registry: prometheus.NewRegistry(), Now: time.Now, Random: testkit.Random,
		Lease: time.Minute, MaxConcurrent: 10, BodyLimit: 1 << 20, GraphBodyLimit: 16 << 20, Runner: taskflow.Runner{Off: true}})
	if err != nil {
		return "", nil, errors.Join(err, s.Close())
	}
	workers, err := workerapi.New(workerapi.Config{Log: log, Contracts: []workerapi.Contract{room.Outside()}})
	if err != nil {
		return "", nil, errors.Join(err, s.Close())
	}
	began := time.Now()
	e, err := engine.New(engine.Config{Store: s, Contracts: []engine.Contract{room.Contract()}, Node: rand.Text(), Random: testkit.Random,
		Monotonic: func() time.Duration { return time.Since(began) }, Log: log})
	if err != nil {
		return "", nil, errors.Join(err, s.Close())
	}
	ctx, end := context.WithCancel(context.Background())
	var duties sync.WaitGroup
	duties.Go(func() { (&duty.Runner{Engine: e, Log: log, PruneEvery: time.Minute}).Run(ctx) })
	server := httptest.NewServer(httpapi.Root(room.Mount(e), workers.Mount(e)))
	return server.URL, func() {
		e.Close()
		server.Close()
		end()
		duties.Wait()
		s.Close()
	}, nil
}

// flowServer is a server that ends with the test.
func flowServer(tb testing.TB) *client.Client {
	tb.Helper()
	url, stop, err := serveFlow()
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(stop)
	return mustClient(tb, client.Config{BaseURL: url})
}
