package worker_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/testkit"
	"github.com/millrace/millrace/internal/worker"
)

// TestCrowd: many workers of several pools, each job handled exactly once.
func TestCrowd(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const jobs = 600
	var mu sync.Mutex
	handled, workers := map[string]int{}, map[string]bool{}
	h := startFirst(func(_ context.Context, t *worker.ClaimedJob) engine.Outcome {
		mu.Lock()
		defer mu.Unlock()
		handled[t.Job.ID.Key]++
		workers[t.Worker] = true
		if t.Job.State != "running" || t.Job.Worker != t.Worker {
			w.Errorf("%s is %s with %s", t.Job.ID.Key, t.Job.State, t.Job.Worker)
		}
		return succeeded
	})
	for i := range 3 {
		w.startPool(worker.Config{Name: "n" + strconv.Itoa(i), Workers: 4, Slots: 2, Handler: h},
			time.Minute)
	}
	w.submit(jobs, time.Minute)
	w.waitForState("succeeded", jobs)
	for i := range jobs {
		key := strconv.Itoa(i)
		if p := w.stateHistory(key); handled[key] != 1 ||
			p != " queued assigned running succeeded" {
			t.Errorf("FR-171 %s was handled %d times: %s", key, handled[key], p)
		}
	}
	if !workers["n0/1"] && !workers["n1/1"] && !workers["n2/1"] {
		t.Errorf("the workers are %v", workers)
	}
	if j, err := w.engine.Get(t.Context(), id("0")); err != nil || string(j.Result) != "done" {
		t.Errorf("got %+v, %v", j, err)
	}
}

// TestFinishClaimsTheNext: one update ends a run and claims the slot's next job.
func TestFinishClaimsTheNext(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const jobs = 5
	w.submit(jobs, time.Hour)
	var returned int64
	runs := 0
	p := w.startPool(worker.Config{Handler: handlerFunc(func(ctx context.Context,
		task *worker.ClaimedJob) engine.Outcome {
		if n := w.store.updates.Load() - returned; runs > 0 && n != 1 {
			t.Errorf("%d updates between two runs", n)
		}
		runs++
		defer func() { returned = w.store.updates.Load() }()
		if err := task.Start(); err != nil {
			t.Error(err)
		}
		return succeeded
	})}, time.Minute)
	w.waitForState("succeeded", jobs)
	p.stop()
	p.wait()
	if runs != jobs {
		t.Errorf("%d runs", runs)
	}
}

// TestSlots: no worker runs more than it may, and what it could take shows.
func TestSlots(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	started, let := make(chan struct{}, 10), make(chan struct{})
	p := w.startPool(worker.Config{Workers: 2, Slots: 2,
		Handler: startFirst(func(context.Context, *worker.ClaimedJob) engine.Outcome {
			started <- struct{}{}
			<-let
			return succeeded
		})}, time.Minute)
	w.submit(6, time.Minute)
	for range 4 {
		testkit.Receive(t, "a run to begin", started)
	}
	if p.Busy() != 4 {
		t.Errorf("FR-176 %d runs are under way", p.Busy())
	}
	counts, err := w.engine.Queues(t.Context(), "made")
	if err != nil || len(counts) != 1 || counts[0].Ready != 2 || counts[0].Leased != 4 {
		t.Errorf("FR-178 got %+v, %v", counts, err)
	}
	close(let)
	w.waitForState("succeeded", 6)
	p.stop()
	p.wait()
	if p.Busy() != 0 || p.Available() != 0 {
		t.Errorf("%d runs and %d workers are left", p.Busy(), p.Available())
	}
}

func TestHeartbeats(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	stored := make(chan struct{})
	let := make(chan struct{})
	w.startPool(worker.Config{HeartbeatInterval: time.Millisecond, OnHeartbeat: func() {
		select {
		case stored <- struct{}{}:
		default:
		}
	}, Handler: startFirst(func(context.Context, *worker.ClaimedJob) engine.Outcome {
		<-let
		return succeeded
	})}, time.Minute)
	w.submit(1, time.Hour)
	w.waitForState("running", 1)
	w.clock.Advance(30 * time.Minute)
	want := w.clock.Now().Add(time.Hour)
	testkit.Receive(t, "a heartbeat", stored) // the one that may have been under way
	testkit.Receive(t, "a heartbeat", stored)
	if j, err := w.engine.Get(t.Context(), id("0")); err != nil || !j.LeaseUntil.Equal(want) {
		t.Errorf("FR-174 the lease ends at %v, want %v: %v", j.LeaseUntil, want, err)
	}
	close(let)
	w.waitForState("succeeded", 1)
}

