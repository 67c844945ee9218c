package fetchbox

import (
	"bytes"
	"context"
	"log/slog"
	"time"

	"github.com/millrace/millrace/internal/clock"
	"github.com/millrace/millrace/internal/contract/fetchbox/handler"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/object"
	"github.com/millrace/millrace/internal/outage"
	"github.com/millrace/millrace/internal/stream"
	"github.com/millrace/millrace/internal/telemetry"
)

// A submit stores three things, in this order, so that a failure at any point leaves no half job
// (G-FB-02):
//
//  1. the manifest, as an object         left behind: undo or the sweep removes it
//  2. the first entry of the job's log   left behind: it expires with its stream
//  3. job, idempotency key and tasks     in one transaction, which makes the job exist
//
// A try that failed in an outage is repeated from the step that is missing. If the answer of the
// commit was lost, the repeated commit finds the rows of the first, which is success.
const (
	maxStoreAttempts = 3 // G-FB-20
	minStorePause    = 100 * time.Millisecond
	maxStorePause    = 200 * time.Millisecond
	storeTimeout     = 10 * time.Second // of one try
	undoTimeout      = 5 * time.Second
)

// once identifies a submit by its idempotency key, whose window ends with the time that it is
// remembered (FB-050).
func (f *FetchBox) once(h *submitHeaders) engine.Idempotency {
	if h.key == "" {
		return engine.Idempotency{}
	}
	return engine.Idempotency{Alias: keyAlias(h.tenant, h.jobType.name, h.key),
		Window: f.IdempotencyWindow}
}

// ingest is a manifest while its job is created (FB-031). Its last members say which steps are
// done; they are only used by the goroutine of the submit.
type ingest struct {
	f         *FetchBox
	job       handler.Job
	once      engine.Idempotency
	callback  string // of the job
	text      []byte // the manifest as it was sent
	resources int
	tasks     []encodedTask
	trace     string
	keys      []string // of the rows of the tasks
	createdAt time.Time

	manifestStored bool
	cursor         uint64 // offset of the first entry of the job's log; 0 until it is stored
	outcomeUnknown bool   // the rows may be stored although their commit returned an error
}

// ingest prepares everything that store is going to store. The ids are chosen here, once, so that
// every try writes the same manifest and the same rows. It fails as jobType.build does.
func (f *FetchBox) ingest(ctx context.Context, h *submitHeaders, m handler.Manifest,
	text []byte) (*ingest, error) {
	trace := telemetry.Carrier(ctx)
	ids := f.ids.Next(1)
	in := &ingest{f: f, once: f.once(h), callback: h.callback, text: text,
		resources: len(m.Resources), trace: trace, createdAt: f.Now(),
		job: handler.Job{ID: ids[0], Type: h.jobType.name, Tenant: h.tenant,
			TraceID: telemetry.TraceID(trace)}}
	in.job.ManifestKey = f.Objects.URI("", in.manifest())
	var err error
	if in.tasks, err = h.jobType.build(ctx, in.job, m); err != nil {
		return nil, err
	}
	in.keys = f.ids.Next(len(in.tasks))
	return in, nil
}

// manifestPrefix begins the keys of all manifests, followed by the job type and the job.
const manifestPrefix = "manifests/"

// manifest is the key of the stored manifest (FB-029).
func (in *ingest) manifest() string {
	return manifestPrefix + in.job.Type + "/" + in.job.ID + "/metadata.json"
}

// store creates the job completely or not at all (G-FB-02). After an error there is no job, and the
// idempotency key is free (FB-035, FB-049), except where the outcome of a commit is unknown: the
// job may exist then, and a repeated submit with the key finds it.
func (in *ingest) store(ctx context.Context) (*receipt, error) {
	r, err := in.storeRetrying(ctx)
	if err != nil {
		in.undo(ctx)
		return nil, err
	}
	return r, nil
}

// storeRetrying calls tryStore until it succeeds or its error is not transient, at most
// maxStoreAttempts times and not after the caller has gone.
func (in *ingest) storeRetrying(ctx context.Context) (r *receipt, err error) {
	backoff := clock.Backoff{Min: minStorePause, Max: maxStorePause}
	for try := range maxStoreAttempts {
		if try > 0 && !backoff.Sleep(ctx) {
			break
		}
		r, err = in.tryStore(ctx)
		// Without the manifest the object storage has failed, and its client has retried already.
		if !in.manifestStored || !engine.IsTransient(err) {
			break
		}
	}
	return r, err
}

