package engine

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/job"
)

// Each node keeps in memory when a claim last polled each queue, so that a claim costs no statement
// for it. Other nodes read it in the record that the node writes every few seconds (package nodes),
// and earlier where NewlyPolled reports a queue that the record does not have. A record of the
// queue, written once a minute at most, keeps it when the node ends.
//
//	Claim ─▶ lastPolls ─┬─▶ PolledQueues ─▶ the record of the node ◀─ NewlyPolled
//	                     └─▶ SavePolls ────▶ a record of the queue

const (
	pollsKind = "engine.asked"
	// pollsInterval is how often a node writes the record of a queue that is polled.
	pollsInterval = time.Minute
	// maxPolledQueues bounds the queues that a node remembers, and that are read.
	maxPolledQueues = 10_000
)

// lastPolls are the queues that claims of this node have polled. The times are of the monotonic
// clock. A claim of all queues of a job type polls the queue without a name.
type lastPolls struct {
	now   func() time.Duration
	first chan struct{} // has a value once a queue is polled that was not in all

	mu  sync.Mutex
	all map[queueKey]*lastPoll
}

// lastPoll is when a queue was polled, and how many claims poll it now; the first of each pair is
// about all workers, the second about remote ones.
type lastPoll struct {
	last    [2]time.Duration
	waiting [2]int
	ever    [2]bool
	partial bool          // the last claim left out queues with local workers
	savedAt time.Duration // when the record of the queue was written; isSaved says if it was
	isSaved bool
}

// begin records that a claim has begun.
func (k *lastPolls) begin(req *ClaimRequest) { k.note(req, +1) }

// end records that a claim does not wait any longer.
func (k *lastPolls) end(req *ClaimRequest) { k.note(req, -1) }

func (k *lastPolls) note(req *ClaimRequest, waiting int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(req.Queues) == 0 {
		k.noteLocked(queueKey{req.JobType, ""}, req, waiting)
	}
	for _, queue := range req.Queues {
		k.noteLocked(queueKey{req.JobType, queue}, req, waiting)
	}
}

func (k *lastPolls) noteLocked(key queueKey, req *ClaimRequest, waiting int) {
	now, a := k.now(), k.all[key]
	if a == nil {
		if len(k.all) >= maxPolledQueues {
			k.forgetLocked(now)
		}
		if len(k.all) >= maxPolledQueues || waiting < 0 {
			return
		}
		a = &lastPoll{}
		put(&k.all, key, a)
		select {
		case k.first <- struct{}{}:
		default: // a value waits to be received
		}
	}
	a.partial = req.Skip != nil
	for i := range a.last {
		if i == 0 || req.remote {
			a.last[i], a.ever[i] = now, true
			a.waiting[i] = max(0, a.waiting[i]+waiting)
		}
	}
}

// forgetLocked forgets the queues that were not polled lately.
func (k *lastPolls) forgetLocked(now time.Duration) {
	for key, a := range k.all {
		if a.waiting[0] == 0 && now-a.last[0] >= workerMemory {
			delete(k.all, key)
		}
	}
}

// Polling records that a caller polls the queues of a request by other means than Claim, until
// the function that it returns is called.
func (e *Engine) Polling(req ClaimRequest) (done func()) {
	e.lastPolls.begin(&req)
	return func() { e.lastPolls.end(&req) }
}

// NewlyPolled receives a value when a queue was polled that PolledQueues did not have before; one
// value for all such queues until it is received.
func (e *Engine) NewlyPolled() <-chan struct{} { return e.lastPolls.first }

// PolledQueue is how long ago a queue was polled on this node: 0 while a claim waits. The empty
// queue is for claims of all queues of the job type.
type PolledQueue struct {
	JobType string
	Queue   string
	Ago     time.Duration
	// ByRemote reports whether a remote worker has polled, and RemoteAgo how long ago the last one.
	ByRemote  bool
	RemoteAgo time.Duration
	// Partial says that queues for which the node has local workers were left out.
	Partial bool
}

