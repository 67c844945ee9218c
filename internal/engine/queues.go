package engine

import (
	"context"
	"maps"
	"slices"

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
	return e.ChangeQueue(ctx, q.JobType, q.Queue, replace)
}

// ChangeQueue has fn change the settings of a queue, which may have none yet, and write records in
// the same transaction. They are in force when those of SetQueue would be. It returns an error of
// fn unchanged. fn may run more than once, so it must have no other effects.
func (e *Engine) ChangeQueue(ctx context.Context, jobType, queue string,
	fn func(RecordWriter, *job.QueueSettings) error) error {
	if _, err := e.jobType(jobType); err != nil {
		return err
	}
	if err := e.update(ctx, func(u *unit) error {
		all, err := u.lockSettings(jobType)
		if err != nil {
			return err
		}
		q := job.QueueSettings{JobType: jobType, Queue: queue}
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
			u.recordQueues(queueKey{jobType, queue})
		}
		u.writes.Queues = append(u.writes.Queues, q)
		u.publishPause(paused, &q)
		return nil
	}); err != nil {
		return err
	}
	return e.reloadQueues(ctx)
}

// lockSettings locks the settings of all queues and returns those of a job type, by queue.
func (u *unit) lockSettings(jobType string) (map[string]job.QueueSettings, error) {
	if err := u.tx.LockName("queues"); err != nil {
		return nil, err
	}
	all, err := u.tx.QueueSettings()
	byQueue := map[string]job.QueueSettings{}
	for _, q := range all {
		if q.JobType == jobType {
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

// settingsHash stands for the settings of all queues in announcements: no job type has the empty
// name.
var settingsHash = job.QueueHashOf("", "")

// LimitQueues stores the limits that the configuration has for queues of a job type: a queue that
// is not named has none from then on. Pauses and what an operator has set stay. It is in force when
// SetQueue would be.
func (e *Engine) LimitQueues(ctx context.Context, jobType string,
	limits map[string]job.QueueLimits) error {
	if _, err := e.jobType(jobType); err != nil {
		return err
	}
	for _, queue := range slices.Sorted(maps.Keys(limits)) {
		if !isSettable(queue, limits[queue]) {
			return errUnsettable
		}
	}
	err := e.update(ctx, func(u *unit) error {
		all, err := u.lockSettings(jobType)
		if err != nil {
			return err
		}
		for queue, l := range limits {
			if _, known := all[queue]; !known && l != (job.QueueLimits{}) {
				all[queue] = job.QueueSettings{JobType: jobType, Queue: queue}
			}
		}
		for queue, q := range all {
			wanted := limits[queue]
			if limitsOf(&q) == wanted {
				continue
			}
			q.MaxRunning, q.Rate = wanted.MaxRunning, wanted.Rate
			if q.IsDefault() {
				u.recordQueues(queueKey{jobType, queue})
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
// changed, waiting claims wake.
func (e *Engine) LoadQueues(ctx context.Context) error {
	read := e.beginRead()
	return e.view(ctx, func(r reader) error { return e.storeSettings(r, read) })
}

// storeSettings keeps the settings that a read finds.
func (e *Engine) storeSettings(r reader, read int64) error {
	settings, err := settingsIn(r)
	if err != nil {
		return err
	}
	before := e.settings.keep(settings, read)
	if before == nil {
		return nil
	}
	for jobType := range changedJobTypes(before.value, settings) {
		e.hub.wakeJobType(jobType)
	}
	return nil
}

// loadSettings gives a unit the settings of queues. The first unit of a node reads them, so that no
// job is claimed against a limit or a pause that is in force already.
func (e *Engine) loadSettings(u *unit) error {
	if _, isRead := e.settings.get(); !isRead {
		settings, err := settingsIn(u.tx)
		if err != nil {
			return err
		}
		e.settings.keep(settings, 0)
	}
	u.settings, _ = e.settings.get()
	return nil
}

// settingsIn reads the settings of queues.
func settingsIn(r reader) (*queueSettings, error) {
	all, err := r.QueueSettings()
	settings := queueSettings{}
	for _, q := range all {
		if s := (queueState{q.Paused, q.Limits()}); s != (queueState{}) {
			settings[queueKey{q.JobType, q.Queue}] = s
		}
	}
	return &settings, err
}

// changedJobTypes returns the job types of the queues whose settings have changed.
func changedJobTypes(before, after *queueSettings) map[string]bool {
	jobTypes := map[string]bool{}
	for _, all := range []*queueSettings{before, after} {
		for key := range *all {
			if before.of(key) != after.of(key) {
				jobTypes[key.jobType] = true
			}
		}
	}
	return jobTypes
}
