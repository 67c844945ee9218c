package object

import (
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/outage"
)

// Config says where objects are kept.
type Config struct {
	Dir string // the directory, when URL is empty; it belongs to one process
	// s3://?region=…&endpoint=…: an S3 store, its keys found as AWS clients find them
	URL    string
	Bucket string       // the bucket that an empty name means
	Part   *outage.Part // is told how the place answers; nil: nobody
}

// Attributes are kept with an object.
type Attributes struct {
	ContentType string            // application/octet-stream when empty
	Metadata    map[string]string // names are kept in lower case
}

// Info tells of an object.
type Info struct {
	Key      string
	Size     int64
	Modified time.Time
	Attributes
}

// backend is where buckets are. Names have been checked.
type backend interface {
	// put writes an object whole or not at all, and gives its size.
	put(ctx context.Context, bucket, key string, body io.Reader, a Attributes) error
	// create writes an object unless there is one.
	create(ctx context.Context, bucket, key string, body io.Reader) error
	open(ctx context.Context, bucket, key string) (io.ReadSeekCloser, Info, error)
	exists(ctx context.Context, bucket, key string) (bool, error)
	remove(ctx context.Context, bucket, key string) error // NotFound if there is none
	list(ctx context.Context, bucket, prefix, after string, n int) ([]string, error)
	close() error
}

// Objects is the way to all objects. Its verbs may be called at the same time.
type Objects struct {
	bucket  string
	backend backend
	part    *outage.Part
	probe   probe
}

// Open opens the place. A directory is made, and what a crash left half written in it is removed;
// an S3 store is not asked before it is needed, see Ping.
func Open(ctx context.Context, c Config) (*Objects, error) {
	if !ValidBucket(c.Bucket) {
		return nil, invalid("the default bucket has no valid name")
	}
	o := &Objects{bucket: c.Bucket, part: c.Part, probe: newProbe()}
	var err error
	if c.URL != "" {
		o.backend, err = openS3(ctx, c.URL, c.Bucket)
	} else {
		o.backend, err = openDirectory(c.Dir)
	}
	if err != nil {
		return nil, err
	}
	return o, nil
}

// Put writes an object and gives its size. An object that is there is replaced.
func (o *Objects) Put(ctx context.Context, bucket, key string, body io.Reader, a Attributes) (Info,
	error) {
	bucket, err := o.name(bucket, key)
	if err != nil {
		return Info{}, err
	}
	if a, err = a.validate(); err != nil {
		return Info{}, err
	}
	report := o.part.Begin()
	counter := &countingReader{ctx: ctx, r: body}
	err = o.backend.put(ctx, bucket, key, counter, a)
	if err != nil && counter.err != nil && ctx.Err() == nil {
		return Info{}, counter.err
	}
	return Info{Key: key, Size: counter.n, Attributes: a},
		reportResult(ctx, report, "object.put", err)
}

// Open reads an object, which keeps being what it is now while it is read from its beginning on;
// who seeks may find it replaced. The caller closes it.
func (o *Objects) Open(ctx context.Context, bucket, key string) (io.ReadSeekCloser, Info, error) {
	bucket, err := o.name(bucket, key)
	if err != nil {
		return nil, Info{}, err
	}
	report := o.part.Begin()
	body, info, err := o.backend.open(ctx, bucket, key)
	info.Key = key
	return body, info, reportResult(ctx, report, "object.open",
		o.missingObjectError(ctx, bucket, err))
}

// Exists tells whether there is an object.
func (o *Objects) Exists(ctx context.Context, bucket, key string) (bool, error) {
	bucket, err := o.name(bucket, key)
	if err != nil {
		return false, err
	}
	report := o.part.Begin()
	exists, err := o.backend.exists(ctx, bucket, key)
	err = reportResult(ctx, report, "object.exists", o.missingObjectError(ctx, bucket, err))
	if job.IsKind(err, job.NotFound) {
		return false, nil
	}
	return exists, err
}

