package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"
)

// Small downloads: fetchParallel at a time, of fetchSize bytes each, in manifests of fetchManifest,
// from a server that answers after fetchLatency, as one does that is not on the same machine.
const (
	fetchParallel = 8
	fetchSize     = 16 << 10
	fetchLatency  = 20 * time.Millisecond
	fetchManifest = 1000
)

// fetchOrigin serves small downloads.
type fetchOrigin struct {
	server *http.Server
	url    string
}

func newFetchOrigin() (*fetchOrigin, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	body := make([]byte, fetchSize)
	o := &fetchOrigin{url: "http://" + listener.Addr().String() + "/",
		server: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter,
			_ *http.Request) {
			time.Sleep(fetchLatency)
			w.Header().Set("Content-Type", "image/jpeg")
			_, _ = w.Write(body)
		})}}
	go func() { _ = o.server.Serve(listener) }() // ends with Close
	return o, nil
}

func (o *fetchOrigin) Close() error { return o.server.Close() }

// floorDownloads is a bare loop of Go's client, as parallel as FetchBox: once it throws away what
// it gets, once it leaves each on the disk before it goes on.
type floorDownloads struct {
	*fetchOrigin
	client *http.Client
	dir    string
}

func setupFloorDownloads(_ context.Context, env *Env) (Runner, error) {
	o, err := newFetchOrigin()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(env.Dir, "downloads-")
	return &floorDownloads{fetchOrigin: o, dir: dir,
		client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: fetchParallel,
			DisableCompression: true}}}, err
}

func (f *floorDownloads) Durability() string {
	return "end-to-end: none, nothing is kept; kept: fsync of each file and of the folder"
}

func (f *floorDownloads) Run(ctx context.Context, n int) ([]Phase, error) {
	discarded, err := f.loop(ctx, phaseTotal, n, func(r io.Reader) error {
		_, err := io.Copy(io.Discard, r)
		return err
	})
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(f.dir, "run-") // stays until the end: see fetchRunner
	if err != nil {
		return nil, err
	}
	var names atomic.Int64
	written, err := f.loop(ctx, "kept", n, func(r io.Reader) error {
		return writeFileSynced(dir, strconv.FormatInt(names.Add(1), 10), r)
	})
	return []Phase{discarded, written}, err
}

func (f *floorDownloads) loop(ctx context.Context, phase string, n int,
	consume func(io.Reader) error) (Phase, error) {
	started := time.Now()
	latency, err := runParallel(ctx, fetchParallel, n, func(ctx context.Context, _, _ int) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, f.url, nil)
		if err != nil {
			return err
		}
		res, err := f.client.Do(req)
		if err != nil {
			return err
		}
		defer res.Body.Close()
		return consume(res.Body)
	})
	return Phase{Name: phase, Jobs: n, Took: time.Since(started), Latency: latency}, err
}

// writeFileSynced writes a file so that a crash finds all of it or nothing.
func writeFileSynced(dir, name string, r io.Reader) error {
	part, err := os.Create(filepath.Join(dir, name+".part"))
	if err != nil {
		return err
	}
	defer part.Close()
	if _, err := io.Copy(part, r); err != nil {
		return err
	}
	if err := part.Sync(); err != nil {
		return err
	}
	if err := os.Rename(part.Name(), filepath.Join(dir, name)); err != nil {
		return err
	}
	folder, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer folder.Close()
	return folder.Sync()
}

func (f *floorDownloads) Close() error {
	f.client.CloseIdleConnections()
	return f.fetchOrigin.Close()
}

// fetchRunner is the real binary: manifests are submitted one after another, and downloaded
// meanwhile. Each run has a server process, a database, streams and objects of its own. Its files
// stay until the bench ends: for minutes after many were removed, ext4 searches their places
// whenever it makes one, which costs more than all the rest of making it.
type fetchRunner struct {
	*fetchOrigin
	binary     string
	dir        string
	client     *http.Client
	durability string
}

func setupFetch(ctx context.Context, env *Env) (Runner, error) {
	return newFetchRunner(ctx, env, "")
}

