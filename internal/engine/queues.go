package engine

import (
	"context"

	"github.com/millrace/millrace/internal/job"
)

// The settings of queues are in the store and, as a copy, in the memory of each node, so that a
// claim need not read them. A change is announced; a node that misses the announcement loads it
// with the next Refresh, which package maintenance repeats.
//
// A limit comes from the configuration (LimitQueues) or from an operator (ChangeQueue). The store
// has both, and that of the operator is in force until it is taken back.

// queueSettings are the settings in force of the queues that have some.
type queueSettings map[queueKey]queueState

// queueState is what a claim needs to know of the settings of a queue.
type queueState struct {
	Paused bool
	job.QueueLimits
}

func (s *queueSettings) of(key queueKey) queueState { return (*s)[key] }

// SetQueue replaces the settings of a queue. They are in force on this node at once and on the
// others when the announcement arrives, or with their next LoadQueues.
func (e *Engine) SetQueue(ctx context.Context, q job.QueueSettings) error {
	replace := func(_ RecordWriter, s *job.QueueSettings) error { *s = q; return nil }
	return e.ChangeQueue(ctx, q.Contract, q.Queue, replace)
}

// ChangeQueue has fn change the settings of a queue, which may have none yet, and write records in
// the same transaction. They are in force when those of SetQueue would be. It returns an error of
// fn unchanged. fn may run more than once, so it must have no other effects.
func (e *Engine) ChangeQueue(ctx context.Context, contract, queue string,
	fn func(RecordWriter, *job.QueueSettings) error) error {
	if _, err := e.jobType(contract); err != nil {
		return err
	}
	if err := e.update(ctx, func(u *unit) error {
		all, err := u.lockSettings(contract)
		if err != nil {
			return err
		}
		q := job.QueueSettings{Contract: contract, Queue: queue}
		if s, ok := all[queue]; ok {
			q = s
		}
		had, paused := !q.IsDefault(), q.Paused
		if err := fn(u.records(), &q); err != nil {
			return err
		}
		if !isSettable(queue, q.Limits()) || !isSettable(queue, limitsOf(&q)) {
			return errUnsettable
		}
		if had && q.IsDefault() {
			u.rememberQueues(queueKey{contract, queue})
		}
		u.writes.Queues = append(u.writes.Queues, q)
		u.publishPause(paused, &q)
		return nil
	}); err != nil {
		return err
	}
	return e.reloadQueues(ctx)
}

// lockSettings locks the settings of all queues and returns those of a contract, by queue.
func (u *unit) lockSettings(contract string) (map[string]job.QueueSettings, error) {
	if err := u.tx.LockName("queues"); err != nil {
		return nil, err
	}
	all, err := u.tx.QueueSettings()
	byQueue := map[string]job.QueueSettings{}
	for _, q := range all {
		if q.Contract == contract {
			byQueue[q.Queue] = q
		}
	}
	return byQueue, err
}

func isSettable(queue string, l job.QueueLimits) bool {
	return queue != "" && l.MaxRunning >= 0 && l.Rate.IsValid()
}

var errUnsettable = &job.Error{Kind: job.Invalid, Op: "engine.queue",
	Msg: "a queue has a name, a limit of 0 or more and a rate within its ranges"}

// limitsOf returns the limits of a queue that come from the configuration.
func limitsOf(q *job.QueueSettings) job.QueueLimits {
	return job.QueueLimits{MaxRunning: q.MaxRunning, Rate: q.Rate}
}

// reloadQueues loads what this node has just set and announces it to the others.
func (e *Engine) reloadQueues(ctx context.Context) error {
	e.store.Notify([]job.QueueHash{settingsHash})
	return e.LoadQueues(ctx)
}

// settingsHash stands for the settings of all queues in announcements: no contract has the empty
// name.
var settingsHash = job.QueueHashOf("", "")

// LimitQueues stores the limits that the configuration has for queues of a contract: a queue that
// is not named has none from then on. Pauses and what an operator has set stay. It is in force when
// SetQueue would be.
func (e *Engine) LimitQueues(ctx context.Context, contract string,
	limits map[string]job.QueueLimits) error {
	if _, err := e.jobType(contract); err != nil {
		return err
	}
	for queue, l := range limits {
		if !isSettable(queue, l) {
			return errUnsettable
		}
	}
	err := e.update(ctx, func(u *unit) error {
		all, err := u.lockSettings(contract)
		if err != nil {
			return err
		}
		for queue, l := range limits {
			if _, known := all[queue]; !known && l != (job.QueueLimits{}) {
				all[queue] = job.QueueSettings{Contract: contract, Queue: queue}
			}
		}
		for queue, q := range all {
			wanted := limits[queue]
			if limitsOf(&q) == wanted {
				continue
			}
			q.MaxRunning, q.Rate = wanted.MaxRunning, wanted.Rate
			if q.IsDefault() {
				u.rememberQueues(queueKey{contract, queue})
			}
			u.writes.Queues = append(u.writes.Queues, q)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return e.reloadQueues(ctx)
}

// LoadQueues loads the settings of queues, as other nodes may have set them. Where they have
// changed, waiting claims are woken.
func (e *Engine) LoadQueues(ctx context.Context) error { return e.view(ctx, e.loadSettingsFrom) }

// Refresh is LoadQueues, loads drains and subscriptions, and signals the publishers that have
// messages in the outbox: it takes in what announcements of other nodes would have brought, had
// they not been lost.
func (e *Engine) Refresh(ctx context.Context) error {
	feedRead := e.beginFeedRead()
	return e.view(ctx, func(r reader) error {
		if err := e.loadSettingsFrom(r); err != nil {
			return err
		}
		if err := e.loadDrainsFrom(r); err != nil {
			return err
		}
		if err := e.storeSubscriptions(r, feedRead); err != nil {
			return err
		}
		if err := e.signalInbox(r); err != nil {
			return err
		}
		return e.signalWaiting(r)
	})
}

func (e *Engine) loadSettingsFrom(r reader) error {
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
		if s := (queueState{q.Paused, q.Limits()}); s != (queueState{}) {
			settings[queueKey{q.Contract, q.Queue}] = s
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
