package fetchbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"

	"go.opentelemetry.io/otel/attribute"

	"github.com/millrace/millrace/internal/contract/fetchbox/handler"
	"github.com/millrace/millrace/internal/egress"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/object"
	"github.com/millrace/millrace/internal/telemetry"
	"github.com/millrace/millrace/internal/worker"
)

const (
	usualParallel = 8    // downloads of a type at a time on a node, where the type sets no limit
	mostParallel  = 1000 // whatever it sets
)

// runFetchers downloads the tasks of every job type until ctx ends and what is under way is over.
func (f *FetchBox) runFetchers(ctx context.Context) {
	defer f.ways.close()
	var all sync.WaitGroup
	for name, t := range f.types {
		pool, err := worker.New(worker.Config{Engine: f.engine, Contract: Tasks, Queues: []string{name}, Name: f.Node + "/" + name,
			Slots: min(cmp.Or(t.MaxParallel, usualParallel), mostParallel), Beat: f.Lease / 3, Handler: &fetcher{f, t}, Log: f.Log,
			Panicked: panicked})
		if err != nil {
			panic(err) // New has let nothing pass that is refused here
		}
		all.Go(func() { pool.Run(ctx, f.Grace) })
	}
	all.Wait()
}

// panicked is how a try ends whose handler broke: another one may meet it in a better state.
func panicked(*worker.Task, any) engine.Outcome {
	return failedWith(codeHandlerPanic, "the handler of the job type broke", true, 0)
}

// fetcher runs the tasks of one job type.
type fetcher struct {
	*FetchBox
	of *jobType
}

// Handle implements worker.Handler: one try of a task.
func (f *fetcher) Handle(ctx context.Context, t *worker.Task) engine.Outcome {
	task, err := decodeTask(t.Job.Payload)
	if err != nil {
		return failedWith(codeMalformed, "the task is not one", false, 0)
	}
	if task, err = f.of.complete(ctx, task); err != nil {
		return failedWith(codeHandlerTask, err.Error(), false, 0)
	}
	req, wrong := requestOf(&task)
	if wrong != nil {
		return f.failed(wrong)
	}
	if s := task.Storage; !object.ValidKey(s.Key) || s.Bucket != "" && !object.ValidBucket(s.Bucket) {
		return f.failed(noPlace)
	}
	ways, err := f.ways.of(task.Proxy)
	if err != nil {
		return f.failed(&fault{code: codeUnknownPool, message: err.Error()})
	}
	f.awaitStorage(ctx, f.storageOf(task.Storage.Bucket))
	leave, later := f.hosts.enter(ctx, req.URL.Host)
	if later > 0 {
		return engine.Outcome{On: job.Released, Delay: later, Reason: "the host is left alone for a while"}
	}
	defer leave()
	return f.try(ctx, t.Job, &task, req, f.ways.turn(ways, t.Job.Failures))
}

// try downloads and stores, and says how that ended.
func (f *fetcher) try(ctx context.Context, j *job.Job, task *handler.Task, req *http.Request, turned []way) engine.Outcome {
	f.metrics.inflight.Inc()
	defer f.metrics.inflight.Dec()
	began := f.Elapsed()
	within, span := f.Tracing.StartClient(telemetry.Resume(ctx, j.Trace), "download",
		attribute.String(telemetry.JobID, task.JobID), attribute.String("resource_id", task.ResourceID), attribute.Int("attempt", j.Failures+1),
		attribute.String("server.address", req.URL.Host))
	defer span.End()
	inject(within, req.Header)
	within, cancel := context.WithTimeout(within, f.DownloadTimeout)
	defer cancel()
	got, err := f.download(within, task, req.WithContext(within), turned)
	if ctx.Err() != nil {
		return engine.Outcome{} // given back, or nobody's any more
	}
	f.metrics.downloadSeconds.Observe((f.Elapsed() - began).Seconds())
	if err != nil {
		wrong := f.describe(err)
		telemetry.Fail(span, wrong.code)
		f.Log.Debug("a download failed", telemetry.JobID, task.JobID, "resource_id", task.ResourceID, "attempt", j.Failures+1, telemetry.ErrorMessage, err)
		o := f.failed(wrong)
		if _, met := errors.AsType[*storageError](err); met && wrong.again && !f.answers(ctx, f.storageOf(task.Storage.Bucket)) {
			o.On = job.Released // it costs no try
		}
		return o
	}
	return succeeded(got.encode())
}

// inject sends the trace along, unless the task has headers of its own for that.
func inject(ctx context.Context, h http.Header) {
	if len(h[telemetry.TraceParent]) == 0 && len(h[telemetry.TraceState]) == 0 {
		telemetry.Inject(ctx, h)
	}
}

// failed counts a failure and makes an outcome of it.
func (f *fetcher) failed(it *fault) engine.Outcome {
	if it.ofStorage {
		f.metrics.storageFailures.WithLabelValues(it.code).Inc()
	} else {
		f.metrics.downloadFailures.WithLabelValues(it.code).Inc()
	}
	return failedWith(it.code, it.message, it.again, it.delay)
}

// requestOf is the request that a task asks for, checked as if nobody had done so before: a direct producer's was not.
func requestOf(task *handler.Task) (*http.Request, *fault) {
	u, err := egress.ParseURL(task.URL)
	if err != nil {
		return nil, &fault{code: codeURL, message: err.Error()}
	}
	header := http.Header{}
	for _, name := range slices.Sorted(maps.Keys(task.Headers)) {
		if err := egress.CheckHeader(name, task.Headers[name]); err != nil {
			return nil, &fault{code: codeHeader, message: err.Error()}
		}
		header.Set(name, task.Headers[name])
	}
	req, err := http.NewRequest(http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, &fault{code: codeURL, message: fmt.Sprintf("the URL cannot be asked for: %v", err)}
	}
	req.Header = header
	return req, nil
}
