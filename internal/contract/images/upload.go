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

// mimeByExtension are the types that are taken, by the extensions of file names (G-IP-17).
var mimeByExtension = map[string]string{".jpg": "image/jpeg", ".jpeg": "image/jpeg",
	".png": "image/png", ".gif": "image/gif", ".webp": "image/webp"}

// supportedTypes are the types that are taken.
func supportedTypes() iter.Seq[string] {
	all := map[string]bool{}
	for _, m := range mimeByExtension {
		all[m] = true
	}
	return maps.Keys(all)
}

// octetStream says nothing of what something is.
const octetStream = "application/octet-stream"

// declaredType is what an upload says it is: by its content type or else by its name; "" for what
// is not taken.
func declaredType(contentType, name string) string {
	kind, _, err := mime.ParseMediaType(contentType)
	if contentType == "" || kind == octetStream {
		return mimeByExtension[strings.ToLower(path.Ext(name))]
	}
	if kind == "image/jpg" { // as some have it
		kind = "image/jpeg"
	}
	for known := range supportedTypes() {
		if err == nil && kind == known {
			return known
		}
	}
	return ""
}

// uploadRequest is an upload under way.
type uploadRequest struct {
	*Images
	call      *httpapi.Call
	fileID    string
	startedAt time.Time // as the file's id has it
	key       string    // Idempotency-Key, empty for none
	jobInput
	stored bool // the original is in the object storage
}

// POST /images/v1/files
func (m *Images) upload(c *httpapi.Call) error {
	in := &uploadRequest{Images: m, call: c, jobInput: jobInput{Sizes: m.Sizes}}
	if err := in.readHeader(); err != nil {
		return err
	}
	if in.key != "" {
		earlier, err := m.findByIdempotencyKey(c.Request.Context(), in.key)
		if err != nil {
			return err
		}
		if earlier != nil {
			if _, err := io.Copy(io.Discard, c.Reader()); err != nil {
				return err
			}
			return sendReceipt(c, earlier)
		}
	}
	in.startedAt, in.fileID = m.Now(), m.ids.Next(1)[0]
	err := in.read()
	var j *job.Job
	if err == nil {
		j, err = in.submit()
	}
	if err != nil {
		in.discard()
		return err
	}
	m.api.uploads.WithLabelValues(in.MIME).Observe(float64(in.Bytes))
	c.AddAttrs(slog.String(telemetry.JobID, j.ID.Key))
	return sendReceipt(c, j)
}

func sendReceipt(c *httpapi.Call, j *job.Job) error {
	o := strictjson.NewObject(make([]byte, 0, 160))
	o.Text("file_id", j.Owner)
	o.Text("job_id", j.ID.Key)
	o.Text("status", statusOf(j.State))
	c.Send(http.StatusAccepted, httpapi.JSON, o.End())
	return nil
}

// maxNameBytes bounds what callers call things, in bytes.
const maxNameBytes = 255

// readHeader reads what the header says beside the type.
func (in *uploadRequest) readHeader() (err error) {
	// the original would be kept in that form
	if httpapi.HasContentEncoding(in.call.Request.Header) {
		return httpapi.ErrContentEncoding
	}
	if in.key, err = plainHeader(in.call, "Idempotency-Key"); err != nil {
		return err
	}
	if in.UserID, err = plainHeader(in.call, "X-User-Id"); err != nil {
		return err
	}
	sizes, given, err := in.call.Query("sizes")
	if err == nil && given {
		in.Sizes, err = readSizes(sizes)
	}
	return err
}

func plainHeader(c *httpapi.Call, name string) (string, error) {
	given := c.Request.Header.Values(name)
	if len(given) == 0 {
		return "", nil
	}
	if len(given) > 1 || given[0] == "" || len(given[0]) > maxNameBytes ||
		!utf8.ValidString(given[0]) || strings.ContainsFunc(given[0], func(r rune) bool {
		return r < ' '
	}) {
		return "", invalid("%s must be a text of 1 to %d bytes, given once", name, maxNameBytes)
	}
	return given[0], nil
}

// findByIdempotencyKey finds the job that an upload under the same key has made, nil if there is
// none.
func (m *Images) findByIdempotencyKey(ctx context.Context, key string) (j *job.Job, err error) {
	err = m.api.query(opSelect, func() (err error) {
		j, err = m.engine.GetByAlias(ctx, uploadAlias(key))
		return err
	})
	if job.IsKind(err, job.NotFound) {
		return nil, nil
	}
	return j, err
}

func uploadAlias(key string) job.IdentityHash { return job.AliasOf(Name, "upload", key) }

// read stores the original, from a form or from the body as it is.
func (in *uploadRequest) read() error {
	given := in.call.Request.Header.Get("Content-Type")
	kind, params, err := mime.ParseMediaType(given)
	if err == nil && kind == "multipart/form-data" {
		return in.readForm(multipart.NewReader(in.call.Reader(), params["boundary"]))
	}
	return in.storeOriginal(declaredType(given, ""), in.call.Reader())
}

const (
	maxFormParts = 16
	maxFormField = 4 << 10 // bytes of a field
)

