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

// A queue exists while it has jobs that are not done, or settings, and is remembered for a week
// after it had either: a record names it then.

const (
	queueKind = "engine.queue"
	// queueMemory is how long a queue without jobs and settings is listed (G-AD-12).
	queueMemory = 7 * 24 * time.Hour
	queueBatch  = 500
)

// queueName is the body of the record of a queue.
type queueName struct {
	JobType string `json:"Contract"` // as older versions have written it
	Queue   string
}

// recordQueues records queues that have just lost their jobs or their settings.
func (u *unit) recordQueues(keys ...queueKey) {
	for _, key := range keys {
		body, _ := json.Marshal(queueName{key.jobType, key.queue}) // two texts: never fails
		u.writes.Records = append(u.writes.Records, job.Record{Kind: queueKind,
			Key: queueRecordKey(key), Owner: key.jobType, Body: body,
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

// QueueReader reads queues, and records, as they were at one moment.
type QueueReader struct {
	RecordReader
	engine *Engine
	reader reader
}

// ViewQueues runs fn on a consistent snapshot.
func (e *Engine) ViewQueues(ctx context.Context, fn func(QueueReader) error) error {
	return e.view(ctx, func(r reader) error { return fn(QueueReader{recordView{r}, e, r}) })
}

// List returns the queues of a job type, by name; an empty job type means all of them. A queue is
// listed while it has jobs that are not done or settings, and for a week after it had either. Their
// NextStart and ReadySince are left to ReadReadySince and Queue.
func (q QueueReader) List(jobType string) ([]QueueStatus, error) {
	if jobType != "" {
		if _, err := q.engine.jobType(jobType); err != nil {
			return nil, err
		}
	}
	return queuesIn(q.reader, jobType, q.engine.jobTypeNames)
}

// ReadReadySince sets the ReadySince of queues.
func (q QueueReader) ReadReadySince(queues []*QueueStatus) error {
	all := map[queueKey]*QueueStatus{}
	for _, q := range queues {
		all[queueKey{q.JobType, q.Queue}] = q
	}
	return readReadySince(q.reader, all)
}

// Queue returns one queue. One that was never used has no jobs and no settings.
func (q QueueReader) Queue(jobType, queue string) (QueueStatus, error) {
	if _, err := q.engine.jobType(jobType); err != nil {
		return QueueStatus{}, err
	}
	return queueIn(q.reader, queueKey{jobType, queue})
}

// queueIn reads the status of one queue.
func queueIn(r reader, key queueKey) (QueueStatus, error) {
	all, err := countedQueues(r, store.QueueSelector{JobType: key.jobType, Queue: key.queue})
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
		QueueCount: job.QueueCount{JobType: key.jobType, Queue: key.queue},
		Settings:   job.QueueSettings{JobType: key.jobType, Queue: key.queue},
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
		key := queueKey{c.JobType, c.Queue}
		all[key] = newQueueStatus(key)
		all[key].QueueCount = c
	}
	for _, s := range settings {
		key := queueKey{s.JobType, s.Queue}
		isOther := (of.JobType != "" && s.JobType != of.JobType) ||
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

// queuesIn reads the queues of a job type, and those of the job types named that are remembered.
func queuesIn(r reader, jobType string, names []string) ([]QueueStatus, error) {
	all, err := countedQueues(r, store.QueueSelector{JobType: jobType})
	if err != nil {
		return nil, err
	}
	if err := addRecordedQueues(r, jobType, names, all); err != nil {
		return nil, err
	}
	list := make([]QueueStatus, 0, len(all))
	for _, q := range all {
		list = append(list, *q)
	}
	slices.SortFunc(list, func(a, b QueueStatus) int {
		return cmp.Or(strings.Compare(a.JobType, b.JobType), strings.Compare(a.Queue, b.Queue))
	})
	return list, nil
}

// addRecordedQueues adds the queues that had jobs or settings a while ago: of a job type or, where
// that is empty, of all that are named, which are read together.
func addRecordedQueues(r reader, jobType string, names []string,
	all map[queueKey]*QueueStatus) error {
	s := store.RecordSelector{Kind: queueKind, Owner: jobType, AnyOwner: jobType == "",
		Limit: queueBatch}
	for {
		records, err := r.Records(s)
		if err != nil {
			return err
		}
		for i := range records {
			s.After = records[i].Key
			if !slices.Contains(names, records[i].Owner) {
				continue
			}
			var name queueName
			if err := json.Unmarshal(records[i].Body, &name); err != nil {
				return &job.Error{Op: "engine.queues", Msg: "a stored queue cannot be read",
					Err: err}
			}
			if key := (queueKey{name.JobType, name.Queue}); all[key] == nil {
				all[key] = newQueueStatus(key)
			}
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
			hash := job.QueueHashOf(key.jobType, key.queue)
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
				ready[queueKey{c.JobType, c.Queue}] = &QueueStatus{QueueCount: c}
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
	read, err := readRateWindows(r, &settings, keys)
	for key, s := range read {
		if s.free(r.Now()) == 0 {
			all[key].NextStart = s.next(r.Now())
		}
	}
	return err
}
