package images

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"maps"
	"mime"
	"mime/multipart"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/object"
	"github.com/millrace/millrace/internal/outage"
	"github.com/millrace/millrace/internal/telemetry"
)

// mimeByExtension are the supported types, by the extensions of file names (G-IP-17).
var mimeByExtension = map[string]string{".jpg": "image/jpeg", ".jpeg": "image/jpeg",
	".png": "image/png", ".gif": "image/gif", ".webp": "image/webp"}

// supportedTypes are the types of mimeByExtension, each once.
func supportedTypes() iter.Seq[string] {
	all := map[string]bool{}
	for _, m := range mimeByExtension {
		all[m] = true
	}
	return maps.Keys(all)
}

// octetStream is the content type of unspecified content.
const octetStream = "application/octet-stream"

// declaredType is the type that an upload declares by its content type, or else by the extension
// of its name; "" if the type is not supported. What the bytes really are is found out when they
// are processed (G-IP-17).
func declaredType(contentType, name string) string {
	mediaType, _, err := mime.ParseMediaType(contentType)
	if contentType == "" || mediaType == octetStream {
		return mimeByExtension[strings.ToLower(path.Ext(name))]
	}
	if err != nil {
		return ""
	}
	if mediaType == "image/jpg" { // a common misspelling
		return "image/jpeg"
	}
	if !slices.Contains(slices.Collect(supportedTypes()), mediaType) {
		return ""
	}
	return mediaType
}

// An upload is streamed to the object storage first and gets its job afterwards, so that a job
// never lacks its original:
//
//	idempotency key known? ─► original ─► job, in one transaction ─► receipt
//	         │ yes               │ error          │ error
//	         ▼                   ▼                ▼
//	     receipt              discard          discard, unless the job may exist
//
// An original that a crash leaves behind is removed by the sweep.

// uploadRequest is one upload. It is used by the goroutine of its request alone.
type uploadRequest struct {
	*Images
	call      *httpapi.Call
	fileID    string
	startedAt time.Time // the time in the file's id
	key       string    // Idempotency-Key, may be empty
	callback  string    // as the job keeps it; empty: none
	jobInput
	stored bool // the original is in the object storage
}

// POST /images/v1/files stores a picture and its job and answers 202 when both are on stable
// storage.
func (m *Images) upload(c *httpapi.Call) error {
	in := &uploadRequest{Images: m, call: c, jobInput: jobInput{Sizes: m.Sizes}}
	if err := in.readHeader(); err != nil {
		return err
	}
	earlier, err := in.findEarlier()
	if err != nil {
		return err
	}
	if earlier != nil {
		return m.repeatReceipt(c, earlier)
	}
	in.startedAt, in.fileID = m.Now(), m.ids.Next(1)[0]
	j, err := in.accept()
	if err != nil {
		in.discard()
		return err
	}
	m.metrics.uploads.WithLabelValues(in.MIME).Observe(float64(in.Bytes))
	c.AddAttrs(slog.String(telemetry.JobID, j.ID.Key))
	return sendReceipt(c, j)
}

// repeatReceipt discards the body of a repeated upload and answers with the job of the first. The
// body is read, as clients may not read the answer before they have sent all of it.
func (m *Images) repeatReceipt(c *httpapi.Call, j *job.Job) error {
	if _, err := io.Copy(io.Discard, c.Reader()); err != nil {
		return err
	}
	return sendReceipt(c, j)
}

// accept stores the original and then the job.
func (in *uploadRequest) accept() (*job.Job, error) {
	if err := in.read(); err != nil {
		return nil, err
	}
	return in.submit()
}

// sendReceipt answers 202 with the file, its job, and the status that this job has now.
func sendReceipt(c *httpapi.Call, j *job.Job) error {
	o := strictjson.NewObject(make([]byte, 0, 160))
	o.Text("file_id", j.Owner)
	o.Text("job_id", j.ID.Key)
	o.Text("status", statusOf(j.State))
	c.Send(http.StatusAccepted, httpapi.JSON, o.End())
	return nil
}

// maxNameBytes bounds the headers that name something, in bytes.
const maxNameBytes = 255

// readHeader reads the headers and the query, but for the content type. A content encoding is
// refused, as the original would be stored in encoded form.
func (in *uploadRequest) readHeader() (err error) {
	if httpapi.HasContentEncoding(in.call.Request.Header) {
		return httpapi.ErrContentEncoding
	}
	if in.key, err = plainHeader(in.call, "Idempotency-Key"); err != nil {
		return err
	}
	if in.UserID, err = plainHeader(in.call, "X-User-Id"); err != nil {
		return err
	}
	callback, given, err := in.call.Query("callback_url")
	if err != nil {
		return err
	}
	if err := in.takeCallback(callback, given); err != nil {
		return err
	}
	sizes, given, err := in.call.Query("sizes")
	if err != nil || !given {
		return err
	}
	in.Sizes, err = readSizes(sizes)
	return err
}