// readForm reads the parts file and sizes, in whatever order, and passes over others.
func (in *uploadRequest) readForm(form *multipart.Reader) error {
	for range maxFormParts {
		part, err := form.NextRawPart()
		if err == io.EOF {
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

func (in *uploadRequest) readPart(part *multipart.Part) error {
	switch part.FormName() {
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
		if err == nil {
			in.Sizes, err = readSizes(string(text))
		}
		return err
	}
	_, err := io.Copy(io.Discard, part)
	return err
}

// formError tells what is wrong with a form, unless the error knows better.
func formError(err error) error {
	var known *job.Error
	var refusal *httpapi.StatusError
	var isProblem *problem
	if errors.As(err, &known) || errors.As(err, &refusal) || errors.As(err, &isProblem) {
		return err
	}
	return &job.Error{Kind: job.Malformed, Op: Name, Msg: "the form could not be read to its end",
		Err: err}
}

// storeOriginal streams the original to the object storage: memory does not grow with its size.
func (in *uploadRequest) storeOriginal(kind string, body io.Reader) error {
	if kind == "" {
		return errUnsupported
	}
	counted := &limitedReader{r: body, max: in.MaxUpload, checkTimeout: in.checkTimeout}
	var info object.Info
	var err error
	_ = in.api.object(opPut, func() error {
		info, err = in.Objects.Put(in.call.Request.Context(), "", originalKey(in.fileID), counted,
			object.Attributes{ContentType: kind})
		if counted.err != nil {
			return nil // no failure of the storage
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

// uploadTimeout is how long an upload may take. One that took longer than orphanMinAge would be
// taken for one that was left behind.
const uploadTimeout = 30 * time.Minute

// checkTimeout fails once an upload has taken too long.
func (in *uploadRequest) checkTimeout() error {
	if in.Now().Sub(in.startedAt) < uploadTimeout {
		return nil
	}
	return &httpapi.StatusError{Status: http.StatusRequestTimeout,
		Msg: fmt.Sprintf("the upload took longer than %s", uploadTimeout)}
}

// limitedReader refuses what is larger than an upload may be, or takes longer, as soon as that is
// known.
type limitedReader struct {
	r            io.Reader
	n, max       int64
	checkTimeout func() error
	err          error // why it was not read to its end
}

func (l *limitedReader) Read(p []byte) (int, error) {
	n, err := l.read(p)
	if err != nil && err != io.EOF {
		l.err = err
	}
	return n, err
}

func (l *limitedReader) read(p []byte) (int, error) {
	if err := l.checkTimeout(); err != nil {
		return 0, err
	}
	n, err := l.r.Read(p)
	if l.n += int64(n); l.n > l.max {
		return 0, &job.Error{Kind: job.TooLarge, Op: Name,
			Msg: fmt.Sprintf("the file is larger than %d bytes (images.max_upload)", l.max)}
	}
	return n, err
}

// submit stores the job of the upload, or finds the one of another upload under the same key that
// was first.
func (in *uploadRequest) submit() (*job.Job, error) {
	if err := in.checkTimeout(); err != nil { // from here on it is a transaction, which is bounded
		return nil, err
	}
	ctx := in.call.Request.Context()
	s := in.submission(ctx, processFile, in.fileID, in.jobInput)
	if in.key != "" {
		s.Job.Alias = uploadAlias(in.key)
	}
	j, err := in.store(ctx, s)
	if job.IsKind(err, job.Conflict) && in.key != "" {
		first, lookErr := in.findByIdempotencyKey(ctx, in.key)
		if lookErr != nil || first == nil {
			return nil, errors.Join(lookErr, err)
		}
		in.discard()
		return first, nil
	}
	return j, err
}

// undoTimeout bounds the removal of an original that gets no job.
const undoTimeout = 10 * time.Second

// discard removes the original of an upload that comes to nothing. Where a commit's answer was lost
// its job may be there all the same: then nobody knows, and the sweep finds out later.
func (in *uploadRequest) discard() {
	if !in.stored {
		return
	}
	in.stored = false
	ctx, cancel := context.WithTimeout(context.WithoutCancel(in.call.Request.Context()),
		undoTimeout)
	defer cancel()
	jobs, err := in.engine.List(ctx, fileJobsFilter(in.fileID))
	if err == nil && len(jobs) == 0 {
		err = in.api.object(opDelete, func() error {
			return in.Objects.Delete(ctx, "", originalKey(in.fileID))
		})
	}
	if err != nil {
		in.Log.Log(context.Background(), outage.Level(slog.LevelWarn, err),
			"an upload that came to nothing is removed later", telemetry.ErrorMessage, err)
	}
}

// defaultPriority is that of all jobs.
const defaultPriority = 5

// submission is a new job of a file.
func (m *Images) submission(ctx context.Context, jobType, fileID string,
	u jobInput) engine.Submission {
	return engine.Submission{Job: job.Job{ID: idOf(m.ids.Next(1)[0]), Kind: jobType, Queue: jobType,
		Owner: fileID, Priority: defaultPriority,
		Lease: m.LockTimeout + lockTimeoutSlack, MaxAttempts: m.MaxAttempts, Definition: u.encode(),
		Trace: telemetry.Carrier(ctx)}}
}

// lockTimeoutSlack makes a lock that is exactly as old as its time-out one that still holds
// (IP-045).
const lockTimeoutSlack = time.Microsecond

// store stores a job and returns it as it is then.
func (m *Images) store(ctx context.Context, s engine.Submission) (*job.Job, error) {
	err := m.api.query(opInsert, func() error {
		receipt, err := m.engine.Submit(ctx, engine.Unique, []engine.Submission{s})
		s.Job.CreatedAt, s.Job.UpdatedAt = receipt.At, receipt.At
		return err
	})
	s.Job.State = queued
	return &s.Job, err
}
