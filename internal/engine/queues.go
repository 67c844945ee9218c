package engine

import (
	"context"

	"github.com/millrace/millrace/internal/job"
)

// queueSettings are the queues that have settings of their own.
type queueSettings map[queueKey]job.QueueSettings

func (s *queueSettings) of(key queueKey) job.QueueSettings { return (*s)[key] }

// SetQueue pauses or limits a queue. It holds on this node at once and on the
// others with their next LoadQueues.
func (e *Engine) SetQueue(ctx context.Context, q job.QueueSettings) error {
	if _, err := e.contract(q.Contract); err != nil {
		return err
	}
	if q.Queue == "" || q.RunLimit < 0 {
		return &job.Error{Kind: job.Invalid, Op: "engine.queue", Msg: "a queue has a name and a limit of 0 or more"}
	}
	if err := e.update(ctx, func(u *unit) error { return u.tx.SetQueue(q) }); err != nil {
		return err
	}
	if err := e.LoadQueues(ctx); err != nil {
		return err
	}
	e.hub.wake(job.LaneOf(q.Contract, q.Queue), wakeAll)
	e.hub.wake(anyQueue(q.Contract), wakeAll)
	return nil
}

// LoadQueues takes in the settings of queues, as other nodes may have set them.
func (e *Engine) LoadQueues(ctx context.Context) error {
	return e.view(ctx, func(r reader) error {
		all, err := r.QueueSettings()
		if err != nil {
			return err
		}
		settings := queueSettings{}
		for _, q := range all {
			if q.Paused || q.RunLimit > 0 {
				settings[queueKey{q.Contract, q.Queue}] = q
			}
		}
		e.settings.Store(&settings)
		return nil
	})
}
