package maintenance_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/maintenance"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/store/sqlite"
	"github.com/millrace/millrace/internal/testkit"
)

var machine = job.MustMachine(map[job.State]job.Phase{"created": job.Waiting, "queued": job.Ready,
	"running": job.Leased, "done": job.Done}, []job.Transition{
	{From: job.StateNone, On: job.Submitted, To: "created"},
	{From: "created", On: job.Due, To: "queued"},
	{From: "queued", On: job.Claimed, To: "running"},
	{From: "running", On: job.Succeeded, To: "done"},
	{From: "running", On: job.Released, To: "queued"},
	{From: "running", On: job.Expired, To: "queued"},
})

// node is an engine with its maintenance on a store; events come in as they happen.
type node struct {
	testing.TB
	engine *engine.Engine
	ctx    context.Context
	moves  chan engine.Transitioned
	log    *logs
	stop   func() // ends maintenance and waits for it
}

// logs gathers what is logged.
type logs struct {
	mu sync.Mutex
	bytes.Buffer
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Buffer.Write(p)
}

func (l *logs) text() string { l.mu.Lock(); defer l.mu.Unlock(); return l.String() }

func start(t *testing.T, s store.Store, monotonic func() time.Duration,
	with func(*maintenance.Runner)) *node {
	t.Helper()
	n := &node{TB: t, moves: make(chan engine.Transitioned, 1000), log: &logs{}}
	var cancel context.CancelFunc
	n.ctx, cancel = context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	e, err := engine.New(engine.Config{Store: s, Node: "node", Random: testkit.RandomBytes,
		Monotonic: monotonic})
	if err != nil {
		t.Fatal(err)
	}
	testkit.Register(t, e, engine.JobType{
		Name: "made", Machine: machine, History: true, Publish: true, Retention: time.Hour,
		ReportedCauses: job.Causes(), OnTransitions: func(all []engine.Transitioned) {
			for _, m := range all {
				n.moves <- m
			}
		},
	})
	t.Cleanup(e.Close)
	n.engine = e
	r := &maintenance.Runner{Engine: e, Log: slog.New(slog.NewTextHandler(n.log,
		&slog.HandlerOptions{Level: slog.LevelDebug})), PruneInterval: 5 * time.Millisecond}
	with(r)
	ctx, end := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { r.Run(ctx); close(done) }()
	n.stop = sync.OnceFunc(func() { end(); <-done })
	t.Cleanup(n.stop)
	return n
}

func (n *node) submit(key string, due time.Time) {
	n.Helper()
	if _, err := n.engine.Submit(n.ctx, engine.Unique,
		[]engine.Submission{{Job: job.Job{ID: job.ID{JobType: "made", Key: key}, Queue: "q",
			Lease: 30 * time.Second, DueAt: due}}}); err != nil {
		n.Fatal(err)
	}
}

func (n *node) claim(wait time.Duration) []*job.Job {
	n.Helper()
	jobs, err := n.engine.Claim(n.ctx, engine.ClaimRequest{JobType: "made", Max: 1, Worker: "w",
		Wait: wait})
	if err != nil {
		n.Fatal(err)
	}
	return jobs
}

// await waits for a job to move for a cause.
func (n *node) await(key string, on job.Cause) engine.Transitioned {
	n.Helper()
	for {
		select {
		case m := <-n.moves:
			if m.Job.ID.Key == key && m.On == on {
				return m
			}
		case <-n.ctx.Done():
			n.Fatalf("%s is not %s: %s", key, on, n.log.text())
		}
	}
}

// expires lets time pass in small steps until a job's lease has ended: a leap past the lease while
// a loop waits for the store would be a stall of it.
func (n *node) expires(key string, c *testkit.Clock) {
	n.Helper()
	passing := time.NewTicker(time.Millisecond)
	defer passing.Stop()
	for {
		select {
		case m := <-n.moves:
			if m.Job.ID.Key == key && m.On == job.Expired {
				return
			}
		case <-passing.C:
			c.Advance(100 * time.Millisecond)
		case <-n.ctx.Done():
			n.Fatalf("%s does not expire: %s", key, n.log.text())
		}
	}
}

func none(*maintenance.Runner) {}

// publishWith has one function publish the messages of all contracts.
func publishWith(deliver func(context.Context, []job.Message) error) []maintenance.Publisher {
	return []maintenance.Publisher{{Deliver: deliver}}
}

// Each loop runs by itself; all end with their context.
func TestRolesDoTheirSteps(t *testing.T) {
	t.Parallel()
	c := testkit.NewClock()
	delivered := make(chan job.Message, 100)
	n := start(t, testkit.MemoryStore(t, c.Now), c.Monotonic, func(r *maintenance.Runner) {
		r.Publishers = publishWith(func(_ context.Context, batch []job.Message) error {
			for _, m := range batch {
				delivered <- m
			}
			return nil
		})
	})
	n.submit("later", c.Now().Add(time.Minute))
	if m := <-delivered; m.JobID.Key != "later" || m.Next != "created" {
		t.Errorf("published %+v", m)
	}
	c.Advance(time.Minute)
	n.await("later", job.Due)
	if m := <-delivered; m.Next != "queued" {
		t.Errorf("published %+v", m)
	}
	first := n.claim(0)[0]
	n.expires("later", c)
	j := n.claim(0)[0]
	if _, err := n.engine.Finish(n.ctx, engine.Run{Run: first.Run},
		engine.Outcome{On: job.Succeeded}); !job.IsKind(err, job.RunLost) {
		t.Error(err)
	}
	if _, err := n.engine.Finish(n.ctx, engine.Run{Run: j.Run},
		engine.Outcome{On: job.Succeeded}); err != nil {
		t.Fatal(err)
	}
	c.Advance(time.Hour + time.Second)
	for is := true; is; {
		var err error
		if is, err = n.engine.Exists(n.ctx, j.ID); err != nil {
			t.Fatal(err)
		}
	}
	n.stop()
	if text := n.log.text(); text != "" {
		t.Errorf("logged %s", text)
	}
}

