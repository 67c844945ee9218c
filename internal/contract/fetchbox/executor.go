package fetchbox

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"github.com/millrace/millrace/internal/contract/fetchbox/handler"
	"github.com/millrace/millrace/internal/egress"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/object"
	"github.com/millrace/millrace/internal/outage"
	"github.com/millrace/millrace/internal/telemetry"
	"github.com/millrace/millrace/internal/worker"
)

// The way of a task through a fetcher. Whatever stops it before the request costs nothing but time:
//
//	claimed ─► task, headers and key valid? ─► bucket available? ─► a slot of the host free?
//	                 │ no: failed for good        │ no: wait            │ no: released
//	                 ▼                            ▼                     ▼
//	           ─► request, by the proxies in turn ─► body ─► object ─► succeeded
//	                 │ failed: retried with backoff, or a dead letter (FB-083)
//	                 │ the bucket is unavailable: released, the attempt does not count
//	                 ▼
const (
	defaultParallel = 8    // downloads of a type at a time on a node, if the type sets no limit
	maxParallel     = 1000 // downloads of a type at a time on a node, whatever the type sets

	// limitRetryInterval is the pause between attempts to store the limits.
	limitRetryInterval = 5 * time.Second
)

// runLimits stores how many downloads of each job type may run over all nodes (FB-074). It returns
// when they are stored, or when ctx ends.
func (f *FetchBox) runLimits(ctx context.Context) {
	limits := map[string]int{}
	for name, t := range f.types {
		if t.MaxParallel() > 0 {
			limits[name] = t.MaxParallel()
		}
	}
	loop := outage.Loop{Log: f.Log, Name: "limits of downloads"}
	loop.Until(ctx, limitRetryInterval, func(ctx context.Context) error {
		return f.engine.LimitQueues(ctx, Tasks, limits)
	})
}

// runFetchers downloads the tasks of every job type until ctx ends and the running downloads have
// finished.
func (f *FetchBox) runFetchers(ctx context.Context) {
	defer f.proxyRoutes.close()
	var all sync.WaitGroup
	for name, t := range f.types {
		pool, err := worker.New(worker.Config{
			Engine: f.engine, Contract: Tasks, Queues: []string{name},
			Name:              f.Node + "/" + name,
			Slots:             min(cmp.Or(t.MaxParallel(), defaultParallel), maxParallel),
			HeartbeatInterval: f.Lease / 3,
			Handler:           &fetcher{f, t},
			OnPanic:           panicOutcome,
			Log:               f.Log,
		})
		if err != nil {
			panic(err) // New has validated everything that worker.New checks
		}
		all.Go(func() { pool.Run(ctx, f.Grace) })
	}
	all.Wait()
}

// panicOutcome ends an attempt whose handler panicked. It is retryable: the panic may depend on
// state that changes.
func panicOutcome(*worker.Task, any) engine.Outcome {
	return failureOutcome(&taskError{code: codeHandlerPanic, retryable: true,
		message: "the handler of the job type panicked"})
}

// fetcher executes the tasks of one job type.
type fetcher struct {
	*FetchBox
	jobType *jobType
}

// Handle implements worker.Handler: one attempt at a task.
func (f *fetcher) Handle(ctx context.Context, t *worker.Task) engine.Outcome {
	task, err := decodeTask(t.Job.Payload)
	if err != nil {
		return failureOutcome(&taskError{code: codeMalformed, message: "the task is malformed"})
	}
	if task, err = f.jobType.fillDefaults(ctx, task); err != nil {
		return failureOutcome(&taskError{code: codeHandlerTask, message: err.Error()})
	}
	req, taskErr := newRequest(&task)
	if taskErr != nil {
		return f.fail(taskErr)
	}
	if s := task.Storage; !object.ValidKey(s.Key) ||
		(s.Bucket != "" && !object.ValidBucket(s.Bucket)) {
		return f.fail(errInvalidObjectKey)
	}
	routes, err := f.proxyRoutes.routesFor(task.Proxy)
	if err != nil {
		return f.fail(&taskError{code: codeUnknownPool, message: err.Error()})
	}
	f.awaitStorage(ctx, f.storageOf(task.Storage.Bucket))
	release, retryAfter := f.hosts.acquire(ctx, req.URL.Host)
	if retryAfter > 0 {
		return engine.Outcome{On: job.Released, Delay: retryAfter,
			Reason: "the host is paused or has no free slot"}
	}
	defer release()
	return f.fetch(ctx, t.Job, &task, req, f.proxyRoutes.rotate(routes, t.Job.FailedAttempts))
}

