package images

import (
	"context"
	"errors"
	"io"
	"os"

	"github.com/millrace/millrace/internal/contract/images/picture"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/object"
	"github.com/millrace/millrace/internal/worker"
)

// An attempt goes through these steps, with heartbeats while it runs:
//
//	claim    by the message that proposes the job (messages.go); attempt_count is raised
//	process  or deleteObjects, by the type of the job
//	finish   completed with the result, failed_retryable or failed with the failure
//
//	                          what happens to the job
//	error of the picture      failed, or retried if the error depends on the load of the machine
//	error of a storage        retried after a delay
//	panic                     retried after a delay
//	the node stops            released: retried at once, the attempt counted
//	the node dies             stale when its lease has ended: retried at once, the attempt counted
//
// Every attempt may end in the middle: what it has written is overwritten with the same bytes by
// the next one, or removed with the file.

// heartbeatsPerLock is how many heartbeats a worker sends in the time of a lease (G-IP-05).
const heartbeatsPerLock = 3

// runWorkers executes the jobs that messages propose, until ctx ends. When ctx has ended,
// attempts may continue for Grace.
func (m *Images) runWorkers(ctx context.Context) {
	pool := worker.MustNew(worker.Config{Engine: m.Engine, JobType: Name, Name: m.Node,
		Workers: m.Workers, HeartbeatInterval: m.LockTimeout / heartbeatsPerLock,
		Claim: m.claim, Finish: m.finish, Handler: attempts{m}, Log: m.Log,
		OnPanic: func(t *worker.ClaimedJob, _ any) engine.Outcome {
			return failureOutcome(t.Job, "the attempt panicked", typeInternal, true)
		}})
	m.unclaimedWorkers.Store(int64(m.Workers))
	pool.Run(ctx, m.Grace)
}

// finish finishes an attempt and measures the call. If the run is no longer the current one of its
// job, the engine refuses it with RunLost and nothing changes (G-IP-04).
func (m *Images) finish(ctx context.Context, run engine.Run, o engine.Outcome) (j *job.Job,
	err error) {
	err = m.worker.query(opUpdate, func() (err error) {
		j, err = m.Engine.Finish(ctx, run, o)
		return err
	})
	return j, err
}

// attempts executes the attempts of both types of jobs. It may be used from many goroutines.
type attempts struct{ *Images }

// Handle implements worker.Handler. An attempt that succeeded is completed even if ctx has ended
// meanwhile.
func (a attempts) Handle(ctx context.Context, t *worker.ClaimedJob) engine.Outcome {
	run := a.process
	if t.Job.Queue == deleteFile {
		run = a.deleteObjects
	}
	result, err := run(ctx, t.Job)
	switch {
	case err != nil && ctx.Err() != nil: // the node stops or the lease was lost, perhaps the reason
		return engine.Outcome{On: job.Released}
	case err != nil:
		return outcomeOf(t.Job, err)
	}
	return engine.Outcome{On: job.Succeeded, Result: result}
}

// permanentError is an error of an attempt that another attempt would have again.
type permanentError struct{ kind, text string }

// Error implements error.
func (f *permanentError) Error() string { return f.text }

const textDeleted = "the file was deleted"

var errFileGone = &permanentError{typeDeleted, textDeleted}

// outcomeOf is the outcome of an attempt that returned an error. Only errors that are known to
// come again in each attempt are final. Anything else is retried until the attempts are used up
// (IP-053, IP-054).
func outcomeOf(j *job.Job, err error) engine.Outcome {
	var pictureErr *picture.Error
	var permanent *permanentError
	var storageErr *job.Error
	switch {
	case errors.As(err, &pictureErr):
		return failureOutcome(j, pictureErr.Msg, pictureErr.Type, !pictureErr.Final)
	case errors.As(err, &permanent):
		return failureOutcome(j, permanent.text, permanent.kind, false)
	case errors.As(err, &storageErr):
		return failureOutcome(j, err.Error(), typeStorage, true)
	}
	return failureOutcome(j, err.Error(), typeInternal, true)
}

