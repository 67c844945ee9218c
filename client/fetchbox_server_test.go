package client_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/internal/contract"
	"github.com/millrace/millrace/internal/contract/fetchbox"
	"github.com/millrace/millrace/internal/egress"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/object"
	"github.com/millrace/millrace/internal/server"
	"github.com/millrace/millrace/internal/stream"
	"github.com/millrace/millrace/internal/testkit"
	"github.com/millrace/millrace/internal/workerapi"

	"github.com/millrace/millrace/client"
)

// boxServer is a real server of FetchBox with streams and objects of its own.
type boxServer struct {
	url string
	dir string // objects are below objects/
}

// serveBox starts a server whose downloads may come from this machine; change may be nil. Jobs are
// of type "pages", which has two tries close to each other.
func serveBox(change func(*fetchbox.Config)) (s *boxServer, stop func(), err error) {
	s = &boxServer{}
	var closing []func()
	stop = func() {
		for _, end := range closing {
			defer end()
		}
	}
	defer func() {
		if err != nil {
			stop()
		}
	}()
	if s.dir, err = os.MkdirTemp("", "fetchbox"); err != nil {
		return nil, stop, err
	}
	closing = append(closing, func() { os.RemoveAll(s.dir) })
	ctx, log := context.Background(), slog.New(slog.DiscardHandler)
	streams, err := stream.Open(ctx, stream.Config{Dir: filepath.Join(s.dir, "streams"),
		Node: "test", Log: log, Now: time.Now,
		Specs: fetchbox.Streams(time.Hour, time.Hour, time.Hour)})
	if err != nil {
		return nil, stop, err
	}
	closing = append(closing, streams.Close)
	objects, err := object.Open(ctx, object.Config{Dir: filepath.Join(s.dir, "objects"),
		Bucket: "millrace"})
	if err != nil {
		return nil, stop, err
	}
	closing = append(closing, func() { objects.Close() })
	c := fetchbox.Config{Log: log, Registry: prometheus.NewRegistry(), Now: time.Now,
		Random: testkit.RandomBytes, Node: "test", Objects: objects, Streams: streams,
		PruneInterval: time.Minute, Egress: egress.Config{AllowLocal: true},
		Settings: fetchbox.Settings{Types: map[string]*fetchbox.Type{"pages": {}},
			MaxResources: 2000, MaxManifest: 5 << 20, MaxAttempts: 2, MaxLostRuns: 10,
			BackoffBase: 10 * time.Millisecond, Lease: 30 * time.Second,
			ConnectTimeout: time.Second, DownloadTimeout: 10 * time.Second,
			MaxDownload: 1 << 20, MaxPerHost: 16, IdempotencyWindow: time.Hour,
			LedgerRetention: time.Hour}}
	if change != nil {
		change(&c)
	}
	url, end, err := serveNode(s.dir, log, new(fetchbox.Settings).Group(nil),
		func(e *engine.Engine, elapsed func() time.Duration) (*contract.Contract, []server.Service,
			error) {
			c.Engine, c.Elapsed = e, elapsed
			box, err := fetchbox.New(c)
			if err != nil {
				return nil, nil, err
			}
			workers, err := workerapi.New(workerapi.Config{Engine: e, Log: log,
				Contracts: []workerapi.Adapter{box.RemoteWorkers()}})
			if err != nil {
				return nil, nil, err
			}
			return box.Offer(), []server.Service{{Name: workerapi.Name, Mount: workers.Mount}}, nil
		})
	if err != nil {
		return nil, stop, err
	}
	closing = append(closing, end)
	s.url = url
	return s, stop, nil
}

// mustBox is a server that ends with the test, and a client of it.
func mustBox(tb testing.TB, cfg client.Config, change func(*fetchbox.Config)) (*client.FetchBox,
	*boxServer) {
	tb.Helper()
	s, stop, err := serveBox(change)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(stop)
	cfg.BaseURL = s.url
	c := mustClient(tb, cfg)
	tb.Cleanup(c.CloseIdleConnections)
	return c.FetchBox(), s
}

// stored reads a download of the default place.
func (s *boxServer) stored(tb testing.TB, jobID, resourceID string) string {
	tb.Helper()
	text, err := os.ReadFile(filepath.Join(s.dir, "objects", "millrace", "resources", "pages",
		jobID, resourceID))
	must(tb, err)
	return string(text)
}

// pagesOrigin serves /a, /b and so on, and refuses /gone until it is set to serve that too.
func pagesOrigin(tb testing.TB) (url string, restored *atomic.Bool) {
	tb.Helper()
	restored = &atomic.Bool{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/gone" && !restored.Load() {
			http.Error(w, "gone", http.StatusGone)
			return
		}
		_, _ = w.Write([]byte("this is " + r.URL.Path))
	}))
	tb.Cleanup(s.Close)
	return s.URL, restored
}