// fetch downloads and stores the resource of a task and returns the outcome of the attempt.
func (f *fetcher) fetch(ctx context.Context, j *job.Job, task *handler.Task, req *http.Request,
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
	injectTrace(within, req.Header)
	within, cancel := context.WithTimeout(within, f.DownloadTimeout)
	defer cancel()
	stored, err := f.download(within, task, req.WithContext(within), routes)
	if ctx.Err() != nil {
		return engine.Outcome{} // the node stops, or the lease was lost: the worker pool decides
	}
	f.metrics.downloadSeconds.Observe((f.Elapsed() - startedAt).Seconds())
	if err != nil {
		taskErr := f.toTaskError(err)
		telemetry.FailSpan(span, taskErr.code)
		f.logFailure(j, task, taskErr, err)
		return f.failDownload(ctx, task, taskErr)
	}
	return successOutcome(stored.encode())
}

// failDownload returns the outcome of a download that failed. One that failed because of an outage
// of the object storage is released instead, which costs no attempt.
func (f *fetcher) failDownload(ctx context.Context, task *handler.Task,
	taskErr *taskError) engine.Outcome {
	o := f.fail(taskErr)
	if taskErr.storing && taskErr.retryable &&
		!f.storageResponds(ctx, f.storageOf(task.Storage.Bucket)) {
		o.On = job.Released
	}
	return o
}

// logFailure logs a failed attempt, and an object that could not be stored at the level that the
// cause deserves.
func (f *fetcher) logFailure(j *job.Job, task *handler.Task, e *taskError, err error) {
	if e.code == codeUpload {
		f.Log.Log(context.Background(), outage.Level(slog.LevelWarn, e.cause),
			"a download cannot be stored", telemetry.ErrorMessage, e.cause)
	}
	f.Log.Debug("a download failed", telemetry.JobID, task.JobID, "resource_id", task.ResourceID,
		"attempt", j.FailedAttempts+1, telemetry.ErrorMessage, err)
}

// injectTrace sends the trace along, unless the task sets trace headers itself.
func injectTrace(ctx context.Context, h http.Header) {
	if len(h[telemetry.TraceParent]) == 0 && len(h[telemetry.TraceState]) == 0 {
		telemetry.Inject(ctx, h)
	}
}

// fail counts a failed attempt and returns its outcome.
func (f *fetcher) fail(e *taskError) engine.Outcome {
	failures := f.metrics.downloadFailures
	if e.ofStorage() {
		failures = f.metrics.storageFailures
	}
	failures.WithLabelValues(e.code).Inc()
	return failureOutcome(e)
}

// newRequest makes the request of a task. It checks everything again, as the task of a direct
// producer has passed no check of the API.
func newRequest(task *handler.Task) (*http.Request, *taskError) {
	u, err := egress.ParseURL(task.URL)
	if err != nil {
		return nil, &taskError{code: codeURL, message: err.Error()}
	}
	header := http.Header{}
	for _, name := range slices.Sorted(maps.Keys(task.Headers)) {
		if err := egress.CheckHeader(name, task.Headers[name]); err != nil {
			return nil, &taskError{code: codeHeader, message: err.Error()}
		}
		header.Set(name, task.Headers[name])
	}
	req, err := http.NewRequest(http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, &taskError{code: codeURL,
			message: fmt.Sprintf("the URL cannot be requested: %v", err)}
	}
	req.Header = header
	return req, nil
}
