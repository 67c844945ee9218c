package engine

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/internal/job"
)

// combiner serves callers that come at the same time together: while one group is being served,
// the next gathers. Under light load a caller is a group of its own and waits for no other. A
// group is served beside another once it is worth a transaction of its own, see mayBegin.
//
//	callers   do ─┐            group 1          group 2
//	          do ─┼─ waiting ─▶ [t t t t] ─────▶ [t t]        one transaction each
//	          do ─┘             serve           serve
//
// Each caller has an outcome of its own. Where a group fails for a reason one of its members may
// have brought along, they are served one by one. doc.go says what the combiner is for besides the
// store's own grouping of commits.
type combiner[C any] struct {
	limit   int           // weight of a group
	depth   *depth        // how many groups are served at a time
	maxWait time.Duration // see maxGroupWait
	serve   func([]*ticket[C]) error
	callers *atomic.Int64 // that wait or are being served, in all combiners of an engine

	mu      sync.Mutex
	waiting []*ticket[C]
	serving int // groups
	weight  int // of these groups
	// beginning is true while a group that serving counts has not taken its calls: calls that come
	// until then join that group.
	beginning bool
}

// A group begins beside another where a full group of calls waits, see fullGroupAt, or where those
// being served are large, which takes long. A transaction costs as much as ten jobs, and callers
// that were answered together come back one after another: without this the first of them would be
// a group alone. Where the engine has no more than fewCallers, there is no group to wait for.
const (
	fullGroup  = 32
	largeGroup = 128
	fewCallers = 8
)

// fullGroupAt returns how many calls are worth a transaction beside others at a depth: fullGroup
// at minDepth, and less where commits are so slow that there are more groups at a time, as the
// database has time for them then, but not less than each group would have of all callers of the
// engine.
func fullGroupAt(depth int, callers int64) int {
	return min(fullGroup, max(minDepth*fullGroup, int(callers))/depth)
}

// maxGroupWait is how long a call waits before it is served beside another group nevertheless: that
// one may wait for a lock.
const maxGroupWait = 20 * time.Millisecond

// ticket is one caller's call.
type ticket[C any] struct {
	call   C
	weight int
	err    error
	done   chan struct{}
}

// newCombiner makes a combiner of serve, which fills in the calls of a group, sets the err of those
// that failed by themselves, and may be called again for a part of the same group.
func newCombiner[C any](limit int, depth *depth, callers *atomic.Int64,
	serve func([]*ticket[C]) error) *combiner[C] {
	return &combiner[C]{limit: limit, depth: depth, maxWait: maxGroupWait, callers: callers,
		serve: serve}
}

// do has the call served and returns it with its outcome. weight says how much of a group it
// takes.
//
// When ctx ends while the call waits for its group, the call is withdrawn: the caller gets an error
// and nothing has happened. A call whose group is being served is waited for, as its outcome would
// be unknown otherwise; that takes writeTimeout at most.
func (c *combiner[C]) do(ctx context.Context, call C, weight int) (*C, error) {
	return c.await(ctx, c.add(call, weight), func() {})
}

// add gives a call its place behind those that wait. The caller awaits it.
func (c *combiner[C]) add(call C, weight int) *ticket[C] {
	t := &ticket[C]{call: call, weight: weight, done: make(chan struct{})}
	c.callers.Add(1)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting = append(c.waiting, t)
	if c.mayBegin() {
		c.begin()
	}
	return t
}

// await waits until a call is served, see do. leaving is called when ctx ends, before the call is
// withdrawn: no group that begins afterwards can have a call behind it without it.
func (c *combiner[C]) await(ctx context.Context, t *ticket[C], leaving func()) (*C, error) {
	defer c.callers.Add(-1)
	longWait := time.NewTimer(c.maxWait)
	defer longWait.Stop()
	for {
		select {
		case <-t.done:
			return &t.call, t.err
		case <-longWait.C:
			if c.beginFor(t) {
				longWait.Reset(c.maxWait)
			}
		case <-ctx.Done():
			leaving()
			if c.withdraw(t) {
				return &t.call, errWithdrawn(ctx)
			}
			<-t.done
			return &t.call, t.err
		}
	}
}

// mayBegin reports whether a group of the calls that wait is worth a transaction of its own.
func (c *combiner[C]) mayBegin() bool {
	if c.serving == 0 {
		return true
	}
	if c.beginning || !c.depth.mayServe(c.serving) {
		return false
	}
	depth, callers := c.depth.groups(), c.callers.Load()
	return len(c.waiting) >= fullGroupAt(depth, callers) || c.weight >= largeGroup*c.serving ||
		callers <= fewCallers
}

