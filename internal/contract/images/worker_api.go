package images

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/millrace/millrace/internal/contract/images/picture"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/uuids"
	"github.com/millrace/millrace/internal/workerapi"
)

// A remote worker reads the upload and writes the variants itself, with its own access to the
// object storage, and reports what it has made. The report is not trusted further than it can be
// looked up:
//
//	claim ─▶ worker writes objects ─▶ complete with sizes and keys ─▶ verify each ─▶ succeeded
//	                                                                  └▶ refused, and goes on
//
// Pixels are not read: of what only they would show, the word of the worker is taken.

// RemoteWorkers is the contract of the worker API: remote workers execute jobs if this node has no
// local workers. Their results are verified before a job succeeds: see docs/images-worker.md.
func (m *Images) RemoteWorkers() workerapi.Adapter {
	return workerapi.Adapter{
		Name:  Name,
		State: func(s job.State) string { return statusOf(s) },
		ID: func(jobID string) (job.ID, bool) {
			key, ok := uuids.Parse(jobID)
			return engineJobID(key), ok
		},
		Attempt:      func(j *job.Job) int { return max(1, j.Attempts) },
		Payload:      workerPayload,
		VerifyResult: m.verifyOutcome,
		Fail:         failureOutcome,
		RunsLocally:  func(string) bool { return !m.NoLocalWorkers },
		Check:        m.Binding.Check,
	}
}

// verifyOutcome verifies the result of a remote worker. An error refuses the request of the
// worker, and its attempt continues. It runs before the transaction that finishes the attempt,
// since it reads objects; the transaction then refuses an attempt that has lost its lease.
func (m *Images) verifyOutcome(ctx context.Context, j *job.Job, result []byte) (engine.Outcome,
	error) {
	if j.Queue == deleteFile {
		return m.verifyDeletion(ctx, j)
	}
	err := m.ensureNotDeleted(ctx, j.Owner)
	if errors.Is(err, errFileGone) {
		return outcomeOf(j, err), nil
	}
	if err != nil {
		return engine.Outcome{}, err
	}
	made, err := m.verifyResult(ctx, j, result)
	if err != nil {
		return engine.Outcome{}, err
	}
	if made.Height > m.MaxPixels/made.Width {
		return failureOutcome(j, fmt.Sprintf("%d × %d pixels, more than %d", made.Width,
			made.Height, m.MaxPixels), picture.TooLarge, false), nil
	}
	return engine.Outcome{On: job.Succeeded, Result: made.encode()}, nil
}

// verifyDeletion accepts a deletion when no object of the file exists.
func (m *Images) verifyDeletion(ctx context.Context, j *job.Job) (engine.Outcome, error) {
	objects, err := m.Objects.List(ctx, "", filePrefix(j.Owner), "", 1)
	if err != nil {
		return engine.Outcome{}, err
	}
	if len(objects) > 0 {
		return engine.Outcome{}, invalid("the object %s still exists", objects[0])
	}
	return engine.Outcome{On: job.Succeeded}, nil
}

// verifyResult compares a result with the job and the object storage: it must have a variant of
// each requested size, with an object of the stated length under the right key. The pixels
// themselves are not read. The variants of what it returns are sorted by size.
func (m *Images) verifyResult(ctx context.Context, j *job.Job, result []byte) (made processResult,
	err error) {
	if err := json.Unmarshal(result, &made); err != nil || made.Width < 1 || made.Height < 1 {
		return made, invalid("the result must have width and height, whole numbers of pixels, " +
			"and variants")
	}
	u := uploadOf(j)
	if made.MIME == "" {
		made.MIME = u.MIME
	}
	if !slices.Contains(slices.Collect(supportedTypes()), made.MIME) {
		return made, invalid("unsupported mime_type %q", made.MIME)
	}
	sizes := slices.Sorted(slices.Values(u.Sizes)) // those of the settings come in any order
	if len(made.Variants) != len(sizes) {
		return made, invalid("the result must have %d variants, one of each size", len(sizes))
	}
	slices.SortFunc(made.Variants, func(a, b variant) int { return a.Size - b.Size })
	for i := range made.Variants {
		v := &made.Variants[i]
		if v.Size != sizes[i] {
			return made, invalid("the result must have a variant of size %d", sizes[i])
		}
		if longer := max(made.Width, made.Height); v.Width > longer || v.Height > longer {
			return made, invalid("the variant of size %d cannot be larger than the original",
				v.Size)
		}
		if err := m.verifyVariant(ctx, j, v); err != nil {
			return made, err
		}
	}
	return made, nil
}

// verifyVariant verifies the dimensions of a variant, its key, and that its object has the length
// that the worker states.
func (m *Images) verifyVariant(ctx context.Context, j *job.Job, v *variant) error {
	if variantMIME(v.Key, j.Owner, v.Size) == "" {
		return invalid("the key of the variant of size %d must be %s.jpg or .png", v.Size,
			variantStem(j.Owner, v.Size))
	}
	if longer := max(v.Width, v.Height); v.Width < 1 || v.Height < 1 || longer > v.Size {
		return invalid("the variant of size %d cannot be %d × %d pixels", v.Size, v.Width, v.Height)
	}
	object, info, err := m.openObject(ctx, v.Key)
	if job.IsKind(err, job.NotFound) {
		return invalid("the object %s does not exist", v.Key)
	}
	if err != nil {
		return err
	}
	object.Close()
	if info.Size != v.Bytes || info.Size == 0 {
		return invalid("the object %s has %d bytes, not %d", v.Key, info.Size, v.Bytes)
	}
	return nil
}

// failureOutcome is the outcome of an attempt that failed (IP-052, IP-053). If it was the last
// attempt, the engine makes a failure that is retryable final. The reason begins with the type.
func failureOutcome(j *job.Job, message, errorType string, retryable bool) engine.Outcome {
	errorType = cmp.Or(errorType, typeOther)
	f := failure{Error: message, Type: errorType, Failures: j.FailedAttempts}
	cause := job.FailedForGood
	if retryable {
		cause = job.Failed
		f.Failures++ // with this one
	}
	return engine.Outcome{On: cause, Failure: f.encode(), Reason: errorType + ": " + message}
}
