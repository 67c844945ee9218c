package images

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/object"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/telemetry"
	"github.com/millrace/millrace/internal/uuids"
)

// The statuses of a file (G-IP-19).
const (
	fileProcessing = "processing"
	fileReady      = "ready"
	fileFailed     = "failed"
	fileDeleted    = "deleted"
)

// There is no record of a file (docs/decisions/0026-images.md). Each read of a file goes through
// its jobs, beginning with the latest, and the status follows from all of them:
//
//	deleted      there is a job of the type delete_file, in whatever state
//	ready        else a job has completed: there are variants
//	processing   else a job has not finished
//	failed       else

// file is the state of a file, which follows from all its jobs.
type file struct {
	id            string
	status        string
	upload        jobInput
	processResult       // of all completed jobs; the latest variant of a size counts
	pendingSizes  []int // of jobs that have not finished
	latest        *job.Job
	deletion      *job.Job // the latest job that deletes the file; nil if there is none
}

// filePageSize is how many jobs are read in one transaction.
const filePageSize = 100

// fileJobsFilter selects the jobs of a file, beginning with the latest.
func fileJobsFilter(fileID string) store.Filter {
	return store.Filter{JobType: Name, Owner: fileID, NewestFirst: true, Limit: filePageSize}
}

// loadFile reads a file, nil if there is none. A file with more than filePageSize jobs is read in
// several transactions. A job that is submitted in between is missing, as if the file had been
// read before.
func (m *Images) loadFile(ctx context.Context, fileID string) (*file, error) {
	var f *file
	filter := fileJobsFilter(fileID)
	for {
		jobs, err := m.Engine.List(ctx, filter)
		if err != nil {
			return nil, err
		}
		for _, j := range jobs {
			f = f.withJob(j)
		}
		if len(jobs) < filePageSize {
			break
		}
		filter.Before = jobs[filePageSize-1].Seq
	}
	return f, nil
}

// withJob returns the file with a job that is older than those added before. It begins one with the
// first.
func (f *file) withJob(j *job.Job) *file {
	if f == nil {
		f = &file{id: j.Owner, status: fileFailed, upload: uploadOf(j), latest: j}
	}
	f.addJob(j)
	return f
}

// addJob adds a job that is older than those added before.
func (f *file) addJob(j *job.Job) {
	if j.Queue == deleteFile {
		f.status = fileDeleted
		if f.deletion == nil {
			f.deletion = j
		}
		return
	}
	switch {
	case j.State == completed:
		f.merge(j.Result)
		f.setStatus(fileReady)
	case machine.Phase(j.State) != job.Done:
		f.pendingSizes = append(f.pendingSizes, uploadOf(j).Sizes...)
		if f.status != fileReady {
			f.setStatus(fileProcessing)
		}
	}
}

// setStatus sets the status unless the file is deleted, which no other job changes.
func (f *file) setStatus(status string) {
	if f.status != fileDeleted {
		f.status = status
	}
}

// merge adds the variants of an earlier job, unless a later job has made one of the same size.
func (f *file) merge(result []byte) {
	var earlier processResult
	_ = json.Unmarshal(result, &earlier) // this server has encoded it
	if f.processResult.MIME == "" {
		f.processResult.MIME = earlier.MIME
		f.processResult.Width, f.processResult.Height = earlier.Width, earlier.Height
	}
	for _, v := range earlier.Variants {
		if f.variant(v.Size) == nil {
			f.processResult.Variants = append(f.processResult.Variants, v)
		}
	}
	slices.SortFunc(f.processResult.Variants, func(a, b variant) int { return a.Size - b.Size })
}

// variant finds a variant by its size, nil if there is none.
func (f *file) variant(size int) *variant {
	i := slices.IndexFunc(f.processResult.Variants, func(v variant) bool { return v.Size == size })
	if i < 0 {
		return nil
	}
	return &f.processResult.Variants[i]
}

// mime is the type of the original: the detected one once a job has completed, else the declared
// one.
func (f *file) mime() string {
	if f.processResult.MIME != "" {
		return f.processResult.MIME
	}
	return f.upload.MIME
}

