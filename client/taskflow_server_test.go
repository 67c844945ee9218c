package client_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/internal/contract/taskflow"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/testkit"
	"github.com/millrace/millrace/internal/workerapi"

	"github.com/millrace/millrace/client"
)

// serveFlow starts a real server of TaskFlow and the worker API, in memory.
func serveFlow() (baseURL string, stop func(), err error) {
	log := slog.New(slog.DiscardHandler)
	return testkit.Serve(func(e *engine.Engine) ([]httpapi.PrefixHandler, error) {
		contract, err := taskflow.New(taskflow.Config{Engine: e, Log: log,
			Registry: prometheus.NewRegistry(), Now: time.Now, Random: testkit.RandomBytes,
			Settings:  taskflow.Settings{Lease: time.Minute, MaxConcurrent: 1000},
			BodyLimit: 1 << 20, GraphBodyLimit: 16 << 20,
			NoLocalWorkers: true})
		if err != nil {
			return nil, err
		}
		workers, err := workerapi.New(workerapi.Config{Engine: e, Log: log,
			Contracts: []workerapi.Contract{contract.RemoteWorkers()}})
		if err != nil {
			return nil, err
		}
		return []httpapi.PrefixHandler{contract.Mount(), workers.Mount()},
			e.Register(contract.Contract())
	})
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
