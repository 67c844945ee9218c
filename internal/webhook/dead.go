package webhook

import (
	"context"

	"github.com/millrace/millrace/internal/job"
)

// ReplayDead makes one more delivery of the event of a delivery that is exhausted, to all that the
// first one served. Where their subscriptions are gone or disabled, it ends as that did.
func (w *Webhooks) ReplayDead(ctx context.Context, dead *job.Job) (*job.Job, error) {
	j, err := w.Engine.Get(ctx, dead.ID)
	if err != nil {
		return nil, err
	}
	p, err := decodeDelivery(j)
	if err != nil {
		return nil, err
	}
	return w.repeat(ctx, p, j)
}
