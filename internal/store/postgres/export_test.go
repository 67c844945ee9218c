package postgres

import (
	"context"
	"maps"
	"slices"
	"time"
)

// Requirement is for the tests outside of the package, as is Required.
type Requirement = requirement

// Schema is for the tests outside of the package.
var Schema = schema

// Required are the relations of the schema with the rights that a node needs.
var Required = required

// ConflictPeriod is for the tests outside of the package.
const ConflictPeriod = conflictPeriod

// PassConflicts lets so much time pass since an insert met a taken identity.
func (s *Store) PassConflicts(d time.Duration) {
	s.conflicts.record(s.conflicts.last.Load().Add(-d))
}

// Renewal is for the tests outside of the package.
type Renewal struct{ renewal }

// UseWatermarks has every claim and sweep use watermarks, and returns the renewal that moves them.
// It is the only one: the store's own would move them too, to times that the test does not make
// older.
func (s *Store) UseWatermarks() *Renewal {
	s.watermarks.mu.Lock()
	defer s.watermarks.mu.Unlock()
	s.watermarks.wakeUp = func() {}
	s.watermarks.slow.Store(0)
	return &Renewal{renewal{watermarks: s.watermarks}}
}

// RenewWatermarks makes one renewal, of all that is before the watermarks or from these on.
func (s *Store) RenewWatermarks(ctx context.Context, r *Renewal, whole bool) error {
	if r.round = 0; whole {
		r.round = fullRenewalInterval - 1
	}
	return s.renewWatermarks(ctx, &r.renewal)
}

// LatestWatermark returns the latest of the watermarks of a queue, 0 where it has none.
func (s *Store) LatestWatermark(queueHash int64) int64 {
	s.watermarks.mu.Lock()
	defer s.watermarks.mu.Unlock()
	q := s.watermarks.queues[queueHash]
	if q == nil {
		return 0
	}
	return max(0, slices.Max(q.since))
}

// Horizon returns that of the watermarks.
func (s *Store) Horizon() time.Time {
	s.watermarks.mu.Lock()
	defer s.watermarks.mu.Unlock()
	return s.watermarks.horizon
}

// AgeWatermarks makes the watermarks older, as the rows of a test become.
func (s *Store) AgeWatermarks(r *Renewal, by time.Duration) {
	w := s.watermarks
	w.mu.Lock()
	defer w.mu.Unlock()
	older := func(us int64) int64 {
		if us == noWatermark {
			return us
		}
		return us - by.Microseconds()
	}
	for hash, q := range w.queues {
		aged := &queueWatermarks{high: q.high, low: q.low}
		for _, since := range q.since {
			aged.since = append(aged.since, older(since))
		}
		w.queues[hash] = aged
	}
	w.leasesSince = older(w.leasesSince)
	if !w.horizon.IsZero() {
		w.horizon = w.horizon.Add(-by)
	}
	if !r.next.IsZero() {
		r.next = r.next.Add(-by)
	}
}

// AbandonedSlots is for the tests outside of the package, as are its methods.
type AbandonedSlots struct{ abandonedSlots }

// Of returns the slot to use for a queue.
func (l *AbandonedSlots) Of(queueHash, slot int64, now time.Time) int64 {
	return l.slotFor(queueHash, slot, now)
}

// Note records how long it took to count a queue.
func (l *AbandonedSlots) Note(queueHash, slot int64, now time.Time, took time.Duration) {
	l.record([]int64{queueHash}, slot, now, took)
}

// EndChecks is for the tests outside of the package, as are its methods.
type EndChecks struct{ endChecks }

// IsDue reports whether a node looks for recorded ends.
func (l *EndChecks) IsDue(now time.Time) bool { return l.isDue(now) }

// Note notes how long a look has taken.
func (l *EndChecks) Note(now time.Time, took time.Duration) { l.record(now, took) }

// EndReplaced does what a silent connection brings about.
func (s *Store) EndReplaced(ctx context.Context) { s.endReplaced(ctx) }

// LockTimeoutOf returns how long a lock_timeout is.
func LockTimeoutOf(value string) time.Duration { return lockTimeoutOf(value) }

// TransactionSettings returns the parameters that the store sets, with the values that one of its
// transactions finds, and those that it is to find unless the URL says otherwise.
func (s *Store) TransactionSettings(ctx context.Context) (got, want map[string]string, err error) {
	se, err := s.begin(ctx, "BEGIN", 0)
	if err != nil {
		return nil, nil, err
	}
	defer s.releaseConn(se.conn)
	defer se.rollback()
	want = maps.Clone(limits)
	maps.Copy(want, plannerSettings)
	got = map[string]string{}
	for name := range want {
		var value string
		err := se.conn.QueryRowContext(ctx, "SELECT current_setting($1)", name).Scan(&value)
		if err != nil {
			return nil, nil, err
		}
		got[name] = value
	}
	return got, want, nil
}