// takeCallback checks a callback URL, where one is given.
func (in *uploadRequest) takeCallback(url string, given bool) (err error) {
	if given && url == "" {
		return invalid("callback_url is empty")
	}
	if given {
		in.callback, err = in.encodeCallback(url)
	}
	return err
}

// plainHeader reads an optional header; an absent one is "".
func plainHeader(c *httpapi.Call, name string) (string, error) {
	given := c.Request.Header.Values(name)
	if len(given) == 0 {
		return "", nil
	}
	if len(given) > 1 || !isPlainText(given[0]) {
		return "", invalid("%s must be a text of 1 to %d bytes, given once", name, maxNameBytes)
	}
	return given[0], nil
}

// isPlainText reports whether a text can be stored and logged as it is: UTF-8 of 1 to maxNameBytes
// bytes without control characters.
func isPlainText(text string) bool {
	if text == "" || len(text) > maxNameBytes || !utf8.ValidString(text) {
		return false
	}
	return !strings.ContainsFunc(text, func(r rune) bool { return r < ' ' })
}

// once identifies an upload by its idempotency key. Whatever comes with a key repeats the upload
// that had it first. The key is valid as long as the job is stored, which is for ever.
func (in *uploadRequest) once() engine.Idempotency {
	if in.key == "" {
		return engine.Idempotency{}
	}
	return engine.Idempotency{Alias: job.AliasOf(Name, "upload", in.key)}
}

// findEarlier finds the job of an earlier upload with the same key, nil if there is none.
func (in *uploadRequest) findEarlier() (j *job.Job, err error) {
	if in.key == "" {
		return nil, nil
	}
	err = in.metrics.query(opSelect, func() (err error) {
		j, err = in.Engine.FindSubmitted(in.call.Context(), in.once())
		return err
	})
	return j, err
}

// read stores the original, which is a part of a form or the whole body.
func (in *uploadRequest) read() error {
	contentType := in.call.Request.Header.Get("Content-Type")
	mediaType, params, err := mime.ParseMediaType(contentType)
	if err != nil || mediaType != "multipart/form-data" {
		return in.storeOriginal(declaredType(contentType, ""), in.call.Reader())
	}
	return in.readForm(multipart.NewReader(in.call.Reader(), params["boundary"]))
}

const (
	maxFormParts = 16
	maxFormField = 4 << 10 // bytes of a field
)

// readForm reads the parts file, sizes and callback_url, in any order, and refuses others, as the
// query is refused that has another parameter: a misspelt part must not be ignored. The file is
// stored while it is read, so a part that is wrong after it makes the upload fail with the original
// stored; discard removes it.
func (in *uploadRequest) readForm(form *multipart.Reader) error {
	for range maxFormParts {
		part, err := form.NextRawPart()
		if errors.Is(err, io.EOF) {
			if !in.stored {
				return invalid("the form has no part called file")
			}
			return nil
		}
		if err != nil {
			return formError(err)
		}
		if err := in.readPart(part); err != nil {
			return formError(err)
		}
	}
	return invalid("the form has more than %d parts", maxFormParts)
}

// readPart reads one part. Of a field the first maxFormField bytes count.
func (in *uploadRequest) readPart(part *multipart.Part) error {
	switch name := part.FormName(); name {
	case "file":
		if in.stored {
			return invalid("the form has more than one part called file")
		}
		if httpapi.HasContentEncoding(http.Header(part.Header)) {
			return httpapi.ErrContentEncoding
		}
		return in.storeOriginal(declaredType(part.Header.Get("Content-Type"), part.FileName()),
			part)
	case "sizes":
		text, err := io.ReadAll(io.LimitReader(part, maxFormField))
		if err != nil {
			return err
		}
		in.Sizes, err = readSizes(string(text))
		return err
	case "callback_url":
		text, err := io.ReadAll(io.LimitReader(part, maxFormField))
		if err != nil {
			return err
		}
		return in.takeCallback(string(text), true)
	default:
		return invalid("unknown part %q of the form; it has file, sizes and callback_url",
			name[:min(len(name), maxNameBytes)])
	}
}

// formError makes an error of the kind Malformed, unless the error is a specific one already.
func formError(err error) error {
	var known *job.Error
	var refusal *httpapi.StatusError
	var coded *httpapi.CodedError
	if errors.As(err, &known) || errors.As(err, &refusal) || errors.As(err, &coded) {
		return err
	}
	return &job.Error{Kind: job.Malformed, Op: Name, Msg: "the form could not be read to its end",
		Err: err}
}

