package postgres

import (
	"context"
	"slices"
	"sync"
)

// slots are what the transactions of a store count in, one at a time each (decision 0004), and
// bound how many there are. A transaction takes the first one that is free. So queues have as many
// counters as there are transactions at once, and not as many as there are connections: what reads
// all counters, as claims under a limit and pages of operators do, reads few.
type slots struct {
	first  int64
	tokens chan struct{} // as many as are free: callers wait for one in their order

	mu    sync.Mutex
	inUse []bool
}

// newSlots returns n free slots from first on.
func newSlots(first int64, n int) *slots {
	s := &slots{first: first, tokens: make(chan struct{}, n), inUse: make([]bool, n)}
	for range n {
		s.tokens <- struct{}{}
	}
	return s
}

// acquire waits for a free slot and takes it.
func (s *slots) acquire(ctx context.Context) (slot int64, err error) {
	select {
	case <-s.tokens:
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.Index(s.inUse, false)
	s.inUse[i] = true
	return s.first + int64(i), nil
}

// release gives a slot back.
func (s *slots) release(slot int64) {
	s.mu.Lock()
	s.inUse[slot-s.first] = false
	s.mu.Unlock()
	s.tokens <- struct{}{}
}
