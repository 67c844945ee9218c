package engine

import (
	"context"
	"maps"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
)

// The settings of queues are in the store and, as a copy, in the memory of each node, so that a
// claim need not read them. SetQueue announces a change; a node that misses the announcement loads
// it with the next LoadQueues, which package maintenance repeats.

// queueSettings are the settings of the queues that are paused or limited.
type queueSettings map[queueKey]job.QueueSettings

func (s *queueSettings) of(key queueKey) job.QueueSettings { return (*s)[key] }

// SetQueue pauses or limits a queue. It is in force on this node at once and on the others when the
// announcement arrives, or with their next LoadQueues.
func (e *Engine) SetQueue(ctx context.Context, q job.QueueSettings) error {
	if _, err := e.contract(q.Contract); err != nil {
		return err
	}
	if !isSettable(q.Queue, q.MaxRunning) {
		return errUnsettable
	}
	if err := e.update(ctx, func(u *unit) error {
		return u.tx.Apply(store.Changes{Queues: []job.QueueSettings{q}})
	}); err != nil {
		return err
	}
	return e.reloadQueues(ctx)
}

func isSettable(queue string, limit int) bool { return queue != "" && limit >= 0 }

var errUnsettable = &job.Error{Kind: job.Invalid, Op: "engine.queue",
	Msg: "a queue has a name and a limit of 0 or more"}

// reloadQueues loads what this node has just set and announces it to the others.
func (e *Engine) reloadQueues(ctx context.Context) error {
	e.store.Announce([]job.QueueHash{settingsHash})
	return e.LoadQueues(ctx)
}

// settingsHash stands for the settings of all queues in announcements: no contract has the empty
// name.
var settingsHash = job.QueueHashOf("", "")

// LimitQueues sets how many jobs of queues of a contract are leased at a time: a queue that is not
// named has no limit of its own from then on. Pauses stay. It is in force when SetQueue would be.
func (e *Engine) LimitQueues(ctx context.Context, contract string, limits map[string]int) error {
	if _, err := e.contract(contract); err != nil {
		return err
	}
	for queue, limit := range limits {
		if !isSettable(queue, limit) {
			return errUnsettable
		}
	}
	err := e.update(ctx, func(u *unit) error {
		all, err := u.tx.QueueSettings()
		if err != nil {
			return err
		}
		var changes store.Changes
		wanted := maps.Clone(limits)
		for _, q := range all {
			limit := wanted[q.Queue]
			if q.Contract != contract {
				continue
			}
			delete(wanted, q.Queue)
			if q.MaxRunning == limit {
				continue
			}
			q.MaxRunning = limit
			changes.Queues = append(changes.Queues, q)
		}
		for queue, limit := range wanted {
			changes.Queues = append(changes.Queues,
				job.QueueSettings{Contract: contract, Queue: queue, MaxRunning: limit})
		}
		return u.tx.Apply(changes)
	})
	if err != nil {
		return err
	}
	return e.reloadQueues(ctx)
}

// LoadQueues loads the settings of queues, as other nodes may have set them. Where they have
// changed, waiting claims are woken.
func (e *Engine) LoadQueues(ctx context.Context) error {
	return e.view(ctx, func(r reader) error {
		settings, err := settingsIn(r)
		if err != nil {
			return err
		}
		before := e.settings.Swap(settings)
		if before == nil {
			return nil
		}
		for contract := range changedContracts(before, settings) {
			e.hub.wake(slotsHash(contract), wakeAll)
		}
		return nil
	})
}

// loadSettings gives a unit the settings of queues. The first unit of a node reads them, so that no
// job is claimed against a limit or a pause that is in force already.
func (e *Engine) loadSettings(u *unit) error {
	if e.settings.Load() == nil {
		settings, err := settingsIn(u.tx)
		if err != nil {
			return err
		}
		e.settings.CompareAndSwap(nil, settings)
	}
	u.settings = e.settings.Load()
	return nil
}

// settingsIn reads the settings of queues.
func settingsIn(r reader) (*queueSettings, error) {
	all, err := r.QueueSettings()
	settings := queueSettings{}
	for _, q := range all {
		if q.Paused || q.MaxRunning > 0 {
			settings[queueKey{q.Contract, q.Queue}] = q
		}
	}
	return &settings, err
}

// changedContracts returns the contracts of the queues whose settings have changed.
func changedContracts(before, after *queueSettings) map[string]bool {
	contracts := map[string]bool{}
	for _, all := range []*queueSettings{before, after} {
		for key := range *all {
			if before.of(key) != after.of(key) {
				contracts[key.contract] = true
			}
		}
	}
	return contracts
}
