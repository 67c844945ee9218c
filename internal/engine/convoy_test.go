package engine

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestConvoys has callers that come back together as soon as they are answered: each group is
// served until all others wait or are served too. So no time counts, and the groups are as small
// as they can become. They are few nevertheless: one writer serves every caller with the second
// group at the latest, and of two groups that are served at a time one is full. That one writer
// begins with the caller who comes back first is not excluded here.
func TestConvoys(t *testing.T) {
	t.Parallel()
	const callers, rounds = 2 * fullGroup, 50
	for name, c := range map[string]struct {
		writers int
		groups  int // at most, of all rounds
	}{
		"one writer":   {writers: 1, groups: 2 * rounds},
		"many writers": {writers: 8, groups: 2 * rounds * callers / fullGroup},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var co *combiner[int]
			var all, left, groups, calls, small atomic.Int64
			all.Store(fewCallers) // of other verbs, so there is always a group to wait for
			left.Store(callers)
			depth := newDepth(&transactions{writers: c.writers})
			co = newCombiner(1000, depth, &all, func(group []*ticket[int]) error {
				groups.Add(1)
				calls.Add(int64(len(group)))
				await("the convoy", func() bool {
					co.mu.Lock()
					defer co.mu.Unlock()
					if co.serving > 1 && !co.beginning && co.weight <= fullGroup {
						small.Add(1)
					}
					return len(co.waiting)+co.weight >= int(left.Load())
				})
				return nil
			})
			co.maxWait = time.Hour
			var served sync.WaitGroup
			for range callers {
				served.Go(func() {
					defer left.Add(-1)
					for range rounds {
						if _, err := co.do(context.Background(), 0, 1); err != nil {
							t.Error(err)
						}
					}
				})
			}
			served.Wait()
			if calls.Load() != callers*rounds || small.Load() > 0 {
				t.Errorf("%d calls were served of %d; two groups at a time were small %d times",
					calls.Load(), callers*rounds, small.Load())
			}
			// The last rounds may need a few groups more, as callers leave.
			if n := int(groups.Load()); n > c.groups+callers/4 {
				t.Errorf("%d calls were served in %d groups, want %d at most", callers*rounds, n,
					c.groups)
			}
			t.Logf("%d calls in %d groups", callers*rounds, groups.Load())
		})
	}
}
