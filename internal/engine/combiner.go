package engine

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"

	"github.com/millrace/millrace/internal/job"
)

// combiner serves callers that come at the same time together: while one group is being served,
// the next gathers. Under light load a caller is a group of its own and waits for no other.
//
//	callers   do ─┐            group 1          group 2
//	          do ─┼─ waiting ─▶ [t t t t] ─────▶ [t t]        one transaction each
//	          do ─┘             serve           serve
//
// Each caller has an outcome of its own. Where a group fails for a reason one of its members may
// have brought along, they are served one by one. doc.go says what the combiner is for beside the
// store's own grouping of commits.
type combiner[C any] struct {
	limit     int // weight of a group
	maxGroups int
	serve     func([]*ticket[C]) error

	mu      sync.Mutex
	waiting []*ticket[C]
	serving int
}

// maxGroups is how many groups of one verb are served at a time where the store can write more
// than one: enough to keep it busy during a commit, few enough to let groups grow. With one writer
// a second group would only split the first.
const maxGroups = 2

// ticket is one caller's call.
type ticket[C any] struct {
	call   C
	weight int
	err    error
	done   chan struct{}
}

// newCombiner makes a combiner of serve, which fills in the calls of a group,
// sets the err of those that failed by themselves, and may be called again for
// a part of the same group.
func newCombiner[C any](limit, writers int, serve func([]*ticket[C]) error) *combiner[C] {
	return &combiner[C]{limit: limit, maxGroups: min(maxGroups, writers), serve: serve}
}

// do has the call served and returns it with its outcome. weight says how much of a group it
// takes.
//
// When ctx ends while the call waits for its group, the call is withdrawn: the caller gets an error
// and nothing has happened. A call whose group is being served is waited for, as its outcome would
// be unknown otherwise; that takes writeTimeout at most.
func (c *combiner[C]) do(ctx context.Context, call C, weight int) (*C, error) {
	t := &ticket[C]{call: call, weight: weight, done: make(chan struct{})}
	c.mu.Lock()
	c.waiting = append(c.waiting, t)
	if c.serving < c.maxGroups {
		c.serving++
		go c.run()
	}
	c.mu.Unlock()
	select {
	case <-t.done:
	case <-ctx.Done():
		if c.withdraw(t) {
			return &t.call, errWithdrawn(ctx)
		}
		<-t.done
	}
	return &t.call, t.err
}

// withdraw takes a ticket out of the line and reports whether it was still there.
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

// errWithdrawn is what the store answers, too, when ctx ends before it has begun.
func errWithdrawn(ctx context.Context) error {
	e := &job.Error{Kind: job.Aborted, Op: "engine", Msg: "the caller went away", Err: ctx.Err()}
	if errors.Is(e.Err, context.DeadlineExceeded) {
		e.Kind, e.Msg = job.Unavailable, "the store is slow"
	}
	return e
}

// run serves groups until no call waits.
func (c *combiner[C]) run() {
	for {
		group := c.next()
		if group == nil {
			return
		}
		c.serveOrSplit(group)
		for _, t := range group {
			close(t.done)
		}
	}
}

func (c *combiner[C]) next() []*ticket[C] {
	c.mu.Lock()
	defer c.mu.Unlock()
	n, weight := 0, 0
	for n < len(c.waiting) && (n == 0 || weight+c.waiting[n].weight <= c.limit) {
		weight += c.waiting[n].weight
		n++
	}
	if n == 0 {
		c.serving--
		return nil
	}
	group := c.waiting[:n:n]
	c.waiting = c.waiting[n:]
	if len(c.waiting) == 0 {
		c.waiting = nil
	}
	return group
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

// isStoreFailure reports an error of which no caller is the cause.
func isStoreFailure(err error) bool {
	switch job.KindOf(err) {
	case job.Unavailable, job.ReadOnly, job.Aborted:
		return true
	default:
		return false
	}
}

// serveRecovered turns a panic into an error of the callers: it must end neither the
// process nor the combiner.
func (c *combiner[C]) serveRecovered(group []*ticket[C]) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &job.Error{Kind: job.Internal, Op: "engine",
				Err: fmt.Errorf("panic: %v\n%s", p, debug.Stack())}
		}
	}()
	for _, t := range group {
		t.err = nil
	}
	return c.serve(group)
}
