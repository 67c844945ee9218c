package engine

import (
	"context"
	"time"

	"github.com/millrace/millrace/internal/job"
)

const (
	publishBatch = 500
	publishTerm  = 5 * time.Second
	publishTime  = publishTerm / 2 // for a batch: a term with less left is renewed first
)

// Publish hands the messages of the outbox to deliver, oldest first and a batch at
// a time, and removes each batch when it returns without error. One node does it
// at a time, so that messages of a job stay in order; a crash in between delivers
// some again. It reports how many were delivered.
func (e *Engine) Publish(ctx context.Context, deliver func(context.Context, []job.Message) error) (n int, err error) {
	for delivered := []int64(nil); ; {
		batch, err := e.takeMessages(ctx, delivered)
		if err != nil {
			return n, err
		}
		n += len(delivered)
		if len(batch) == 0 {
			return n, nil
		}
		limited, cancel := context.WithTimeout(ctx, publishTime)
		err = deliver(limited, batch)
		cancel()
		if err != nil {
			return n, err
		}
		delivered = make([]int64, len(batch))
		for i, m := range batch {
			delivered[i] = m.ID
		}
	}
}

// takeMessages removes the messages that were delivered and returns the next
// batch, none where another node delivers. An idle outbox costs no write.
func (e *Engine) takeMessages(ctx context.Context, delivered []int64) (batch []job.Message, err error) {
	var term time.Time
	err = e.update(ctx, func(u *unit) error {
		batch, term = nil, time.UnixMicro(e.term.Load())
		if err := u.tx.DropMessages(delivered); err != nil {
			return err
		}
		waiting, err := u.tx.Messages(publishBatch)
		if err != nil || len(waiting) == 0 {
			return err
		}
		if term.Sub(u.now) >= publishTime {
			batch = waiting
			return nil
		}
		elected, err := u.tx.Elect("publish", e.node, u.now.Add(publishTerm))
		if elected {
			batch, term = waiting, u.now.Add(publishTerm)
		}
		return err
	})
	if err == nil {
		e.term.Store(term.UnixMicro())
	}
	return batch, err
}

// Resign lets another node publish at once: it is for a node that stops.
func (e *Engine) Resign(ctx context.Context) error {
	e.term.Store(0)
	return e.update(ctx, func(u *unit) error {
		_, err := u.tx.Elect("publish", e.node, u.now)
		return err
	})
}
