package engine

import (
	"encoding/binary"
	"fmt"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
)

// A rate bounds the starts of a queue in every period, wherever it begins. The times of the last
// starts, as many as the rate allows, are a record of the queue. A transaction that claims jobs of
// it has locked the limits of the queue before it reads the record, and writes the record with the
// jobs: so the rate is exact over all nodes. A queue without a rate has no record.
//
//	period      ├──────────── 5 starts in 10 s ───────────┤
//	starts    ──2────────────1────────2──────────────────now
//	            ▲ the next start is allowed 10 s after these two
//
// A start has the time of its transaction by the store's clock, as the job shows it. A
// transaction that waited for the lock may have begun before one that has committed: it counts the
// starts of that one as well, and its own as if they had come at the same time. So a window may
// hold fewer starts than it shows, never more.

const (
	startsKind = "engine.starts"
	// startsPrecision is the number of parts of a period: starts in one part are kept together,
	// as if all had come with the last. It bounds the record, and what a queue loses of its rate:
	// a part of 1,000.
	startsPrecision = 1000
	// maxClaimDelay is the longest that a claim may wait for a lock. Starts that are further in
	// the future were made before the clock jumped back.
	maxClaimDelay = time.Minute
)

// rateWindow has the last starts of a queue, in the order of their times.
type rateWindow struct {
	rate  job.Rate
	times []startTime
	// changed says that the record is to be written.
	changed bool
	// noMore says that the transaction has seen all ready jobs of the queue.
	noMore bool
}

// startTime is a number of starts and when the last of them was, in microseconds.
type startTime struct{ at, n int64 }

// free returns how many starts are allowed at a time.
func (s *rateWindow) free(now time.Time) int {
	free, begin := int64(s.rate.Starts), now.Add(-s.rate.Period).UnixMicro()
	for _, t := range s.times {
		if t.at > begin {
			free -= t.n
		}
	}
	return int(max(0, free))
}

// next returns the first time from now on at which a start is allowed.
func (s *rateWindow) next(now time.Time) time.Time {
	free, begin := int64(s.rate.Starts), now.Add(-s.rate.Period).UnixMicro()
	for i := len(s.times) - 1; i >= 0; i-- {
		if free -= s.times[i].n; free > 0 {
			continue
		}
		if s.times[i].at > begin {
			return time.UnixMicro(s.times[i].at).Add(s.rate.Period).UTC()
		}
		break
	}
	return now
}

// add adds n starts. Of the earlier ones it keeps as many as the rate allows.
func (s *rateWindow) add(now time.Time, n int) {
	s.changed = true
	at, part := now.UnixMicro(), max(1, s.rate.Period.Microseconds()/startsPrecision)
	last := len(s.times) - 1
	if last >= 0 {
		at = max(at, s.times[last].at)
	}
	if last >= 0 && s.times[last].at/part == at/part {
		s.times[last] = startTime{at, s.times[last].n + int64(n)}
	} else {
		s.times = append(s.times, startTime{at, int64(n)})
	}
	stored, first := int64(0), len(s.times)
	for first > 0 && stored < int64(s.rate.Starts) {
		first--
		stored += s.times[first].n
	}
	s.times = s.times[first:]
}

// encode returns the body of the record: for each time its distance to the one before it and the
// number of starts.
func (s *rateWindow) encode() []byte {
	var b []byte
	before := int64(0)
	for _, t := range s.times {
		b = binary.AppendUvarint(b, uint64(t.at-before))
		b = binary.AppendUvarint(b, uint64(t.n))
		before = t.at
	}
	return b
}

// decode reads the body of the record. Times further ahead than a claim can be late are from before
// the clock jumped back, and count as now: they hold back starts for one period.
func (s *rateWindow) decode(b []byte, now time.Time) error {
	at := int64(0)
	for len(b) > 0 {
		distance, size := binary.Uvarint(b)
		n, size2 := binary.Uvarint(b[max(0, size):])
		if size <= 0 || size2 <= 0 {
			return &job.Error{Op: "engine.claim", Msg: "the starts of a queue cannot be read"}
		}
		b = b[size+size2:]
		at += int64(distance)
		s.times = append(s.times, startTime{at, int64(n)})
	}
	if ahead := now.Add(maxClaimDelay).UnixMicro(); at > ahead {
		s.changed = true
		for i := range s.times {
			s.times[i].at = min(s.times[i].at, now.UnixMicro())
		}
	}
	return nil
}

