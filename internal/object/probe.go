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
	"github.com/millrace/millrace/internal/outage"
)

// reservedPrefix is the prefix of the keys of the node's own objects in a bucket: the probe of Ping
// and the marker of ID.
const reservedPrefix = ".millrace/"

// probe is the object that Ping writes, reads and deletes. It has one key for the life of the
// process: with credentials that do not permit deletion, one object is left behind and not one for
// each Ping.
type probe struct {
	key  string
	text []byte
	slot chan struct{} // a lock with a context: concurrent pings would delete each other's object
}

// newProbe makes the probe of this process.
func newProbe() probe {
	p := probe{key: reservedPrefix + "health/" + rand.Text(), text: []byte("ping"),
		slot: make(chan struct{}, 1)}
	p.slot <- struct{}{}
	return p
}

// acquire waits until no other goroutine uses the node's own objects.
func (p *probe) acquire(ctx context.Context) (done func(), err error) {
	select {
	case <-p.slot:
		return func() { p.slot <- struct{}{} }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Ping checks that objects can be written, read and deleted in the buckets; no bucket means the
// default one. It uses the operations of normal work and so needs no further permissions. An error
// of the kind ReadOnly lasts until an operator acts.
//
//	put ──> read ──> compare ──> delete      in every bucket, under .millrace/health/
//
// The health checks call it, and missingObjectError where S3 does not distinguish a missing object
// from a forbidden one.
func (o *Objects) Ping(ctx context.Context, buckets ...string) error {
	return o.observe("object.ping", func() error { return o.ping(ctx, buckets) })
}

// observe makes a call of the node itself and reports to the monitor how it ended. Such a call has
// a deadline of its own, so one that times out shows that the storage does not answer.
func (o *Objects) observe(op string, call func() error) error {
	report := o.monitor.Begin()
	err := call()
	if job.IsKind(err, job.Timeout) {
		err = &job.Error{Kind: job.Unavailable, Op: op, Msg: "the storage does not answer", Err: err}
	}
	report(err)
	return err
}

// ping is Ping without a report to the monitor, for calls that are part of an operation which
// reports itself.
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

// pingBucket checks one bucket. Its error says what cannot be done in which bucket.
func (o *Objects) pingBucket(ctx context.Context, bucket string) error {
	_, err := o.Put(ctx, bucket, o.probe.key, bytes.NewReader(o.probe.text), Attributes{})
	if err != nil {
		return bucketError(bucket, "written", err)
	}
	text, err := o.read(ctx, bucket, o.probe.key)
	if err != nil || !bytes.Equal(text, o.probe.text) {
		return bucketError(bucket, "read", cmp.Or(err, errContentMismatch))
	}
	err = wrapError(ctx, "object.delete", o.backend.remove(ctx, bucket, o.probe.key))
	if err != nil && !job.IsKind(err, job.NotFound) {
		return bucketError(bucket, "deleted from", err)
	}
	return nil
}

// errContentMismatch is what a ping finds behind a cache or a proxy that answers from an older
// state.
var errContentMismatch = errors.New("the object read differs from the object written")

// maxReservedBytes bounds the bytes that are read of one of the node's own objects.
const maxReservedBytes = 1 << 10

// read reads one of the node's own small objects as a whole.
func (o *Objects) read(ctx context.Context, bucket, key string) ([]byte, error) {
	body, _, err := o.backend.open(ctx, bucket, key)
	if err != nil {
		return nil, wrapError(ctx, "object.read", err)
	}
	defer body.Close()
	text, err := io.ReadAll(io.LimitReader(body, maxReservedBytes))
	return text, wrapError(ctx, "object.read", err)
}

// missingObjectError translates a denied access to NotFound where the object does not exist. S3
// denies access to a missing object when the credentials do not permit listing. When Ping shows
// that objects of the bucket can be read, there is no other reason for the denial.
func (o *Objects) missingObjectError(ctx context.Context, bucket string, err error) error {
	if !isDenied(err) || o.ping(ctx, []string{bucket}) != nil {
		return err
	}
	return notFoundError(err)
}

// bucketError describes what cannot be done in a bucket, with the code of the system or of S3.
func bucketError(bucket, verb string, err error) error {
	var jobErr *job.Error
	isPrecise := errors.As(err, &jobErr) && jobErr.Msg != "" // such as: there is no such bucket
	if isPrecise && outage.Is(err) {
		return err
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
		e.Kind = job.ReadOnly // there is a file in place of the bucket or of a folder in it
	}
	return e
}
