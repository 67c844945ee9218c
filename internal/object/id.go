package object

import (
	"context"
	"crypto/rand"
	"strings"

	"github.com/millrace/millrace/internal/job"
)

// ID tells the default bucket from every other: it is the content of a marker in it, which is made
// where there is none. Two nodes that make it at the same time get the same.
func (o *Objects) ID(ctx context.Context) (string, error) {
	const key = reservedPrefix + "id"
	done, err := o.probe.acquire(ctx)
	if err != nil {
		return "", wrapError(ctx, "object.id", err)
	}
	defer done()
	id, err := o.read(ctx, o.bucket, key)
	if job.IsKind(err, job.NotFound) || isDenied(err) { // which it may be for not being there
		if err := wrapError(ctx, "object.id",
			o.backend.create(ctx, o.bucket, key, strings.NewReader(rand.Text()))); err != nil {
			return "", err
		}
		id, err = o.read(ctx, o.bucket, key)
	}
	return string(id), err
}
