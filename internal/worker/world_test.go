package worker_test

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/testkit"
	"github.com/millrace/millrace/internal/worker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// machine has states for assigned and running, and keeps finished jobs.
var machine = job.MustMachine(map[job.State]job.Phase{"queued": job.Ready, "assigned": job.Leased,
	"running":   job.Leased,
	"succeeded": job.Done, "failed": job.Done, "canceled": job.Done}, []job.Transition{
	{From: job.StateNone, On: job.Submitted, To: "queued"},
	{From: "queued", On: job.Claimed, To: "assigned"},
	{From: "queued", On: job.Canceled, To: "canceled"},
	{From: "assigned", On: job.Started, To: "running"},
	{From: "assigned", On: job.Expired, To: "queued"},
	{From: "assigned", On: job.Released, To: "queued"},
	{From: "assigned", On: job.Canceled, To: "canceled"},
	{From: "running", On: job.Succeeded, To: "succeeded"},
	{From: "running", On: job.Failed, To: "failed"},
	{From: "running", On: job.Expired, To: "failed"},
	{From: "running", On: job.Released, To: "queued"},
	{From: "running", On: job.Canceled, To: "canceled"},
})

// faultyStore is a store that can be unavailable.
type faultyStore struct {
	store.Store
	unavailable atomic.Bool
	failed      chan struct{} // has an element for each update that failed, while a test receives
	updates     atomic.Int64
}

func (s *faultyStore) Update(ctx context.Context, fn func(store.Tx) error) error {
	if s.unavailable.Load() {
		select {
		case s.failed <- struct{}{}:
		default:
		}
		return &job.Error{Kind: job.Unavailable, Op: "store.update",
			Msg: "the store is unavailable"}
	}
	s.updates.Add(1)
	return s.Store.Update(ctx, fn)
}

// world is an engine on a store in memory and what its jobs did.
type world struct {
	*testing.T
	engine *engine.Engine
	clock  *testkit.Clock
	store  *faultyStore

	transitions chan engine.Transitioned
	pool        atomic.Pointer[worker.Pool] // gets the cancellations
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{T: t, clock: testkit.NewClock(), transitions: make(chan engine.Transitioned, 10_000)}
	w.store = &faultyStore{Store: testkit.MemoryStore(t, w.clock.Now), failed: make(chan struct{})}
	w.engine = testkit.NewEngine(t, w.store, w.clock,
		engine.JobType{Name: "made", Machine: machine, History: true,
			OnTransitions: w.recordTransitions, ReportedCauses: job.Causes()})
	return w
}

func (w *world) recordTransitions(moves []engine.Transitioned) {
	for _, m := range moves {
		if p := w.pool.Load(); p != nil && m.On == job.Canceled {
			p.Cancel(m.Job.ID)
		}
		w.transitions <- m
	}
}

func id(key string) job.ID { return job.ID{JobType: "made", Key: key} }

// submit stores n jobs, 0 to n-1.
func (w *world) submit(n int, lease time.Duration) {
	w.Helper()
	batch := make([]engine.Submission, n)
	for i := range batch {
		batch[i] = engine.Submission{Job: job.Job{ID: id(strconv.Itoa(i)), Queue: "q",
			Lease: lease}}
	}
	if _, err := w.engine.Submit(w.Context(), engine.Unique, batch); err != nil {
		w.Fatal(err)
	}
}

// submitOne stores a job under a key.
func (w *world) submitOne(key string) {
	w.Helper()
	one := engine.Submission{Job: job.Job{ID: id(key), Queue: "q", Lease: time.Minute}}
	if _, err := w.engine.Submit(w.Context(), engine.Unique, []engine.Submission{one}); err != nil {
		w.Fatal(err)
	}
}

// waitForState waits for n moves into a state.
func (w *world) waitForState(to job.State, n int) {
	w.Helper()
	limit := time.NewTimer(testkit.WaitTimeout)
	defer limit.Stop()
	for n > 0 {
		select {
		case m := <-w.transitions:
			if m.To == to {
				n--
			}
		case <-limit.C:
			w.Fatalf("timed out waiting for %d jobs to be %s", n, to)
		}
	}
}

func (w *world) state(key string) job.State {
	w.Helper()
	j, err := w.engine.Get(context.Background(), id(key))
	if err != nil {
		w.Fatal(err)
	}
	return j.State
}

// stateHistory is the history of a job as its states.
func (w *world) stateHistory(key string) string {
	w.Helper()
	events, err := w.engine.History(context.Background(), id(key))
	if err != nil {
		w.Fatal(err)
	}
	text := ""
	for _, e := range events {
		text += " " + string(e.Next)
	}
	return text
}

// handlerFunc is a function that is one.
type handlerFunc func(context.Context, *worker.ClaimedJob) engine.Outcome

func (h handlerFunc) Handle(ctx context.Context, t *worker.ClaimedJob) engine.Outcome {
	return h(ctx, t)
}

// startFirst is a handler that starts its job before it does the work.
func startFirst(h handlerFunc) handlerFunc {
	return func(ctx context.Context, t *worker.ClaimedJob) engine.Outcome {
		if err := t.Start(); err != nil {
			return engine.Outcome{On: job.Failed}
		}
		return h(ctx, t)
	}
}

var succeeded = engine.Outcome{On: job.Succeeded, Result: []byte("done")}

// runningPool is a pool under test.
type runningPool struct {
	*worker.Pool
	stop func() // asks it to stop
	wait func() // until it has
}

// startPool starts a pool that is stopped with the test.
func (w *world) startPool(c worker.Config, grace time.Duration) *runningPool {
	w.Helper()
	c.Engine, c.JobType = w.engine, "made"
	if c.Name == "" {
		c.Name = "n"
	}
	if c.HeartbeatInterval == 0 {
		c.HeartbeatInterval = time.Hour
	}
	p, err := worker.New(c)
	if err != nil {
		w.Fatal(err)
	}
	w.pool.Store(p)
	ctx, stop := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { p.Run(ctx, grace) })
	w.Cleanup(func() { stop(); wg.Wait() })
	return &runningPool{p, stop, wg.Wait}
}