// pathFile finds the file of the path. A text that is no UUID names no file, status 404.
func (m *Images) pathFile(c *httpapi.Call) (f *file, err error) {
	id, ok := uuids.Parse(c.PathValue("file_id"))
	if !ok {
		return nil, errNoFile
	}
	return m.findFile(c.Context(), id)
}

// pathStoredFile is pathFile for a file that must not be deleted.
func (m *Images) pathStoredFile(c *httpapi.Call) (*file, error) {
	f, err := m.pathFile(c)
	if err != nil {
		return nil, err
	}
	if f.status == fileDeleted {
		return nil, errDeleted
	}
	return f, nil
}

// findFile is loadFile for a file that must exist.
func (m *Images) findFile(ctx context.Context, id string) (f *file, err error) {
	err = m.metrics.query(opSelect, func() (err error) { f, err = m.loadFile(ctx, id); return err })
	if err != nil {
		return nil, err
	}
	if f == nil {
		return nil, errNoFile
	}
	return f, nil
}

// GET /images/v1/files/{file_id} answers with the state of a file and its variants. A deleted file
// is no error: its status says so, and it has no variants (G-IP-19). job_id names its latest
// job.
func (m *Images) getFile(c *httpapi.Call) error {
	f, err := m.pathFile(c)
	if err != nil {
		return err
	}
	o := strictjson.NewObject(make([]byte, 0, 512))
	o.Text("file_id", f.id)
	o.Text("status", f.status)
	o.Text("mime_type", f.mime())
	o.Int("size_bytes", f.upload.Bytes)
	if f.processResult.Width > 0 {
		o.Int("width", int64(f.processResult.Width))
		o.Int("height", int64(f.processResult.Height))
	} else {
		o.Null("width")
		o.Null("height")
	}
	variants := f.processResult.Variants
	if f.status == fileDeleted {
		variants = nil
	}
	o.Objects("variants", len(variants), func(i int, o *strictjson.Object) {
		v := &variants[i]
		o.Int("size", int64(v.Size))
		o.Int("width", int64(v.Width))
		o.Int("height", int64(v.Height))
		o.Int("bytes", v.Bytes)
		o.Text("key", v.Key)
		o.Text("url", filesPath+"/"+f.id+"/variants/"+strconv.Itoa(v.Size))
	})
	o.Text("job_id", f.latest.ID.Key)
	c.Send(http.StatusOK, httpapi.JSON, o.End())
	return nil
}

// GET, HEAD /images/v1/files/{file_id}/content answers with the original as it was uploaded, also
// while it is processed and if that has failed.
func (m *Images) getContent(c *httpapi.Call) error {
	f, err := m.pathStoredFile(c)
	if err != nil {
		return err
	}
	return m.serveObject(c, f, originalKey(f.id), f.mime(), f.id)
}

// GET, HEAD /images/v1/files/{file_id}/variants/{size} answers with one variant. A size that a job
// will make and one that none makes have the same code and differ in the text.
func (m *Images) getVariant(c *httpapi.Call) error {
	f, err := m.pathStoredFile(c)
	if err != nil {
		return err
	}
	size, _ := httpapi.ParseDigits(c.PathValue("size"))
	v := f.variant(size)
	switch {
	case strconv.Itoa(size) != c.PathValue("size"): // not the canonical form of the size
		return errNoVariant
	case v == nil && slices.Contains(f.pendingSizes, size):
		return errVariantPending
	case v == nil:
		return errNoVariant
	}
	return m.serveObject(c, f, v.Key, variantMIME(v.Key, f.id, v.Size),
		f.id+"-"+strconv.Itoa(v.Size))
}

// cacheControl limits how long caches keep an object: it never changes, but it may be deleted.
const cacheControl = "max-age=3600"

