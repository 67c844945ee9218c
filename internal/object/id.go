package object

import (
	"context"
	"strings"

	"github.com/millrace/millrace/internal/job"
)

// idKey is the marker in the default bucket.
const idKey = reservedPrefix + "id"

// ID tells the default bucket from every other: it is the content of a marker in it, and empty
// where the bucket has none.
func (o *Objects) ID(ctx context.Context) (id string, err error) {
	err = o.observe("object.id", func() (err error) {
		id, err = o.currentID(ctx)
		return err
	})
	return id, err
}

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

// readID is called by who has acquired the probe.
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
