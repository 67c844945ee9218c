package fetchbox

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"maps"
	"mime"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/millrace/millrace/internal/contract/fetchbox/handler"
	"github.com/millrace/millrace/internal/egress"
	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/object"
)

// A download reads and stores at the same time. The object storage pulls the body through a reader
// that counts and hashes it, so memory does not grow with the resource:
//
//	origin ─► http.Response ─► body.Read ─► Objects.Put ─► the object is visible
//	                               │
//	                               └─ too large, another digest, connection broken:
//	                                  Put fails with that error and stores nothing
//
// An object that had the key before stays until the new one is complete. An attempt that is
// repeated, because its worker was lost or its task was replayed, writes the same key once more
// (FB-086).

// download makes one request and streams the body of the answer to the object storage. The object
// becomes visible under its key only when the whole body has been read and its checksum is right.
// Its error is a *taskError, or that of the request, which toTaskError classifies. An error of the
// body takes precedence over that of Put, which only reports it.
func (f *fetcher) download(ctx context.Context, task *handler.Task, req *http.Request,
	routes []route) (*storedResource, error) {
	resp, err := f.proxyRoutes.do(req, routes)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return nil, f.responseError(resp)
	}
	if resp.ContentLength > f.MaxDownload {
		return nil, f.tooLargeError()
	}
	b := &body{
		reader:     resp.Body,
		remaining:  f.MaxDownload,
		tooLarge:   f.tooLargeError(),
		digest:     sha256.New(),
		wantDigest: expectedDigest(task.Tags),
	}
	contentType := contentTypeOf(resp.Header)
	s := task.Storage
	_, err = f.Objects.Put(ctx, s.Bucket, s.Key, b,
		object.Attributes{ContentType: contentType, Metadata: objectMetadata(task, resp.Header)})
	f.metrics.downloadBytes.Add(float64(b.bytesRead))
	if b.err != nil {
		return nil, b.err
	}
	if err != nil {
		return nil, f.storageError(err)
	}
	return &storedResource{
		uri:         f.Objects.URI(s.Bucket, s.Key),
		size:        b.bytesRead,
		digest:      b.sum(),
		contentType: contentType,
		verified:    b.wantDigest != "",
	}, nil
}

// responseError is the error of an answer without success. If it is 429 or 503 with a Retry-After,
// no task of this node asks the host before that time.
func (f *fetcher) responseError(resp *http.Response) error {
	taskErr := statusError(resp.StatusCode)
	if resp.StatusCode == http.StatusTooManyRequests ||
		resp.StatusCode == http.StatusServiceUnavailable {
		taskErr.delay = egress.RetryAfter(resp.Header, f.Now(), maxRetryAfter)
		if taskErr.delay > 0 {
			f.hosts.pause(resp.Request.URL.Host, taskErr.delay)
		}
	}
	return taskErr
}

// tooLargeError is the error of a resource that is larger than MaxDownload (G-FB-29). It is not
// retryable: another attempt would end the same.
func (f *fetcher) tooLargeError() error {
	return &taskError{code: codeDownloadTooLarge,
		message: fmt.Sprintf("the resource has more than %d bytes", f.MaxDownload)}
}

// body is the body of an answer while it is stored. It fails as soon as it is too large, and at its
// end if its digest is wrong, so that the storage keeps no object.
type body struct {
	reader     io.Reader
	remaining  int64 // bytes that may still come
	tooLarge   error // returned when more come
	bytesRead  int64
	digest     hash.Hash
	wantDigest string // the digest that the body must have; "" is any
	err        error  // the error that Read returned, other than io.EOF
}

// Read implements io.Reader. It remembers its error in err, which distinguishes an error of the
// origin from one of the storage.
func (b *body) Read(p []byte) (int, error) {
	if b.err != nil {
		return 0, b.err
	}
	n, err := b.reader.Read(p)
	b.bytesRead, b.remaining = b.bytesRead+int64(n), b.remaining-int64(n)
	b.digest.Write(p[:n])
	switch {
	case b.remaining < 0:
		b.err = b.tooLarge
	case errors.Is(err, io.EOF) && b.wantDigest != "" && b.sum() != b.wantDigest:
		b.err = &taskError{code: codeChecksum,
			message:   "the resource's SHA-256 is " + b.sum() + ", not what its checksum_hint says",
			retryable: true}
	case err != nil && !errors.Is(err, io.EOF):
		b.err = err
	default:
		return n, err
	}
	return n, b.err
}

// sum is the SHA-256, in hexadecimal, of what was read so far.
func (b *body) sum() string { return hex.EncodeToString(b.digest.Sum(nil)) }

// expectedDigest is the SHA-256 in the tag checksum_hint. A hint of another algorithm, or one that
// is malformed, is ignored.
func expectedDigest(tags map[string]string) string {
	algorithm, digest, _ := strings.Cut(tags["checksum_hint"], ":")
	if !strings.EqualFold(algorithm, "sha256") {
		return ""
	}
	if raw, err := hex.DecodeString(digest); err != nil || len(raw) != sha256.Size {
		return ""
	}
	return strings.ToLower(digest)
}

const (
	defaultContentType = "application/octet-stream"
	maxContentType     = 255 // bytes
)

// contentTypeOf is the content type of an answer in canonical form, or the default if it is absent,
// malformed or too long.
func contentTypeOf(h http.Header) string {
	mediaType, params, err := mime.ParseMediaType(h.Get("Content-Type"))
	if err != nil {
		return defaultContentType
	}
	value := mime.FormatMediaType(mediaType, params)
	if value == "" || len(value) > maxContentType {
		return defaultContentType
	}
	return value
}

// maxMetadata bounds the metadata of an object, in bytes as S3 counts them in the worst case. S3
// refuses objects with more.
const maxMetadata = 2 << 10

// objectMetadata is the metadata of an object: that of the handler, the content encoding, and then
// as many tags as maxMetadata allows (FB-021, FB-079). Names that no header can have are left out;
// they are compared without case, and the first value of a name wins.
func objectMetadata(task *handler.Task, h http.Header) map[string]string {
	all, size := map[string]string{}, 0
	add := func(name, value string) {
		name = strings.ToLower(name)
		if _, exists := all[name]; exists || !metadataName.MatchString(name) {
			return
		}
		cost := len(name) + len(strconv.QuoteToASCII(value))
		if size+cost <= maxMetadata {
			all[name], size = value, size+cost
		}
	}
	for _, name := range slices.Sorted(maps.Keys(task.Storage.Metadata)) {
		add(name, task.Storage.Metadata[name])
	}
	if encoding := h.Get("Content-Encoding"); encoding != "" {
		add("content_encoding", encoding)
	}
	for _, name := range slices.Sorted(maps.Keys(task.Tags)) {
		add(name, task.Tags[name])
	}
	return all
}

// metadataName matches the names that metadata can have once they are in lower case: S3 sends each
// as a part of a header's name.
var metadataName = regexp.MustCompile(`^[a-z0-9_-]+$`)

// storedResource is the result of a task: the object that its download made.
type storedResource struct {
	uri         string
	size        int64
	digest      string
	contentType string
	verified    bool
}

// encode returns the result as it is stored with the task. Entries of the log repeat it.
func (s *storedResource) encode() []byte {
	o := strictjson.NewObject(make([]byte, 0, 256))
	o.Text("uri", s.uri)
	o.Int("size_bytes", s.size)
	o.Text("sha256", s.digest)
	o.Text("content_type", s.contentType)
	o.Bool("checksum_verified", s.verified)
	return o.End()
}
