package relay_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/internal/contract/relay"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/store/sqlite"
	"github.com/millrace/millrace/internal/testkit"
)

// benchServer is a Relay on a database file behind a real listener.
func benchServer(b *testing.B) (url string, client *http.Client) {
	s, err := sqlite.Open(context.Background(),
		sqlite.Config{Path: filepath.Join(b.TempDir(), "jobs.db"), Now: time.Now})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { s.Close() })
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	c := config()
	c.Log, c.Registry, c.MaxNumJobs = log, prometheus.NewRegistry(), 1000
	c.Engine = testkit.NewEngine(b, s, testkit.NewClock())
	r, err := relay.New(c)
	if err != nil {
		b.Fatal(err)
	}
	testkit.Register(b, c.Engine, r.JobType())
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	server := httpapi.NewServer(httpapi.NewMux(r.Mount()), log)
	go func() { _ = server.Serve(l) }()
	b.Cleanup(func() { server.Close() })
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	b.Cleanup(transport.CloseIdleConnections)
	return "http://" + l.Addr().String(), &http.Client{Transport: transport}
}

func benchCall(b *testing.B, c *http.Client, method, url, body string, status int) string {
	req, _ := http.NewRequest(method, url, strings.NewReader(body))
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.Do(req)
	if err != nil {
		b.Error(err)
		return ""
	}
	got, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	if resp.StatusCode != status {
		b.Errorf("%s %s: got %d %s", method, url, resp.StatusCode, got)
	}
	return string(got)
}

// runIDs finds the runs of an answer without decoding it.
func runIDs(answer string) (runs []string) {
	for rest := answer; ; {
		_, after, ok := strings.Cut(rest, `"run_id":"`)
		if !ok {
			return runs
		}
		runs, rest = append(runs, after[:36]), after[36:]
	}
}

// BenchmarkSingle is enqueue + next + complete of one job at a time, 64 callers.
func BenchmarkSingle(b *testing.B) {
	url, c := benchServer(b)
	var n atomic.Int64
	b.SetParallelism(32)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			id := fmt.Sprint(n.Add(1))
			benchCall(b, c, "POST", url+"/v2/queues/jobs", "["+jobBody("single", id)+"]", 202)
			got := benchCall(b, c, "GET", url+"/v2/queues/single/jobs", "", 200)
			runs := runIDs(got)
			if len(runs) != 1 {
				b.Fatal(got)
			}
			_, after, _ := strings.Cut(got, `"id":"`)
			own, _, _ := strings.Cut(after, `"`)
			benchCall(b, c, "DELETE", url+"/v2/queues/single/jobs/"+own+"/run-id/"+runs[0], "",
				200)
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
}

// BenchmarkBatch is enqueue and next of 100 jobs, each completed by itself, as the contract has it.
func BenchmarkBatch(b *testing.B) {
	url, c := benchServer(b)
	var n atomic.Int64
	b.SetParallelism(8)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			var batch []string
			for range 100 {
				batch = append(batch, jobBody("batch", fmt.Sprint(n.Add(1))))
			}
			benchCall(b, c, "POST", url+"/v2/queues/jobs", "["+strings.Join(batch, ",")+"]", 202)
			benchCall(b, c, "GET", url+"/v2/queues/batch/jobs?num_jobs=100", "", 200)
		}
	})
	b.ReportMetric(float64(b.N)*100/b.Elapsed().Seconds(), "jobs/s")
}

// BenchmarkNoStore is what HTTP alone costs: a poll refused before the engine.
func BenchmarkNoStore(b *testing.B) {
	url, c := benchServer(b)
	b.SetParallelism(32)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			benchCall(b, c, "GET", url+"/v2/queues/single/jobs?num_jobs=0", "", 400)
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "requests/s")
}
