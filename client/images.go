package client

import (
	"context"
	"encoding/json"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strconv"
)

// Images is the Images contract: pictures are uploaded, and the server makes variants of them.
// Every error is an [*Error] whose Code, when the server answered, is one of the ImageCode
// constants. An Images is safe for concurrent use.
type Images struct{ client *Client }

// Images returns the Images contract on this client.
func (c *Client) Images() *Images { return &Images{c} }

// The codes of Images' errors (G-IP-19).
const (
	ImageCodeValidationFailed     = "VALIDATION_FAILED"
	ImageCodeUnauthorized         = "UNAUTHORIZED"
	ImageCodeFileNotFound         = "FILE_NOT_FOUND"
	ImageCodeJobNotFound          = "JOB_NOT_FOUND"
	ImageCodeVariantNotFound      = "VARIANT_NOT_FOUND"
	ImageCodeFileDeleted          = "FILE_DELETED"
	ImageCodeNotReplayable        = "NOT_REPLAYABLE"
	ImageCodeUploadTooLarge       = "UPLOAD_TOO_LARGE"
	ImageCodeUnsupportedImageType = "UNSUPPORTED_IMAGE_TYPE"
)

// The paths of Images.
const (
	imageFilesPath       = "/images/v1/files"
	imageJobsPath        = "/images/v1/jobs"
	imageDeadLettersPath = "/images/v1/dead-letters"
)

// File reads a file: its status and its variants.
//
// Errors: [ErrNotFound], [ErrUnauthorized]. Repeating is safe.
func (m *Images) File(ctx context.Context, fileID string) (ImageFile, error) {
	return imageRead[ImageFile](ctx, m, "images file", "file id", imageFilesPath, fileID)
}

// Wait polls a file until its first variants are made, it has failed or it is deleted, and returns
// it. For variants that are added to a ready file use [Images.WaitJob]. It polls after growing
// pauses of up to two seconds, and continues while the server is unavailable or limits requests.
//
// Errors: those of [Images.File] except [ErrRetryable]; that of the context when it ends first.
func (m *Images) Wait(ctx context.Context, fileID string) (ImageFile, error) {
	return watch(ctx, m.client, "images wait",
		func() (ImageFile, error) { return m.File(ctx, fileID) },
		func(f ImageFile) bool { return f.Status != ImageFileProcessing })
}

// Content opens the original as it was uploaded. The request timeout limits the time until the
// picture begins; the reading itself is limited by the context alone. The caller must close the
// reader.
//
// Errors: [ErrNotFound], with Code [ImageCodeFileDeleted] for a deleted file; [ErrUnauthorized]. A
// picture that breaks off is an error of the reader.
func (m *Images) Content(ctx context.Context, fileID string) (io.ReadCloser, error) {
	return m.download(ctx, "images content", fileID, "/content")
}

// Variant opens a variant of a file, as [Images.Content] opens the original. size is the size that
// was asked for.
//
// Errors: those of Content; [ErrNotFound] with Code [ImageCodeVariantNotFound] when there is no
// variant of this size, or not yet.
func (m *Images) Variant(ctx context.Context, fileID string, size int) (io.ReadCloser, error) {
	return m.download(ctx, "images variant", fileID, "/variants/"+strconv.Itoa(size))
}

func (m *Images) download(ctx context.Context, op, fileID,
	part string) (body io.ReadCloser, err error) {
	if err := checkName("file id", fileID); err != nil {
		return nil, invalid(op, "%v", err)
	}
	c := call{
		op:       op,
		method:   http.MethodGet,
		path:     imageFilesPath + "/" + escape(fileID) + part,
		accept:   []int{http.StatusOK},
		readOnly: true,
	}
	fail := m.client.retryCall(ctx, c, func() (fail *Error) {
		body, fail = m.client.openStream(ctx, c)
		return fail
	})
	if fail != nil {
		return nil, fail
	}
	return body, nil
}

// Delete deletes a file and returns the id of the job that removes its objects (IP-029). When it
// returns nil the file is deleted for all callers. Its objects are removed when the job has
// completed, see [Images.WaitJob].
//
// Errors: [ErrNotFound]; [ErrUnauthorized]. Repeating returns the same job, unless that has failed.
func (m *Images) Delete(ctx context.Context, fileID string) (jobID string, err error) {
	const op = "images delete"
	if err := checkName("file id", fileID); err != nil {
		return "", invalid(op, "%v", err)
	}
	receipt, err := doJSON[ImageReceipt](ctx, m.client, call{
		op:     op,
		method: http.MethodDelete,
		path:   imageFilesPath + "/" + escape(fileID),
		accept: []int{http.StatusAccepted},
	})
	return receipt.JobID, err
}

// SubmitJob stores another job for a file, of the type [ImageJobTypeProcess] for more variants or
// [ImageJobTypeDelete] for its deletion (IP-027).
//
// Errors: [ErrNotFound], with Code [ImageCodeFileDeleted] for a deleted file; [ErrInvalid];
// [ErrUnauthorized].
//
// Repeating would store a second job, so a try whose answer was lost is not repeated, see
// [Error.Uncertain]. A second job costs time and changes nothing (IP-037).
func (m *Images) SubmitJob(ctx context.Context, spec ImageJobSpec) (ImageJob, error) {
	const op = "images submit job"
	body, err := json.Marshal(spec)
	if err != nil {
		return ImageJob{}, invalid(op, "%v", err)
	}
	return doJSON[ImageJob](ctx, m.client, call{
		op:            op,
		method:        http.MethodPost,
		path:          imageJobsPath,
		body:          body,
		accept:        []int{http.StatusAccepted},
		notIdempotent: true,
	})
}

