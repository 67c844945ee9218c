package client_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/internal/contract/taskflow"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/testkit"
	workerapi "github.com/millrace/millrace/internal/worker/api"

	"github.com/millrace/millrace/client"
)

// serveFlow starts a real server of TaskFlow and the worker API, in memory.
func serveFlow() (baseURL string, stop func(), err error) {
	log := slog.New(slog.DiscardHandler)
	contract, err := taskflow.New(taskflow.Config{Log: log, Registry: prometheus.NewRegistry(),
		Now: time.Now, Random: testkit.RandomBytes,
		Settings:  taskflow.Settings{Lease: time.Minute, MaxConcurrent: 1000},
		BodyLimit: 1 << 20, GraphBodyLimit: 16 << 20,
		Runner: taskflow.Runner{Disabled: true}})
	if err != nil {
		return "", nil, err
	}
	workers, err := workerapi.New(workerapi.Config{Log: log,
		Contracts: []workerapi.Contract{contract.RemoteWorkers()}})
	if err != nil {
		return "", nil, err
	}
	return testkit.Serve([]engine.Contract{contract.Contract()}, contract.Mount, workers.Mount)
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
