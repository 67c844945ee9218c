package forgerun_test

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/contract/forgerun"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/store/sqlite"
	"github.com/millrace/millrace/internal/testkit"
)

// benchServer is a ForgeRun on a database file behind a real listener, and a client of it. Nobody
// runs its jobs.
func benchServer(b *testing.B) (c *customer, e *engine.Engine) {
	s, err := sqlite.Open(context.Background(),
		sqlite.Config{Path: filepath.Join(b.TempDir(), "jobs.db"), Now: time.Now})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { s.Close() })
	began := time.Now()
	config := config()
	config.Log, config.Registry = slog.New(slog.NewTextHandler(io.Discard, nil)), newRegistry()
	config.Now, config.Elapsed, config.Random = time.Now, func() time.Duration {
		return time.Since(began)
	}, testkit.RandomBytes
	config.QueueSize, config.RatePerMinute = 1_000_000_000, 1_000_000_000
	e = testkit.NewEngine(b, s, testkit.NewClock())
	config.Engine = e
	f, err := forgerun.New(config)
	if err != nil {
		b.Fatal(err)
	}
	testkit.Register(b, e, f.JobTypes()...)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	server := httpapi.NewServer(httpapi.NewMux(f.Mount()), config.Log)
	go func() { _ = server.Serve(l) }()
	b.Cleanup(func() { server.Close() })
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	b.Cleanup(transport.CloseIdleConnections)
	w := &world{APIServer: &testkit.APIServer{URL: "http://" + l.Addr().String(),
		Client: &http.Client{Transport: transport}}}
	return w.customer(b), e
}

func benchCall(b *testing.B, c *customer, method, path, body string, status int) {
	req, _ := http.NewRequest(method, c.w.URL+path, strings.NewReader(body))
	req.Header.Set("Authorization", "Bearer "+c.key)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.w.Client.Do(req)
	if err != nil {
		b.Error(err)
		return
	}
	got, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	if resp.StatusCode != status {
		b.Errorf("%s %s: got %d %s", method, path, resp.StatusCode, got)
	}
}

// BenchmarkSubmit is one job at a time, 64 callers, each durable with its events.
func BenchmarkSubmit(b *testing.B) {
	c, _ := benchServer(b)
	b.SetParallelism(32)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			benchCall(b, c, "POST", "/v1/jobs", `{"type":"EXECUTE","work_kind":"SUCCESS_FAST"}`,
				202)
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
}

// BenchmarkRefused is what everything before the store costs: a submit that breaks a rule.
func BenchmarkRefused(b *testing.B) {
	c, _ := benchServer(b)
	b.SetParallelism(32)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			benchCall(b, c, "POST", "/v1/jobs", `{"type":"EXECUTE","work_kind":"NOTHING"}`, 400)
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "requests/s")
}
