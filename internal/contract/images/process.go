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

// heartbeatsPerLock is how many times a lock is renewed before it would run out (G-IP-05).
const heartbeatsPerLock = 3

// runAttempts runs jobs that messages propose until ctx ends.
func (m *Images) runAttempts(ctx context.Context) {
	pool, err := worker.New(worker.Config{Engine: m.engine, Contract: Name, Name: m.Node,
		Workers: m.Workers, HeartbeatInterval: m.LockTimeout / heartbeatsPerLock,
		Claim: m.claim, Finish: m.finish, Handler: attempts{m}, Log: m.Log,
		OnPanic: func(t *worker.Task, _ any) engine.Outcome {
			return failureOutcome(t.Job, typeInternal, "the attempt broke", true)
		}})
	if err != nil {
		panic(err) // New has let nothing pass that is refused here
	}
	m.unclaimedWorkers.Store(int64(m.Workers))
	pool.Run(ctx, m.Grace)
}

// finish writes the end of an attempt.
func (m *Images) finish(ctx context.Context, run engine.Run, o engine.Outcome) (j *job.Job,
	err error) {
	err = m.worker.query(opUpdate, func() (err error) {
		j, err = m.engine.Finish(ctx, run, o)
		return err
	})
	return j, err
}

// attempts makes the attempts of both types of jobs.
type attempts struct{ *Images }

// Handle implements worker.Handler.
func (a attempts) Handle(ctx context.Context, t *worker.Task) engine.Outcome {
	run := a.process
	if t.Job.Queue == deleteFile {
		run = a.deleteObjects
	}
	result, err := run(ctx, t.Job)
	switch {
	case err == nil:
		return engine.Outcome{On: job.Succeeded, Result: result}
	case ctx.Err() != nil: // the node stops, or the lock is lost: nobody knows what an error says
		return engine.Outcome{On: job.Released}
	}
	return outcomeOf(t.Job, err)
}

// permanentError is an error of an attempt that another attempt would meet again.
type permanentError struct{ kind, text string }

func (f *permanentError) Error() string { return f.text }

const textDeleted = "the file was deleted"

var errFileGone = &permanentError{typeDeleted, textDeleted}

// outcomeOf is how an attempt ends that met an error.
func outcomeOf(j *job.Job, err error) engine.Outcome {
	var wrong *picture.Error
	var last *permanentError
	var known *job.Error
	switch {
	case errors.As(err, &wrong):
		return failureOutcome(j, wrong.Type, wrong.Msg, !wrong.Final)
	case errors.As(err, &last):
		return failureOutcome(j, last.kind, last.text, false)
	case errors.As(err, &known):
		return failureOutcome(j, typeStorage, err.Error(), true)
	}
	return failureOutcome(j, typeInternal, err.Error(), true)
}

// failureOutcome is how an attempt ends that failed (IP-052, IP-053).
func failureOutcome(j *job.Job, kind, text string, retryable bool) engine.Outcome {
	f := failure{Error: text, Type: kind, Failures: j.FailedAttempts}
	on := job.FailedForGood
	if retryable {
		on = job.Failed
		f.Failures++ // with this one
	}
	return engine.Outcome{On: on, Failure: f.encode(), Reason: kind + ": " + text}
}

// process makes the variants of a file (G-IP-14). It may be done twice, also at the same time: what
// it writes is the same.
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
	stored, err := m.putVariants(ctx, j.Owner, variants)
	// A deletion that came while they were written may have missed some: also those of an attempt
	// that is told to end.
	looking, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	if err := m.ensureNotDeleted(looking, j.Owner); err != nil {
		return nil, err
	}
	if err != nil {
		return nil, err
	}
	made := processResult{MIME: info.MIME, Width: info.Width, Height: info.Height, Variants: stored}
	return made.encode(), nil
}

// putVariants stores variants under their keys, and tells which.
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

// render runs the processor on the original.
func (m *Images) render(ctx context.Context, j *job.Job, dir string) (picture.Info,
	[]picture.Variant, error) {
	var original io.ReadCloser
	err := m.worker.object(opGet, func() (err error) {
		original, _, err = m.Objects.Open(ctx, "", originalKey(j.Owner))
		return err
	})
	if job.IsKind(err, job.NotFound) {
		// Where nodes share the database another one may have it, and be about to be given the same
		// storage.
		err = &picture.Error{Type: typeOriginal,
			Msg: "the uploaded file is not in the object storage", Final: m.Shared == nil}
	}
	if err != nil {
		return picture.Info{}, nil, err
	}
	defer original.Close()
	u := uploadOf(j)
	return m.Processor.Run(ctx, original, u.Sizes, dir)
}

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

// ensureNotDeleted fails where the file was deleted, and removes what an attempt may have written
// since (G-IP-15).
func (m *Images) ensureNotDeleted(ctx context.Context, fileID string) error {
	err := m.worker.query(opSelect, func() error {
		_, err := m.engine.GetByAlias(ctx, deletionAlias(fileID))
		return err
	})
	if job.IsKind(err, job.NotFound) {
		return nil
	}
	if err == nil {
		err = m.removeObjects(ctx, fileID)
	}
	if err == nil {
		err = errFileGone
	}
	return err
}

// deleteObjects removes a file with its variants.
func (m *Images) deleteObjects(ctx context.Context, j *job.Job) ([]byte, error) {
	return nil, m.removeObjects(ctx, j.Owner)
}

// removePageSize is how many objects are listed at a time.
const removePageSize = 100

// removeObjects removes everything below a file's prefix.
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
