package images

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/httpapi/jsontext"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/object"
	"github.com/millrace/millrace/internal/serial"
	"github.com/millrace/millrace/internal/store"
)

// The statuses of a file (G-IP-19).
const (
	fileProcessing = "processing"
	fileReady      = "ready"
	fileFailed     = "failed"
	fileDeleted    = "deleted"
)

// file is what the jobs of a file say of it together.
type file struct {
	id     string
	status string
	upload upload
	made         // of all completed jobs; the latest of a size counts
	coming []int // sizes of jobs that are not over
	latest *job.Job
	// deletion is the latest job that is to delete the file, nil where there is none.
	deletion *job.Job
}

// filePage is how many jobs are read at a time.
const filePage = 100

// ownedBy selects the jobs of a file, the latest first.
func ownedBy(fileID string) store.Filter {
	return store.Filter{Contract: Name, Owner: fileID, Newest: true, Limit: filePage}
}

// load reads a file, nil if there is none.
func (m *Images) load(ctx context.Context, fileID string) (*file, error) {
	var f *file
	filter := ownedBy(fileID)
	for {
		jobs, err := m.engine.List(ctx, filter)
		if err != nil {
			return nil, err
		}
		for _, j := range jobs { // the latest first
			if f == nil {
				f = &file{id: fileID, status: fileFailed, upload: uploadOf(j), latest: j}
			}
			f.add(j)
		}
		if len(jobs) < filePage {
			break
		}
		filter.Before = jobs[filePage-1].Seq
	}
	if f != nil {
		slices.SortFunc(f.made.Variants, func(a, b variant) int { return a.Size - b.Size })
	}
	return f, nil
}

// add takes in an earlier job.
func (f *file) add(j *job.Job) {
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
		f.become(fileReady)
	case machine.Phase(j.State) != job.Done:
		f.coming = append(f.coming, uploadOf(j).Sizes...)
		if f.status != fileReady {
			f.become(fileProcessing)
		}
	}
}

func (f *file) become(status string) {
	if f.status != fileDeleted {
		f.status = status
	}
}

// merge takes in the variants of an earlier job where there is none of a later one.
func (f *file) merge(result []byte) {
	var earlier made
	_ = json.Unmarshal(result, &earlier) // what was stored can be read
	if f.made.MIME == "" {
		f.made.MIME, f.made.Width, f.made.Height = earlier.MIME, earlier.Width, earlier.Height
	}
	for _, v := range earlier.Variants {
		if f.variant(v.Size) == nil {
			f.made.Variants = append(f.made.Variants, v)
		}
	}
}

// variant finds one by its size, nil if there is none.
func (f *file) variant(size int) *variant {
	i := slices.IndexFunc(f.made.Variants, func(v variant) bool { return v.Size == size })
	if i < 0 {
		return nil
	}
	return &f.made.Variants[i]
}

// mime is what the original is, as far as is known.
func (f *file) mime() string {
	if f.made.MIME != "" {
		return f.made.MIME
	}
	return f.upload.MIME
}

// fileOf finds the file of the path.
func (m *Images) fileOf(c *httpapi.Call) (f *file, err error) {
	id, ok := serial.Parse(c.Member("file_id"))
	if !ok {
		return nil, errNoFile
	}
	return m.find(c.Request.Context(), id)
}

// find is load where there must be such a file.
func (m *Images) find(ctx context.Context, id string) (f *file, err error) {
	err = m.api.query(opSelect, func() (err error) { f, err = m.load(ctx, id); return err })
	if err == nil && f == nil {
		err = errNoFile
	}
	return f, err
}

