package engine

import (
	"fmt"
	"runtime/debug"
	"sync"

	"github.com/millrace/millrace/internal/job"
)

// combiner serves callers that come at the same time together: while one group
// is being written, the next gathers. Under light load a caller is a group of
// its own and waits for nobody.
//
// Each caller keeps an outcome of its own. Where a group fails for a reason one
// of them may have brought along, they are served one by one.
type combiner[C any] struct {
	limit     int // weight of a group
	maxGroups int
	serve     func([]*ticket[C]) error

	mu      sync.Mutex
	waiting []*ticket[C]
	serving int
}

// maxGroups is how many groups of one verb are under way at a time where the store
// can write more than one: enough to keep it busy during a commit, few enough to
// let groups grow. With one writer a second group would only split the first.
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

// do has the call served and returns it with its outcome. weight says how much
// of a group it takes.
func (c *combiner[C]) do(call C, weight int) (*C, error) {
	t := &ticket[C]{call: call, weight: weight, done: make(chan struct{})}
	c.mu.Lock()
	c.waiting = append(c.waiting, t)
	if c.serving < c.maxGroups {
		c.serving++
		go c.run()
	}
	c.mu.Unlock()
	<-t.done
	return &t.call, t.err
}

// run serves groups until nobody waits.
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

// settle serves a group, and its members apart where one of them may be what
// makes the others fail.
func (c *combiner[C]) serveOrSplit(group []*ticket[C]) {
	err := c.serveRecovered(group)
	if err == nil {
		return
	}
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

// isStoreFailure reports an error no caller is the reason of.
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
