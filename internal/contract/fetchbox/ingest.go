package fetchbox

import (
	"bytes"
	"context"
	"errors"
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

const (
	maxStoreTries   = 3 // G-FB-20
	storeRetryDelay = 50 * time.Millisecond
	storeTimeout    = 10 * time.Second
	undoTimeout     = 5 * time.Second
)

var errUnchanged = errors.New("nothing is to be changed")

// findByIdempotencyKey finds the job that was submitted under an idempotency key, nil when there is
// none or its window is over: then the key is free from here on (FB-050).
func (f *FetchBox) findByIdempotencyKey(ctx context.Context, alias job.IdentityHash) (*receipt,
	error) {
	j, err := f.engine.GetByAlias(ctx, alias)
	if job.IsKind(err, job.NotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if f.Now().Sub(j.CreatedAt) < f.IdempotencyWindow {
		return newReceipt(j), nil
	}
	_, err = f.engine.Change(ctx, j.ID, job.Replaced, func(j *job.Job, _ time.Time) error {
		if j.Alias != alias {
			return errUnchanged
		}
		j.Alias = job.IdentityHash{}
		return nil
	})
	if err != nil && !errors.Is(err, errUnchanged) && !job.IsKind(err, job.NotFound) {
		return nil, err
	}
	return nil, nil
}

// ingest is a manifest on its way in (FB-031).
type ingest struct {
	f         *FetchBox
	job       handler.Job
	alias     job.IdentityHash // zero without an idempotency key
	text      []byte           // the manifest as it came
	resources int
	tasks     []handler.Task
	trace     string
	keys      []string // of the rows of the tasks
	createdAt time.Time

	manifestStored bool   // the manifest is stored
	cursor         uint64 // 0 until the first entry of the job's log is stored
	outcomeUnknown bool   // the rows may be stored although nobody said so
}

// ingest builds what is to be stored of a manifest. Nothing is until store.
func (f *FetchBox) ingest(ctx context.Context, h *submitHeaders, m handler.Manifest,
	text []byte) (*ingest, error) {
	trace := telemetry.Carrier(ctx)
	ids := f.ids.Next(1)
	in := &ingest{f: f, text: text, resources: len(m.Resources), trace: trace, createdAt: f.Now(),
		job: handler.Job{ID: ids[0], Type: h.jobType.name, Tenant: h.tenant,
			TraceID: traceIDOf(trace)}}
	in.job.ManifestKey = f.Objects.URI("", in.manifest())
	if h.key != "" {
		in.alias = keyAlias(h.tenant, h.jobType.name, h.key)
	}
	var err error
	if in.tasks, err = h.jobType.build(ctx, in.job, m); err != nil {
		return nil, err
	}
	in.keys = f.ids.Next(len(in.tasks))
	return in, nil
}

// manifestPrefix begins the keys of all manifests; the job type and the job follow.
const manifestPrefix = "manifests/"

// manifest is the key of the stored manifest (FB-029).
func (in *ingest) manifest() string {
	return manifestPrefix + in.job.Type + "/" + in.job.ID + "/metadata.json"
}

// store makes the job exist as a whole or not at all (G-FB-02).
func (in *ingest) store(ctx context.Context) (*receipt, error) {
	var err error
	for try := range maxStoreTries {
		if try > 0 && !clock.Sleep(ctx, storeRetryDelay<<try) {
			break
		}
		var r *receipt
		if r, err = in.attempt(ctx); err == nil {
			return r, nil
		}
		if k := job.KindOf(err); !in.manifestStored ||
			(k != job.Unavailable && k != job.Timeout && k != job.Internal) {
			break // also where the storage failed: it has been tried by its client
		}
	}
	in.undo(ctx)
	return nil, err
}

// attempt does what earlier ones have left undone: the manifest, the first entry of the log, which
// shows that the streams take what the outbox will bring, and the rows in one transaction.
func (in *ingest) attempt(ctx context.Context) (*receipt, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	f := in.f
	if !in.manifestStored {
		_, err := f.Objects.Put(ctx, "", in.manifest(), bytes.NewReader(in.text),
			object.Attributes{ContentType: "application/json"})
		if err != nil { // whatever it is, it is not the caller's fault
			return nil, &job.Error{Kind: job.Unavailable, Op: Name,
				Msg: "the manifest could not be stored", Err: err}
		}
		in.manifestStored = true
	}
	if in.cursor == 0 {
		offset, err := f.openLog(ctx, in.job, in.resources, in.createdAt)
		if err != nil {
			return nil, err
		}
		in.cursor = offset
	}
	_, err := f.engine.Submit(ctx, engine.Unique, in.rows())
	switch {
	case err == nil:
		return in.receipt(), nil
	case job.IsKind(err, job.Conflict):
		return in.resolveConflict(ctx)
	}
	in.outcomeUnknown = true
	return nil, err
}

// openLog stores the first entry of a job's log and returns its offset (FB-060). Stored again, also
// by a node that takes in another task of a direct producer's job at the same time, it is the same
// entry.
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

func (in *ingest) rows() []engine.Submission {
	e := jobDetails{manifestKey: in.job.ManifestKey, tenant: in.job.Tenant, resources: in.resources,
		cursor: in.cursor, traceID: in.job.TraceID}
	batch := make([]engine.Submission, 0, 1+len(in.tasks))
	batch = append(batch, in.f.jobRow(in.job.ID, in.job.Type, in.alias, &e, in.trace))
	for i := range in.tasks {
		batch = append(batch, in.f.taskRow(in.keys[i], &in.tasks[i], in.trace, false))
	}
	return batch
}

func (in *ingest) receipt() *receipt {
	return &receipt{jobID: in.job.ID, manifestKey: in.job.ManifestKey, resources: in.resources}
}

// resolveConflict says what a conflict means: the rows were stored by an attempt whose answer was
// lost, or the key is another's, who came first (FB-048).
func (in *ingest) resolveConflict(ctx context.Context) (*receipt, error) {
	own, err := in.f.engine.Exists(ctx, engineJobID(in.job.ID))
	if err != nil {
		in.outcomeUnknown = true
		return nil, err
	}
	if own {
		return in.receipt(), nil
	}
	first, err := in.f.findByIdempotencyKey(ctx, in.alias)
	if err != nil {
		return nil, err
	}
	if first == nil { // it has ended since
		return nil, &job.Error{Kind: job.Unavailable, Op: Name,
			Msg: "another request had the same idempotency key"}
	}
	in.undo(ctx)
	return first, nil
}

// undo takes the manifest of a job that does not exist away. Where nobody knows whether it does,
// and where this fails, the sweep looks later.
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