// After a heartbeat that failed others are sent.
func TestHeartbeatsAfterAFailure(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	stored, let := make(chan struct{}), make(chan struct{})
	w.startPool(worker.Config{Slots: 1, HeartbeatInterval: time.Millisecond, OnHeartbeat: func() {
		select {
		case stored <- struct{}{}:
		default:
		}
	}, Handler: startFirst(func(context.Context, *worker.ClaimedJob) engine.Outcome {
		<-let
		return succeeded
	})}, time.Minute)
	w.submit(1, time.Hour)
	w.waitForState("running", 1)
	for range 3 {
		w.store.unavailable.Store(true)
		// the only slot is taken: nothing else is asked
		testkit.Receive(t, "a heartbeat to fail", w.store.failed)
		w.store.unavailable.Store(false)
		testkit.Receive(t, "a heartbeat after one that failed", stored)
	}
	close(let)
	w.waitForState("succeeded", 1)
}

// A job whose lease is shorter than the heartbeats, as these were changed since, is kept alive.
func TestHeartbeatsOfAShortLease(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	stored, let := make(chan struct{}), make(chan struct{})
	w.startPool(worker.Config{HeartbeatInterval: time.Hour,
		OnHeartbeat: func() { stored <- struct{}{} },
		Handler: startFirst(func(context.Context, *worker.ClaimedJob) engine.Outcome {
			<-let
			return succeeded
		})}, time.Minute)
	w.submit(1, 2*time.Second)
	w.waitForState("running", 1)
	testkit.Receive(t, "a heartbeat", stored)
	close(let)
	w.waitForState("succeeded", 1)
}

// TestCanceled: a run whose job is canceled stops at once, and what its handler answers changes
// nothing.
func TestCanceled(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]worker.Config{
		"canceled here":      {HeartbeatInterval: time.Hour},
		"found by heartbeat": {HeartbeatInterval: time.Millisecond, Name: "elsewhere"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			causes := make(chan error, 1)
			c.Handler = startFirst(func(ctx context.Context, _ *worker.ClaimedJob) engine.Outcome {
				<-ctx.Done()
				causes <- context.Cause(ctx)
				return succeeded
			})
			p := w.startPool(c, time.Minute)
			if c.Name == "elsewhere" {
				w.pool.Store(nil)
			}
			w.submit(1, time.Hour)
			w.waitForState("running", 1)
			if _, err := w.engine.Cancel(t.Context(), id("0")); err != nil {
				t.Fatal(err)
			}
			if cause := testkit.Receive(t, "the end of a handler's context",
				causes); cause != worker.ErrLost {
				t.Errorf("the cause is %v", cause)
			}
			p.stop()
			p.wait()
			if p := w.stateHistory("0"); p != " queued assigned running canceled" {
				t.Errorf("FR-135 got %s", p)
			}
			p.Cancel(id("unknown")) // and nothing happens
		})
	}
}

// TestCanceledBeforeStart: a handler whose job was canceled cannot start it.
func TestCanceledBeforeStart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	claimed, let, answers := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	p := w.startPool(worker.Config{Handler: handlerFunc(func(ctx context.Context,
		t *worker.ClaimedJob) engine.Outcome {
		close(claimed)
		<-let
		answers <- t.Start()
		return succeeded
	})}, time.Minute)
	w.submit(1, time.Hour)
	testkit.Receive(t, "a claim", claimed)
	w.pool.Store(nil)
	if _, err := w.engine.Cancel(t.Context(), id("0")); err != nil {
		t.Fatal(err)
	}
	close(let)
	if err := testkit.Receive(t, "an answer", answers); !job.IsKind(err, job.RunLost) {
		t.Errorf("Start answers %v", err)
	}
	p.stop()
	p.wait()
	if got := w.stateHistory("0"); got != " queued assigned canceled" {
		t.Errorf("got %s", got)
	}
}

// TestStoreOutage: start and end of a run are written when the store is back.
func TestStoreOutage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	claimed, let := make(chan struct{}), make(chan struct{})
	w.startPool(worker.Config{Handler: handlerFunc(func(ctx context.Context,
		t *worker.ClaimedJob) engine.Outcome {
		close(claimed)
		<-let
		if err := t.Start(); err != nil {
			w.Errorf("Start answers %v", err)
		}
		w.store.unavailable.Store(true)
		return succeeded
	})}, time.Minute)
	w.submit(1, time.Hour)
	testkit.Receive(t, "a claim", claimed)
	w.store.unavailable.Store(true)
	close(let)
	for range 3 {
		testkit.Receive(t, "a call that the store refuses", w.store.failed)
	}
	w.store.unavailable.Store(false)
	w.waitForState("running", 1)
	for range 3 {
		testkit.Receive(t, "a call that the store refuses", w.store.failed)
	}
	w.store.unavailable.Store(false)
	w.waitForState("succeeded", 1)
	if got := w.stateHistory("0"); got != " queued assigned running succeeded" {
		t.Errorf("got %s", got)
	}
}