// A job never starts before its time, and the claim that waits for it is notified when that has
// come. This one is on the real clock.
func TestPromoteIsNotEarly(t *testing.T) {
	t.Parallel()
	began := time.Now()
	s, err := sqlite.Open(context.Background(), sqlite.Config{Path: sqlite.Memory, Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	n := start(t, s, func() time.Duration { return time.Since(began) }, none)
	due := time.Now().Add(300 * time.Millisecond)
	n.submit("soon", due)
	jobs := n.claim(30 * time.Second)
	if now := time.Now(); len(jobs) != 1 || now.Before(due) ||
		jobs[0].StartedAt.Before(jobs[0].DueAt) {
		t.Errorf("claimed %v at %v, due at %v", jobs, now, due)
	}
	t.Logf("claimed %v after it was due", time.Since(due))
	n.stop()
}

// failingStore is a store that fails for as long as it is set to.
type failingStore struct {
	store.Store
	fails atomic.Bool
	calls atomic.Int64
}

var errUnavailable = &job.Error{Kind: job.Unavailable, Op: "store.begin",
	Msg: "the store is unavailable"}

func (s *failingStore) Update(ctx context.Context, fn func(store.Tx) error) error {
	if s.calls.Add(1); s.fails.Load() {
		return errUnavailable
	}
	return s.Store.Update(ctx, fn)
}

func (s *failingStore) View(ctx context.Context, fn func(store.Reader) error) error {
	if s.calls.Add(1); s.fails.Load() {
		return errUnavailable
	}
	return s.Store.View(ctx, fn)
}

// TestLoopsSurviveAnOutage: maintenance loops survive an outage of the store, without spinning and
// without filling the log.
func TestLoopsSurviveAnOutage(t *testing.T) {
	t.Parallel()
	c := testkit.NewClock()
	s, failing := &failingStore{Store: testkit.MemoryStore(t, c.Now)}, make(chan struct{})
	n := start(t, s, c.Monotonic, func(r *maintenance.Runner) {
		r.PruneInterval = time.Second
		// The message is published while the store fails already, however fast publishing is: a
		// loop that finds the outbox empty waits for the next message, not for the store.
		r.Publishers = publishWith(func(context.Context, []job.Message) error {
			<-failing
			return nil
		})
	})
	n.submit("a", c.Now().Add(time.Minute))
	s.fails.Store(true)
	close(failing)
	before := s.calls.Load()
	loops := []string{"sweep", "publish", "prune", "refresh"}
	testkit.WaitUntil(t, "every loop to use the store", func() bool {
		return !slices.ContainsFunc(loops, func(d string) bool {
			return !strings.Contains(n.log.text(),
				"level=DEBUG msg=\"a loop waits for a part\" loop="+d)
		})
	})
	if calls := s.calls.Load() - before; calls > 200 {
		t.Errorf("%d calls while the store was unavailable", calls)
	}
	c.Advance(time.Minute)
	s.fails.Store(false)
	n.await("a", job.Due)
	n.claim(time.Minute)
	n.expires("a", c)
	n.stop()
	if strings.Contains(n.log.text(), "level=WARN") {
		t.Errorf("the loops log an outage of the store, which the store logs itself: %s",
			n.log.text())
	}
}

// A function that fails to publish gets the same messages again, those of a job in order.
func TestPublishIsTriedAgain(t *testing.T) {
	t.Parallel()
	c := testkit.NewClock()
	var tries atomic.Int64
	delivered := make(chan job.Message, 100)
	n := start(t, testkit.MemoryStore(t, c.Now), c.Monotonic, func(r *maintenance.Runner) {
		r.Publishers = publishWith(func(_ context.Context, batch []job.Message) error {
			if tries.Add(1) < 3 {
				return errors.New("no")
			}
			for _, m := range batch {
				delivered <- m
			}
			return nil
		})
	})
	n.submit("a", time.Time{})
	for _, want := range []job.State{"created", "queued"} {
		if m := <-delivered; m.Next != want {
			t.Errorf("delivered %+v, want %s", m, want)
		}
	}
	n.stop()
}

// A runner ends at once, also when everything it does hangs.
func TestRunEndsWithItsContext(t *testing.T) {
	t.Parallel()
	c := testkit.NewClock()
	s := hangingStore{testkit.MemoryStore(t, c.Now)}
	n := start(t, s, c.Monotonic, func(r *maintenance.Runner) {
		r.Log, r.PruneInterval = nil, 0
		r.Publishers = publishWith(func(ctx context.Context, _ []job.Message) error {
			<-ctx.Done()
			return ctx.Err()
		})
	})
	n.stop()
}

// hangingStore answers when the caller leaves.
type hangingStore struct{ store.Store }

func (hangingStore) Update(ctx context.Context, _ func(store.Tx) error) error {
	<-ctx.Done()
	return ctx.Err()
}
func (hangingStore) View(ctx context.Context, _ func(store.Reader) error) error {
	<-ctx.Done()
	return ctx.Err()
}