// queueRecordKey is the key of the record of a queue.
func queueRecordKey(key queueKey) string {
	return fmt.Sprintf("%016x", uint64(job.QueueHashOf(key.jobType, key.queue)))
}

// readRateWindows reads the starts of the queues that have a rate.
func readRateWindows(r reader, settings *queueSettings,
	keys []queueKey) (map[queueKey]*rateWindow, error) {
	var all map[queueKey]*rateWindow
	byRecord := map[string]*rateWindow{}
	var recordKeys []string
	for _, key := range keys {
		rate := settings.of(key).Rate
		if rate.IsZero() || all[key] != nil {
			continue
		}
		s, recordKey := &rateWindow{rate: rate}, queueRecordKey(key)
		put(&all, key, s)
		byRecord[recordKey] = s
		recordKeys = append(recordKeys, recordKey)
	}
	if len(recordKeys) == 0 {
		return nil, nil
	}
	records, err := r.Records(store.RecordSelector{Kind: startsKind, Keys: recordKeys})
	if err != nil {
		return nil, err
	}
	for i := range records {
		if err := byRecord[records[i].Key].decode(records[i].Body, r.Now()); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// availableStarts returns how many of n starts the rate of a queue leaves. Its limits are locked.
func (u *unit) availableStarts(key queueKey, n int) int {
	if s := u.rateWindows[key]; s != nil {
		return min(n, s.free(u.now))
	}
	return n
}

// countStart counts a start of a queue.
func (u *unit) countStart(key queueKey) {
	if s := u.rateWindows[key]; s != nil {
		s.add(u.now, 1)
	}
}

// addStarts adds the starts of the transaction to what it writes, and notes which further ones the
// rates allow.
func (u *unit) addStarts() {
	for key, s := range u.rateWindows {
		next := s.next(u.now)
		put(&u.after.nextStarts, key, nextStarts{at: next, n: s.free(next), noMore: s.noMore})
		if !s.changed {
			continue
		}
		last := time.UnixMicro(s.times[len(s.times)-1].at)
		u.writes.Records = append(u.writes.Records, job.Record{Kind: startsKind,
			Key: queueRecordKey(key), Body: s.encode(), ExpiresAt: last.Add(s.rate.Period)})
	}
}

// nextStarts are the next starts of a queue that a transaction has found to be allowed: how many,
// and at what time.
type nextStarts struct {
	at     time.Time
	n      int
	noMore bool // no ready job is known, so no claim needs to wake
}

// startWakeups wake waiting claims of this process when the rate of their queue allows starts, as
// many as it allows. They ask the store for nothing meanwhile.
//
// A queue is limited from when its rate allows no start until a claim finds no ready job. A claim
// that leaves starts of such a queue to others wakes them.
type startWakeups struct {
	mu     sync.Mutex
	timers map[queueKey]*time.Timer // of the queues that are limited
	closed bool
}

// note sets the timer of a queue by what a transaction has found. A claim that wakes too early,
// or that finds that another node has taken its start, sets it again.
func (t *startWakeups) note(h *hub, key queueKey, next nextStarts, after time.Duration) {
	hashes := []job.QueueHash{job.QueueHashOf(key.jobType, key.queue), anyQueueHash(key.jobType)}
	t.mu.Lock()
	defer t.mu.Unlock()
	timer, hasTimer := t.timers[key]
	if hasTimer {
		timer.Stop()
	}
	waiting := h.waiting(hashes[0])+h.waiting(hashes[1]) > 0
	if isAllowed := after <= 0; t.closed || !waiting || (isAllowed && (next.noMore || !hasTimer)) {
		delete(t.timers, key)
		return
	}
	put(&t.timers, key, time.AfterFunc(after, func() {
		for _, hash := range hashes {
			h.wake(hash, next.n)
		}
	}))
}

func (t *startWakeups) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	for _, timer := range t.timers {
		timer.Stop()
	}
}
