package object

import (
	"context"
	"errors"
	"io"
	"net/url"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"
	"gocloud.dev/blob"
	_ "gocloud.dev/blob/s3blob" // the scheme s3
	"gocloud.dev/gcerrors"

	"github.com/millrace/millrace/internal/job"
)

// An object is uploaded in parts. Both constants bound the memory of a put; since S3 permits 10,000
// parts, partSize also bounds the size of an object.
const (
	partSize          = 8 << 20
	uploadConcurrency = 2
)

// s3 stores objects in the buckets of an S3 store, and opens each bucket once.
type s3 struct {
	url url.URL // without a bucket

	mu      sync.Mutex
	buckets map[string]*blob.Bucket
}

// openS3 checks the URL and the name of the default bucket. It makes no request: a store that is
// unavailable at the start of a node is an outage like any other.
func openS3(ctx context.Context, at, bucket string) (*s3, error) {
	u, err := url.Parse(at)
	if err != nil || u.Scheme != "s3" || u.Host != "" {
		return nil,
			invalid("the URL of the objects must be s3://?region=…&endpoint=…, without a bucket")
	}
	s := &s3{url: *u, buckets: map[string]*blob.Bucket{}}
	if _, err = s.bucket(ctx, bucket); err != nil {
		return nil, &job.Error{Kind: job.Invalid, Op: "object.open",
			Msg: "the URL of the objects cannot be used", Err: err}
	}
	return s, nil
}

// bucket returns a bucket, and opens it at its first use.
func (s *s3) bucket(ctx context.Context, name string) (*blob.Bucket, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := s.buckets[name]; b != nil {
		return b, nil
	}
	at := s.url
	at.Host = name
	b, err := blob.OpenBucket(ctx, at.String())
	if err != nil {
		return nil, err
	}
	s.buckets[name] = b
	return b, nil
}

// put uploads an object. S3 shows it when the upload is complete, and keeps the old one otherwise.
func (s *s3) put(ctx context.Context, bucket, key string, body io.Reader, a Attributes) error {
	return s.upload(ctx, bucket, key, body,
		&blob.WriterOptions{ContentType: a.ContentType, Metadata: a.Metadata})
}

// create uploads an object with a condition, which the store checks when the upload ends.
func (s *s3) create(ctx context.Context, bucket, key string, body io.Reader) error {
	err := s.upload(ctx, bucket, key, body,
		&blob.WriterOptions{ContentType: defaultContentType, IfNotExist: true})
	if gcerrors.Code(err) == gcerrors.FailedPrecondition {
		return nil // the object exists
	}
	return err
}

// upload sends a body, in parts if it is large. After an error it removes the parts.
func (s *s3) upload(ctx context.Context, bucket, key string, body io.Reader,
	o *blob.WriterOptions) error {
	b, err := s.bucket(ctx, bucket)
	if err != nil {
		return err
	}
	ctx, cancel := withGrace(ctx)
	defer cancel()
	o.BufferSize, o.MaxConcurrency = partSize, uploadConcurrency
	return bucketErrorKind(bucket, b.Upload(ctx, key, body, o))
}

// cleanupGrace is how long a put whose context has ended may take to remove the parts it has sent:
// the store keeps and bills them otherwise.
const cleanupGrace = 10 * time.Second

// withGrace returns a context that ends cleanupGrace after ctx. The upload stops at once
// nevertheless, since the reader of its body ends with ctx.
func withGrace(ctx context.Context) (context.Context, context.CancelFunc) {
	later, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(cleanupGrace, cancel) })
	return later, func() { stop(); cancel() }
}