// tryStore does the steps that earlier tries have not done. The entry of the log also proves that
// the streams accept what the outbox is going to publish.
func (in *ingest) tryStore(ctx context.Context) (*receipt, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	if err := in.storeManifest(ctx); err != nil {
		return nil, err
	}
	if in.cursor == 0 {
		offset, err := in.f.openLog(ctx, in.job, in.resources, in.createdAt)
		if err != nil {
			return nil, err
		}
		in.cursor = offset
	}
	return in.commit(ctx)
}

// commit stores the rows, unless an earlier try has or another request with the same idempotency
// key was first (FB-048). A conflict after a failed commit is with the rows of that commit: its
// answer was lost, and the job exists. The other request's job answers this one as well; the
// manifest stored here is deleted then.
func (in *ingest) commit(ctx context.Context) (*receipt, error) {
	made, err := in.f.Engine.SubmitOnce(ctx, in.once, in.rows())
	switch {
	case job.IsKind(err, job.Conflict) && in.outcomeUnknown: // with the rows of an earlier try
		return in.receipt(), nil
	case err != nil:
		in.outcomeUnknown = true
		return nil, err
	case made.Existed && made.Job.ID.Key != in.job.ID:
		in.outcomeUnknown = false
		in.undo(ctx)
		return newReceipt(made.Job), nil
	}
	return in.receipt(), nil
}

// storeManifest stores the manifest unless it is stored already. Its errors are never the caller's
// fault.
func (in *ingest) storeManifest(ctx context.Context) error {
	if in.manifestStored {
		return nil
	}
	_, err := in.f.Objects.Put(ctx, "", in.manifest(), bytes.NewReader(in.text),
		object.Attributes{ContentType: "application/json"})
	if err != nil {
		return &job.Error{Kind: job.Unavailable, Op: Name,
			Msg: "the manifest could not be stored", Err: err}
	}
	in.manifestStored = true
	return nil
}

// openLog stores the first entry of a job's log and returns its offset (FB-060). It does so once:
// repeated calls return the same entry, also on another node that ingests a task of the same direct
// producer's job at the same time.
func (f *FetchBox) openLog(ctx context.Context, j handler.Job, resources int, at time.Time) (uint64,
	error) {
	o := strictjson.NewObject(make([]byte, 0, 256))
	l := logEntry{jobID: j.ID, traceID: j.TraceID, level: levelInfo, message: "the job is accepted",
		at: at}
	l.append(&o, func(o *strictjson.Object) {
		o.Text("job_type", j.Type)
		o.Int("resources", int64(resources))
	})
	offsets, err := f.publish(ctx, []stream.Message{{Subject: logSubject(j.ID),
		ID: j.ID + "/accepted", FirstOnly: true, Data: o.End()}})
	if err != nil {
		return 0, err
	}
	return offsets[0], nil
}

// rows are the job and its tasks as the engine stores them. The job comes first, as the idempotency
// key becomes the alias of the first row.
func (in *ingest) rows() []engine.Submission {
	details := jobDetails{
		manifestKey: in.job.ManifestKey,
		tenant:      in.job.Tenant,
		resources:   in.resources,
		cursor:      in.cursor,
		traceID:     in.job.TraceID,
	}
	batch := make([]engine.Submission, 0, 1+len(in.tasks))
	row := in.f.jobRow(in.job.ID, in.job.Type, &details, in.trace)
	row.Job.Callback = in.callback
	batch = append(batch, row)
	for i := range in.tasks {
		batch = append(batch, in.f.taskRow(in.keys[i], &in.tasks[i], in.trace, false))
	}
	return batch
}

// receipt is the answer to the submit that has made the job.
func (in *ingest) receipt() *receipt {
	return &receipt{jobID: in.job.ID, manifestKey: in.job.ManifestKey, resources: in.resources}
}

// undo deletes the manifest of a job that was not created. If the outcome is unknown, or if the
// deletion fails, the manifest is left to the sweep.
func (in *ingest) undo(ctx context.Context) {
	if !in.manifestStored || in.outcomeUnknown {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	if err := in.f.Objects.Delete(ctx, "", in.manifest()); err != nil {
		in.f.Log.Log(context.Background(), outage.Level(slog.LevelWarn, err),
			"a manifest without a job is left to the sweep", telemetry.JobID, in.job.ID,
			telemetry.ErrorMessage, err)
	}
}
