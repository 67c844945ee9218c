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

// reservedPrefix begins the keys of what the node keeps for itself in a bucket.
const reservedPrefix = ".millrace/"

// probe is the object that Ping writes, reads and deletes. It has one key for the life of the
// process: credentials that may not delete it leave one object behind and not one for each look.
type probe struct {
	key  string
	text []byte
	slot chan struct{} // holds one: looks at the same time would meet each other's object
}

func newProbe() probe {
	p := probe{key: reservedPrefix + "health/" + rand.Text(), text: []byte("ping"),
		slot: make(chan struct{}, 1)}
	p.slot <- struct{}{}
	return p
}

// acquire waits until nobody else in the process is at the node's own objects.
func (p *probe) acquire(ctx context.Context) (done func(), err error) {
	select {
	case <-p.slot:
		return func() { p.slot <- struct{}{} }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Ping tells whether objects can be written, read and deleted in the buckets; no bucket means the
// default one. It does what the work does, and needs no other rights. ReadOnly lasts until an
// operator acts.
func (o *Objects) Ping(ctx context.Context, buckets ...string) error {
	report := o.part.Begin()
	err := o.ping(ctx, buckets)
	if job.IsKind(err, job.Timeout) { // nothing of the caller's was waited for
		err = &job.Error{Kind: job.Unavailable, Op: "object.ping",
			Msg: "the storage does not answer", Err: err}
	}
	report(err)
	return err
}

func (o *Objects) ping(ctx context.Context, buckets []string) error {
	done, err := o.probe.acquire(ctx)
	if err != nil {
		return wrapError(ctx, "object.ping", err)
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
	if _, err := o.Put(ctx, bucket, o.probe.key, bytes.NewReader(o.probe.text),
		Attributes{}); err != nil {
		return bucketError(bucket, "written", err)
	}
	if text, err := o.read(ctx, bucket, o.probe.key); err != nil ||
		!bytes.Equal(text, o.probe.text) {
		return bucketError(bucket, "read", cmp.Or(err, errContentMismatch))
	}
	err := wrapError(ctx, "object.delete", o.backend.remove(ctx, bucket, o.probe.key))
	if err != nil && !job.IsKind(err, job.NotFound) {
		return bucketError(bucket, "deleted from", err)
	}
	return nil
}

var errContentMismatch = errors.New("what was read is not what was written")

// maxReservedBytes bounds what is read of an object of the node's own.
const maxReservedBytes = 1 << 10

func (o *Objects) read(ctx context.Context, bucket, key string) ([]byte, error) {
	body, _, err := o.backend.open(ctx, bucket, key)
	if err != nil {
		return nil, wrapError(ctx, "object.read", err)
	}
	defer body.Close()
	text, err := io.ReadAll(io.LimitReader(body, maxReservedBytes))
	return text, wrapError(ctx, "object.read", err)
}

// missingObjectError is what an answer about one object means. S3 refuses those who may not list
// buckets where it would tell others that there is no such object: who may read what it writes in
// the bucket is refused for no other reason.
func (o *Objects) missingObjectError(ctx context.Context, bucket string, err error) error {
	if !isDenied(err) || o.ping(ctx, []string{bucket}) != nil {
		return err
	}
	return notFoundError(err)
}

// bucketError says what cannot be done in a bucket. What is neither away nor slow nor full stays so
// until an operator acts.
func bucketError(bucket, verb string, err error) error {
	var jobErr *job.Error
	if errors.As(err, &jobErr) && jobErr.Msg != "" && jobErr.Kind == job.Unavailable {
		return err // it says more: that there is no such bucket
	}
	e := &job.Error{Kind: job.KindOf(err), Op: "object.ping",
		Msg: "the bucket " + bucket + " cannot be " + verb, Err: err}
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
