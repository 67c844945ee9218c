package engine

import (
	"context"
	"time"

	"github.com/millrace/millrace/internal/job"
)

const (
	publishBatch = 500
	publishTerm  = 5 * time.Second
)

// Publish hands up to a batch of messages of the outbox to deliver, oldest
// first, and removes them when it returns without error. One node does it at a
// time, so that messages of a job stay in order; a crash in between delivers
// some again. It reports how many were delivered.
func (e *Engine) Publish(ctx context.Context, deliver func(context.Context, []job.Message) error) (int, error) {
	var batch []job.Message
	err := e.update(ctx, func(u *unit) error {
		batch = nil
		waiting, err := u.tx.Messages(publishBatch)
		if err != nil || len(waiting) == 0 {
			return err // an idle outbox costs no write
		}
		elected, err := u.tx.Elect("publish", e.node, u.now.Add(publishTerm))
		if elected {
			batch = waiting
		}
		return err
	})
	if err != nil || len(batch) == 0 {
		return 0, err
	}
	limited, cancel := context.WithTimeout(ctx, publishTerm-time.Second)
	defer cancel()
	if err := deliver(limited, batch); err != nil {
		return 0, err
	}
	ids := make([]int64, len(batch))
	for i, m := range batch {
		ids[i] = m.ID
	}
	return len(batch), e.update(ctx, func(u *unit) error { return u.tx.DropMessages(ids) })
}

// Resign lets another node publish at once: it is for a node that stops.
func (e *Engine) Resign(ctx context.Context) error {
	return e.update(ctx, func(u *unit) error {
		_, err := u.tx.Elect("publish", e.node, u.now)
		return err
	})
}
