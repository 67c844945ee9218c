package client_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/millrace/millrace/client"
)

// A worker logs at its start what it waits for and where, without the credentials of the URL.
func TestWorkers_logTheirStart(t *testing.T) {
	t.Parallel()
	c := mustClient(t, client.Config{BaseURL: "http://ada:secret@worker.test/behind/",
		HTTPClient: &http.Client{Transport: direct{http.NotFoundHandler()}}})
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	handle := func(context.Context, *client.JobRun) (json.RawMessage, error) { return nil, nil }
	stopped, stop := context.WithCancel(t.Context())
	stop()
	for _, w := range []interface{ Run(context.Context) error }{
		&client.Worker{Relay: c.Relay(), Queue: "mail", Name: "w1", Concurrency: 4, Logger: logger,
			Handler: func(context.Context, *client.Run) error { return nil }},
		&client.JobWorker{API: c.WorkerAPI(), Contract: client.ContractTaskFlow, Name: "w2",
			Logger: logger, Handlers: map[string]client.JobHandler{"b": handle, "a": handle}},
		&client.JobWorker{API: c.WorkerAPI(), Contract: client.ContractForgeRun, Name: "w3",
			Logger: logger, Handlers: map[string]client.JobHandler{"": handle}},
	} {
		must(t, w.Run(stopped))
	}
	lines := strings.Split(strings.TrimSpace(log.String()), "\n")
	want := []string{
		"contract=relay queues=mail server=http://worker.test/behind concurrency=4 worker=w1",
		"contract=taskflow queues=a,b server=http://worker.test/behind concurrency=1 worker=w2",
		"contract=forgerun queues=all server=http://worker.test/behind concurrency=1 worker=w3"}
	if len(lines) != len(want) {
		t.Fatalf("logged:\n%s", &log)
	}
	for i, line := range lines {
		if !strings.HasSuffix(line, ` level=INFO msg="waiting for jobs" `+want[i]) {
			t.Errorf("logged %s, want %s", line, want[i])
		}
	}
}

// A panic of a handler is logged once, with its stack.
func TestJobWorker_logsAPanicOnce(t *testing.T) {
	t.Parallel()
	_, log := inWorkerBench(t, &fakeWorkerAPI{}, client.JobWorker{},
		func(context.Context, *client.JobRun) (json.RawMessage, error) { panic("oh") })
	if strings.Count(log, "level=ERROR") != 1 || strings.Count(log, "panic: oh") != 1 ||
		!strings.Contains(log, `msg="handler failed"`) || !strings.Contains(log, "stack=") {
		t.Errorf("logged:\n%s", log)
	}
}
