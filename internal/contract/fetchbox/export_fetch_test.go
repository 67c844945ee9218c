package fetchbox

import (
	"context"
	"time"

	"github.com/millrace/millrace/internal/contract/fetchbox/handler"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/worker"
)

// What the tests of downloads see beside what others do.
var (
	EncodeTask = encodeTask
	MetadataOf = objectMetadata
)

// Fetch is one try of a task.
func (f *FetchBox) Fetch(ctx context.Context, j *job.Job) engine.Outcome {
	return (&fetcher{f, f.types[j.Queue]}).Handle(ctx, &worker.ClaimedJob{Job: j})
}

func (f *FetchBox) RunWorkers(ctx context.Context)   { f.runWorkers(ctx) }
func (f *FetchBox) RunFinalizer(ctx context.Context) { f.runFinalizer(ctx) }

func (f *FetchBox) ProxyHealth(ctx context.Context) (status, detail string) {
	return f.proxyRoutes.health(ctx)
}

func (f *FetchBox) CloseProxyRoutes() { f.proxyRoutes.close() }

// WithHandler gives a registered job type a handler, and leaves the rest of it.
func (f *FetchBox) WithHandler(name string, h handler.Handler) { f.types[name].handler = h }

// Hosts are the hosts of a node.
type Hosts struct{ *hosts }

func NewHosts(limit int, elapsed func() time.Duration) Hosts {
	return Hosts{newHosts(limit, elapsed)}
}

func (h Hosts) Acquire(ctx context.Context, name string) (leave func(), later time.Duration) {
	return h.acquire(ctx, name)
}
func (h Hosts) Pause(name string, d time.Duration) { h.pause(name, d) }
func (h Hosts) Len() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.all)
}
