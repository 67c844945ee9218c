package main

import (
	"bytes"
	"context"
	"image"
	"image/color"
	"image/png"
	"os"
	"path/filepath"

	"github.com/millrace/millrace/client"
)

// sizedContract is a contract whose jobs are measured.
type sizedContract struct {
	name   string
	divide int // makes slow ones fewer
	flags  []string
	load   func(w *sizeWorld, n int) (sizedLoad, error)
}

// sizedLoad submits jobs of a contract and has them finished.
type sizedLoad interface {
	// Flags are what the server needs besides.
	Flags() []string
	// Submit submits all jobs, and returns when they are queued.
	Submit(ctx context.Context) error
	// Work executes them, where the server does not do it by itself.
	Work(ctx context.Context) error
	Close() error
}

// sizedContracts has a line for each contract. What one job is: for Relay and TaskFlow a payload of
// 117 bytes, those of TaskFlow in a graph in which each waits for three; for ForgeRun the simulated
// work SUCCESS_FAST; for FetchBox a download of 16 KiB in a manifest of 1,000; for Images an upload
// of 64 × 64 pixels that gets two variants.
var sizedContracts = []sizedContract{
	{name: "relay", load: func(w *sizeWorld, n int) (sizedLoad, error) {
		return &sizedRelay{w: w, jobs: n}, nil
	}},
	{name: "forgerun", flags: forgeWorkers, load: func(w *sizeWorld, n int) (sizedLoad, error) {
		return &sizedForge{w: w, jobs: n}, nil
	}},
	{name: "taskflow", flags: []string{"--set", "taskflow.max_concurrent=1000000"},
		load: func(w *sizeWorld, n int) (sizedLoad, error) {
			return &sizedFlow{w: w, ids: make([]string, n)}, nil
		}},
	{name: "fetchbox", load: newSizedFetch},
	{name: "images", divide: 100, load: func(w *sizeWorld, n int) (sizedLoad, error) {
		return &sizedImages{w: w, jobs: n}, nil
	}},
}

// sizedRelay submits, claims and finishes jobs in batches.
type sizedRelay struct {
	w     *sizeWorld
	jobs  int
	conns []queueConn
}

const sizedBatch = 100

func (*sizedRelay) Flags() []string { return nil }

func (r *sizedRelay) dial(ctx context.Context) error {
	r.w.batch, r.w.whole = sizedBatch, true
	r.conns = nil
	for range r.w.conns {
		c, err := r.w.Dial(ctx)
		if err != nil {
			return err
		}
		r.conns = append(r.conns, c)
	}
	return nil
}

func (r *sizedRelay) Submit(ctx context.Context) error {
	defer r.Close()
	if err := r.dial(ctx); err != nil {
		return err
	}
	cut := batches(r.jobs, sizedBatch)
	_, err := runParallel(ctx, len(r.conns), len(cut),
		func(ctx context.Context, g, i int) error {
			return r.conns[g].Submit(ctx, cut[i][0], cut[i][1])
		})
	return err
}

func (r *sizedRelay) Work(ctx context.Context) error {
	defer r.Close()
	if err := r.dial(ctx); err != nil {
		return err
	}
	runner := &queueRunner{queueSystem: r.w.relayQueue, conns: len(r.conns), batch: sizedBatch}
	_, err := runner.workAll(ctx, r.conns, r.jobs)
	return err
}

func (r *sizedRelay) Close() error {
	for _, c := range r.conns {
		_ = c.Close()
	}
	r.conns = nil
	return nil
}

// sizedForge submits one by one; the server runs the jobs.
type sizedForge struct {
	w    *sizeWorld
	jobs int
}

func (*sizedForge) Flags() []string { return nil }

func (f *sizedForge) Submit(ctx context.Context) error {
	s := &forgeServer{millraceServer: f.w.servers[0]}
	if err := s.createClient(ctx); err != nil {
		return err
	}
	_, err := forgeSubmit(ctx, s, f.w.conns, f.jobs)
	return err
}

func (*sizedForge) Work(context.Context) error { return nil }

func (*sizedForge) Close() error { return nil }

// sizedFlow submits a graph, whose jobs workers claim and finish in batches.
type sizedFlow struct {
	w   *sizeWorld
	ids []string
}

func (*sizedFlow) Flags() []string { return nil }

func (f *sizedFlow) server() *flowServer {
	return &flowServer{forgeServer: &forgeServer{millraceServer: f.w.servers[0]}}
}

func (f *sizedFlow) Submit(ctx context.Context) error {
	open, closeAll, err := dialMany(ctx, f.w.addr(), 1)
	if err != nil {
		return err
	}
	defer closeAll()
	for _, cut := range batches(len(f.ids), flowGraphJobs) {
		if err := f.server().submitGraph(open[0], f.ids, cut[0], cut[1]); err != nil {
			return err
		}
	}
	return nil
}

func (f *sizedFlow) Work(ctx context.Context) error {
	open, closeAll, err := dialMany(ctx, f.w.addr(), flowWorkers)
	if err != nil {
		return err
	}
	defer closeAll()
	_, err = f.server().workGraph(ctx, open, f.ids, (*graphWork).batches)
	return err
}

func (*sizedFlow) Close() error { return nil }

// sizedFetch submits manifests; the server downloads from an origin of the bench.
type sizedFetch struct {
	w    *sizeWorld
	jobs int
	*fetchRunner
}

func newSizedFetch(w *sizeWorld, n int) (sizedLoad, error) {
	o, err := newFetchOrigin()
	if err != nil {
		return nil, err
	}
	f := &sizedFetch{w: w, jobs: n, fetchRunner: &fetchRunner{fetchOrigin: o, client: w.http}}
	const settings = "[job_types.bench.options]\nmax_parallel_downloads = 64\n" +
		"[fetchbox]\nmax_per_host = 64\n"
	return f, os.WriteFile(f.settings(), []byte(settings), 0o600)
}

func (f *sizedFetch) settings() string { return filepath.Join(f.w.dir, "millrace.toml") }

func (f *sizedFetch) Flags() []string { return []string{"--config", f.settings()} }

func (f *sizedFetch) Submit(ctx context.Context) error {
	_, _, err := f.submit(ctx, f.w.addr(), f.jobs)
	return err
}

func (*sizedFetch) Work(context.Context) error { return nil }

func (f *sizedFetch) Close() error { return f.fetchOrigin.Close() }

// sizedImages uploads pictures; the server makes their variants.
type sizedImages struct {
	w    *sizeWorld
	jobs int
}

func (*sizedImages) Flags() []string { return nil }

func (m *sizedImages) Submit(ctx context.Context) error {
	c, err := client.New(client.Config{BaseURL: "http://" + m.w.addr()})
	if err != nil {
		return err
	}
	picture := image.NewRGBA(image.Rect(0, 0, 64, 64))
	for i := range picture.Pix {
		picture.Pix[i] = uint8(i * i)
	}
	picture.Set(0, 0, color.White)
	var file bytes.Buffer
	if err := png.Encode(&file, picture); err != nil {
		return err
	}
	_, err = runParallel(ctx, m.w.conns, m.jobs, func(ctx context.Context, _, _ int) error {
		_, err := c.Images().Upload(ctx, client.ImageUpload{Body: bytes.NewReader(file.Bytes()),
			Type: "image/png", Sizes: []int{16, 32}})
		return err
	})
	return err
}

func (*sizedImages) Work(context.Context) error { return nil }

func (*sizedImages) Close() error { return nil }
