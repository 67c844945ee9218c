package engine

import (
	"context"
	"maps"
	"slices"

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

// LimitQueues sets how many jobs of queues of a contract are leased at a time: those that are not named have no limit of
// their own from then on. Pauses stay. It holds as SetQueue does.
func (e *Engine) LimitQueues(ctx context.Context, contract string, limits map[string]int) error {
	if _, err := e.contract(contract); err != nil {
		return err
	}
	err := e.update(ctx, func(u *unit) error {
		all, err := u.tx.QueueSettings()
		if err != nil {
			return err
		}
		wanted := maps.Clone(limits)
		for _, q := range all {
			limit := wanted[q.Queue]
			if q.Contract != contract {
				continue
			}
			delete(wanted, q.Queue)
			if q.RunLimit == limit {
				continue
			}
			q.RunLimit = limit
			if err := u.tx.SetQueue(q); err != nil {
				return err
			}
		}
		for _, queue := range slices.Sorted(maps.Keys(wanted)) {
			if err := u.tx.SetQueue(job.QueueSettings{Contract: contract, Queue: queue, RunLimit: wanted[queue]}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := e.LoadQueues(ctx); err != nil {
		return err
	}
	e.hub.wake(slots(contract), wakeAll)
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