// Job reads a job (IP-028).
//
// Errors: [ErrNotFound], [ErrUnauthorized]. Repeating is safe.
func (m *Images) Job(ctx context.Context, jobID string) (ImageJob, error) {
	return imageRead[ImageJob](ctx, m, "images job", "job id", imageJobsPath, jobID)
}

// WaitJob polls a job until no attempt of it follows, and returns it. It polls as [Images.Wait]
// does.
//
// Errors: those of [Images.Job] except [ErrRetryable]; that of the context when it ends first.
func (m *Images) WaitJob(ctx context.Context, jobID string) (ImageJob, error) {
	return watch(ctx, m.client, "images wait job",
		func() (ImageJob, error) { return m.Job(ctx, jobID) },
		func(j ImageJob) bool { return j.Status.Final() })
}

// ImageJobFilter selects the jobs of a list.
type ImageJobFilter struct {
	// Status keeps only the jobs in this status; empty keeps all.
	Status ImageJobStatus
	// Type keeps only the jobs of this type; empty keeps all.
	Type string
	// PageSize is how many jobs each request asks for, from 1 to 100; 0 leaves it to the server.
	PageSize int
}

// Jobs iterates over the jobs, the newest first (G-IP-20). A job that exists throughout comes
// exactly once. It ends with the first error. With a Status, a job that changes its status
// meanwhile may be missed.
func (m *Images) Jobs(ctx context.Context, filter ImageJobFilter) iter.Seq2[ImageJob, error] {
	query := url.Values{}
	if filter.Status != "" {
		query.Set("status", string(filter.Status))
	}
	if filter.Type != "" {
		query.Set("type", filter.Type)
	}
	return imagePages[ImageJob](ctx, m, "images jobs", imageJobsPath, query, filter.PageSize)
}

// RepublishMessage publishes the message of a job once more (IP-003), which notifies a worker when
// the first message was lost. It changes nothing else (IP-004). It returns the status of the job.
//
// Errors: [ErrNotFound], [ErrUnauthorized]. Repeating is safe.
func (m *Images) RepublishMessage(ctx context.Context, jobID string) (status ImageJobStatus,
	err error) {
	const op = "images republish message"
	if err := checkName("job id", jobID); err != nil {
		return "", invalid(op, "%v", err)
	}
	receipt, err := doJSON[ImageReceipt](ctx, m.client, call{
		op:     op,
		method: http.MethodPost,
		path:   "/images/v1/messages",
		body:   append(appendString([]byte(`{"job_id":`), jobID), '}'),
		accept: []int{http.StatusAccepted},
	})
	return receipt.Status, err
}

// DeadLetters iterates over the jobs that were given up, the newest first (IP-056), and asks for
// pageSize of them at a time; 0 leaves the size to the server. It ends with the first error. A dead
// letter that was replayed stays in the list until its retention ends.
func (m *Images) DeadLetters(ctx context.Context, pageSize int) iter.Seq2[ImageDeadLetter, error] {
	return imagePages[ImageDeadLetter](ctx, m, "images dead letters", imageDeadLettersPath,
		url.Values{},
		pageSize)
}

// Replay creates a new job that does what the job of a dead letter was to do (G-IP-08).
//
// Errors: [ErrNotFound]; [ErrConflict] with Code [ImageCodeNotReplayable] for a job that is not a
// dead letter; [ErrUnauthorized].
//
// Repeating: as with [Images.SubmitJob], a try whose answer was lost is not repeated.
func (m *Images) Replay(ctx context.Context, jobID string) (ImageJob, error) {
	const op = "images replay"
	if err := checkName("job id", jobID); err != nil {
		return ImageJob{}, invalid(op, "%v", err)
	}
	return doJSON[ImageJob](ctx, m.client, call{
		op:            op,
		method:        http.MethodPost,
		path:          imageDeadLettersPath + "/" + escape(jobID) + "/replay",
		accept:        []int{http.StatusAccepted},
		notIdempotent: true,
	})
}

// CancelJob gives up a job that waits for another attempt, and returns it (RT-003).
//
// Errors: [ErrNotFound]; [ErrConflict] for a job in any other status, also when a try whose answer
// was lost has given it up: the error is Uncertain then; [ErrUnauthorized].
func (m *Images) CancelJob(ctx context.Context, jobID string) (ImageJob, error) {
	const op = "images cancel"
	if err := checkName("job id", jobID); err != nil {
		return ImageJob{}, invalid(op, "%v", err)
	}
	return doJSON[ImageJob](ctx, m.client, call{op: op, method: http.MethodPost,
		path: imageJobsPath + "/" + escape(jobID) + "/cancel", accept: []int{http.StatusOK}})
}

// imageRead reads the element of a collection with this id.
func imageRead[T any](ctx context.Context, m *Images, op, what, in, id string) (T, error) {
	if err := checkName(what, id); err != nil {
		var none T
		return none, invalid(op, "%v", err)
	}
	return imageGet[T](ctx, m, op, in+"/"+escape(id), "")
}

func imageGet[T any](ctx context.Context, m *Images, op, path, query string) (T, error) {
	return doJSON[T](ctx, m.client, call{
		op:       op,
		method:   http.MethodGet,
		path:     path,
		query:    query,
		accept:   []int{http.StatusOK},
		readOnly: true,
	})
}

func imagePages[T any](ctx context.Context, m *Images, op, path string, query url.Values,
	size int) iter.Seq2[T, error] {
	return pages(query, size, func(query url.Values) (page[T], error) {
		return imageGet[page[T]](ctx, m, op, path, query.Encode())
	})
}
