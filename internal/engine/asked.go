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

// When a queue was last asked for is in the memory of each node, so no claim costs a statement for
// it. Each node tells the others with the record that it writes every few seconds (package nodes),
// early where FirstAsked tells it of a queue that the record does not have, and keeps it beyond its
// own life in a record of the queue, at most once a minute.
//
//	Claim ─▶ asks ─┬─▶ Asked ─────▶ the record of the node ◀─ FirstAsked
//	               └─▶ KeepAsked ─▶ a record of the queue

const (
	askedKind = "engine.asked"
	// askedInterval is how often a node writes the record of a queue that is asked for.
	askedInterval = time.Minute
	// maxAskedQueues bounds the queues that a node remembers, and that are read.
	maxAskedQueues = 10_000
)

// asks are the queues that claims of this node have asked for. The times are those of the monotonic
// clock. A claim of all queues of a contract asks for the queue without a name.
type asks struct {
	now   func() time.Duration
	first chan struct{} // has a value once a queue is asked for that was not in all

	mu  sync.Mutex
	all map[queueKey]*ask
}

// ask is when a queue was asked for, and by how many it is now; the first of each pair is about all
// workers, the second about remote ones.
type ask struct {
	last    [2]time.Duration
	waiting [2]int
	ever    [2]bool
	partial bool          // the last claim left out queues that the process has workers for
	kept    time.Duration // when the record of the queue was written; wasKept says if it was
	wasKept bool
}

// begin notes that a claim has come.
func (k *asks) begin(req *ClaimRequest) { k.note(req, +1) }

// end notes that a claim does not wait any longer.
func (k *asks) end(req *ClaimRequest) { k.note(req, -1) }

func (k *asks) note(req *ClaimRequest, waiting int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(req.Queues) == 0 {
		k.noteLocked(queueKey{req.Contract, ""}, req, waiting)
	}
	for _, queue := range req.Queues {
		k.noteLocked(queueKey{req.Contract, queue}, req, waiting)
	}
}