// process makes the variants of a file (G-IP-14). Two attempts may do so, even at the same time:
// they write the same bytes.
//
// A file may be deleted meanwhile, and a deletion only removes the objects that exist when it runs.
// So process checks for a deletion before it starts, before it writes, and once more afterwards;
// the last check removes what this attempt has written (G-IP-15).
func (m *Images) process(ctx context.Context, j *job.Job) ([]byte, error) {
	if err := m.ensureNotDeleted(ctx, j.Owner); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(m.WorkDir, "attempt-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	info, variants, err := m.render(ctx, j, dir)
	if err != nil {
		return nil, err
	}
	if err := m.ensureNotDeleted(ctx, j.Owner); err != nil {
		return nil, err
	}
	stored, putErr := m.putVariants(ctx, j.Owner, variants)
	// An attempt that was interrupted while it wrote has to clean up as well.
	checkCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	if err := m.ensureNotDeleted(checkCtx, j.Owner); err != nil {
		return nil, err
	}
	if putErr != nil {
		return nil, putErr
	}
	result := processResult{MIME: info.MIME, Width: info.Width, Height: info.Height,
		Variants: stored}
	return result.encode(), nil
}

// putVariants stores variants under their keys and returns them in the same order. After an error
// some may be stored: the next attempt overwrites them.
func (m *Images) putVariants(ctx context.Context, fileID string,
	variants []picture.Variant) (stored []variant, err error) {
	for _, v := range variants {
		key := variantStem(fileID, v.Size) + variantExtensions[v.MIME]
		if err := m.putFile(ctx, key, v.Path, v.MIME); err != nil {
			return nil, err
		}
		stored = append(stored, variant{Size: v.Size, Width: v.Width, Height: v.Height,
			Bytes: v.Bytes, Key: key})
	}
	return stored, nil
}

// render runs the processor on the original and returns the variants, which are files in dir. The
// original is streamed and never in the memory of this process.
func (m *Images) render(ctx context.Context, j *job.Job, dir string) (picture.Info,
	[]picture.Variant, error) {
	var original io.ReadCloser
	err := m.worker.object(opGet, func() (err error) {
		original, _, err = m.Objects.Open(ctx, "", originalKey(j.Owner))
		return err
	})
	if job.IsKind(err, job.NotFound) {
		// With several nodes the object may be in a storage that this node does not use yet, so the
		// error is final on a single node only.
		err = &picture.Error{Type: typeOriginal,
			Msg: "the uploaded file is not in the object storage", Final: m.Binding == nil}
	}
	if err != nil {
		return picture.Info{}, nil, err
	}
	defer original.Close()
	u := uploadOf(j)
	return m.Processor.Run(ctx, original, u.Sizes, dir)
}

// putFile stores a file as an object, in place of the one with the same key.
func (m *Images) putFile(ctx context.Context, key, path, mime string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return m.worker.object(opPut, func() error {
		_, err := m.Objects.Put(ctx, "", key, f, object.Attributes{ContentType: mime})
		return err
	})
}

// ensureNotDeleted returns errFileGone if the file was deleted, after it has removed what an
// attempt may have written since (G-IP-15). A file is deleted from the moment its deletion is
// submitted, whatever becomes of that job.
func (m *Images) ensureNotDeleted(ctx context.Context, fileID string) error {
	err := m.worker.query(opSelect, func() error {
		_, err := m.Engine.GetByAlias(ctx, deletionAlias(fileID))
		return err
	})
	if job.IsKind(err, job.NotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := m.removeObjects(ctx, fileID); err != nil {
		return err
	}
	return errFileGone
}

// deleteObjects removes a file with its variants. It succeeds if there is nothing to remove, so
// that it may be repeated.
func (m *Images) deleteObjects(ctx context.Context, j *job.Job) ([]byte, error) {
	return nil, m.removeObjects(ctx, j.Owner)
}

// removePageSize is how many objects are listed in one call.
const removePageSize = 100

// removeObjects removes everything below a file's prefix. It lists until nothing is left, and so
// also removes what was written meanwhile.
func (m *Images) removeObjects(ctx context.Context, fileID string) error {
	for {
		var found []string
		err := m.worker.object(opList, func() (err error) {
			found, err = m.Objects.List(ctx, "", filePrefix(fileID), "", removePageSize)
			return err
		})
		if err != nil || len(found) == 0 {
			return err
		}
		for _, key := range found {
			if err := m.worker.object(opDelete, func() error {
				return m.Objects.Delete(ctx, "", key)
			}); err != nil {
				return err
			}
		}
	}
}