// newFetchRunner is a runner whose nodes have these settings too.
func newFetchRunner(ctx context.Context, env *Env, more string) (Runner, error) {
	o, err := newFetchOrigin()
	if err != nil {
		return nil, err
	}
	f := &fetchRunner{fetchOrigin: o, client: &http.Client{Transport: &http.Transport{}}}
	if f.dir, err = os.MkdirTemp(env.Dir, "fetchbox-"); err != nil {
		return f, err
	}
	if f.binary, err = millrace.build(ctx); err != nil {
		return f, err
	}
	settings := fmt.Sprintf("[job_types.bench.options]\nmax_parallel_downloads = %d\n"+
		"[fetchbox]\nmax_per_host = %d\n%s", fetchParallel, fetchParallel, more)
	return f, os.WriteFile(filepath.Join(f.dir, "millrace.toml"), []byte(settings), 0o600)
}

func (f *fetchRunner) Durability() string {
	return "SQLite WAL synchronous=FULL, manifests, objects and stream messages with fsync; " +
		f.durability
}

func (f *fetchRunner) Run(ctx context.Context, n int) ([]Phase, error) {
	data, err := os.MkdirTemp(f.dir, "data-")
	if err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(f.dir, "log"))
	if err != nil {
		return nil, err
	}
	defer log.Close() // the process has its own
	s, err := serveMillrace(ctx, f.binary, data, log, "--config",
		filepath.Join(f.dir, "millrace.toml"))
	if err != nil {
		return nil, err
	}
	defer s.Stop()
	started := time.Now()
	jobs, insert, err := f.submit(ctx, s.addr, n)
	if err != nil {
		return nil, err
	}
	for id, count := range jobs {
		if err := f.wait(ctx, s.addr, id, count); err != nil {
			return nil, err
		}
	}
	all := Phase{Name: phaseTotal, Jobs: n, Took: time.Since(started)}
	f.client.CloseIdleConnections()
	if err := s.Stop(); err != nil {
		return nil, err
	}
	spent := s.cmd.ProcessState.UserTime() + s.cmd.ProcessState.SystemTime()
	f.durability = fmt.Sprintf("the server used %v of processor time (%v a download)",
		spent.Round(10*time.Millisecond), formatDuration(spent/time.Duration(n)))
	return []Phase{insert, all}, nil
}

// submit submits n resources and returns the jobs with their sizes. The latency is a manifest's.
func (f *fetchRunner) submit(ctx context.Context, addr string, n int) (map[string]int, Phase,
	error) {
	jobs, phase, started := map[string]int{}, Phase{Name: phaseInsert, Jobs: n}, time.Now()
	for remaining := n; remaining > 0; remaining -= fetchManifest {
		count := min(remaining, fetchManifest)
		var b bytes.Buffer
		b.WriteString(`{"manifest_version":"v1","metadata":{},"resources":[`)
		for i := range count {
			if i > 0 {
				b.WriteByte(',')
			}
			fmt.Fprintf(&b, `{"id":"r%d","url":"%s%d"}`, i, f.url, i)
		}
		b.WriteString("]}")
		var accepted struct {
			JobID string `json:"job_id"`
		}
		sent := time.Now()
		if err := f.call(ctx, http.MethodPost, "http://"+addr+"/jobs", &b, http.StatusAccepted,
			&accepted); err != nil {
			return nil, phase, err
		}
		phase.Latency = append(phase.Latency, time.Since(sent))
		jobs[accepted.JobID] = count
	}
	phase.Took = time.Since(started)
	return jobs, phase, nil
}

// wait asks until a job has ended, and fails unless all of it is there.
func (f *fetchRunner) wait(ctx context.Context, addr, id string, count int) error {
	for {
		var job struct {
			Status    string `json:"status"`
			Completed int    `json:"resource_completed"`
			LastError any    `json:"last_error"`
		}
		if err := f.call(ctx, http.MethodGet, "http://"+addr+"/operators/jobs/"+id, nil,
			http.StatusOK, &job); err != nil {
			return err
		}
		switch {
		case job.Status == "completed" && job.Completed == count:
			return nil
		case job.Status == "completed", job.Status == "failed":
			return fmt.Errorf("a job of %d is %s with %d: %v", count, job.Status, job.Completed,
				job.LastError)
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (f *fetchRunner) call(ctx context.Context, method, url string, body io.Reader, status int,
	answer any) error {
	req, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Fetchbox-Job-Type", "bench")
	res, err := f.client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return err
	}
	if res.StatusCode != status {
		return fmt.Errorf("%s %s: status %d: %.200s", method, url, res.StatusCode, text)
	}
	return json.Unmarshal(text, answer)
}
