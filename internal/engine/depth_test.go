package engine

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/job"
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
		{writers: 100, statements: 0, commit: time.Millisecond, groups: 2},
		{writers: 100, statements: 1, commit: time.Millisecond, groups: maxDepth},
	} {
		d := newDepth(&transactions{writers: c.writers})
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

// A verb has as many groups as its own statements and the commits of all say, and one that was not
// used yet has two.
func TestDepthOfEachVerb(t *testing.T) {
	all := &transactions{writers: 16}
	locked, free, unused := newDepth(all), newDepth(all), newDepth(all)
	for range 100 {
		locked.observe(21*time.Millisecond, 20*time.Millisecond)
		free.observe(5*time.Millisecond, 20*time.Millisecond)
	}
	if l, f, u := locked.groups(), free.groups(), unused.groups(); l != 2 || f != 5 || u != 2 {
		t.Errorf("%d, %d and %d groups, want 2, 5 and 2", l, f, u)
	}
}

// One long wait for a lock, or one commit that hangs, changes the depth by one at most. A commit
// time that stays is followed.
func TestOutliersOfDepth(t *testing.T) {
	d := newDepth(&transactions{writers: 24})
	observe := func(n int, statements, commit time.Duration) int {
		for range n {
			d.observe(statements, commit)
		}
		return d.groups()
	}
	const statements, commit = 4 * time.Millisecond, 18 * time.Millisecond
	if got := observe(100, statements, commit); got != 6 {
		t.Fatalf("%d groups, want 6", got)
	}
	if got := observe(1, time.Second, commit); got < 4 {
		t.Errorf("%d groups after one wait for a lock", got)
	}
	observe(100, statements, time.Millisecond)
	if got := observe(1, statements, 20*time.Second); got > 3 {
		t.Errorf("%d groups after one commit that hung", got)
	}
	if got := observe(30, statements, 20*time.Second); got != 8 {
		t.Errorf("%d groups while commits hang, want 8", got)
	}
}

// Groups beyond two of a verb begin only as long as all verbs together leave a quarter of the
// connections.
func TestDepthLeavesConnections(t *testing.T) {
	all := &transactions{writers: 16}
	busy, other := newDepth(all), newDepth(all)
	for range 100 {
		busy.observe(time.Millisecond, time.Second)
		other.observe(time.Millisecond, time.Second)
	}
	for _, c := range []struct {
		serving, everywhere int
		may                 bool
	}{
		{1, 15, true}, {2, 11, true}, {2, 12, false}, {4, 11, true}, {5, 5, false},
	} {
		all.serving.Store(int64(c.everywhere))
		if got := busy.mayServe(c.serving); got != c.may {
			t.Errorf("a group beside %d of its verb and %d in all: %v", c.serving, c.everywhere, got)
		}
	}
}

// A call that has waited long begins as soon as there may be another group, also where there could
// be none when it had waited.
func TestLongWaitAtFullDepth(t *testing.T) {
	const first, second, late = 0, 1, 2
	started, gates := make(chan int, 3), []chan struct{}{make(chan struct{}), make(chan struct{})}
	var callers atomic.Int64
	callers.Add(fewCallers)
	co := newCombiner(1000, newDepth(&transactions{writers: 8}), &callers,
		func(group []*ticket[int]) error {
			started <- group[0].call
			if group[0].call != late {
				<-gates[group[0].call]
			}
			return nil
		})
	co.maxWait = time.Millisecond
	var served sync.WaitGroup
	call := func(call, n int) {
		tickets := make([]*ticket[int], n)
		for i := range tickets {
			tickets[i] = co.add(call, 1)
		}
		for _, ticket := range tickets {
			served.Go(func() {
				if _, err := co.await(context.Background(), ticket, func() {}); err != nil {
					t.Error(err)
				}
			})
		}
	}
	call(first, 1)
	<-started
	call(second, fullGroup)
	<-started
	call(late, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 20*co.maxWait)
	defer cancel()
	if _, err := co.do(ctx, late, 1); !job.IsKind(err, job.Unavailable) {
		t.Fatalf("a call beyond the depth was served, or failed with %v", err)
	}
	close(gates[second])
	if got := <-started; got != late {
		t.Errorf("a group of %d", got)
	}
	close(gates[first])
	served.Wait()
	if n := co.depth.all.serving.Load(); co.busy() || n != 0 {
		t.Errorf("busy %v, %d groups are served", co.busy(), n)
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
	depth := newDepth(&transactions{writers: 16})
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
	depth := newDepth(&transactions{writers: 16})
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