// serveObject answers with an object of a file. Its content was uploaded by a client, so the
// headers keep a browser from treating it as anything but an image. The tag need not depend on the
// content, since the object of a key never changes. With a token the answer is for private caches
// alone.
func (m *Images) serveObject(c *httpapi.Call, f *file, key, mime, tag string) error {
	h := c.Header()
	h.Set("ETag", `"`+tag+`"`)
	scope := "public, "
	if !m.Token.Empty() {
		scope = "private, "
	}
	h.Set("Cache-Control", scope+cacheControl)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", "default-src 'none'; sandbox")
	h.Set("Content-Disposition", "inline")
	if matches(c.Request.Header.Values("If-None-Match"), `"`+tag+`"`) {
		c.WriteHeader(http.StatusNotModified) // the object itself need not be read
		return nil
	}
	err := m.sendObject(c, key, mime)
	if err != nil {
		for _, name := range []string{"ETag", "Last-Modified", "Cache-Control",
			"Content-Security-Policy", "Content-Disposition"} {
			h.Del(name) // they do not apply to the error that is sent instead
		}
	}
	if job.IsKind(err, job.NotFound) {
		return m.missingObjectError(c.Context(), f.id, key)
	}
	return err
}

// sendObject sends an object, or the range of it that is requested.
func (m *Images) sendObject(c *httpapi.Call, key, mime string) error {
	body, info, err := m.openObject(c.Context(), key)
	if err != nil {
		return err
	}
	defer body.Close()
	c.Header().Set("Content-Type", mime)
	return c.SendContent(info.Modified, body)
}

// openObject opens an object of the default bucket; NotFound if there is none. The caller closes
// it.
func (m *Images) openObject(ctx context.Context, key string) (body io.ReadSeekCloser,
	info object.Info, err error) {
	err = m.metrics.object(opGet, func() (err error) {
		body, info, err = m.Objects.Open(ctx, "", key)
		return err
	})
	return body, info, err
}

// missingObjectError is the error for an object that should exist: the file was deleted meanwhile,
// or the storage has lost the object.
func (m *Images) missingObjectError(ctx context.Context, fileID, key string) error {
	f, err := m.findFile(ctx, fileID)
	switch {
	case err != nil:
		return err
	case f.status == fileDeleted:
		return errDeleted
	}
	return &job.Error{Kind: job.Internal, Op: "images.serve",
		Msg: "the object storage has lost " + key}
}

// matches reports whether the lines of If-None-Match contain a tag. The comparison is weak, as RFC
// 9110 has it for If-None-Match.
func matches(lines []string, tag string) bool {
	for _, line := range lines {
		for part := range strings.SplitSeq(line, ",") {
			part = strings.TrimPrefix(strings.TrimSpace(part), "W/")
			if part == tag || part == "*" {
				return true
			}
		}
	}
	return false
}

// deletionAlias is the alias of the job that marks a file as deleted. Attempts find it by the
// alias (ensureNotDeleted), without reading the other jobs of the file.
func deletionAlias(fileID string) job.IdentityHash { return job.AliasOf(Name, "delete", fileID) }

// DELETE /images/v1/files/{file_id} creates a job of the type delete_file. The file is deleted for
// clients when the job is stored; its objects are removed when it is executed. To delete a file
// again returns the same job, unless that has failed.
func (m *Images) deleteFile(c *httpapi.Call) error {
	f, err := m.pathFile(c)
	if err != nil {
		return err
	}
	j, err := m.delete(c.Context(), f)
	if err != nil {
		return err
	}
	c.AddAttrs(slog.String(telemetry.JobID, j.ID.Key))
	o := strictjson.NewObject(nil)
	o.Text("job_id", j.ID.Key)
	c.Send(http.StatusAccepted, httpapi.JSON, o.End())
	return nil
}

// delete creates the job that deletes a file (IP-029), or returns the one there is. If that has
// failed another job is created, without the alias: the first one keeps marking the file as
// deleted.
func (m *Images) delete(ctx context.Context, f *file) (*job.Job, error) {
	if f.deletion != nil && f.deletion.State != failed {
		return f.deletion, nil
	}
	u := f.upload
	u.Sizes = nil
	var once engine.Idempotency
	if f.deletion == nil {
		once.Alias = deletionAlias(f.id) // of concurrent requests one creates the job
	}
	j, _, err := m.store(ctx, once, m.submission(ctx, deleteFile, f.id, u, ""))
	return j, err
}
