package fetchbox_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/contract/fetchbox"
	"github.com/millrace/millrace/internal/contract/fetchbox/handler"
	"github.com/millrace/millrace/internal/maintenance"
	"github.com/millrace/millrace/internal/store/sqlite"
	"github.com/millrace/millrace/internal/testkit"
)

// benchParallel is how many downloads there are at a time, and benchSize how large they are.
const (
	benchParallel = 8
	benchSize     = 16 << 10
)

// smallDownloads serves small downloads, each after a while.
func smallDownloads(b *testing.B, after time.Duration) string {
	body := make([]byte, benchSize)
	return origin(b, func(rw http.ResponseWriter, _ *http.Request) {
		if after > 0 {
			time.Sleep(after) // the way there and back
		}
		rw.Header().Set("Content-Type", "image/jpeg")
		_, _ = rw.Write(body)
	}).URL
}

// BenchmarkDownloads compares small downloads with a bare loop of Go's client, as parallel, in the
// same run: one that throws away what it gets, and one that leaves it on the disk as the directory
// store does. One operation is a download.
func BenchmarkDownloads(b *testing.B) {
	for _, latency := range []time.Duration{0, 5 * time.Millisecond, 20 * time.Millisecond} {
		b.Run("after "+latency.String(), func(b *testing.B) {
			b.Run("bare", func(b *testing.B) {
				bareLoop(b, smallDownloads(b, latency), func(r io.Reader) error {
					_, err := io.Copy(io.Discard, r)
					return err
				})
			})
			b.Run("bare, kept", func(b *testing.B) {
				dir, n := b.TempDir(), atomic.Int64{}
				bareLoop(b, smallDownloads(b, latency), func(r io.Reader) error {
					return writeFileSynced(dir, strconv.FormatInt(n.Add(1), 10), r)
				})
			})
			b.Run("fetchbox", func(b *testing.B) { fetchLoop(b, smallDownloads(b, latency)) })
		})
	}
}

func bareLoop(b *testing.B, url string, take func(io.Reader) error) {
	transport := &http.Transport{MaxIdleConnsPerHost: benchParallel, DisableCompression: true}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	var left atomic.Int64
	left.Store(int64(b.N))
	b.ResetTimer()
	var all sync.WaitGroup
	for range benchParallel {
		all.Go(func() {
			for left.Add(-1) >= 0 {
				resp, err := client.Get(url)
				if err == nil {
					err = take(resp.Body)
					resp.Body.Close()
				}
				if err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "downloads/s")
}

// writeFileSynced writes a file so that a crash finds all of it or nothing.
func writeFileSynced(dir, name string, r io.Reader) error {
	f, err := os.Create(filepath.Join(dir, name+".part"))
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r)
	if err == nil {
		err = f.Sync()
	}
	f.Close()
	if err == nil {
		err = os.Rename(f.Name(), filepath.Join(dir, name))
	}
	if err == nil {
		err = syncDir(dir)
	}
	return err
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err == nil {
		err = d.Sync()
		d.Close()
	}
	return err
}

// fetchLoop downloads the tasks of the database, with everything a server does meanwhile.
func fetchLoop(b *testing.B, url string) {
	clock := testkit.NewClock()
	s, err := sqlite.Open(context.Background(),
		sqlite.Config{Path: filepath.Join(b.TempDir(), "jobs.db"), Now: clock.Now})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { s.Close() })
	c := assertNear()
	c.Types["default"] = &fetchbox.Type{Options: maxParallel(benchParallel)}
	w := newFetchWorldOn(b, testkit.Database{Clock: clock, Store: s}, c)
	h := w.withRecordingHandler(nil)
	manifests := 0
	for left := b.N; left > 0; left -= 1000 {
		w.submitTo(b, "default", resourcesOf(url, min(left, 1000)))
		manifests++
	}
	b.ResetTimer()
	ctx, cancel := context.WithCancel(context.Background())
	var loops sync.WaitGroup
	loops.Go(func() {
		(&maintenance.Runner{Engine: w.engine, Log: slog.New(slog.DiscardHandler),
			Publishers: []maintenance.Publisher{{Deliver: w.fetchbox.Deliver}}}).Run(ctx)
	})
	stop := w.live(b)
	for range manifests {
		h.wait(b)
	}
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "downloads/s")
	stop()
	cancel()
	loops.Wait()
}

// BenchmarkLargeDownload stores one large file and reports the most memory that was in use
// meanwhile.
func BenchmarkLargeDownload(b *testing.B) {
	const size = 1 << 30
	chunk := make([]byte, 1<<20)
	s := origin(b, func(rw http.ResponseWriter, _ *http.Request) {
		for range size / len(chunk) {
			if _, err := rw.Write(chunk); err != nil {
				return
			}
		}
	})
	w := newFetchWorld(b, assertNear())
	b.SetBytes(size)
	for b.Loop() {
		before := inUse()
		peak := before
		over, watched := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(watched)
			tick := time.NewTicker(10 * time.Millisecond)
			defer tick.Stop()
			for {
				select {
				case <-tick.C:
					peak = max(peak, inUse())
				case <-over:
					return
				}
			}
		}()
		if r := wantSuccess(b, w.fetch(context.Background(),
			taskOf(s.URL, func(task *handler.Task) {
				task.ResourceID = "large"
			}), 0)); r.Size != size {
			b.Fatalf("got %+v", r)
		}
		close(over)
		<-watched
		b.ReportMetric(float64(peak-before)/(1<<20), "MiB-more")
	}
}

func inUse() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse
}
