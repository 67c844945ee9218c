package live_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/bulk"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/live"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/testkit"
)

var machine = job.MustMachine(map[job.State]job.Phase{"queued": job.Ready,
	"running": job.Leased}, []job.Transition{
	{From: job.StateNone, On: job.Submitted, To: "queued"},
	{From: "queued", On: job.Claimed, To: "running"},
	{From: "queued", On: job.Removed, To: job.StateNone},
	{From: "running", On: job.Expired, To: "queued"},
	{From: "running", On: job.Succeeded, To: job.StateNone},
})

// countingStore counts the reads of a store.
type countingStore struct {
	store.Store
	views atomic.Int64
}

func (s *countingStore) View(ctx context.Context, fn func(store.Reader) error) error {
	s.views.Add(1)
	return s.Store.View(ctx, fn)
}

// node is a monitor on an engine of its own.
type node struct {
	*testing.T
	monitor *live.Monitor
	engine  *engine.Engine
	store   *countingStore
	ticks   chan chan time.Time // the waits between two readings
	jobs    int
}

func newNode(t *testing.T, p testkit.Database) *node {
	t.Helper()
	n := &node{T: t, store: &countingStore{Store: p.Store}, ticks: make(chan chan time.Time, 1)}
	n.engine = testkit.NewEngine(t, n.store, p.Clock, engine.JobType{Name: "a", Machine: machine})
	operations, err := bulk.New(bulk.Config{Engine: n.engine, Log: slog.New(slog.DiscardHandler),
		Random: testkit.RandomBytes, Elapsed: p.Clock.Monotonic})
	if err != nil {
		t.Fatal(err)
	}
	n.monitor, err = live.New(live.Config{Engine: n.engine, Bulk: operations,
		Items: func(_ context.Context, jobs []*job.Job) (items []any, err error) {
			for _, j := range jobs {
				items = append(items, j.State)
			}
			return items, nil
		},
		Timer: func(time.Duration) (<-chan time.Time, func()) {
			tick := make(chan time.Time)
			n.ticks <- tick
			return tick, func() {}
		}})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// submit submits a job and returns its key.
func (n *node) submit(queue string) job.ID {
	n.Helper()
	n.jobs++
	id := job.ID{JobType: "a", Key: fmt.Sprint(n.jobs)}
	if _, err := n.engine.Submit(n.Context(), engine.Unique,
		[]engine.Submission{{Job: job.Job{ID: id, Queue: queue}}}); err != nil {
		n.Fatal(err)
	}
	return id
}

// watch begins to watch.
func (n *node) watch(after string, numbers ...int64) *live.Watch {
	n.Helper()
	w, err := n.monitor.Watch(numbers, after, "")
	if err != nil {
		n.Fatal(err)
	}
	return w
}

// read reads the store.
func (n *node) read() {
	n.Helper()
	if err := n.monitor.Read(n.Context()); err != nil {
		n.Fatal(err)
	}
}

// next returns what a watch returns next.
func (n *node) next(w *live.Watch) live.Changes {
	n.Helper()
	c, ok := w.Next(n.Context())
	if !ok {
		n.Fatal("the watch has ended")
	}
	return c
}

// AD-061: 200 watches share one reading of the store, and it is read once a second only while
// somebody watches.
func TestReadings(t *testing.T) {
	testkit.OnEveryStore(t, func(t *testing.T, p testkit.Database) {
		n := newNode(t, p)
		n.submit("one")
		var all []*live.Watch
		alone := int64(0)
		for _, watches := range []int{1, 200} {
			for len(all) < watches {
				all = append(all, n.watch("", 1, 2))
			}
			before := n.store.views.Load()
			n.read()
			for i, w := range all {
				if c := n.next(w); (len(c.Queues) != 1 || len(c.Jobs) != 2) &&
					(watches == 1 || i > 0) {
					t.Errorf("watch %d of %d got %+v", i, watches, c)
				}
				if watches == 1 {
					n.submit("one") // so that the first has something to return again
				}
			}
			views := n.store.views.Load() - before
			if watches == 1 {
				alone = views
			}
			if views != alone {
				t.Errorf("%d watches have %d reads of the store, one has %d", watches, views, alone)
			}
		}
		for _, w := range all {
			w.Close()
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); n.monitor.Run(ctx) }()
		before := n.store.views.Load()
		for round := range int64(20) {
			w := n.watch("")
			n.next(w)
			w.Close()
			tick := <-n.ticks
			if views := n.store.views.Load() - before; views != (round+1)*(alone-1) {
				t.Fatalf("%d readings have %d reads, want %d each", round+1, views, alone-1)
			}
			tick <- time.Time{} // a second has passed, and nobody watches
		}
		stop()
		<-ended
		if _, err := n.monitor.Watch(nil, "", ""); !job.IsKind(err, job.Unavailable) {
			t.Errorf("after the stop got %v", err)
		}
	})
}

// AD-061: a watch that is not asked keeps nothing: it then gets once what holds at that time, with
// the queues that were emptied meanwhile, and where there are too many of those it begins again.
func TestLateWatch(t *testing.T) {
	t.Parallel()
	n := newNode(t, testkit.InMemory(t))
	w := n.watch("")
	n.submit("kept")
	n.read()
	first := n.next(w)
	for _, queues := range []int{3, 1100} {
		var ids []job.ID
		for i := range queues {
			ids = append(ids, n.submit(fmt.Sprint("queue", i)))
		}
		n.read()
		for _, id := range ids {
			if err := n.engine.Remove(t.Context(), id); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := n.engine.Prune(t.Context()); err != nil {
			t.Fatal(err)
		}
		n.read()
		c := n.next(w)
		if queues == 3 && (c.Reset || len(c.Queues) != 3 || c.Queues[0].Ready != 0) {
			t.Errorf("got %+v", c)
		}
		if queues == 1100 && len(c.Queues) < 1100 && (!c.Reset || len(c.Queues) != 1) {
			t.Errorf("got a reset %v with %d queues", c.Reset, len(c.Queues))
		}
	}
	w.Close()
	w = n.watch(first.ID)
	n.read()
	if c := n.next(w); c.ID == first.ID || len(c.Queues) == 0 {
		t.Errorf("behind %s there is %+v", first.ID, c)
	}
	for range 15 {
		n.read()
	}
	if c := n.next(w); len(c.Queues)+len(c.Jobs)+len(c.Operations) > 0 {
		t.Errorf("silence is %+v", c)
	}
	for range 600 {
		n.read()
	}
	if c, ok := w.Next(t.Context()); ok {
		t.Errorf("a watch that has lasted long got %+v", c)
	}
}