// PolledQueues returns the queues that were polled on this node within the last five minutes, the
// latest first.
func (e *Engine) PolledQueues() []PolledQueue {
	k := &e.lastPolls
	now := k.now()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.forgetSavedLocked(now)
	all := make([]PolledQueue, 0, len(k.all))
	for key, a := range k.all {
		all = append(all, PolledQueue{JobType: key.jobType, Queue: key.queue, Ago: a.ago(0, now),
			ByRemote: a.ever[1], RemoteAgo: a.ago(1, now), Partial: a.partial})
	}
	slices.SortFunc(all, func(a, b PolledQueue) int {
		return cmp.Or(cmp.Compare(a.Ago, b.Ago), strings.Compare(a.JobType, b.JobType),
			strings.Compare(a.Queue, b.Queue))
	})
	return all
}

// forgetSavedLocked forgets the queues that were polled long ago and whose records are written.
func (k *lastPolls) forgetSavedLocked(now time.Duration) {
	for key, a := range k.all {
		isOld := a.waiting[0] == 0 && now-a.last[0] >= workerMemory
		if isOld && a.isSaved && a.savedAt >= a.last[0] {
			delete(k.all, key)
		}
	}
}

// ago returns how long ago a worker polled: any worker with 0, a remote one with 1.
func (a *lastPoll) ago(i int, now time.Duration) time.Duration {
	if a.waiting[i] > 0 {
		return 0
	}
	return now - a.last[i]
}

// polledAt is the body of the record of a queue.
type polledAt struct {
	JobType string `json:"Contract"` // as older versions have written it
	Queue   string
	At      time.Time
}

// SavePolls writes when queues were last polled on this node, for those whose record it wrote
// more than a minute ago; the last call writes all of them. Records whose transaction fails are
// written by a later call. Nodes write the records in one order, so that no two wait for each
// other.
func (e *Engine) SavePolls(w RecordWriter, isLast bool) error {
	now := e.lastPolls.now()
	var due []polledAt
	var keys []string
	for key, a := range e.lastPolls.takeDue(now, isLast) {
		due = append(due, polledAt{key.jobType, key.queue, w.Now().Add(-a)})
		keys = append(keys, queueRecordKey(key))
	}
	if len(due) == 0 {
		return nil
	}
	known, err := readPolls(w.RecordsOf(pollsKind, keys...))
	if err != nil {
		return err
	}
	var records []job.Record
	for i, a := range due {
		if !known[queueKey{a.JobType, a.Queue}].Before(a.At) {
			continue
		}
		body, _ := json.Marshal(a) // two texts and a time: never fails
		records = append(records, job.Record{Kind: pollsKind, Key: keys[i], Owner: a.JobType,
			Body: body, ExpiresAt: a.At.Add(queueMemory)})
	}
	slices.SortFunc(records, func(a, b job.Record) int { return strings.Compare(a.Key, b.Key) })
	return w.UpsertRecords(records...)
}

// takeDue returns how long ago the queues were polled whose records are to be written.
func (k *lastPolls) takeDue(now time.Duration, all bool) map[queueKey]time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	due := map[queueKey]time.Duration{}
	for key, a := range k.all {
		ago := a.ago(0, now)
		if a.isSaved && (now-ago <= a.savedAt || (!all && now-a.savedAt < pollsInterval)) {
			continue
		}
		due[key] = ago
		a.savedAt, a.isSaved = now, true
	}
	return due
}

// readPolls reads the records of queues.
func readPolls(records []job.Record, err error) (map[queueKey]time.Time, error) {
	all := map[queueKey]time.Time{}
	for i := range records {
		var a polledAt
		if err := json.Unmarshal(records[i].Body, &a); err != nil {
			return nil, &job.Error{Op: "engine.asked", Msg: "a stored queue cannot be read",
				Err: err}
		}
		all[queueKey{a.JobType, a.Queue}] = a.At
	}
	return all, err
}

// SavedPolls are the stored times at which queues were last polled, up to a minute too early.
type SavedPolls map[queueKey]time.Time

// Of returns when a queue was last polled, also as one of all queues; zero is never.
func (k SavedPolls) Of(jobType, queue string) time.Time {
	return later(k[queueKey{jobType, queue}], k[queueKey{jobType, ""}])
}

// ReadSavedPolls reads when a queue was last polled; the empty names mean all queues.
func ReadSavedPolls(r RecordReader, jobType, queue string) (SavedPolls, error) {
	if jobType == "" {
		return readPolls(r.AllRecords(pollsKind, "", maxPolledQueues))
	}
	return readPolls(r.RecordsOf(pollsKind, queueRecordKey(queueKey{jobType, queue}),
		queueRecordKey(queueKey{jobType, ""})))
}
