package engine

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"testing"
)

// TestGroupsShareTheCalls: of two groups that are served at a time, each has its share of the calls
// that there are, however the callers came.
func TestGroupsShareTheCalls(t *testing.T) {
	t.Parallel()
	const callers = 64
	sizes, free := make(chan int), make(chan struct{})
	c := newCombiner(1000, 2, func(group []*ticket[int]) error {
		sizes <- len(group)
		<-free
		return nil
	})
	var all sync.WaitGroup
	call := func() { all.Go(func() { c.do(context.Background(), 0, 1) }) }
	call()
	first := <-sizes
	call()
	second := <-sizes
	for range callers - 2 {
		call()
	}
	for waiting := 0; waiting < callers-2; runtime.Gosched() {
		c.mu.Lock()
		waiting = len(c.waiting)
		c.mu.Unlock()
	}
	got := []int{first, second}
	for range 2 {
		free <- struct{}{}
		got = append(got, <-sizes)
	}
	if want := []int{1, 1, 32, 30}; !slices.Equal(got, want) {
		t.Errorf("groups of %v, want %v", got, want)
	}
	close(free)
	all.Wait()
}
