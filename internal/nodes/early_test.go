package nodes_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/nodes"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/testkit"
)

// countingStore counts the updates of a store.
type countingStore struct {
	store.Store
	updates atomic.Int64
}

func (s *countingStore) Update(ctx context.Context, fn func(store.Tx) error) error {
	s.updates.Add(1)
	return s.Store.Update(ctx, fn)
}

// wait is a wait of a node between two records.
type wait struct {
	d      time.Duration
	passed chan time.Time
}

// runningNode is a node that writes its record, and waits as a test lets it.
type runningNode struct {
	*testing.T
	engine *engine.Engine
	store  *countingStore
	waits  chan wait
	before time.Time // the wait that comes next
}

func newRunning(t *testing.T, p testkit.Database) *runningNode {
	t.Helper()
	n := &runningNode{T: t, store: &countingStore{Store: p.Store}, waits: make(chan wait)}
	n.engine = testkit.NewEngine(t, n.store, p.Clock)
	ctx, stop := context.WithCancel(context.Background())
	node, err := nodes.New(nodes.Config{Engine: n.engine, Elapsed: p.Clock.Monotonic,
		Timer: func(d time.Duration) (<-chan time.Time, func()) {
			w := wait{d, make(chan time.Time)}
			select {
			case n.waits <- w:
			case <-ctx.Done():
			}
			return w.passed, func() {}
		}})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { defer close(ended); node.Run(ctx) }()
	t.Cleanup(func() { stop(); <-ended })
	return n
}

// second returns the wait of the node after a record that it has written, of one second.
func (n *runningNode) second() wait {
	n.Helper()
	w := testkit.Receive(n.T, "the node to wait", n.waits)
	if w.d != time.Second {
		n.Fatalf("the node waits for %s, want a second", w.d)
	}
	n.before = time.Now()
	return w
}

// rest returns the wait of the node that follows, until the next tick.
func (n *runningNode) rest() wait {
	n.Helper()
	w := testkit.Receive(n.T, "the node to wait", n.waits)
	if !testkit.HasTick(n.before, time.Now(), w.d, 5*time.Second) {
		n.Fatalf("the node waits for %s, want until a multiple of five seconds", w.d)
	}
	return w
}

// ask asks for queues on the node.
func (n *runningNode) ask(queues ...string) {
	n.engine.Polling(engine.ClaimRequest{JobType: "a", Queues: queues})()
}

// other is a second node on the store.
type other struct {
	*testing.T
	engine *engine.Engine
	node   *nodes.Node
}

func newOther(t *testing.T, p testkit.Database) *other {
	t.Helper()
	e := testkit.NewEngine(t, p.Store, p.Clock)
	node, err := nodes.New(nodes.Config{Engine: e, Elapsed: p.Clock.Monotonic})
	if err != nil {
		t.Fatal(err)
	}
	return &other{t, e, node}
}

// lastPolled returns when a queue was last asked for by what the node has read; zero is never.
func (o *other) lastPolled(queue string) time.Time {
	o.Helper()
	var of job.Pollers
	err := o.engine.ViewRecords(o.Context(), func(r engine.RecordReader) (err error) {
		of, err = o.node.PollersOf(r, "a", queue)
		return err
	})
	if err != nil {
		o.Fatal(err)
	}
	return of.LastPolled
}

// AD-015, AD-030: that a queue is asked for on a node for the first time the other one knows within
// a second, by one record for all queues of that second. Asking for them again writes nothing.
func TestNewlyPolled(t *testing.T) {
	testkit.OnEveryStore(t, func(t *testing.T, p testkit.Database) {
		n, o := newRunning(t, p), newOther(t, p)
		second := n.second()
		for round := range 3 {
			before, at := n.store.updates.Load(), p.Clock.Now()
			for i := range 5 {
				n.ask(fmt.Sprint(round, i))
			}
			if since := o.lastPolled(fmt.Sprint(round, 0)); !since.IsZero() {
				t.Errorf("before the record the other node knows of %s", since)
			}
			p.Clock.Advance(time.Second)
			second.passed <- p.Clock.Now()
			n.rest() // which the queues end
			second = n.second()
			for i := range 5 {
				if since := o.lastPolled(fmt.Sprint(round, i)); !since.Equal(at) {
					t.Errorf("AD-030 the other node knows of %s, want %s", since, at)
				}
			}
			if updates := n.store.updates.Load() - before; updates != 1 {
				t.Errorf("five queues have %d updates, want one record", updates)
			}
		}
		before := n.store.updates.Load()
		second.passed <- p.Clock.Now()
		rest := n.rest()
		for range 100 {
			n.ask("0 0", "1 4")
		}
		if updates := n.store.updates.Load() - before; updates > 0 ||
			len(n.engine.NewlyPolled()) > 0 {
			t.Errorf("asking again has %d updates, or an early record", updates)
		}
		rest.passed <- p.Clock.Now()
		n.second()
	})
}

// The record of a node that was killed is not that of another node where a store has one node.
func TestOneNode(t *testing.T) {
	t.Parallel()
	for oneNode, want := range map[bool]int{true: 1, false: 2} {
		p := testkit.InMemory(t)
		var all []nodes.Info
		for range 2 {
			one, err := nodes.New(nodes.Config{Engine: testkit.NewEngine(t, p.Store, p.Clock),
				Elapsed: p.Clock.Monotonic, OneNode: oneNode})
			if err == nil {
				err = one.Write(t.Context())
			}
			if err == nil {
				all, err = one.All(t.Context())
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if len(all) != want {
			t.Errorf("OneNode %v: %d nodes, want %d", oneNode, len(all), want)
		}
	}
}