// Delete removes an object; that there is none is no error.
func (o *Objects) Delete(ctx context.Context, bucket, key string) error {
	bucket, err := o.name(bucket, key)
	if err != nil {
		return err
	}
	report := o.part.Begin()
	err = o.backend.remove(ctx, bucket, key)
	if isDenied(err) {
		if exists, failed := o.Exists(ctx, bucket, key); !exists && failed == nil {
			err = nil
		}
	}
	err = reportResult(ctx, report, "object.delete", err)
	if job.IsKind(err, job.NotFound) {
		return nil
	}
	return err
}

// List gives up to n keys that begin with prefix and come after a key, in the order of their bytes.
// What lies between is skipped, not read.
func (o *Objects) List(ctx context.Context, bucket, prefix, after string, n int) ([]string, error) {
	bucket = cmp.Or(bucket, o.bucket)
	if !ValidBucket(bucket) {
		return nil, invalid("the bucket has no valid name")
	}
	report := o.part.Begin()
	found, err := o.backend.list(ctx, bucket, prefix, after, n)
	// the storage is not away: a right is missing
	if isDenied(err) && o.ping(ctx, []string{bucket}) == nil {
		err = &job.Error{Kind: job.Internal, Op: "object.list",
			Msg: "the bucket " + bucket + " may not be listed", Err: err}
	}
	return found, reportResult(ctx, report, "object.list", err)
}

// URI names an object the same way wherever it is kept.
func (o *Objects) URI(bucket, key string) string {
	return "s3://" + cmp.Or(bucket, o.bucket) + "/" + key
}

// Close ends what is open.
func (o *Objects) Close() error { return o.backend.close() }

// name gives the bucket that is meant, once both names are found valid.
func (o *Objects) name(bucket, key string) (string, error) {
	bucket = cmp.Or(bucket, o.bucket)
	switch {
	case !ValidBucket(bucket):
		return "", invalid("the bucket has no valid name")
	case !ValidKey(key):
		return "", invalid("the object's key is not valid")
	}
	return bucket, nil
}

// maxMetadataBytes is what S3 keeps with an object.
const maxMetadataBytes = 2 << 10

// validate refuses attributes that do not survive being headers of HTTP.
func (a Attributes) validate() (Attributes, error) {
	a.ContentType = cmp.Or(a.ContentType, defaultContentType)
	if strings.ContainsFunc(a.ContentType, func(r rune) bool {
		return r < ' ' || r > '~'
	}) || len(a.ContentType) > 255 {
		return a, invalid("the object's content type is not valid")
	}
	size, lower := 0, make(map[string]string, len(a.Metadata))
	for _, name := range slices.Sorted(maps.Keys(a.Metadata)) {
		value := a.Metadata[name]
		size += len(name) + len(value)
		name = strings.ToLower(name)
		if _, duplicate := lower[name]; duplicate || name == "" ||
			strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
			return a, invalid("a name of the object's metadata is not valid: letters, digits, - " +
				"and _, each name once")
		}
		lower[name] = value
	}
	if size > maxMetadataBytes {
		return a, invalid("the object's metadata is larger than 2 KiB")
	}
	a.Metadata = lower
	return a, nil
}

const defaultContentType = "application/octet-stream"

// countingReader counts what is read, keeps the error that ended it, and ends with its context.
type countingReader struct {
	ctx context.Context
	r   io.Reader
	n   int64
	err error
}

func (c *countingReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := c.r.Read(p)
	if c.n += int64(n); err != nil && err != io.EOF {
		c.err = err
	}
	return n, err
}

func invalid(msg string) error { return &job.Error{Kind: job.Invalid, Op: "object", Msg: msg} }

// reportResult tells how a call of the place ended, and gives its error a kind.
func reportResult(ctx context.Context, report func(error), op string, err error) error {
	err = wrapError(ctx, op, err)
	report(err)
	return err
}

// wrapError gives an error its kind; what has one keeps it.
func wrapError(ctx context.Context, op string, err error) error {
	var known *job.Error
	if err == nil || errors.As(err, &known) {
		return err
	}
	e := &job.Error{Kind: job.Unavailable, Op: op, Err: err}
	switch {
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		e.Kind = job.ReadOnly
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		e.Kind = job.Timeout
	case ctx.Err() != nil:
		e.Kind = job.Aborted
	}
	return e
}
