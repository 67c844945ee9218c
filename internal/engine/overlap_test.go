package engine

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Few calls wait for the group that is being served. Many, or those behind a large group, or one
// that has waited long, are served beside it, and any where the engine has few callers.
func TestGroupsThatOverlap(t *testing.T) {
	for name, c := range map[string]struct {
		others  int64 // callers of other combiners
		first   int   // weight of the group being served
		waiting int
		maxWait time.Duration
		groups  int // served at a time
	}{
		"few wait": {others: fewCallers, first: 1, waiting: fullGroup - 1,
			maxWait: time.Hour, groups: 1},
		"many wait": {others: fewCallers, first: 1, waiting: fullGroup,
			maxWait: time.Hour, groups: 2},
		"large": {others: fewCallers, first: largeGroup, waiting: 1,
			maxWait: time.Hour, groups: 2},
		"long wait": {others: fewCallers, first: 1, waiting: 1,
			maxWait: time.Millisecond, groups: 2},
		"few callers": {others: fewCallers - 2, first: 1, waiting: 1,
			maxWait: time.Hour, groups: 2},
	} {
		t.Run(name, func(t *testing.T) {
			started, open := make(chan int, 3), make(chan struct{})
			var callers atomic.Int64
			callers.Add(c.others)
			depth := newDepth(&transactions{writers: 8})
			co := newCombiner(1000, depth, &callers, func(group []*ticket[int]) error {
				started <- len(group)
				<-open
				return nil
			})
			co.maxWait = c.maxWait
			var served sync.WaitGroup
			call := func(weight int) {
				served.Go(func() {
					if _, err := co.do(context.Background(), 0, weight); err != nil {
						t.Error(err)
					}
				})
			}
			call(c.first)
			sizes := []int{<-started}
			for range c.waiting {
				call(1)
			}
			if c.groups == 2 {
				sizes = append(sizes, <-started)
			} else {
				await("calls to wait", func() bool {
					co.mu.Lock()
					defer co.mu.Unlock()
					return len(co.waiting) == c.waiting
				})
				if len(started) > 0 {
					t.Errorf("a group of %d began beside the first", <-started)
				}
			}
			close(open)
			served.Wait()
			close(started)
			for n := range started {
				sizes = append(sizes, n)
			}
			sum := 0
			for _, n := range sizes {
				sum += n
			}
			if sum != 1+c.waiting || co.busy() || co.weight != 0 ||
				callers.Load() != c.others {
				t.Errorf("groups of %v, busy %v, weight %d", sizes, co.busy(), co.weight)
			}
		})
	}
}
