package postgres

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
)

// A transaction has the first free slot, so those that come one after another count in one.
func TestSlots(t *testing.T) {
	t.Parallel()
	s := newSlots(40, 3)
	take := func(want int64) {
		t.Helper()
		if slot, err := s.acquire(t.Context()); slot != want || err != nil {
			t.Errorf("slot %d, %v, want %d", slot, err, want)
		}
	}
	take(40)
	s.release(40)
	take(40)
	take(41)
	take(42)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.acquire(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("where all are taken: %v", err)
	}
	s.release(41)
	take(41)
}

// No two transactions hold one slot at a time.
func TestSlotsInACrowd(t *testing.T) {
	t.Parallel()
	const crowd, times, free = 16, 500, 3
	s := newSlots(7, free)
	var users [free]sync.Mutex
	var all sync.WaitGroup
	for range crowd {
		all.Go(func() {
			for range times {
				slot, err := s.acquire(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				if !users[slot-7].TryLock() {
					t.Errorf("slot %d has two users", slot)
					return
				}
				runtime.Gosched()
				users[slot-7].Unlock()
				s.release(slot)
			}
		})
	}
	all.Wait()
}