// open begins a download. The body can be read to its end although the object is replaced
// meanwhile.
func (s *s3) open(ctx context.Context, bucket, key string) (io.ReadSeekCloser, Info, error) {
	b, err := s.bucket(ctx, bucket)
	if err != nil {
		return nil, Info{}, err
	}
	body, err := b.NewReader(ctx, key, &blob.ReaderOptions{BeforeRead: disableChecksumWarnings})
	if err != nil {
		return nil, Info{}, bucketErrorKind(bucket, err)
	}
	info := Info{Size: body.Size(), Modified: body.ModTime().UTC(),
		Attributes: Attributes{ContentType: body.ContentType(), Metadata: map[string]string{}}}
	var answer awss3.GetObjectOutput
	if body.As(&answer) {
		for name, value := range answer.Metadata {
			info.Metadata[name] = unescapeMetadata(value)
		}
	}
	return body, info, nil
}

// unescapeMetadata undoes the escaping of the library, as far as a value has it.
func unescapeMetadata(value string) string {
	unescaped, err := url.PathUnescape(value)
	if err != nil {
		return value
	}
	return unescaped
}

// disableChecksumWarnings keeps the library from writing a line to its own log for every object
// without a checksum.
func disableChecksumWarnings(as func(any) bool) error {
	var options *[]func(*awss3.Options)
	if as(&options) {
		*options = append(*options, func(o *awss3.Options) {
			o.DisableLogOutputChecksumValidationSkipped = true
		})
	}
	return nil
}

// exists asks for the header of an object.
func (s *s3) exists(ctx context.Context, bucket, key string) (bool, error) {
	b, err := s.bucket(ctx, bucket)
	if err != nil {
		return false, err
	}
	exists, err := b.Exists(ctx, key)
	return exists, bucketErrorKind(bucket, err)
}

// remove deletes an object. The store reports success for a missing one.
func (s *s3) remove(ctx context.Context, bucket, key string) error {
	b, err := s.bucket(ctx, bucket)
	if err != nil {
		return err
	}
	return bucketErrorKind(bucket, b.Delete(ctx, key))
}

// list asks for pages of keys until there are n. The store skips the keys before after.
func (s *s3) list(ctx context.Context, bucket, prefix, after string, n int) ([]string, error) {
	b, err := s.bucket(ctx, bucket)
	if err != nil {
		return nil, err
	}
	objects := b.List(&blob.ListOptions{Prefix: prefix, BeforeList: func(as func(any) bool) error {
		var in *awss3.ListObjectsV2Input
		if after != "" && as(&in) {
			in.StartAfter = aws.String(after)
		}
		return nil
	}})
	var found []string
	for len(found) < n {
		o, err := objects.Next(ctx)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, bucketErrorKind(bucket, err)
		}
		found = append(found, o.Key)
	}
	return found, nil
}

// close closes the buckets that were opened.
func (s *s3) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var err error
	for name, b := range s.buckets {
		err = errors.Join(err, b.Close())
		delete(s.buckets, name)
	}
	return err
}

// bucketErrorKind gives an error of the store its kind. A missing bucket, which the store reports
// as not found like a missing object, is ReadOnly: an operator has to make it.
func bucketErrorKind(bucket string, err error) error {
	if gcerrors.Code(err) != gcerrors.NotFound {
		return err
	}
	if hasCode(err, "NoSuchBucket") {
		return &job.Error{Kind: job.ReadOnly, Op: "object", Msg: "there is no bucket " + bucket,
			Err: err}
	}
	return notFoundError(err)
}

// notFoundError is the error of an object that does not exist.
func notFoundError(err error) error {
	return &job.Error{Kind: job.NotFound, Op: "object", Msg: "there is no such object", Err: err}
}

// isDenied reports that the store refused the credentials for an operation, which it also does
// where an object is missing and the credentials may not list.
func isDenied(err error) bool { return gcerrors.Code(err) == gcerrors.PermissionDenied }

// hasCode reports whether an error is an answer of the store with a code of S3.
func hasCode(err error, code string) bool {
	var api interface{ ErrorCode() string }
	return errors.As(err, &api) && api.ErrorCode() == code
}
