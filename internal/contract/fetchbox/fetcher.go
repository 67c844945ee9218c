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
	defaultParallel = 8    // downloads of a type at a time on a node, where the type sets no limit
	maxParallel     = 1000 // whatever it sets
)

// runFetchers downloads the tasks of every job type until ctx ends and what is under way is over.
func (f *FetchBox) runFetchers(ctx context.Context) {
	defer f.proxyRoutes.close()
	var all sync.WaitGroup
	for name, t := range f.types {
		pool, err := worker.New(worker.Config{Engine: f.engine, Contract: Tasks,
			Queues: []string{name}, Name: f.Node + "/" + name,
			Slots:             min(cmp.Or(t.MaxParallel, defaultParallel), maxParallel),
			HeartbeatInterval: f.Lease / 3, Handler: &fetcher{f, t}, Log: f.Log,
			OnPanic: panicOutcome})
		if err != nil {
			panic(err) // New has let nothing pass that is refused here
		}
		all.Go(func() { pool.Run(ctx, f.Grace) })
	}
	all.Wait()
}

// panicOutcome is how a try ends whose handler broke: another one may meet it in a better state.
func panicOutcome(*worker.Task, any) engine.Outcome {
	return failureOutcome(codeHandlerPanic, "the handler of the job type broke", true, 0)
}

// fetcher runs the tasks of one job type.
type fetcher struct {
	*FetchBox
	jobType *jobType
}

// Handle implements worker.Handler: one try of a task.
func (f *fetcher) Handle(ctx context.Context, t *worker.Task) engine.Outcome {
	task, err := decodeTask(t.Job.Payload)
	if err != nil {
		return failureOutcome(codeMalformed, "the task is not one", false, 0)
	}
	if task, err = f.jobType.fillDefaults(ctx, task); err != nil {
		return failureOutcome(codeHandlerTask, err.Error(), false, 0)
	}
	req, wrong := newRequest(&task)
	if wrong != nil {
		return f.failureOutcome(wrong)
	}
	if s := task.Storage; !object.ValidKey(s.Key) ||
		(s.Bucket != "" && !object.ValidBucket(s.Bucket)) {
		return f.failureOutcome(errInvalidObjectKey)
	}
	routes, err := f.proxyRoutes.routesFor(task.Proxy)
	if err != nil {
		return f.failureOutcome(&fetchError{code: codeUnknownPool, message: err.Error()})
	}
	f.awaitStorage(ctx, f.storageOf(task.Storage.Bucket))
	release, retryAfter := f.hosts.acquire(ctx, req.URL.Host)
	if retryAfter > 0 {
		return engine.Outcome{On: job.Released, Delay: retryAfter,
			Reason: "the host is left alone for a while"}
	}
	defer release()
	return f.try(ctx, t.Job, &task, req, f.proxyRoutes.rotate(routes, t.Job.FailedAttempts))
}

// try downloads and stores, and says how that ended.
func (f *fetcher) try(ctx context.Context, j *job.Job, task *handler.Task, req *http.Request,
	routes []route) engine.Outcome {
	f.metrics.inflight.Inc()
	defer f.metrics.inflight.Dec()
	startedAt := f.Elapsed()
	within, span := f.Tracing.StartClient(telemetry.Resume(ctx, j.Trace), "download",
		attribute.String(telemetry.JobID, task.JobID),
		attribute.String("resource_id", task.ResourceID),
		attribute.Int("attempt", j.FailedAttempts+1),
		attribute.String("server.address", req.URL.Host))
	defer span.End()
	inject(within, req.Header)
	within, cancel := context.WithTimeout(within, f.DownloadTimeout)
	defer cancel()
	got, err := f.download(within, task, req.WithContext(within), routes)
	if ctx.Err() != nil {
		return engine.Outcome{} // given back, or nobody's any more
	}
	f.metrics.downloadSeconds.Observe((f.Elapsed() - startedAt).Seconds())
	if err != nil {
		wrong := f.toFetchError(err)
		telemetry.FailSpan(span, wrong.code)
		f.Log.Debug("a download failed", telemetry.JobID, task.JobID, "resource_id",
			task.ResourceID, "attempt", j.FailedAttempts+1, telemetry.ErrorMessage, err)
		o := f.failureOutcome(wrong)
		if _, storageState := errors.AsType[*storageError](err); storageState && wrong.retryable &&
			!f.storageResponds(ctx, f.storageOf(task.Storage.Bucket)) {
			o.On = job.Released // it costs no try
		}
		return o
	}
	return successOutcome(got.encode())
}

// inject sends the trace along, unless the task has headers of its own for that.
func inject(ctx context.Context, h http.Header) {
	if len(h[telemetry.TraceParent]) == 0 && len(h[telemetry.TraceState]) == 0 {
		telemetry.Inject(ctx, h)
	}
}

// failed counts a failure and makes an outcome of it.
func (f *fetcher) failureOutcome(it *fetchError) engine.Outcome {
	if it.fromStorage {
		f.metrics.storageFailures.WithLabelValues(it.code).Inc()
	} else {
		f.metrics.downloadFailures.WithLabelValues(it.code).Inc()
	}
	return failureOutcome(it.code, it.message, it.retryable, it.delay)
}

// newRequest is the request that a task asks for, checked as if nobody had done so before: a direct
// producer's was not.
func newRequest(task *handler.Task) (*http.Request, *fetchError) {
	u, err := egress.ParseURL(task.URL)
	if err != nil {
		return nil, &fetchError{code: codeURL, message: err.Error()}
	}
	header := http.Header{}
	for _, name := range slices.Sorted(maps.Keys(task.Headers)) {
		if err := egress.CheckHeader(name, task.Headers[name]); err != nil {
			return nil, &fetchError{code: codeHeader, message: err.Error()}
		}
		header.Set(name, task.Headers[name])
	}
	req, err := http.NewRequest(http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, &fetchError{code: codeURL,
			message: fmt.Sprintf("the URL cannot be asked for: %v", err)}
	}
	req.Header = header
	return req, nil
}