// TestLeaseOver: a run whose heartbeats do not get through for its lease stops by itself, whether
// its handler waits or its end cannot be written.
func TestLeaseOver(t *testing.T) {
	t.Parallel()
	t.Run("while it runs", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		causes := make(chan error, 1)
		p := w.startPool(worker.Config{HeartbeatInterval: 5 * time.Millisecond,
			Handler: startFirst(func(ctx context.Context, _ *worker.ClaimedJob) engine.Outcome {
				w.store.unavailable.Store(true)
				<-ctx.Done()
				causes <- context.Cause(ctx)
				return succeeded
			})}, time.Minute)
		w.submit(1, 100*time.Millisecond)
		if cause := testkit.Receive(t, "the end of a handler's context",
			causes); cause != worker.ErrLost {
			t.Errorf("the cause is %v", cause)
		}
		p.stop()
		p.wait()
		w.store.unavailable.Store(false)
		if got := w.state("0"); got != "running" {
			t.Errorf("the job is %s", got)
		}
	})
	t.Run("while its end is written", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		var log bytes.Buffer
		p := w.startPool(worker.Config{Log: slog.New(slog.NewTextHandler(&log,
			&slog.HandlerOptions{Level: slog.LevelDebug})),
			Handler: startFirst(func(context.Context, *worker.ClaimedJob) engine.Outcome {
				w.store.unavailable.Store(true)
				return succeeded
			})}, time.Minute)
		w.submit(1, 100*time.Millisecond)
		w.waitForState("running", 1)
		p.stop()
		p.wait() // ends although the store stays unavailable
		if !strings.Contains(log.String(), "the outcome of a run could not be written") {
			t.Errorf("the log says %s", log.String())
		}
	})
}

// TestClaimsFail: claims are tried again, and only the store logs its outage.
func TestClaimsFail(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var log bytes.Buffer
	w.store.unavailable.Store(true)
	p := w.startPool(worker.Config{Log: slog.New(slog.NewTextHandler(&log, nil)), Workers: 5,
		Handler: startFirst(func(context.Context, *worker.ClaimedJob) engine.Outcome {
			return succeeded
		})}, time.Minute)
	for range 3 {
		testkit.Receive(t, "a call that the store refuses", w.store.failed)
	}
	w.store.unavailable.Store(false)
	w.submit(1, time.Minute)
	w.waitForState("succeeded", 1)
	p.stop()
	p.wait()
	if log.Len() > 0 {
		t.Errorf("the workers log an outage of the store, which logs it itself: %s", log.String())
	}
}

// TestDrain goes through the ways in which a pool stops.
func TestDrain(t *testing.T) {
	t.Parallel()
	let, none := make(chan struct{}), make(chan struct{})
	close(let)
	for _, tt := range []struct {
		name  string
		grace time.Duration
		let   chan struct{} // closed: the work ends by itself
		end   engine.Outcome
		want  string
	}{
		{"the run ends within the grace", time.Minute, let, succeeded,
			" queued assigned running succeeded"},
		{"the run is given back", 0, none, engine.Outcome{}, " queued assigned running queued"},
		{"the handler says how it ended", 0, none, engine.Outcome{On: job.Failed},
			" queued assigned running failed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			stopped := make(chan struct{})
			p := w.startPool(worker.Config{Handler: startFirst(func(ctx context.Context,
				_ *worker.ClaimedJob) engine.Outcome {
				<-stopped
				select {
				case <-tt.let:
				case <-ctx.Done():
					if context.Cause(ctx) != worker.ErrStopping {
						w.Errorf("the cause is %v", context.Cause(ctx))
					}
				}
				return tt.end
			})}, tt.grace)
			w.submit(2, time.Hour)
			w.waitForState("running", 1)
			p.stop()
			close(stopped)
			p.wait()
			if got := w.stateHistory("0"); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
			if got := w.stateHistory("1"); got != " queued" {
				t.Errorf("the end of the last run brought another job: %s", got)
			}
			w.submitMore(t)
		})
	}
}