func (k *asks) noteLocked(key queueKey, req *ClaimRequest, waiting int) {
	now, a := k.now(), k.all[key]
	if a == nil {
		if len(k.all) >= maxAskedQueues {
			k.forgetLocked(now)
		}
		if len(k.all) >= maxAskedQueues || waiting < 0 {
			return
		}
		a = &ask{}
		put(&k.all, key, a)
		select {
		case k.first <- struct{}{}:
		default: // it is told already
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

// forgetLocked forgets the queues that were not asked for lately.
func (k *asks) forgetLocked(now time.Duration) {
	for key, a := range k.all {
		if a.waiting[0] == 0 && now-a.last[0] >= workerMemory {
			delete(k.all, key)
		}
	}
}

// Asking notes that somebody asks for what a request names by other means than Claim, until the
// function that it returns is called.
func (e *Engine) Asking(req ClaimRequest) (done func()) {
	e.asks.begin(&req)
	return func() { e.asks.end(&req) }
}

// FirstAsked receives when a queue was asked for that Asked did not have before. Any number of them
// before it is read are told once.
func (e *Engine) FirstAsked() <-chan struct{} { return e.asks.first }

// Asked is how long ago a queue was asked for on this node: 0 while a claim waits. An empty name of
// a queue stands for all queues of the contract.
type Asked struct {
	Contract string
	Queue    string
	Ago      time.Duration
	// ByRemote reports whether a remote worker was among those who asked, and RemoteAgo when last.
	ByRemote  bool
	RemoteAgo time.Duration
	// Partial says that queues for which the node has local workers were left out.
	Partial bool
}

// Asked returns the queues that were asked for on this node within the last five minutes, those
// asked for last first.
func (e *Engine) Asked() []Asked {
	k := &e.asks
	now := k.now()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.forgetKeptLocked(now)
	all := make([]Asked, 0, len(k.all))
	for key, a := range k.all {
		all = append(all, Asked{Contract: key.contract, Queue: key.queue, Ago: a.ago(0, now),
			ByRemote: a.ever[1], RemoteAgo: a.ago(1, now), Partial: a.partial})
	}
	slices.SortFunc(all, func(a, b Asked) int {
		return cmp.Or(cmp.Compare(a.Ago, b.Ago), strings.Compare(a.Contract, b.Contract),
			strings.Compare(a.Queue, b.Queue))
	})
	return all
}

// forgetKeptLocked forgets the queues of long ago whose records have the time.
func (k *asks) forgetKeptLocked(now time.Duration) {
	for key, a := range k.all {
		isOld := a.waiting[0] == 0 && now-a.last[0] >= workerMemory
		if isOld && a.wasKept && a.kept >= a.last[0] {
			delete(k.all, key)
		}
	}
}

// ago returns how long ago it was that anybody, or with 1 a remote worker, asked.
func (a *ask) ago(i int, now time.Duration) time.Duration {
	if a.waiting[i] > 0 {
		return 0
	}
	return now - a.last[i]
}

// askedAt is the body of the record of a queue.
type askedAt struct {
	Contract, Queue string
	At              time.Time
}

// KeepAsked writes when queues were last asked for on this node, of those whose record it wrote
// more than a minute ago; the last one writes all of them. What a transaction writes that is not
// committed, a later call makes up for. Nodes write the records in one order, so that no two wait
// for each other.
func (e *Engine) KeepAsked(w RecordWriter, isLast bool) error {
	now := e.asks.now()
	var due []askedAt
	var keys []string
	for key, a := range e.asks.takeDue(now, isLast) {
		due = append(due, askedAt{key.contract, key.queue, w.Now().Add(-a)})
		keys = append(keys, startsKey(key))
	}
	if len(due) == 0 {
		return nil
	}
	known, err := readAsked(w.RecordsOf(askedKind, keys...))
	if err != nil {
		return err
	}
	var records []job.Record
	for i, a := range due {
		if !known[queueKey{a.Contract, a.Queue}].Before(a.At) {
			continue
		}
		body, _ := json.Marshal(a) // two texts and a time: never fails
		records = append(records, job.Record{Kind: askedKind, Key: keys[i], Owner: a.Contract,
			Body: body, ExpiresAt: a.At.Add(queueMemory)})
	}
	slices.SortFunc(records, func(a, b job.Record) int { return strings.Compare(a.Key, b.Key) })
	return w.UpsertRecords(records...)
}

// takeDue returns how long ago the queues were asked for whose records are to be written.
func (k *asks) takeDue(now time.Duration, all bool) map[queueKey]time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	due := map[queueKey]time.Duration{}
	for key, a := range k.all {
		ago := a.ago(0, now)
		if a.wasKept && (now-ago <= a.kept || (!all && now-a.kept < askedInterval)) {
			continue
		}
		due[key] = ago
		a.kept, a.wasKept = now, true
	}
	return due
}

// readAsked reads the records of queues.
func readAsked(records []job.Record, err error) (map[queueKey]time.Time, error) {
	all := map[queueKey]time.Time{}
	for i := range records {
		var a askedAt
		if err := json.Unmarshal(records[i].Body, &a); err != nil {
			return nil, &job.Error{Op: "engine.asked", Msg: "a stored queue cannot be read",
				Err: err}
		}
		all[queueKey{a.Contract, a.Queue}] = a.At
	}
	return all, err
}

// KeptAsked are the times at which queues were last asked for, as they are stored: up to a minute
// too early.
type KeptAsked map[queueKey]time.Time

// Of returns when a queue was last asked for, also as one of all queues; zero is never.
func (k KeptAsked) Of(contract, queue string) time.Time {
	return later(k[queueKey{contract, queue}], k[queueKey{contract, ""}])
}

// ReadAsked reads when a queue was last asked for; the empty names mean all queues.
func ReadAsked(r RecordReader, contract, queue string) (KeptAsked, error) {
	if contract == "" {
		return readAsked(r.AllRecords(askedKind, "", maxAskedQueues))
	}
	return readAsked(r.RecordsOf(askedKind, startsKey(queueKey{contract, queue}),
		startsKey(queueKey{contract, ""})))
}