// GET /images/v1/files/{file_id}
func (m *Images) getFile(c *httpapi.Call) error {
	f, err := m.fileOf(c)
	if err != nil {
		return err
	}
	o := jsontext.NewObject(make([]byte, 0, 512))
	o.Text("file_id", f.id)
	o.Text("status", f.status)
	o.Text("mime_type", f.mime())
	o.Number("size_bytes", f.upload.Bytes)
	if f.made.Width > 0 {
		o.Number("width", int64(f.made.Width))
		o.Number("height", int64(f.made.Height))
	} else {
		o.Null("width")
		o.Null("height")
	}
	variants := f.made.Variants
	if f.status == fileDeleted {
		variants = nil
	}
	o.Objects("variants", len(variants), func(i int, o *jsontext.Object) {
		v := &variants[i]
		o.Number("size", int64(v.Size))
		o.Number("width", int64(v.Width))
		o.Number("height", int64(v.Height))
		o.Number("bytes", v.Bytes)
		o.Text("key", v.Key)
		o.Text("url", filesPath+"/"+f.id+"/variants/"+strconv.Itoa(v.Size))
	})
	o.Text("job_id", f.latest.ID.Key)
	c.Send(http.StatusOK, httpapi.JSON, o.End())
	return nil
}

// GET, HEAD /images/v1/files/{file_id}/content
func (m *Images) getContent(c *httpapi.Call) error {
	f, err := m.fileOf(c)
	if err != nil {
		return err
	}
	if f.status == fileDeleted {
		return errDeleted
	}
	return m.serve(c, f, originalKey(f.id), f.mime(), f.id)
}

// GET, HEAD /images/v1/files/{file_id}/variants/{size}
func (m *Images) getVariant(c *httpapi.Call) error {
	f, err := m.fileOf(c)
	if err != nil {
		return err
	}
	if f.status == fileDeleted {
		return errDeleted
	}
	size, _ := httpapi.Digits(c.Member("size"))
	v := f.variant(size)
	switch {
	case strconv.Itoa(size) != c.Member("size"): // a variant has one address
		return errNoVariant
	case v == nil && slices.Contains(f.coming, size):
		return errNotYet
	case v == nil:
		return errNoVariant
	}
	return m.serve(c, f, v.Key, variantMIME(v.Key, f.id, v.Size), f.id+"-"+strconv.Itoa(v.Size))
}

// caching is how long others may keep an object: it never changes, but it may be deleted.
const caching = "max-age=3600"

// serve answers with an object of a file. It comes from strangers, so a browser is told to take it for nothing but an
// image.
func (m *Images) serve(c *httpapi.Call, f *file, key, mime, tag string) error {
	h := c.Header()
	h.Set("ETag", `"`+tag+`"`)
	scope := "public, "
	if !m.Token.Empty() {
		scope = "private, "
	}
	h.Set("Cache-Control", scope+caching)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", "default-src 'none'; sandbox")
	h.Set("Content-Disposition", "inline")
	if matches(c.Request.Header.Values("If-None-Match"), `"`+tag+`"`) { // without a look at the object
		c.WriteHeader(http.StatusNotModified)
		return nil
	}
	body, info, err := m.openObject(c.Request.Context(), key)
	if err == nil {
		defer body.Close()
		h.Set("Content-Type", mime)
		err = c.SendContent(info.Modified, body)
	}
	if err == nil {
		return nil
	}
	for _, name := range []string{"ETag", "Last-Modified", "Cache-Control", "Content-Security-Policy", "Content-Disposition"} {
		h.Del(name) // they are not of what is sent instead
	}
	if job.IsKind(err, job.NotFound) {
		return m.missing(c.Request.Context(), f.id, key)
	}
	return err
}

func (m *Images) openObject(ctx context.Context, key string) (body io.ReadSeekCloser, info object.Info, err error) {
	err = m.api.object(opGet, func() (err error) { body, info, err = m.Objects.Open(ctx, "", key); return err })
	return body, info, err
}

// missing is what a file's object that is not there means: a deletion came in between, or the object is lost.
func (m *Images) missing(ctx context.Context, fileID, key string) error {
	f, err := m.find(ctx, fileID)
	switch {
	case err != nil:
		return err
	case f.status == fileDeleted:
		return errDeleted
	}
	return &job.Error{Kind: job.Internal, Op: "images.serve", Msg: "the object storage has lost " + key}
}

// matches reports whether a caller has the object already.
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