// storeOriginal streams the original to the object storage; it is never in memory as a whole. kind
// is the declared type, "" if that is not supported. If the storage fails the object may be there
// nevertheless, which the sweep finds. An empty file is refused after it was stored.
func (in *uploadRequest) storeOriginal(kind string, body io.Reader) error {
	if kind == "" {
		return errUnsupported
	}
	counted := &limitedReader{r: body, max: in.MaxUpload, checkTimeout: in.checkTimeout}
	var info object.Info
	var err error
	_ = in.metrics.object(opPut, func() error {
		info, err = in.Objects.Put(in.call.Context(), "", originalKey(in.fileID), counted,
			object.Attributes{ContentType: kind})
		if counted.err != nil {
			return nil // the upload failed, not the storage: the metric must not count it
		}
		return err
	})
	if in.Bytes = info.Size; err != nil {
		return err
	}
	in.stored, in.MIME = true, kind
	if in.Bytes == 0 {
		return invalid("the file is empty")
	}
	return nil
}

// uploadTimeout bounds the time of an upload. The sweep would remove the original of one that takes
// longer than minOrphanAge.
const uploadTimeout = 30 * time.Minute

// checkTimeout fails once an upload has taken too long.
func (in *uploadRequest) checkTimeout() error {
	if in.Now().Sub(in.startedAt) < uploadTimeout {
		return nil
	}
	return &httpapi.StatusError{Status: http.StatusRequestTimeout,
		Msg: fmt.Sprintf("the upload took longer than %s", uploadTimeout)}
}

// limitedReader fails as soon as an upload is larger or takes longer than it may. err separates
// the failures of a client from those of the storage that reads from it.
type limitedReader struct {
	r            io.Reader
	n, max       int64
	checkTimeout func() error
	err          error // the error that Read returned, other than io.EOF
}

// Read implements io.Reader.
func (l *limitedReader) Read(p []byte) (int, error) {
	n, err := l.read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		l.err = err
	}
	return n, err
}

// read checks the time before each read, and the size after it.
func (l *limitedReader) read(p []byte) (int, error) {
	if err := l.checkTimeout(); err != nil {
		return 0, err
	}
	n, err := l.r.Read(p)
	if l.n += int64(n); l.n > l.max {
		return 0, tooLarge("the file is larger than %d bytes (images.max_upload)", l.max)
	}
	return n, err
}

// submit stores the job of the upload, or finds that of a concurrent upload with the same key. In
// the latter case the original of this upload is discarded.
func (in *uploadRequest) submit() (*job.Job, error) {
	if err := in.checkTimeout(); err != nil { // the transaction that follows is short
		return nil, err
	}
	ctx := in.call.Context()
	j, existed, err := in.store(ctx, in.once(),
		in.submission(ctx, processFile, in.fileID, in.jobInput, in.callback))
	if existed {
		in.discard()
	}
	return j, err
}

// undoTimeout bounds the cleanup after an upload or an attempt that failed.
const undoTimeout = 10 * time.Second

// discard removes the original of an upload that failed. If the answer of a commit was lost, the
// job may exist nevertheless: if that cannot be found out, the original is left to the sweep. It
// also runs when the client has left, so it does not end with the request.
func (in *uploadRequest) discard() {
	if !in.stored {
		return
	}
	in.stored = false
	ctx, cancel := context.WithTimeout(context.WithoutCancel(in.call.Context()),
		undoTimeout)
	defer cancel()
	if err := in.removeOriginal(ctx); err != nil {
		in.Log.Log(context.Background(), outage.Level(slog.LevelWarn, err),
			"the original of a failed upload is left to the sweep", telemetry.ErrorMessage, err)
	}
}

// removeOriginal removes the original unless the file has a job.
func (in *uploadRequest) removeOriginal(ctx context.Context) error {
	jobs, err := in.Engine.List(ctx, fileJobsFilter(in.fileID))
	if err != nil || len(jobs) > 0 {
		return err
	}
	return in.metrics.object(opDelete, func() error {
		return in.Objects.Delete(ctx, "", originalKey(in.fileID))
	})
}

// submission is a new job of a file, with a fresh id and the limits that are configured now. The
// job keeps these when the settings change.
func (m *Images) submission(ctx context.Context, jobType, fileID string,
	u jobInput, callback string) engine.Submission {
	return engine.Submission{Job: job.Job{
		ID:          engineJobID(m.ids.Next(1)[0]),
		Kind:        jobType,
		Queue:       jobType,
		Owner:       fileID,
		Lease:       m.LockTimeout + lockTimeoutSlack,
		MaxAttempts: m.MaxAttempts,
		Retry: job.RetryPolicy{Strategy: job.Exponential, Base: m.BackoffBase,
			Max: m.BackoffMax},
		Definition: u.encode(),
		Trace:      telemetry.Carrier(ctx),
		Callback:   callback,
	}}
}

// lockTimeoutSlack lets a lock that is exactly as old as LockTimeout still be valid (IP-045).
const lockTimeoutSlack = time.Microsecond

// store submits a job, unless the same request has submitted one before, which it returns then.
func (m *Images) store(ctx context.Context, once engine.Idempotency,
	s engine.Submission) (j *job.Job,
	existed bool, err error) {
	err = m.metrics.query(opInsert, func() error {
		made, err := m.Engine.SubmitOnce(ctx, once, []engine.Submission{s})
		j, existed = made.Job, made.Existed
		return err
	})
	return j, existed, err
}
