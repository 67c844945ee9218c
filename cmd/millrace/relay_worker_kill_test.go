package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/client"
)

// killingTransport sends requests to a server that it kills and starts again: with some requests
// that complete several runs, once before and once after they have been answered.
type killingTransport struct {
	restart func() *launchedServer

	killing sync.Mutex // held while a server is killed and the next one starts
	mu      sync.Mutex // guards what follows
	server  *launchedServer
	batches int
	nexts   int // of which asked for the next jobs
}

func (k *killingTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	k.mu.Lock()
	server, kill := k.server, false
	if strings.HasSuffix(req.URL.Path, "/completions") {
		k.batches++
		if req.URL.Query().Has("next") {
			k.nexts++
		}
		kill = k.batches == 2 || k.batches == 4
	}
	before := kill && k.batches == 2
	k.mu.Unlock()
	if before {
		k.kill()
	}
	target, err := url.Parse(server.url)
	if err != nil {
		return nil, err
	}
	req = req.Clone(req.Context())
	req.URL.Host = target.Host
	resp, err := http.DefaultTransport.RoundTrip(req)
	if kill && !before {
		if err == nil {
			resp.Body.Close()
		}
		k.kill()
		return nil, http.ErrServerClosed // the answer is lost
	}
	return resp, err
}

// kill kills the server that runs and starts another on its data. A second call waits for the first
// one, since a data directory belongs to one server.
func (k *killingTransport) kill() {
	k.killing.Lock()
	defer k.killing.Unlock()
	k.mu.Lock()
	server := k.server
	k.mu.Unlock()
	server.kill()
	next := k.restart()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.server = next
}

// TestRelayWorkerOverKills: a worker that completes its runs in batches, and gets its next jobs by
// them, goes on when the server is killed under a batch, before it or after its commit: each job is
// executed and completed, also those that were in an answer that was lost.
func TestRelayWorkerOverKills(t *testing.T) {
	t.Parallel()
	const jobs, slots = 400, 40
	dir := filepath.Join(t.TempDir(), "data")
	start := func() *launchedServer {
		s, err := launch(mustMillrace(t), dir, nil, "--set", "log.level=warn", "--set",
			"contracts=relay")
		if err != nil {
			t.Error(err)
			return &launchedServer{url: "http://127.0.0.1:1"}
		}
		t.Cleanup(s.kill)
		return s
	}
	transport := &killingTransport{server: start(), restart: start}
	c, err := client.New(client.Config{BaseURL: "http://relay.test",
		HTTPClient: &http.Client{Transport: transport}})
	if err != nil {
		t.Fatal(err)
	}
	relay := c.Relay()
	var specs []client.RelaySpec
	for i := range jobs {
		specs = append(specs, client.RelaySpec{Queue: "q", ID: fmt.Sprint(i),
			Timeout: 3 * time.Second})
	}
	ctx, stop := context.WithTimeout(t.Context(), testTimeout)
	defer stop()
	if err := relay.Enqueue(ctx, specs, client.RelayUnique); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	completed := map[string]bool{}
	w := &client.Worker{Relay: relay, Queue: "q", Concurrency: slots,
		Handler: func(context.Context, *client.Run) error { return nil },
		AfterRun: func(job client.RelayJob, reason error) {
			mu.Lock()
			defer mu.Unlock()
			var lost *client.Error // whose answer was lost, so that it is completed
			if reason == nil || (errors.As(reason, &lost) && lost.Uncertain) {
				completed[job.ID] = true
			}
			if len(completed) == jobs {
				stop()
			}
		}}
	if err := w.Run(ctx); err != nil {
		t.Error(err)
	}
	transport.mu.Lock()
	defer transport.mu.Unlock()
	if len(completed) != jobs || transport.batches < 4 || transport.nexts < 4 {
		t.Errorf("%d of %d jobs are completed, by %d batches of which %d asked for more",
			len(completed), jobs, transport.batches, transport.nexts)
	}
	for _, spec := range specs {
		resp, err := http.Get(transport.server.url + "/v2/queues/q/jobs/" + spec.ID)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusNotFound {
			t.Errorf("job %s is still there: %d", spec.ID, resp.StatusCode)
		}
	}
}
