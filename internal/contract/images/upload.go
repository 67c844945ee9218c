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
	"github.com/millrace/millrace/internal/httpapi/jsontext"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/object"
	"github.com/millrace/millrace/internal/outage"
	"github.com/millrace/millrace/internal/telemetry"
)

// ofExtension are the types that are taken, by the extensions of file names (G-IP-17).
var ofExtension = map[string]string{".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".png": "image/png", ".gif": "image/gif", ".webp": "image/webp"}

// mimes are the types that are taken.
func mimes() iter.Seq[string] {
	all := map[string]bool{}
	for _, m := range ofExtension {
		all[m] = true
	}
	return maps.Keys(all)
}

// octets says nothing of what something is.
const octets = "application/octet-stream"

// declared is what an upload says it is: by its content type or else by its name; "" for what is not taken.
func declared(contentType, name string) string {
	kind, _, err := mime.ParseMediaType(contentType)
	if contentType == "" || kind == octets {
		return ofExtension[strings.ToLower(path.Ext(name))]
	}
	if kind == "image/jpg" { // as some have it
		kind = "image/jpeg"
	}
	for known := range mimes() {
		if err == nil && kind == known {
			return known
		}
	}
	return ""
}

// incoming is an upload under way.
type incoming struct {
	*Images
	call   *httpapi.Call
	fileID string
	began  time.Time // as the file's id has it
	key    string    // Idempotency-Key, empty for none
	upload
	stored bool // the original is in the object storage
}

// POST /images/v1/files
func (m *Images) upload(c *httpapi.Call) error {
	in := &incoming{Images: m, call: c, upload: upload{Sizes: m.Sizes}}
	if err := in.readHeader(); err != nil {
		return err
	}
	if in.key != "" {
		earlier, err := m.earlier(c.Request.Context(), in.key)
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
	in.began, in.fileID = m.Now(), m.ids.Next(1)[0]
	err := in.read()
	var j *job.Job
	if err == nil {
		j, err = in.submit()
	}
	if err != nil {
		in.drop()
		return err
	}
	m.api.uploads.WithLabelValues(in.MIME).Observe(float64(in.Bytes))
	c.Note(slog.String(telemetry.JobID, j.ID.Key))
	return sendReceipt(c, j)
}

func sendReceipt(c *httpapi.Call, j *job.Job) error {
	o := jsontext.NewObject(make([]byte, 0, 160))
	o.Text("file_id", j.Owner)
	o.Text("job_id", j.ID.Key)
	o.Text("status", statusOf(j.State))
	c.Send(http.StatusAccepted, httpapi.JSON, o.End())
	return nil
}

// mostName bounds what callers call things, in bytes.
const mostName = 255

// readHeader reads what the header says beside the type.
func (in *incoming) readHeader() (err error) {
	if httpapi.Encoded(in.call.Request.Header) { // the original would be kept in that form
		return httpapi.ErrEncoded
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
	if len(given) > 1 || given[0] == "" || len(given[0]) > mostName || !utf8.ValidString(given[0]) || strings.ContainsFunc(given[0], func(r rune) bool { return r < ' ' }) {
		return "", invalid("%s must be a text of 1 to %d bytes, given once", name, mostName)
	}
	return given[0], nil
}

// earlier finds the job that an upload under the same key has made, nil if there is none.
func (m *Images) earlier(ctx context.Context, key string) (j *job.Job, err error) {
	err = m.api.query(opSelect, func() (err error) { j, err = m.engine.GetAlias(ctx, uploadOfKey(key)); return err })
	if job.IsKind(err, job.NotFound) {
		return nil, nil
	}
	return j, err
}

func uploadOfKey(key string) job.Ident { return job.AliasOf(Name, "upload", key) }

// read stores the original, from a form or from the body as it is.
func (in *incoming) read() error {
	given := in.call.Request.Header.Get("Content-Type")
	kind, params, err := mime.ParseMediaType(given)
	if err == nil && kind == "multipart/form-data" {
		return in.readForm(multipart.NewReader(in.call.Reader(), params["boundary"]))
	}
	return in.put(declared(given, ""), in.call.Reader())
}

const (
	mostParts = 16
	mostField = 4 << 10 // bytes of a field
)

// readForm reads the parts file and sizes, in whatever order, and passes over others.
func (in *incoming) readForm(form *multipart.Reader) error {
	for range mostParts {
		part, err := form.NextRawPart()
		if err == io.EOF {
			if !in.stored {
				return invalid("the form has no part called file")
			}
			return nil
		}
		if err != nil {
			return broken(err)
		}
		if err := in.readPart(part); err != nil {
			return broken(err)
		}
	}
	return invalid("the form has more than %d parts", mostParts)
}

func (in *incoming) readPart(part *multipart.Part) error {
	switch part.FormName() {
	case "file":
		if in.stored {
			return invalid("the form has more than one part called file")
		}
		if httpapi.Encoded(http.Header(part.Header)) {
			return httpapi.ErrEncoded
		}
		return in.put(declared(part.Header.Get("Content-Type"), part.FileName()), part)
	case "sizes":
		text, err := io.ReadAll(io.LimitReader(part, mostField))
		if err == nil {
			in.Sizes, err = readSizes(string(text))
		}
		return err
	}
	_, err := io.Copy(io.Discard, part)
	return err
}

// broken tells what is wrong with a form, unless the error knows better.
func broken(err error) error {
	var known *job.Error
	var refusal *httpapi.Refusal
	var told *problem
	if errors.As(err, &known) || errors.As(err, &refusal) || errors.As(err, &told) {
		return err
	}
	return &job.Error{Kind: job.Malformed, Op: Name, Msg: "the form could not be read to its end", Err: err}
}

// put streams the original to the object storage: memory does not grow with its size.
func (in *incoming) put(kind string, body io.Reader) error {
	if kind == "" {
		return errUnsupported
	}
	counted := &limited{r: body, most: in.MaxUpload, late: in.late}
	var info object.Info
	var err error
	_ = in.api.object(opPut, func() error {
		info, err = in.Objects.Put(in.call.Request.Context(), "", originalKey(in.fileID), counted, object.Attributes{ContentType: kind})
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

// uploadTime is how long an upload may take. One that took longer than orphanTo would be taken for one that was left
// behind.
const uploadTime = 30 * time.Minute

// late fails once an upload has taken too long.
func (in *incoming) late() error {
	if in.Now().Sub(in.began) < uploadTime {
		return nil
	}
	return &httpapi.Refusal{Status: http.StatusRequestTimeout, Msg: fmt.Sprintf("the upload took longer than %s", uploadTime)}
}

// limited refuses what is larger than an upload may be, or takes longer, as soon as that is known.
type limited struct {
	r       io.Reader
	n, most int64
	late    func() error
	err     error // why it was not read to its end
}

func (l *limited) Read(p []byte) (int, error) {
	n, err := l.read(p)
	if err != nil && err != io.EOF {
		l.err = err
	}
	return n, err
}

func (l *limited) read(p []byte) (int, error) {
	if err := l.late(); err != nil {
		return 0, err
	}
	n, err := l.r.Read(p)
	if l.n += int64(n); l.n > l.most {
		return 0, &job.Error{Kind: job.TooLarge, Op: Name, Msg: fmt.Sprintf("the file is larger than %d bytes (images.max_upload)", l.most)}
	}
	return n, err
}

// submit stores the job of the upload, or finds the one of another upload under the same key that was first.
func (in *incoming) submit() (*job.Job, error) {
	if err := in.late(); err != nil { // from here on it is a transaction, which is bounded
		return nil, err
	}
	ctx := in.call.Request.Context()
	s := in.submission(ctx, processFile, in.fileID, in.upload)
	if in.key != "" {
		s.Job.Alias = uploadOfKey(in.key)
	}
	j, err := in.store(ctx, s)
	if job.IsKind(err, job.Conflict) && in.key != "" {
		first, lookErr := in.earlier(ctx, in.key)
		if lookErr != nil || first == nil {
			return nil, errors.Join(lookErr, err)
		}
		in.drop()
		return first, nil
	}
	return j, err
}

// undoTime bounds the removal of an original that gets no job.
const undoTime = 10 * time.Second

// drop removes the original of an upload that comes to nothing. Where a commit's answer was lost its job may be there
// all the same: then nobody knows, and the sweep finds out later.
func (in *incoming) drop() {
	if !in.stored {
		return
	}
	in.stored = false
	ctx, cancel := context.WithTimeout(context.WithoutCancel(in.call.Request.Context()), undoTime)
	defer cancel()
	jobs, err := in.engine.List(ctx, ownedBy(in.fileID))
	if err == nil && len(jobs) == 0 {
		err = in.api.object(opDelete, func() error { return in.Objects.Delete(ctx, "", originalKey(in.fileID)) })
	}
	if err != nil {
		in.Log.Log(context.Background(), outage.Level(slog.LevelWarn, err), "an upload that came to nothing is removed later", telemetry.ErrorMessage, err)
	}
}

// usualPriority is that of all jobs.
const usualPriority = 5

// submission is a new job of a file.
func (m *Images) submission(ctx context.Context, jobType, fileID string, u upload) engine.Submission {
	return engine.Submission{Job: job.Job{ID: idOf(m.ids.Next(1)[0]), Kind: jobType, Queue: jobType, Owner: fileID, Priority: usualPriority,
		Lease: m.LockTimeout + strictly, RunLimit: m.MaxAttempts, Definition: u.encode(), Trace: telemetry.Carrier(ctx)}}
}

// strictly makes a lock that is exactly as old as its time-out one that still holds (IP-045).
const strictly = time.Microsecond

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