// submitMore checks that a pool that has stopped claims nothing.
func (w *world) submitMore(t *testing.T) {
	t.Helper()
	if _, err := w.engine.Submit(t.Context(), engine.Unique,
		[]engine.Submission{{Job: job.Job{ID: id("more"), Queue: "q",
			Lease: time.Hour}}}); err != nil {
		t.Fatal(err)
	}
	if got := w.state("more"); got != "queued" {
		t.Errorf("after the stop a job is %s", got)
	}
}

// TestHandlerIgnoresStop: a handler that ignores its context cannot keep a pool from stopping, nor
// its job from others.
func TestHandlerIgnoresStop(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	let, left := make(chan struct{}), make(chan struct{})
	p := w.startPool(worker.Config{Handler: startFirst(func(context.Context,
		*worker.ClaimedJob) engine.Outcome {
		defer close(left)
		<-let
		return succeeded
	})}, 0)
	w.submit(1, time.Hour)
	w.waitForState("running", 1)
	p.stop()
	p.wait()
	if got := w.stateHistory("0"); got != " queued assigned running queued" {
		t.Errorf("got %s", got)
	}
	close(let)
	testkit.Receive(t, "the handler that was left to return", left)
	if got := w.stateHistory("0"); got != " queued assigned running queued" {
		t.Errorf("the outcome of a handler that was left behind counts: %s", got)
	}
}

func TestPanic(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		panicked func(*worker.ClaimedJob, any) engine.Outcome
		want     string
	}{
		"by default": {nil, "panic "},
		"as it is set": {func(_ *worker.ClaimedJob, p any) engine.Outcome {
			return engine.Outcome{On: job.Failed, Reason: "broken", Failure: fmt.Append(nil, p)}
		}, "broken the cause"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			var log bytes.Buffer
			p := w.startPool(worker.Config{OnPanic: tt.panicked,
				Log: slog.New(slog.NewTextHandler(&log, nil)),
				Handler: startFirst(func(context.Context, *worker.ClaimedJob) engine.Outcome {
					panic("the cause")
				})}, time.Minute)
			w.submit(2, time.Minute) // the pool goes on
			w.waitForState("failed", 2)
			p.stop()
			p.wait()
			events, err := w.engine.History(t.Context(), id("0"))
			j, err2 := w.engine.Get(t.Context(), id("0"))
			if err != nil || err2 != nil ||
				events[len(events)-1].Reason+" "+string(j.Failure) != tt.want {
				t.Errorf("got %+v %s, %v %v", events, j.Failure, err, err2)
			}
			if strings.Count(log.String(), "a handler panicked") != 2 ||
				!strings.Contains(log.String(), "worker_test.go") {
				t.Errorf("the log says %s", log.String())
			}
		})
	}
}

func TestNew(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	whole := worker.Config{Engine: w.engine, JobType: "made", Name: "n",
		HeartbeatInterval: time.Second, Handler: startFirst(nil)}
	if _, err := worker.New(whole); err != nil {
		t.Error(err)
	}
	for i, invalidate := range []func(*worker.Config){func(c *worker.Config) {
		c.Engine = nil
	}, func(c *worker.Config) { c.JobType = "" },
		func(c *worker.Config) {
			c.Name = ""
		}, func(c *worker.Config) {
			c.HeartbeatInterval = 0
		}, func(c *worker.Config) { c.Handler = nil },
		func(c *worker.Config) { c.Slots = -1 }, func(c *worker.Config) { c.Workers = -1 }} {
		c := whole
		invalidate(&c)
		if _, err := worker.New(c); err == nil {
			t.Errorf("%d: a config that lacks something is taken", i)
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("MustNew took a config that lacks everything")
		}
	}()
	worker.MustNew(worker.Config{})
}

// A pool may get its jobs in another way than from the queue, such as by their ids.
func TestClaim(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.submit(3, time.Minute)
	wanted := make(chan string, 1)
	wanted <- "1"
	p := w.startPool(worker.Config{Handler: startFirst(func(context.Context,
		*worker.ClaimedJob) engine.Outcome {
		return succeeded
	}),
		Claim: func(ctx context.Context, req engine.ClaimRequest) ([]*job.Job, error) {
			select {
			case key := <-wanted:
				j, err := w.engine.ClaimJob(ctx, id(key), req.Worker)
				return []*job.Job{j}, err
			case <-ctx.Done():
				return nil, nil
			}
		}}, time.Minute)
	w.waitForState("succeeded", 1)
	p.stop()
	p.wait()
	for key, want := range map[string]job.State{"0": "queued", "1": "succeeded", "2": "queued"} {
		if got := w.state(key); got != want {
			t.Errorf("job %s is %s, want %s", key, got, want)
		}
	}
}