// begin serves a group of the calls that wait, and those that follow, on a goroutine of its own.
func (c *combiner[C]) begin() {
	c.addServing(1)
	c.beginning = true
	go c.run()
}

// addServing counts groups that begin or end, here and for all verbs.
func (c *combiner[C]) addServing(n int) {
	c.serving += n
	c.depth.all.serving.Add(int64(n))
}

// beginFor begins a group for a ticket that has waited long, if there may be another. It reports
// whether the ticket was still waiting: then it may have to ask again, as the group may be full
// before it.
func (c *combiner[C]) beginFor(t *ticket[C]) (waits bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	waits = slices.Contains(c.waiting, t)
	if waits && !c.beginning && c.depth.mayServe(c.serving) {
		c.begin()
	}
	return waits
}

// withdraw removes a ticket from those that wait and reports whether it was among them.
func (c *combiner[C]) withdraw(t *ticket[C]) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := slices.Index(c.waiting, t)
	if at < 0 {
		return false
	}
	c.waiting = slices.Delete(c.waiting, at, at+1)
	return true
}

// errWithdrawn is the error of a call that was withdrawn. The store returns the same when ctx ends
// before a transaction has begun.
func errWithdrawn(ctx context.Context) error {
	e := &job.Error{Kind: job.Aborted, Op: "engine", Msg: "the request was canceled",
		Err: ctx.Err()}
	if errors.Is(e.Err, context.DeadlineExceeded) {
		e.Kind, e.Msg = job.Unavailable, "the store is slow"
	}
	return e
}

// run serves a group and those that follow it, until too few calls wait.
func (c *combiner[C]) run() {
	c.mu.Lock()
	c.beginning = false
	group := c.take()
	c.mu.Unlock()
	for len(group) > 0 {
		c.serveOrSplit(group)
		next := c.next(group)
		for _, t := range group {
			close(t.done)
		}
		group = next
	}
}

// next ends a group and takes the one that follows it; there is none where no call waits, or where
// a group beside it will be followed by one.
func (c *combiner[C]) next(served []*ticket[C]) []*ticket[C] {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.addServing(-1)
	c.weight -= weightOf(served)
	if len(c.waiting) == 0 || !c.mayBegin() {
		return nil
	}
	c.addServing(1)
	return c.take()
}

// take removes the first calls that wait, as many as a group may have. If none is left, as all were
// withdrawn, it ends the group.
func (c *combiner[C]) take() []*ticket[C] {
	n, weight := 0, 0
	for n < len(c.waiting) && (n == 0 || weight+c.waiting[n].weight <= c.limit) {
		weight += c.waiting[n].weight
		n++
	}
	if n == 0 {
		c.addServing(-1)
		return nil
	}
	c.weight += weight
	group := c.waiting[:n:n]
	c.waiting = c.waiting[n:]
	if len(c.waiting) == 0 {
		c.waiting = nil
	}
	return group
}

func weightOf[C any](group []*ticket[C]) (sum int) {
	for _, t := range group {
		sum += t.weight
	}
	return sum
}

// serveOrSplit serves a group, and its members one by one where one of them may be what makes the
// others fail.
func (c *combiner[C]) serveOrSplit(group []*ticket[C]) {
	if err := c.serveRecovered(group); err != nil {
		c.splitOrFail(group, err)
	}
}

func (c *combiner[C]) splitOrFail(group []*ticket[C], err error) {
	if len(group) > 1 && !isStoreFailure(err) {
		for i := range group {
			c.serveOrSplit(group[i : i+1])
		}
		return
	}
	for _, t := range group {
		t.err = err
	}
}

// isStoreFailure reports whether an error is of the store, and not of one of the calls.
func isStoreFailure(err error) bool {
	switch job.KindOf(err) {
	case job.Unavailable, job.ReadOnly, job.Aborted:
		return true
	default:
		return false
	}
}

// serveRecovered turns a panic into an error of the callers: it must end neither the process nor
// the combiner.
func (c *combiner[C]) serveRecovered(group []*ticket[C]) error {
	for _, t := range group {
		t.err = nil
	}
	return recovered(func() error { return c.serve(group) })
}

// recovered returns the error of a function, which for one that panics is Internal.
func recovered(fn func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &job.Error{Kind: job.Internal, Op: "engine",
				Err: fmt.Errorf("panic: %v\n%s", p, debug.Stack())}
		}
	}()
	return fn()
}
