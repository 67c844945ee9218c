package engine

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// The depth is two where commits are short, and more as they become longer than the statements, up
// to a third of the writers. It comes back when they are short again.
func TestDepthFollowsCommits(t *testing.T) {
	for _, c := range []struct {
		writers            int
		statements, commit time.Duration
		groups             int
	}{
		{writers: 1, statements: time.Millisecond, commit: time.Second, groups: 1},
		{writers: 2, statements: time.Millisecond, commit: time.Second, groups: 2},
		{writers: 4, statements: time.Millisecond, commit: time.Second, groups: 2},
		{writers: 16, statements: 4 * time.Millisecond, commit: time.Millisecond, groups: 2},
		{writers: 16, statements: 4 * time.Millisecond, commit: 5 * time.Millisecond, groups: 3},
		{writers: 16, statements: 4 * time.Millisecond, commit: 9 * time.Millisecond, groups: 4},
		{writers: 16, statements: 4 * time.Millisecond, commit: time.Second, groups: 5},
		{writers: 100, statements: 4 * time.Millisecond, commit: time.Second, groups: maxDepth},
		{writers: 100, statements: 0, commit: 0, groups: 2},
		{writers: 100, statements: 0, commit: time.Millisecond, groups: maxDepth},
	} {
		d := newDepth(c.writers)
		atTheStart := min(c.writers, minDepth)
		if got := d.groups(); got != atTheStart {
			t.Errorf("%+v: %d groups at the start, want %d", c, got, atTheStart)
		}
		for range 100 {
			d.observe(c.statements, c.commit)
		}
		if got := d.groups(); got != c.groups {
			t.Errorf("%+v: %d groups", c, got)
		}
		for range 100 {
			d.observe(time.Second, time.Millisecond)
		}
		if got := d.groups(); got != atTheStart {
			t.Errorf("%+v: %d groups after short commits, want %d", c, got, atTheStart)
		}
	}
}

// A group is as large at two groups at a time as it ever was, and smaller where more are served at
// a time, but not smaller than its share of the callers.
func TestFullGroups(t *testing.T) {
	for _, c := range []struct {
		depth   int
		callers int64
		calls   int
	}{
		{1, 64, 32}, {2, 10, 32}, {2, 64, 32}, {2, 1000, 32},
		{4, 10, 16}, {4, 64, 16}, {4, 100, 25}, {4, 1000, 32},
		{8, 10, 8}, {8, 64, 8}, {8, 128, 16}, {8, 1000, 32},
	} {
		if got := fullGroupAt(c.depth, c.callers); got != c.calls {
			t.Errorf("%+v: %d calls", c, got)
		}
	}
}

// A large group lets one call begin beside it, and two groups only if they are large together.
func TestLargeGroupsAtDepth(t *testing.T) {
	depth := newDepth(16)
	depth.observe(time.Millisecond, time.Second)
	for _, c := range []struct {
		serving, weight int
		begins          bool
	}{
		{1, largeGroup - 1, false}, {1, largeGroup, true}, {2, largeGroup + 1, false},
		{2, 2 * largeGroup, true}, {4, 4 * largeGroup, true}, {5, 5 * largeGroup, false},
	} {
		var callers atomic.Int64
		callers.Add(fewCallers + 1)
		co := newCombiner[int](1000, depth, &callers, nil)
		co.serving, co.weight, co.waiting = c.serving, c.weight, []*ticket[int]{{weight: 1}}
		if co.mayBegin() != c.begins {
			t.Errorf("a call beside %d groups of %d begins: %v", c.serving, c.weight, !c.begins)
		}
	}
}

// Where commits are slow, one smaller group after another is served beside those before, up to the
// depth.
func TestSlowCommitsOverlap(t *testing.T) {
	started, open := make(chan int, 10), make(chan struct{})
	var callers atomic.Int64
	callers.Add(fewCallers)
	depth := newDepth(16)
	depth.observe(time.Millisecond, time.Second)
	co := newCombiner(1000, depth, &callers, func(group []*ticket[int]) error {
		started <- len(group)
		<-open
		return nil
	})
	co.maxWait = time.Hour
	var served sync.WaitGroup
	call := func(n int) {
		for range n {
			served.Go(func() {
				if _, err := co.do(context.Background(), 0, 1); err != nil {
					t.Error(err)
				}
			})
		}
	}
	const groups, full = 5, 12 // of 16 writers and 64 callers or less
	call(1)
	<-started
	for range groups - 1 {
		call(full)
		if n := <-started; n != full {
			t.Errorf("a group of %d calls, want %d", n, full)
		}
	}
	call(full)
	await("calls to wait", func() bool {
		co.mu.Lock()
		defer co.mu.Unlock()
		return len(co.waiting) == full
	})
	if len(started) > 0 {
		t.Errorf("a group of %d began beyond the depth", <-started)
	}
	close(open)
	served.Wait()
	if co.busy() || co.weight != 0 || callers.Load() != fewCallers {
		t.Errorf("busy %v, weight %d, %d callers", co.busy(), co.weight, callers.Load())
	}
}
