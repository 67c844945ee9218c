package object

import (
	"context"
	"strings"

	"github.com/millrace/millrace/internal/job"
)

// idKey is the marker in the default bucket.
const idKey = reservedPrefix + "id"

// ID returns the identity of the default bucket: the content of a marker in it, and empty where the
// bucket has none. It is compared with the one that the database was bound to (package storageid).
func (o *Objects) ID(ctx context.Context) (id string, err error) {
	err = o.observe("object.id", func() (err error) {
		id, err = o.currentID(ctx)
		return err
	})
	return id, err
}

// currentID reads the marker while no ping of this node is under way: readID may need one.
func (o *Objects) currentID(ctx context.Context) (string, error) {
	done, err := o.probe.acquire(ctx)
	if err != nil {
		return "", wrapError(ctx, "object.id", err)
	}
	defer done()
	return o.readID(ctx)
}

// CreateID gives the default bucket an id unless it has one, and returns the one it has. Nodes that
// do so at the same time get the same.
func (o *Objects) CreateID(ctx context.Context, id string) (created string, err error) {
	err = o.observe("object.id", func() (err error) {
		created, err = o.createID(ctx, id)
		return err
	})
	return created, err
}

// createID writes the marker unless there is one, and reads it again: of several nodes that write
// it at the same time, the backend keeps the marker of one, and all must return that.
func (o *Objects) createID(ctx context.Context, id string) (string, error) {
	done, err := o.probe.acquire(ctx)
	if err != nil {
		return "", wrapError(ctx, "object.id", err)
	}
	defer done()
	if current, err := o.readID(ctx); err != nil || current != "" {
		return current, err
	}
	err = o.backend.create(ctx, o.bucket, idKey, strings.NewReader(id))
	if err != nil {
		return "", wrapError(ctx, "object.id", err)
	}
	current, err := o.read(ctx, o.bucket, idKey)
	return string(current), err
}

// readID reads the marker; "" is none. The caller has acquired the probe. Where the credentials may
// not list the bucket, a missing marker is denied access, so a ping decides what the denial means.
func (o *Objects) readID(ctx context.Context) (string, error) {
	id, err := o.read(ctx, o.bucket, idKey)
	if isDenied(err) { // see missingObjectError
		return "", o.pingBucket(ctx, o.bucket)
	}
	if job.IsKind(err, job.NotFound) {
		return "", nil
	}
	return string(id), err
}
