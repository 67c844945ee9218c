package fetchbox

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
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
	"github.com/millrace/millrace/internal/httpapi/strictjson"
	"github.com/millrace/millrace/internal/object"
)

// download makes one request and stores what comes, as it comes. Nothing is under the task's key
// unless it is whole: an object is visible when its last byte has been read and what was promised
// of it holds.
func (f *fetcher) download(ctx context.Context, task *handler.Task, req *http.Request,
	routes []route) (*stored, error) {
	resp, err := f.proxyRoutes.do(req, routes)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return nil, f.responseError(resp)
	}
	if resp.ContentLength > f.MaxDownload {
		return nil, f.tooLarge()
	}
	b := &body{reader: resp.Body, remaining: f.MaxDownload, tooLarge: f.tooLarge(),
		digest: sha256.New(), wantDigest: expectedDigest(task.Tags)}
	contentType := contentTypeOf(resp.Header)
	s := task.Storage
	_, err = f.Objects.Put(ctx, s.Bucket, s.Key, b,
		object.Attributes{ContentType: contentType, Metadata: objectMetadata(task, resp.Header)})
	f.metrics.downloadBytes.Add(float64(b.bytesRead))
	switch {
	case b.err != nil:
		return nil, b.err
	case err != nil:
		return nil, f.storageError(err)
	}
	return &stored{uri: f.Objects.URI(s.Bucket, s.Key), size: b.bytesRead, digest: b.sum(),
		contentType: contentType, verified: b.wantDigest != ""}, nil
}

// responseError is an answer that is no success. A host that says when to come again is left alone
// until then, by all.
func (f *fetcher) responseError(resp *http.Response) error {
	fault := statusError(resp.StatusCode)
	if resp.StatusCode == http.StatusTooManyRequests ||
		resp.StatusCode == http.StatusServiceUnavailable {
		if fault.delay = parseRetryAfter(resp.Header, f.Now()); fault.delay > 0 {
			f.hosts.pause(resp.Request.URL.Host, fault.delay)
		}
	}
	return fault
}

func (f *fetcher) tooLarge() error {
	return &taskError{code: codeDownloadTooLarge,
		message: fmt.Sprintf("the resource has more than %d bytes", f.MaxDownload)}
}

// body is what of an answer is stored: read to its end it is whole, and what was asked for.
type body struct {
	reader     io.Reader
	remaining  int64 // bytes it may still have
	tooLarge   error
	bytesRead  int64
	digest     hash.Hash
	wantDigest string // the digest it has to have; "" is any
	err        error  // why it is not what was asked for
}

// Read implements io.Reader. Its errors stay in failed, so that they can be told from those of the
// storage.
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
	case err == io.EOF && b.wantDigest != "" && b.sum() != b.wantDigest:
		b.err = &taskError{code: codeChecksum,
			message:   "the resource's SHA-256 is " + b.sum() + ", not what its checksum_hint says",
			retryable: true}
	case err != nil && err != io.EOF:
		b.err = err
	default:
		return n, err
	}
	return n, b.err
}

func (b *body) sum() string { return hex.EncodeToString(b.digest.Sum(nil)) }

// expectedDigest is the SHA-256 that the tag checksum_hint asks for. A hint of another kind is one
// that cannot be followed.
func expectedDigest(tags map[string]string) string {
	kind, digest, _ := strings.Cut(tags["checksum_hint"], ":")
	if raw, err := hex.DecodeString(digest); err != nil || len(raw) != sha256.Size ||
		!strings.EqualFold(kind, "sha256") {
		return ""
	}
	return strings.ToLower(digest)
}

// defaultContentType is the type of what does not say.
const (
	defaultContentType = "application/octet-stream"
	maxContentType     = 255
)

func contentTypeOf(h http.Header) string {
	kind, more, err := mime.ParseMediaType(h.Get("Content-Type"))
	if value := mime.FormatMediaType(kind, more); err == nil && value != "" &&
		len(value) <= maxContentType {
		return value
	}
	return defaultContentType
}

// maxMetadata is how many bytes of metadata are kept with an object, as S3 counts them at worst.
const maxMetadata = 2 << 10

// objectMetadata is what is stored with an object: what the handler says, how it is packed, and of
// the tags those for which there is room (FB-021, FB-079). Names that cannot be a header's are left
// out; case makes no difference in them.
func objectMetadata(task *handler.Task, h http.Header) map[string]string {
	all, size := map[string]string{}, 0
	add := func(name, value string) {
		name = strings.ToLower(name)
		cost := len(name) + len(strconv.QuoteToASCII(value))
		if _, there := all[name]; !there && metadataName.MatchString(name) &&
			size+cost <= maxMetadata {
			all[name], size = value, size+cost
		}
	}
	for _, name := range slices.Sorted(maps.Keys(task.Storage.Metadata)) {
		add(name, task.Storage.Metadata[name])
	}
	if packed := h.Get("Content-Encoding"); packed != "" {
		add("content_encoding", packed)
	}
	for _, name := range slices.Sorted(maps.Keys(task.Tags)) {
		add(name, task.Tags[name])
	}
	return all
}

var metadataName = regexp.MustCompile(`^[a-z0-9_-]+$`)

// stored is what a download has left.
type stored struct {
	uri         string
	size        int64
	digest      string
	contentType string
	verified    bool
}

func (s *stored) encode() []byte {
	o := strictjson.NewObject(make([]byte, 0, 256))
	o.Text("uri", s.uri)
	o.Int("size_bytes", s.size)
	o.Text("sha256", s.digest)
	o.Text("content_type", s.contentType)
	o.Bool("checksum_verified", s.verified)
	return o.End()
}
