package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
)

// A queue exists while it has jobs that are not over, or settings, and is remembered for a week
// after it had either: a record names it then.

const (
	queueKind = "engine.queue"
	// queueMemory is how long a queue without jobs and settings is listed (G-AD-12).
	queueMemory = 7 * 24 * time.Hour
	queueBatch  = 500
)

// queueName is the body of the record of a queue.
type queueName struct{ Contract, Queue string }

// rememberQueues notes queues that have just lost their jobs or their settings.
func (u *unit) rememberQueues(keys ...queueKey) {
	for _, key := range keys {
		body, _ := json.Marshal(queueName{key.contract, key.queue}) // two texts: never fails
		u.writes.Records = append(u.writes.Records, job.Record{Kind: queueKind,
			Key: startsKey(key), Owner: key.contract, Body: body,
			ExpiresAt: u.now.Add(queueMemory)})
	}
}

// QueueStatus is a queue with its counts and settings.
type QueueStatus struct {
	job.QueueCount
	Settings job.QueueSettings
	// NextStart is when the rate of the queue allows the next start; a time that has passed, or
	// zero, means now.
	NextStart time.Time
	// ReadySince is from when on the first job of the claim order is ready; where jobs have
	// priorities, the earliest such time of all priorities. It is zero without ready jobs.
	ReadySince time.Time
}

// ListQueues returns the queues of a contract, by name; an empty contract means all of them. A
// queue is listed while it has jobs that are not over or settings, and for a week after it had
// either. Their NextStart and ReadySince are left to ReadReadySince and Queue.
func (e *Engine) ListQueues(ctx context.Context, contract string) (all []QueueStatus,
	err error) {
	names := e.jobTypeNames
	if contract != "" {
		if _, err := e.jobType(contract); err != nil {
			return nil, err
		}
		names = []string{contract}
	}
	err = e.view(ctx, func(r reader) error {
		all, err = queuesIn(r, contract, names)
		return err
	})
	return all, err
}

// ReadReadySince sets the ReadySince of queues.
func (e *Engine) ReadReadySince(ctx context.Context, queues []*QueueStatus) error {
	return e.view(ctx, func(r reader) error {
		all := map[queueKey]*QueueStatus{}
		for _, q := range queues {
			all[queueKey{q.Contract, q.Queue}] = q
		}
		return readReadySince(r, all)
	})
}

// Queue returns one queue. One that was never used has no jobs and no settings.
func (e *Engine) Queue(ctx context.Context, contract, queue string) (q QueueStatus, err error) {
	if _, err := e.jobType(contract); err != nil {
		return q, err
	}
	err = e.view(ctx, func(r reader) error {
		q, err = queueIn(r, queueKey{contract, queue})
		return err
	})
	return q, err
}

// queueIn reads the status of one queue.
func queueIn(r reader, key queueKey) (QueueStatus, error) {
	all, err := countedQueues(r, store.QueueSelector{Contract: key.contract, Queue: key.queue})
	if err != nil {
		return QueueStatus{}, err
	}
	q := all[key]
	if q == nil {
		q = newQueueStatus(key)
		all[key] = q
	}
	one := map[queueKey]*QueueStatus{key: q}
	if err := readNextStarts(r, one); err != nil {
		return QueueStatus{}, err
	}
	err = readReadySince(r, one)
	return *q, err
}

func newQueueStatus(key queueKey) *QueueStatus {
	return &QueueStatus{
		QueueCount: job.QueueCount{Contract: key.contract, Queue: key.queue},
		Settings:   job.QueueSettings{Contract: key.contract, Queue: key.queue},
	}
}

