package fetchbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"github.com/millrace/millrace/internal/contract"
	"github.com/millrace/millrace/internal/contract/fetchbox/handler"
	"github.com/millrace/millrace/internal/egress"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/object"
	"github.com/millrace/millrace/internal/outage"
	"github.com/millrace/millrace/internal/telemetry"
	"github.com/millrace/millrace/internal/worker"
)

// Each job type has a pool of workers, which claim tasks from the queue of the type. A claimed task
// passes through a fetcher:
//
//	claimed
//	   │ task, headers and key are valid?   no: failed for good
//	   │ the bucket is available?           no: wait until it is
//	   │ the host has a free slot?          no: released, the attempt does not count
//	   ▼
//	request, by one proxy after another ─► body ─► object ─► succeeded
//	   │ an error that may pass:        failed, retried with backoff (FB-083)
//	   │ any other error:               failed for good, a dead letter (FB-084)
//	   │ an outage of the bucket:       released, the attempt does not count
//
// If the node is lost, the lease expires and the task is claimed again (FB-087). It begins from the
// start, as a part of a download is never kept.
const (
	defaultParallel = 8    // downloads of a type at a time on a node, if the type sets no limit
	maxParallel     = 1000 // downloads of a type at a time on a node, whatever the type sets
)

// storeQueueLimits stores how many downloads of each job type may run over all nodes (FB-074). It
// returns when they are stored, or when ctx ends. A type without a limit loses one that was stored
// before.
func (f *FetchBox) storeQueueLimits(ctx context.Context) {
	limits := map[string]job.QueueLimits{}
	for name, t := range f.types {
		limits[name] = job.QueueLimits{MaxRunning: t.MaxParallel()}
	}
	contract.StoreQueueLimits(ctx, f.Engine, f.Log, Tasks, limits)
}

// runWorkers downloads the tasks of every job type until ctx ends and the running downloads have
// finished or Grace has passed. Each type has a pool of workers of its own, so that slow origins of
// one type leave the slots of the others free. The slots bound what this node does; the engine
// holds the limit over all nodes, see storeQueueLimits. Tasks whose type is not registered any more
// stay queued.
//
// The interval of heartbeats is a third of the lease, so that a heartbeat which fails can be
// repeated before the lease expires.
func (f *FetchBox) runWorkers(ctx context.Context) {
	defer f.proxyRoutes.close()
	var all sync.WaitGroup
	for name, t := range f.types {
		pool := worker.MustNew(worker.Config{
			Engine: f.Engine, JobType: Tasks, Queues: []string{name},
			Name:              f.Node + "/" + name,
			Slots:             min(cmp.Or(t.MaxParallel(), defaultParallel), maxParallel),
			HeartbeatInterval: f.Lease / 3,
			Handler:           &fetcher{f, t},
			OnPanic:           panicOutcome,
			Log:               f.Log,
		})
		all.Go(func() { pool.Run(ctx, f.Grace) })
	}
	all.Wait()
}

// panicOutcome ends an attempt whose handler panicked. It is retryable: the panic may depend on
// state that changes.
func panicOutcome(*worker.ClaimedJob, any) engine.Outcome {
	e := taskError{code: codeHandlerPanic, retryable: true,
		message: "the handler of the job type panicked"}
	return e.outcome()
}

// fetcher executes the tasks of one job type. It holds no state of an attempt, so all workers of
// the pool share it.
type fetcher struct {
	*FetchBox
	jobType *jobType
}

// Handle implements worker.Handler: one attempt at a task. What can be checked without the network
// is checked first, so that a task which cannot succeed takes no slot of a host. The waits for the
// bucket and for a slot end with ctx; the pool renews the lease meanwhile.
func (f *fetcher) Handle(ctx context.Context, t *worker.ClaimedJob) engine.Outcome {
	task, err := decodeTask(t.Job.Payload)
	if err != nil {
		unreadable := taskError{code: codeMalformed, message: "the task is malformed"}
		return unreadable.outcome()
	}
	if task, err = f.jobType.adjust(ctx, task); err != nil {
		return handlerOutcome(ctx, err)
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

// handlerDelay is how long a task waits whose handler is missing on this machine.
const handlerDelay = 10 * time.Second

// handlerOutcome ends an attempt whose handler returned an error. A refusal is final. A handler
// that could not be asked costs an attempt, and none where its program is missing on this machine.
func handlerOutcome(ctx context.Context, err error) engine.Outcome {
	failure := &taskError{code: codeHandlerTask, message: err.Error()}
	var unavailable *handler.UnavailableError
	if ctx.Err() != nil {
		return engine.Outcome{} // the node stops, or the lease was lost: the worker pool decides
	}
	if errors.As(err, &unavailable) {
		failure.retryable = true
		if unavailable.Missing {
			return engine.Outcome{On: job.Released, Delay: handlerDelay, Reason: err.Error()}
		}
	}
	return failure.outcome()
}

// fetch downloads and stores the resource of a task and returns the outcome of the attempt.
// DownloadTimeout bounds the attempts at all routes and the storing together (G-FB-29). If ctx
// ends, the attempt is neither counted nor observed: it may have failed because of that.
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
	return successOutcome(j, stored.encode())
}

// failDownload returns the outcome of a download that failed. One that failed because of an outage
// of the object storage is released instead, which costs no attempt. Otherwise an outage that lasts
// longer than the attempts of a task would make a dead letter of every task that is claimed
// meanwhile.
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

// fail counts a failed attempt and returns its outcome. A failure counts either as one of the
// storage or as one of the download (G-FB-42).
func (f *fetcher) fail(e *taskError) engine.Outcome {
	failures := f.metrics.downloadFailures
	if e.isStorageFailure() {
		failures = f.metrics.storageFailures
	}
	failures.WithLabelValues(e.code).Inc()
	return e.outcome()
}

// newRequest makes the request of a task. It checks everything again, as the task of a direct
// producer has passed no check of the API. Its errors are final: the same task would fail again.
// Which addresses the host leads to is checked by the client when it connects, and after every
// redirect (FB-081, G-FB-30).
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
