package object

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"syscall"

	"github.com/millrace/millrace/internal/job"
)

// own begins the keys of what the node keeps for itself in a bucket.
const own = ".millrace/"

// probe is the object that Ping writes, reads and deletes. It has one key for the life of the process: credentials that
// may not delete it leave one object behind and not one for each look.
type probe struct {
	key  string
	text []byte
	free chan struct{} // holds one: looks at the same time would meet each other's object
}

func newProbe() probe {
	p := probe{key: own + "health/" + rand.Text(), text: []byte("ping"), free: make(chan struct{}, 1)}
	p.free <- struct{}{}
	return p
}

// alone waits until nobody else in the process is at the node's own objects.
func (p *probe) alone(ctx context.Context) (done func(), err error) {
	select {
	case <-p.free:
		return func() { p.free <- struct{}{} }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Ping tells whether objects can be written, read and deleted in the buckets; no bucket means the default one. It does
// what the work does, and needs no other rights. ReadOnly lasts until an operator acts.
func (o *Objects) Ping(ctx context.Context, buckets ...string) error {
	tell := o.part.Begin()
	err := o.ping(ctx, buckets)
	if job.IsKind(err, job.Timeout) { // nothing of the caller's was waited for
		err = &job.Error{Kind: job.Unavailable, Op: "object.ping", Msg: "the storage does not answer", Err: err}
	}
	tell(err)
	return err
}

func (o *Objects) ping(ctx context.Context, buckets []string) error {
	done, err := o.probe.alone(ctx)
	if err != nil {
		return failed(ctx, "object.ping", err)
	}
	defer done()
	if len(buckets) == 0 {
		buckets = []string{o.bucket}
	}
	for _, b := range buckets {
		if err := o.pingBucket(ctx, cmp.Or(b, o.bucket)); err != nil {
			return err
		}
	}
	return nil
}

func (o *Objects) pingBucket(ctx context.Context, bucket string) error {
	if _, err := o.Put(ctx, bucket, o.probe.key, bytes.NewReader(o.probe.text), Attributes{}); err != nil {
		return useless(bucket, "written", err)
	}
	if text, err := o.read(ctx, bucket, o.probe.key); err != nil || !bytes.Equal(text, o.probe.text) {
		return useless(bucket, "read", cmp.Or(err, errOther))
	}
	err := failed(ctx, "object.delete", o.place.remove(ctx, bucket, o.probe.key))
	if err != nil && !job.IsKind(err, job.NotFound) {
		return useless(bucket, "deleted from", err)
	}
	return nil
}

var errOther = errors.New("what was read is not what was written")

// longestOwn bounds what is read of an object of the node's own.
const longestOwn = 1 << 10

func (o *Objects) read(ctx context.Context, bucket, key string) ([]byte, error) {
	body, _, err := o.place.open(ctx, bucket, key)
	if err != nil {
		return nil, failed(ctx, "object.read", err)
	}
	defer body.Close()
	text, err := io.ReadAll(io.LimitReader(body, longestOwn))
	return text, failed(ctx, "object.read", err)
}

// missing is what an answer about one object means. S3 refuses those who may not list buckets where it
// would tell others that there is no such object: who may read what it writes in the bucket is
// refused for no other reason.
func (o *Objects) missing(ctx context.Context, bucket string, err error) error {
	if !isDenied(err) || o.ping(ctx, []string{bucket}) != nil {
		return err
	}
	return noObject(err)
}

// useless says what cannot be done in a bucket. What is neither away nor slow nor full stays so until an operator acts.
func useless(bucket, verb string, err error) error {
	var known *job.Error
	if errors.As(err, &known) && known.Msg != "" && known.Kind == job.Unavailable {
		return err // it says more: that there is no such bucket
	}
	e := &job.Error{Kind: job.KindOf(err), Op: "object.ping", Msg: "the bucket " + bucket + " cannot be " + verb, Err: err}
	var number syscall.Errno
	var answer interface{ ErrorCode() string }
	switch {
	case errors.As(err, &number):
		e.Msg += ": " + number.Error()
	case errors.As(err, &answer):
		e.Msg += ": " + answer.ErrorCode()
	}
	if e.Kind == job.Conflict {
		e.Kind = job.ReadOnly // a file stands where the bucket, or a folder in it, is to be
	}
	return e
}