// countedQueues reads the selected queues that have jobs or settings.
func countedQueues(r reader, of store.QueueSelector) (map[queueKey]*QueueStatus, error) {
	counts, err := r.Counts(of)
	if err != nil {
		return nil, err
	}
	settings, err := r.QueueSettings()
	if err != nil {
		return nil, err
	}
	all := map[queueKey]*QueueStatus{}
	for _, c := range counts {
		key := queueKey{c.Contract, c.Queue}
		all[key] = newQueueStatus(key)
		all[key].QueueCount = c
	}
	for _, s := range settings {
		key := queueKey{s.Contract, s.Queue}
		isOther := (of.Contract != "" && s.Contract != of.Contract) ||
			(of.Queue != "" && s.Queue != of.Queue)
		if s.IsDefault() || isOther {
			continue
		}
		if all[key] == nil {
			all[key] = newQueueStatus(key)
		}
		all[key].Settings = s
	}
	return all, nil
}

// queuesIn reads the queues of a contract, and those that are remembered of the contracts named.
func queuesIn(r reader, contract string, names []string) ([]QueueStatus, error) {
	all, err := countedQueues(r, store.QueueSelector{Contract: contract})
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if err := addRemembered(r, name, all); err != nil {
			return nil, err
		}
	}
	list := make([]QueueStatus, 0, len(all))
	for _, q := range all {
		list = append(list, *q)
	}
	slices.SortFunc(list, func(a, b QueueStatus) int {
		return cmp.Or(strings.Compare(a.Contract, b.Contract), strings.Compare(a.Queue, b.Queue))
	})
	return list, nil
}

// addRemembered adds the queues of a contract that had jobs or settings a while ago.
func addRemembered(r reader, contract string, all map[queueKey]*QueueStatus) error {
	for after := ""; ; {
		records, err := r.Records(store.RecordSelector{Kind: queueKind, Owner: contract,
			After: after, Limit: queueBatch})
		if err != nil {
			return err
		}
		for i := range records {
			var name queueName
			if err := json.Unmarshal(records[i].Body, &name); err != nil {
				return &job.Error{Op: "engine.queues", Msg: "a stored queue cannot be read",
					Err: err}
			}
			if key := (queueKey{name.Contract, name.Queue}); all[key] == nil {
				all[key] = newQueueStatus(key)
			}
			after = records[i].Key
		}
		if len(records) < queueBatch {
			return nil
		}
	}
}

// readReadySince reads since when the queues have ready jobs.
func readReadySince(r reader, all map[queueKey]*QueueStatus) error {
	byHash, hashes := map[job.QueueHash]*QueueStatus{}, []job.QueueHash{}
	for key, q := range all {
		if q.Ready > 0 {
			hash := job.QueueHashOf(key.contract, key.queue)
			byHash[hash], hashes = q, append(hashes, hash)
		}
	}
	found, err := r.ReadyQueues(store.ReadySelector{Queues: hashes, WithSince: true})
	for _, q := range found {
		byHash[q.Queue].ReadySince = q.Since
	}
	return err
}

// Backlogs returns the queues that have ready jobs, in no order, without their settings, and the
// time of the store.
func (e *Engine) Backlogs(ctx context.Context) (all []QueueStatus, now time.Time, err error) {
	err = e.view(ctx, func(r reader) error {
		now, all = r.Now(), nil
		counts, err := r.Counts(store.QueueSelector{})
		if err != nil {
			return err
		}
		ready := map[queueKey]*QueueStatus{}
		for _, c := range counts {
			if c.Ready > 0 {
				ready[queueKey{c.Contract, c.Queue}] = &QueueStatus{QueueCount: c}
			}
		}
		err = readReadySince(r, ready)
		for _, q := range ready {
			all = append(all, *q)
		}
		return err
	})
	return all, now, err
}

// readNextStarts reads when the rates of queues allow the next start.
func readNextStarts(r reader, all map[queueKey]*QueueStatus) error {
	settings, keys := queueSettings{}, []queueKey{}
	for key, q := range all {
		if l := q.Settings.Limits(); !l.Rate.IsZero() {
			settings[key] = queueState{QueueLimits: l}
			keys = append(keys, key)
		}
	}
	read, err := readStarts(r, &settings, keys)
	for key, s := range read {
		if s.free(r.Now()) == 0 {
			all[key].NextStart = s.next(r.Now())
		}
	}
	return err
}
