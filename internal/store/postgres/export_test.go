package postgres

import (
	"context"
	"maps"
	"time"

	"github.com/millrace/millrace/internal/store/sqlstore"
)

// Need is for the tests outside of the package, as is Needed.
type Need = need

// Schema is for the tests outside of the package.
var Schema = schema

// Needed are the relations of the schema with the rights that a node needs.
var Needed = needed

// TakenFor is for the tests outside of the package.
const TakenFor = takenFor

// PassTaken lets so much time pass since an insert met a taken identity.
func (s *Store) PassTaken(d time.Duration) { s.taken.note(s.taken.last.Load().Add(-d)) }

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
		r.round = wholeRenewal - 1
	}
	return s.renewWatermarks(ctx, &r.renewal)
}

// Watermarks returns the watermarks of a queue, nil for none.
func (s *Store) Watermarks(queueHash int64) *sqlstore.Watermarks {
	s.watermarks.mu.Lock()
	defer s.watermarks.mu.Unlock()
	return s.watermarks.queues[queueHash]
}

// Horizon returns that of the watermarks.
func (s *Store) Horizon() time.Time {
	s.watermarks.mu.Lock()
	defer s.watermarks.mu.Unlock()
	return s.watermarks.horizon
}

// AgeWatermarks makes the watermarks older, as the rows of a test become.
func (s *Store) AgeWatermarks(r *Renewal, by time.Duration) {
	f := s.watermarks
	f.mu.Lock()
	defer f.mu.Unlock()
	older := func(us int64) int64 {
		if us == noWatermark {
			return us
		}
		return us - by.Microseconds()
	}
	for hash, q := range f.queues {
		aged := &sqlstore.Watermarks{High: q.High, Low: q.Low}
		for _, since := range q.Since {
			aged.Since = append(aged.Since, older(since))
		}
		f.queues[hash] = aged
	}
	f.ended = older(f.ended)
	if !f.horizon.IsZero() {
		f.horizon = f.horizon.Add(-by)
	}
	if !r.next.IsZero() {
		r.next = r.next.Add(-by)
	}
}

// LeftSlots is for the tests outside of the package, as are its methods.
type LeftSlots struct{ leftSlots }

// Of returns the slot to use for a queue.
func (l *LeftSlots) Of(queueHash, slot int64, now time.Time) int64 {
	return l.of(queueHash, slot, now)
}

// Note notes how long it took to count a queue.
func (l *LeftSlots) Note(queueHash, slot int64, now time.Time, took time.Duration) {
	l.note([]int64{queueHash}, slot, now, took)
}

// TransactionSettings returns the parameters that the store sets, with the values that one of its
// transactions finds, and those that it is to find unless the URL says otherwise.
func (s *Store) TransactionSettings(ctx context.Context) (got, want map[string]string, err error) {
	se, err := s.begin(ctx, "BEGIN", 0)
	if err != nil {
		return nil, nil, err
	}
	defer s.giveBack(se.conn)
	defer se.rollback()
	want = maps.Clone(limits)
	maps.Copy(want, planning)
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
